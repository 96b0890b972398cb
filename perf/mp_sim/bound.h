// The least time that links need for a job's messages, over the routes that the transport has opened. Processors,
// adapters and latencies are not in it.
#pragma once

#include <vector>

#include "kernel.h"
#include "simulator/cluster.h"

namespace ucx_mp::sim {

// us. A fractional flow: each message may be cut as it likes, and all links know of each other.
struct Bound {
    // All messages of the job together: no policy that chooses among these routes can be faster.
    double at_once = 0;
    // Step by step, if nobody begins a step before all others do: those between two `complete`s. No lower bound of a
    // run: a rank begins its next step when its own operations are complete.
    double in_order = 0;
};

// After Run::connect(). `hosts`: the fabric's node of each rank.
[[nodiscard]] Bound bound_of(Cluster& cluster, const Job& job, const std::vector<unsigned>& hosts);

} // namespace ucx_mp::sim
