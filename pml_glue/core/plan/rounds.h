// How many messages each round of a dissemination has. Pure.
//
// In a round of radix k each rank sends k - 1 messages, and knows of k times as many others when it has theirs. A round
// costs the way of a message (latency), each message the processors that send and take it (overhead; L and o of LogP).
// The messages of a round are under way together. So few rounds of many messages are best where the way is long.
// Source: n-way dissemination, T. Hoefler, T. Mehlan, F. Mietke, W. Rehm, Fast Barrier Synchronization for InfiniBand,
// 2006.
#pragma once

#include <cstdint>

namespace ucx_mp::glue {

// The messages of round j go to rank + i * distance (modulo the ranks), i from 1 to radix[j] - 1. Those whose distance
// is not below the number of ranks are left out. `distance` is the product of the radices before.
struct Rounds {
    static constexpr unsigned kMost = 20;         // ranks of a communicator: 2^20
    static constexpr unsigned kMostMessages = 22; // of a rank, in all rounds
    std::uint8_t count = 0;
    std::uint8_t radix[kMost] = {};
};

// The cheapest ones for 2 to 2^20 ranks: count * latency + messages * overhead (ns). If
// several cost the same: those with fewer messages. Without latency: rounds of one message each, of which no other
// needs fewer.
[[nodiscard]] Rounds choose_rounds(std::uint32_t ranks, std::uint32_t latency, std::uint32_t overhead);

// The cost of rounds, as above.
[[nodiscard]] inline std::uint64_t cost_of(const Rounds& rounds, std::uint32_t latency, std::uint32_t overhead) {
    std::uint64_t cost = std::uint64_t{rounds.count} * latency;
    for (unsigned i = 0; i < rounds.count; ++i) cost += (rounds.radix[i] - 1u) * std::uint64_t{overhead};
    return cost;
}

} // namespace ucx_mp::glue
