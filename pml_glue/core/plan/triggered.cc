#include "pml_glue/core/plan/triggered.h"

namespace ucx_mp::glue {

void find_triggered(const Shape& shape, const Plan& plan, std::vector<TriggeredPut>& out) {
    out.clear();
    if (!may_trigger(shape.collective)) return;
    std::uint64_t after = 0;
    for (const Action& action : plan.actions) {
        if (action.what == Action::What::fold || action.what == Action::What::copy) return;
        if (action.what == Action::What::take) after |= std::uint64_t{1} << action.edge;
        if (action.what != Action::What::put) continue;
        Shape theirs = shape;
        theirs.rank = action.partner;
        theirs.triggered = false;
        Plan other;
        make_plan(theirs, other);
        out.push_back({.edge = action.edge,
                       .after = after,
                       .from = action.from,
                       .to = other.actions[other.place_of[action.edge]].to,
                       .count = action.count});
    }
}

} // namespace ucx_mp::glue
