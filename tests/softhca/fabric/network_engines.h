// Send engines of adapter ports: which sources have something to send, in turn. Both network models pull chunks from
// them. A queue pair is bound to engine qpn % AdapterLimits::engines_per_port of its port; without such a limit every
// source that is active has one of its own.
#pragma once
#include <memory>
#include <vector>

#include "fabric/network.h"

namespace softhca {

struct SendEngine {
    Source *first = nullptr, *last = nullptr; // ready sources
    SendEngine* next = nullptr;               // free list
    uint32_t port = kNone;
    bool busy = false;    // a pull event is on its way, or a chunk is between pull and link
    bool own = false;     // belongs to one source
    Nanos free_at = 0;    // no pull before
    Nanos fetched_at = 0; // its last fetch ends (virtual time)

    void append(Source& s) {
        s.net_next = nullptr;
        (last ? last->net_next : first) = &s;
        last = &s;
    }
    // The source whose turn it is, out of the list; nullptr: nobody has anything.
    Source* take() {
        Source* const s = first;
        if (!s) return nullptr;
        first = s->net_next;
        if (!first) last = nullptr;
        return s;
    }
};

class SendEngines {
public:
    explicit SendEngines(const FabricImage& image) : image_(image), bound_(image.ports) {}
    // The engine of a source, which keeps it while it is active.
    SendEngine& of(Source& s);
    // The source, which is not in the list, has nothing more to send. True: the engine was its own and is gone.
    bool leave(SendEngine& e, Source& s);

private:
    const FabricImage& image_;
    std::vector<std::vector<SendEngine*>> bound_; // by port
    SendEngine* free_ = nullptr;
    std::vector<std::unique_ptr<SendEngine>> all_;
};

} // namespace softhca
