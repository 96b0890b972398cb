// The progress thread's side of turns (mp_turn.h), and the program's steps when it meets the thread.
//
// tests/unit/host/test_turn.cc explores a model of these steps in every order, with stores that are seen late.
#pragma once

#include <cstdint>
#include <mutex>

#include "uct_mp/host/mp_turn.h"

namespace ucx_mp::turn {

// The words of a turn as two threads see them.
class Words {
public:
    explicit Words(mp_turn_t& turn) : turn_(turn) {}
    // MP_TURN_LOOK is left out.
    [[nodiscard]] std::uint64_t calls() const {
        return __atomic_load_n(&turn_.calls, __ATOMIC_ACQUIRE) & ~MP_TURN_LOOK;
    }
    [[nodiscard]] std::uint32_t attention() const { return __atomic_load_n(&turn_.attention, __ATOMIC_ACQUIRE); }
    // ... and asks the program to look. A call that comes or goes at that moment may take the wish back.
    void set(std::uint32_t bits) {
        __atomic_or_fetch(&turn_.attention, bits, __ATOMIC_SEQ_CST);
        __atomic_or_fetch(&turn_.calls, MP_TURN_LOOK, __ATOMIC_SEQ_CST);
    }
    void clear(std::uint32_t bits) { __atomic_and_fetch(&turn_.attention, ~bits, __ATOMIC_SEQ_CST); }
    // The program's: it is inside, and looks.
    void looks() { __atomic_and_fetch(&turn_.calls, ~MP_TURN_LOOK, __ATOMIC_SEQ_CST); }
    // Every other thread of the process passes a barrier. False: the kernel refuses, so nothing is known of them.
    [[nodiscard]] bool barrier();

private:
    mp_turn_t& turn_;
};

// False: this kernel has no membarrier(2) that does it, so no thread may take turns.
[[nodiscard]] bool can_take_turns();

[[nodiscard]] constexpr bool is_inside(std::uint64_t calls) { return calls & MP_TURN_DEPTH; }

// The thread asks for a turn. True: the program is outside, and waits if it comes. The program may have
// been inside when the thread set TAKEN, and have left since without having seen it: its stores of that
// time need not be visible here. So a call that has come or gone meanwhile refuses the turn, too. If none has, nobody
// has taken the wish back.
[[nodiscard]] inline bool take(Words& words) {
    const std::uint64_t before = words.calls();
    if (is_inside(before)) return false;
    words.set(MP_TURN_TAKEN);
    if (words.barrier() && words.calls() == before) return true;
    words.clear(MP_TURN_TAKEN);
    return false;
}

// The program's next call looks, even if there is no news: only that look makes it see the thread's stores on some
// processors.
inline void give(Words& words) {
    words.set(MP_TURN_NEWS);
    words.clear(MP_TURN_TAKEN);
}

// The program's side, for a scope.
class Inside {
public:
    [[gnu::always_inline]] explicit Inside(mp_turn_t& turn) : turn_(turn) { mp_turn_enter(&turn_); }
    [[gnu::always_inline]] ~Inside() { mp_turn_leave(&turn_); }
    Inside(const Inside&) = delete;

private:
    mp_turn_t& turn_;
};

// Whoever holds it is waited for by a fork(): the child has no such thread, and would find a turn that never ends. Held
// for a turn by the thread that has it. With a lock that turns may need it is tried, never waited for.
[[nodiscard]] std::mutex& forks_wait_for();

} // namespace ucx_mp::turn
