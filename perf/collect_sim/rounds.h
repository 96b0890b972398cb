// Algorithms of coll/tuned and libnbc (Open MPI 4.1) as rounds of messages: what a rank sends and receives before it
// goes on. Pure.
#pragma once

#include <string>
#include <vector>

namespace ucx_mp::collect_sim {

struct Round {
    std::vector<unsigned> to, from;
};
using Rounds = std::vector<Round>; // of a rank

// "linear", "doubling" (recursive), "bruck", "tree" (up and down): barriers. "reduce-bcast": binomial trees.
// Throws std::runtime_error for another name.
[[nodiscard]] Rounds rounds_of(const std::string& algorithm, unsigned ranks, unsigned rank);
// What coll/tuned takes by itself on so many ranks.
[[nodiscard]] std::string tuned_barrier(unsigned ranks);
[[nodiscard]] std::string tuned_allreduce(unsigned ranks); // of 8 bytes

} // namespace ucx_mp::collect_sim
