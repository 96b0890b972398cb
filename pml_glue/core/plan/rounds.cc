#include "pml_glue/core/plan/rounds.h"

#include <cassert>

namespace ucx_mp::glue {

namespace {

// The smallest radix of which so many rounds reach so many ranks.
std::uint32_t radix_for(std::uint32_t ranks, unsigned rounds) {
    for (std::uint32_t radix = 2;; ++radix) {
        std::uint64_t reached = 1;
        for (unsigned i = 0; i < rounds && reached < ranks; ++i) reached *= radix;
        if (reached >= ranks) return radix;
    }
}

} // namespace

// With a number of rounds the sum of the radices is smallest if they are nearly the same.
Rounds choose_rounds(std::uint32_t ranks, std::uint32_t latency, std::uint32_t overhead) {
    assert(ranks >= 2 && ranks <= 1u << Rounds::kMost);
    Rounds best;
    std::uint64_t best_cost = UINT64_MAX;
    for (unsigned rounds = Rounds::kMost; rounds > 0; --rounds) {
        Rounds its;
        unsigned messages = 0;
        for (std::uint32_t left = ranks; left > 1 && messages <= Rounds::kMostMessages;) {
            const std::uint32_t radix = radix_for(left, rounds - its.count);
            messages += radix - 1;
            if (messages <= Rounds::kMostMessages) its.radix[its.count++] = static_cast<std::uint8_t>(radix);
            left = (left + radix - 1) / radix;
        }
        if (messages > Rounds::kMostMessages) break; // fewer rounds need more
        const std::uint64_t cost = std::uint64_t{its.count} * latency + std::uint64_t{messages} * overhead;
        if (cost >= best_cost) continue;
        best_cost = cost;
        best = its;
    }
    return best;
}

} // namespace ucx_mp::glue
