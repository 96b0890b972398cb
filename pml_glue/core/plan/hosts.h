// Collective operations of ranks that share hosts: within a host by its memory, between hosts by one rank of each.
// Pure.
//
//     host 0        host 1        host 2
//     0 <- 1,2      3 <- 4,5      6 <- 7,8     a tree within each host: what all its ranks have comes to the lowest
//       0  <----------> 3 <--------> 6         the lowest ranks, as ranks without hosts do
//     0 -> 1,2      3 -> 4,5      6 -> 7,8     and back
//
// The lowest rank of a host speaks for it, whoever the root of an operation is: so few ranks are connected over the
// network. The tree of the root's host has the root at its top. If that is not who speaks, what comes from other hosts,
// or goes to them, takes one hop more within the host. Reductions gather all contributions, and the operator is applied
// in the order of the ranks: the result does not depend on who shares a host.
//
// Edges: first those of the rounds or the tree between hosts, then those of the tree within a host, upwards. There is
// one downwards, as each rank takes one such part only, and one of the additional hop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pml_glue/core/plan/plan.h"

namespace ucx_mp::glue {

// ns, see rounds.h. `within`: of a message between two ranks of a host.
struct MessageCosts {
    std::uint32_t latency = 0, overhead = 0;
    std::uint32_t within_latency = 0, within_overhead = 0;
};

inline constexpr unsigned kHostEdges = 2 * Rounds::kMostMessages + 2; // from 0 on

struct Hosts {
    // `keys`: of each rank; ranks with the same one share a host. At least two ranks.
    Hosts(std::span<const std::uint64_t> keys, const MessageCosts& costs);
    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(first.size() - 1); }
    [[nodiscard]] std::uint32_t size(std::uint32_t one) const { return first[one + 1] - first[one]; }
    // All whose plans take parts of this rank, whatever the operation and its root. Slow path.
    [[nodiscard]] std::vector<std::uint32_t> takers_of(std::uint32_t rank) const;

    std::vector<std::uint32_t> ranks;    // host by host, in the order of their lowest ranks
    std::vector<std::uint32_t> first;    // place of each host's first in `ranks`; one more
    std::vector<std::uint32_t> host, at; // of each rank: its host, its place among the host's
    Rounds across, within;               // between hosts (if there are several); of the largest host's tree
    bool worth = false;                  // expected to take a tenth more of time than `flat`, at most
    Rounds flat;                         // without hosts; for messages within the host if there is only one
};

// shape.hosts is there. Barrier, bcast, allgather, allreduce, gather, reduce, scatter; more than one host.
void make_plan_by_hosts(const Shape& shape, Plan& out);
// Whether it makes plans for such operations.
[[nodiscard]] constexpr bool uses_hosts(Collective collective) {
    return collective <= Collective::scatter && collective != Collective::halving;
}

} // namespace ucx_mp::glue
