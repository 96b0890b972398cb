#include "core/lock.h"

#include <unistd.h>

#include <cstdio>

#include "core/clock.h"

namespace softhca {

namespace {
constexpr unsigned kSpins = 200;         // ~ 10 us of pauses: longer than any section whose holder runs
constexpr Nanos kCheckEvery = 2'000'000; // asking for the owner's life costs system calls
constexpr Nanos kSleepAfter = 5'000'000; // a holder of lower priority needs the core
constexpr Nanos kComplainAfter = 10'000'000'000;
} // namespace

bool SharedLock::acquire_slow(uint32_t milliseconds, Taken& how) {
    how = Taken::cleanly;
    for (unsigned spin = 0; spin < kSpins; ++spin) {
        if (word.load(std::memory_order_relaxed) == 0 && try_acquire()) return true;
        cpu_relax();
    }
    const Nanos start = monotonic_now();
    Nanos next_check = start + kCheckEvery / 8; // the first one early: a dead owner is found soon
    bool complained = false;
    for (;;) {
        uint32_t seen = word.load(std::memory_order_relaxed);
        if (seen == 0) {
            if (try_acquire()) return true;
            continue;
        }
        const Nanos now = monotonic_now();
        if (now >= next_check) {
            next_check = now + kCheckEvery;
            // From that exact word only: if anybody else was faster, the word is another one by now.
            if (!lock_owner_alive(seen) && word.compare_exchange_strong(seen, g_lock_word, std::memory_order_acquire)) {
                how = Taken::from_dead;
                return true;
            }
            if (milliseconds != kLongWait && now - start > Nanos{milliseconds} * 1'000'000) return false;
            if (now - start > kComplainAfter && !complained) {
                complained = true;
                std::fprintf(stderr,
                             "softhca: waits for a process (slot %u) that was stopped in the middle of an operation\n",
                             (seen & ((1u << kLockSlotBits) - 1)) - 1);
            }
        }
        if (now - start < kSleepAfter)
            sched_yield();
        else
            usleep(50);
    }
}

} // namespace softhca
