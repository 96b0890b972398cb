// The way of one LID through the fabric, like ibtracert.
#pragma once
#include "softhca/image.h"

#include <ostream>
#include <vector>

namespace softhca {

struct Trace {
    enum class End {
        delivered,  // at a port that answers on the LID
        not_cabled, // the source has no cable
        no_route,   // the last switch has no entry for the LID, or one to an empty socket
        wrong_port, // arrived at a port that does not answer on the LID
        loop,       // a switch was met twice
        cable_down, // stopped by the caller's `works`
    };
    End end = End::no_route;
    uint32_t source = kNone; // port
    uint32_t lid = 0;
    std::vector<uint32_t> links; // taken, in order; empty in a crossbar
    uint32_t arrived = kNone;    // port, if delivered or wrong_port
};

// Follows the tables from `source` for the destination LID. `works(link)`, if given, says whether a link can be used
// now.
Trace trace(const FabricImage& image, uint32_t source, uint32_t lid, bool (*works)(uint32_t link, void*) = nullptr,
            void* argument = nullptr);

const char* end_text(Trace::End end);
void print(std::ostream& out, const FabricImage& image, const Trace& trace);

} // namespace softhca
