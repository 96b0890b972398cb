// The numbers that the choice of RC, rings and DC depends on, with units. Costs are measured,
// or set by the user: there are no defaults. Names in brackets are those of AQPS (table 2).
#pragma once

#include "uct_mp/host/services.h"

namespace ucx_mp::adapt {

// ns. Latencies are the receiver's saving by one message.
struct Costs {
    double rc = 0;        // [r] by RC instead of DC into the shared receive queue
    double ring = 0;      // [d] by a DC ring instead
    double miss = 0;      // [p] lost by one look at an empty ring
    double credit = 0;    // [c] lost by telling the source that slots are free
    double make_rc = 0;   // [rho] of giving a source RC
    double make_ring = 0; // [delta] of giving it a DC ring
    double turn = 0;      // turning a DC initiator to another target; the part that is known is in `rc`
};

struct Limits {
    unsigned rc = 26;        // [h] sources with RC at a time
    unsigned rings = 256;    // [tau] sources with a ring; 0: it is about RC
    unsigned slots = 16;     // [s] of a ring, 1 or more
    unsigned cold_every = 8; // rings with less than 1/8 of the busiest ring's messages are
                             // looked at every 8th time; 1: all of them every time, as in AQPS
};

struct Tuning {
    Costs costs;
    Limits limits;
    double least_gain = 25;                // [gamma] ns a message: another map must save more
    Nanos interval = 1'000'000'000;        // [u] between two looks; the longest
    Nanos min_interval = 16'000'000;       // while the pattern changes
    static constexpr unsigned kSlices = 8; // of an interval: the resolution of time windows
};

} // namespace ucx_mp::adapt
