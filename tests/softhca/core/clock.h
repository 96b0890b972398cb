// Time. Everything in softhca is in nanoseconds of one host clock; adapter clocks are affine views of it
// (adapter_time()). Real time reads the time stamp counter, scaled to CLOCK_MONOTONIC by factors that the session's
// creator put into the segment, so that all processes of a session agree. Virtual time is a variable that the world
// advances.
#pragma once
#include <atomic>
#include <cstdint>
#include <ctime>

#include "softhca/time.h"

namespace softhca {

// ns = base_ns + (tsc - base_tsc) * mult >> 32; mult == 0: no usable counter, clock_gettime is read instead.
struct TscScale {
    uint64_t base_tsc, base_ns, mult;
};

[[nodiscard]] inline Nanos monotonic_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<Nanos>(t.tv_sec) * 1000000000u + static_cast<Nanos>(t.tv_nsec);
}

[[nodiscard]] inline Nanos scaled_now(const TscScale& s) {
#if defined(__x86_64__)
    if (s.mult != 0) {
        const uint64_t ticks = __builtin_ia32_rdtsc() - s.base_tsc;
        return s.base_ns + static_cast<uint64_t>((static_cast<unsigned __int128>(ticks) * s.mult) >> 32);
    }
#endif
    (void)s;
    return monotonic_now();
}

// Measures the counter against CLOCK_MONOTONIC for ~2 ms; mult 0 where the counter is not invariant.
[[nodiscard]] TscScale calibrate_tsc();

} // namespace softhca
