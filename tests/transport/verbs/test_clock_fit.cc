// The fit between an adapter's clock and the host's: offset, slope, wraps, bad readings.
#define BOOST_TEST_MODULE clock_fit
#include "uct_mp/verbs/clock_fit.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

using namespace ucx_mp;
using verbs::ClockFit;

namespace {

constexpr Nanos kMs = 1'000'000, kSecond = 1'000'000'000;

// An adapter: `tick` ns per tick in truth, a counter of `bits` bits.
struct Counter {
    double tick = 1;
    unsigned bits = 64;
    uint64_t start = 0;
    [[nodiscard]] uint64_t at(Nanos host) const {
        const auto ticks = start + static_cast<uint64_t>(static_cast<double>(host) / tick);
        return bits == 64 ? ticks : ticks & ((uint64_t{1} << bits) - 1);
    }
};

double error(const ClockFit& fit, const Counter& counter, Nanos host) {
    return static_cast<double>(static_cast<int64_t>(fit.to_host(counter.at(host)) - host));
}

void calibrate(ClockFit& fit, const Counter& counter, Nanos host, double nominal, Nanos width = 0) {
    fit.add_point(counter.at(host), host - width / 2, host + width / 2, nominal, counter.bits);
}

} // namespace

BOOST_AUTO_TEST_CASE(one_point_uses_the_nominal_rate) {
    const Counter counter{.tick = 6.4, .start = 123456789};
    ClockFit fit;
    calibrate(fit, counter, 5 * kSecond, 6.4);
    BOOST_TEST(std::abs(error(fit, counter, 5 * kSecond + 100 * kMs)) < 20);
    BOOST_TEST(std::abs(error(fit, counter, 5 * kSecond - 100 * kMs)) < 20); // older than the calibration
}

BOOST_AUTO_TEST_CASE(the_slope_is_learned) {
    const Counter counter{.tick = 1.0001}; // 100 ppm from nominal
    ClockFit fit;
    calibrate(fit, counter, kSecond, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 2 * kSecond)) > 50'000); // not known yet
    calibrate(fit, counter, 2 * kSecond, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 3 * kSecond)) < 100);
    BOOST_TEST(std::abs(error(fit, counter, 1900 * kMs)) < 100);
}

// Counters of 32 to 63 bits that wrap between calibrations, or between a completion and the calibration.
BOOST_AUTO_TEST_CASE(wraps_are_followed) {
    for (const unsigned bits : {32u, 33u, 40u, 48u, 63u}) {
        const uint64_t last = (uint64_t{1} << bits) - 1;
        const Counter counter{.tick = 1.00002, .bits = bits, .start = last - 2 * kSecond};
        ClockFit fit;
        for (Nanos t = kSecond; t < 40 * kSecond; t += kSecond) {
            calibrate(fit, counter, t, 1.0);
            if (t == kSecond) continue;
            for (const Nanos at : {t - 500 * kMs, t - 1, t, t + 1, t + 900 * kMs}) {
                const double wrong = error(fit, counter, at);
                BOOST_REQUIRE_MESSAGE(std::abs(wrong) < 200, bits << " bits at " << at << ": off by " << wrong);
            }
        }
    }
}

// Several wraps between two calibrations are counted.
BOOST_AUTO_TEST_CASE(wraps_between_calibrations) {
    const Counter counter{.tick = 1.00008, .bits = 32};
    ClockFit fit;
    for (Nanos t = kSecond; t <= 100 * kSecond; t += 11 * kSecond) calibrate(fit, counter, t, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 101 * kSecond)) < 1000); // 80 us without a slope
}

// A pause of many wraps between two calibrations: the offset is right again at once, the slope is not spoiled.
BOOST_AUTO_TEST_CASE(a_long_pause_does_not_spoil_the_slope) {
    const Counter counter{.tick = 1.0003, .bits = 32};
    ClockFit fit;
    calibrate(fit, counter, kSecond, 1.0);
    calibrate(fit, counter, 2 * kSecond, 1.0);
    for (const Nanos t : {3600 * kSecond, 360000 * kSecond}) {
        calibrate(fit, counter, t, 1.0);
        BOOST_TEST(std::abs(error(fit, counter, t)) < 10);
        BOOST_TEST(std::abs(error(fit, counter, t + kSecond)) < 100);
    }
}

// Readings with microseconds of doubt: the error stays below that of the reading, and close points spoil nothing.
BOOST_AUTO_TEST_CASE(wide_readings_stay_within_their_width) {
    const Counter counter{.tick = 1.00005, .bits = 63, .start = 99};
    std::mt19937 random(3);
    ClockFit fit;
    double worst = 0;
    for (Nanos t = kSecond; t < 30 * kSecond;) {
        const Nanos width = random() % 10 == 0 ? 200'000 : 2'000; // now and then the thread was interrupted
        const Nanos before = t - random() % width;
        fit.add_point(counter.at(t), before, before + width, 1.0, counter.bits);
        if (t > 5 * kSecond)
            for (const Nanos at : {t, t + 900 * kMs}) worst = std::max(worst, std::abs(error(fit, counter, at)));
        t += random() % 3 == 0 ? kMs : kSecond;
    }
    BOOST_TEST(worst < 10'000); // 200 us readings come in, microseconds come out
}

BOOST_AUTO_TEST_CASE(a_reset_adapter_begins_anew) {
    Counter counter{.tick = 1.0, .bits = 63, .start = 50 * kSecond};
    ClockFit fit;
    for (Nanos t = kSecond; t < 5 * kSecond; t += kSecond) calibrate(fit, counter, t, 1.0);
    counter.start = 0;
    calibrate(fit, counter, 6 * kSecond, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 6 * kSecond + 500 * kMs)) < 10);
    calibrate(fit, counter, 7 * kSecond, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 8 * kSecond)) < 10);
}

BOOST_AUTO_TEST_CASE(the_same_moment_twice) {
    const Counter counter{.tick = 1.0};
    ClockFit fit;
    calibrate(fit, counter, kSecond, 1.0);
    calibrate(fit, counter, kSecond, 1.0);
    BOOST_TEST(std::abs(error(fit, counter, 2 * kSecond)) < 10);
}
