// Fences: all ranks have come, and their earlier operations are done at both sides, for everybody.
//
// Few ranks tell each other, behind their writes; small puts travel with it (held.cc). A rank that has heard of all is
// through. It may go on before the others are: a third rank's operations on one of them may still be on their way. So
// each tells the others that it is through, and they access its memory only then. Nobody waits for that in the fence
// itself.
//
// Many ranks flush, and then have a barrier.
#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
// The most ranks that tell each other of a fence: over one adapter, and where a flush costs a round trip.
constexpr std::uint32_t kDirect = 5, kDirectOverSeveral = 7;
} // namespace

// Two messages to each other rank against the rounds of a barrier.
bool Window::wants_direct_fences() const { return config_.ranks <= (all_.fences_cost_ ? kDirectOverSeveral : kDirect); }

bool Window::fence() { return direct_ ? fence_with_all() : fence_by_barrier(); }

bool Window::fence_by_barrier() {
    if (!fence_flushed_ && !flushed(MP_ALL_RANKS, false)) return false;
    fence_flushed_ = true;
    if (!barrier()) return false;
    fence_flushed_ = false;
    return true;
}

bool Window::fence_with_all() {
    bool all = true;
    for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
        if (rank == config_.rank)
            all &= !targets_[rank] || target_flushed(*targets_[rank], false);
        else
            all &= fence_with(target(rank));
    }
    if (!all) return false;
    ++fences_;
    for (Target* to : made_) {
        to->done_told = false;
        if (to->rank == config_.rank || config_.ranks == 2) continue; // nobody is a third
        ++to->throughs_due;
        tell(*to, wire::Sync::through);
    }
    return true;
}

// It is told, our operations there are over, and it has told us.
bool Window::fence_with(Target& to) {
    if (to.failed) {
        to.error = MP_FAILED;
        return to.open == 0;
    }
    // Only an answer says whether an operation that the target executes was in its window.
    if (to.executed < to.started && to.asked < to.started) ask_flush(to);
    return tell_over(to, wire::Sync::fence) && to.fences_seen > fences_ && to.executed >= to.started && to.open == 0 &&
           to.messages.empty();
}

} // namespace ucx_mp::glue
