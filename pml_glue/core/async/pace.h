// When the progress thread looks at the program, and when it asks for a turn. Pure: no clock, no system call.
//
// A call of MPI that returns tells nobody: that would be a system call each time. So the thread looks now and then
// whether the program has been outside since its last look. A program that calls often is looked at less often.
#pragma once

#include <algorithm>
#include <cstdint>

#include "uct_mp/host/turn.h"

namespace ucx_mp::glue::async {

// ns.
struct Times {
    // A program that stays outside is noticed after this, to twice the latest.
    std::uint64_t soonest, latest;
    // Between two turns while the program stays outside and no event comes. Recovery's timers run in turns, too, so a
    // lost message goes again this late at most.
    std::uint64_t outside;
    // The same if some transport has no events (shared memory).
    std::uint64_t polled;
    std::uint64_t gap; // time from the end of a turn to the next one, at least
};
// The thread has a processor of its own.
constexpr Times kSpare{
    .soonest = 250'000, .latest = 2'000'000, .outside = 20'000'000, .polled = 1'000'000, .gap = 20'000};
// The thread uses the program's processor: a turn of MP_TURN_SLICE at most, and then not for a while, so that
// operations that others wait for go on. In hpcc with eight ranks on two processors it took 0.1 % of their time.
constexpr Times kShared{
    .soonest = 10'000'000, .latest = 10'000'000, .outside = 20'000'000, .polled = 10'000'000, .gap = 1'000'000};

class Pace {
public:
    explicit Pace(const Times& times) : times_(times), wait_(times.soonest) {}
    // Looks at mp_turn_t::calls. True: the program has been outside since the last look.
    [[nodiscard]] bool outside(std::uint64_t calls) {
        const bool same = calls == seen_ && !turn::is_inside(calls);
        if (!same) wait_ = std::min(outside_ ? times_.soonest : 2 * wait_, times_.latest);
        seen_ = calls;
        outside_ = same;
        return same;
    }
    // Until the next look at a program that is not outside.
    [[nodiscard]] std::uint64_t wait() const { return wait_; }
    // Until the next turn beside a program that is outside.
    [[nodiscard]] std::uint64_t idle(bool all_wake) const { return all_wake ? times_.outside : times_.polled; }
    [[nodiscard]] std::uint64_t gap() const { return times_.gap; }

private:
    const Times times_;
    std::uint64_t seen_ = UINT64_MAX, wait_;
    bool outside_ = false;
};

} // namespace ucx_mp::glue::async
