// Locks that live in shared memory and whose holder may be killed at any instruction.
// The word names the owner's process: slot + 1 and the slot's generation, so that a word left behind by a dead process
// is never taken for the next user of its slot. A waiter that spins long asks whether the owner still lives and, if
// not, takes the lock over by compare-and-swap from that exact word: acquire() then returns Taken::from_dead and the
// caller repairs what the lock protects. Not recursive. Holders never block, so waits are bounded by the scheduler (a
// descheduled holder) except for a stopped process; the `process stop` fault therefore stops processes only outside of
// these sections: it looks for words that name the process after stopping it, and lets it go on if it finds one
// (session/stop.cc).
#pragma once
#include <atomic>
#include <cstdint>
#include <sched.h>

namespace softhca {

inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

enum class Taken { cleanly, from_dead };

// Answers whether process slot `slot` is alive; set up by Process::attach (core/process.h). Slow path only: system
// calls.
[[nodiscard]] bool slot_alive(uint32_t slot);
// The same for the owner that a lock word names: false also if its slot has been reused since.
[[nodiscard]] bool lock_owner_alive(uint32_t word);
// The slot of this process, and the word that its threads put into locks. Set by Process::attach*.
extern uint32_t g_self_slot;
extern uint32_t g_lock_word;

inline constexpr uint32_t kLockSlotBits = 11;
inline constexpr uint32_t lock_word(uint32_t slot, uint32_t generation) {
    return (slot + 1) | generation << kLockSlotBits;
}
inline constexpr uint32_t kLongWait = UINT32_MAX;

struct SharedLock {
    std::atomic<uint32_t> word{0}; // 0 free, else lock_word() of the owner

    [[nodiscard]] Taken acquire() {
        uint32_t expected = 0;
        if (word.compare_exchange_strong(expected, g_lock_word, std::memory_order_acquire)) [[likely]]
            return Taken::cleanly;
        Taken how = Taken::cleanly;
        (void)acquire_slow(kLongWait, how);
        return how;
    }
    // False also if a dead process holds it: only acquire() takes over.
    [[nodiscard]] bool try_acquire() {
        uint32_t expected = 0;
        return word.compare_exchange_strong(expected, g_lock_word, std::memory_order_acquire);
    }
    // Gives up after `milliseconds` (a live holder that is stopped); for those who must not wait for anybody (keeper).
    [[nodiscard]] bool acquire_within(uint32_t milliseconds, Taken& how) {
        how = Taken::cleanly;
        return try_acquire() || acquire_slow(milliseconds, how);
    }
    void release() { word.store(0, std::memory_order_release); }

private:
    bool acquire_slow(uint32_t milliseconds, Taken& how);
};

// Process-private spin lock (thread against thread), yields when the holder is descheduled.
struct SpinLock {
    std::atomic<uint32_t> word{0};
    void lock() {
        if (word.exchange(1, std::memory_order_acquire) == 0) [[likely]]
            return;
        for (unsigned spins = 0; word.load(std::memory_order_relaxed) || word.exchange(1, std::memory_order_acquire);)
            if (++spins < 128)
                cpu_relax();
            else
                sched_yield();
    }
    bool try_lock() { return word.exchange(1, std::memory_order_acquire) == 0; }
    void unlock() { word.store(0, std::memory_order_release); }
};

} // namespace softhca
