// The protocol for each size, by the network's own estimates (port.h: Costs). Pure.
#pragma once

#include <algorithm>
#include <cstddef>

#include "pml_glue/core/port.h"

namespace ucx_mp::glue {

// Bytes. Messages of up to `eager` are sent unasked, in several pieces if one is too short. From
// `zero_copy` on they leave from the program's memory, which it has back when the adapter is done.
struct Sizes {
    std::size_t eager = 0, zero_copy = SIZE_MAX;
};
struct Thresholds {
    Sizes other;   // for calls that do not wait
    Sizes waiting; // for calls that wait: they may return when the data is copied
};

// The largest message that is sent unasked: the receiver has to keep it.
inline constexpr std::size_t kMostUnasked = std::size_t{256} << 10;

// A message in pieces costs both processors something per piece, and a copy at either side, or at the
// receiver alone. A rendezvous costs the request and the way there and back of the read; a caller that waits
// also pays the way of the answer. Both send the same bytes over the wire. `piece`: bytes of data in one.
[[nodiscard]] inline Thresholds thresholds(const Costs& costs, std::size_t piece, bool readable) {
    // An operation that is completed later costs its completion, too.
    const double spared = costs.registration + costs.message;
    const std::size_t zero_copy = costs.copy > 0 ? static_cast<std::size_t>(spared / costs.copy) + 1 : SIZE_MAX;
    if (!readable) // a rendezvous copies as well, and asks before
        return {.other = {.eager = kMostUnasked, .zero_copy = zero_copy}, .waiting = {.eager = kMostUnasked}};
    const double rendezvous = 2 * costs.registration + 2 * costs.message + costs.move + 2 * costs.move_latency;
    const double answer = 2 * costs.message + costs.latency;
    const auto most = [&](double fixed, int copies) {
        const double per_byte =
            copies * costs.copy + costs.byte - costs.move_byte + 2 * costs.message / static_cast<double>(piece);
        // No estimate, or pieces cost nothing: but messages that are sent unasked have to be kept.
        if (fixed <= 0) return piece;
        if (per_byte <= 0 || fixed / per_byte > static_cast<double>(kMostUnasked)) return kMostUnasked;
        return std::max(piece, static_cast<std::size_t>(fixed / per_byte));
    };
    return {.other = {.eager = std::max(most(rendezvous - spared, 1), most(rendezvous, 2)), .zero_copy = zero_copy},
            .waiting = {.eager = most(rendezvous + answer, 2)}};
}

} // namespace ucx_mp::glue
