// Puts of a plan that need no processor: what they send is there when words are, one of each take before them. So an
// adapter can do them (core/task_port.h). Pure.
#pragma once

#include "pml_glue/core/plan/plan.h"

namespace ucx_mp::glue {

struct TriggeredPut {
    std::uint8_t edge = 0;                     // the out-edge, to rank + 2^edge
    std::uint64_t after = 0;                   // edges whose takes come first
    std::uint32_t from = 0, to = 0, count = 0; // blocks; `to` at the partner, where its take has its place
};

// Operations whose puts go along the out-edges, and whose memory is as large as the caller's blocks.
[[nodiscard]] constexpr bool may_trigger(Collective collective) {
    return collective == Collective::barrier || collective == Collective::bcast ||
           collective == Collective::allgather || collective == Collective::allreduce ||
           collective == Collective::scatter;
}

// The puts of a plan of make_plan() before its first fold or copy, in its order; none for other collectives.
void find_triggered(const Shape& shape, const Plan& plan, std::vector<TriggeredPut>& out);

} // namespace ucx_mp::glue
