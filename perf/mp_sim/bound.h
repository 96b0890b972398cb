// The least time that a job's messages need: of links, over the routes that the transport has opened and at the rates
// that they have now, and of processors. Adapters and latencies are not in it.
#pragma once

#include <vector>

#include "simulator/cluster.h"
#include "transport_run.h"

namespace ucx_mp::sim {

// us. A fractional flow: each message may be cut as it likes, and all links know of each other.
struct Bound {
    // All messages of the job together: no policy that chooses among these routes can be faster.
    double at_once = 0;
    // Step by step, if nobody begins a step before all others do: those between two `complete`s. No lower bound of a
    // run: a rank begins its next step when its own operations are complete.
    double in_order = 0;
    // What the busiest process spends if it posts and collects nothing twice: a message, write or read is one request,
    // what it moves by rendezvous one more, with a completion. What is cut into pieces costs more.
    double processors = 0;
};

// After Run::connect(). `hosts`: the fabric's node of each rank. `eager`: Run::eager().
[[nodiscard]] Bound bound_of(Cluster& cluster, const Job& job, const std::vector<unsigned>& hosts, std::uint64_t eager,
                             Rendezvous rendezvous);

} // namespace ucx_mp::sim
