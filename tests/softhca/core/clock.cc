#include "core/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace softhca {

#if defined(__x86_64__)
namespace {

// Invariant counter, and the kernel has not found it unstable or out of step between cores.
bool tsc_usable() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & (1u << 8))) return false;
    const int fd = open("/sys/devices/system/clocksource/clocksource0/available_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char text[256];
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    return std::strstr(text, "tsc") != nullptr;
}

struct Sample {
    uint64_t tsc, ns;
};

// The pair with the least time between its two counter reads out of a few: an interrupt in between spoils a sample.
Sample sample() {
    Sample best{};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 16; ++i) {
        const uint64_t before = __builtin_ia32_rdtsc();
        const uint64_t ns = monotonic_now();
        const uint64_t after = __builtin_ia32_rdtsc();
        if (after - before >= least) continue;
        least = after - before;
        best = {before + (after - before) / 2, ns};
    }
    return best;
}

} // namespace
#endif

TscScale calibrate_tsc() {
#if defined(__x86_64__)
    if (tsc_usable()) {
        const Sample first = sample();
        const timespec pause{0, 2'000'000};
        nanosleep(&pause, nullptr);
        const Sample second = sample();
        if (second.tsc > first.tsc && second.ns > first.ns) {
            const auto scaled = static_cast<unsigned __int128>(second.ns - first.ns) << 32;
            return {first.tsc, first.ns, static_cast<uint64_t>(scaled / (second.tsc - first.tsc))};
        }
    }
#endif
    return {};
}

} // namespace softhca
