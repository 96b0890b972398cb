#include "uct_mp/verbs/clock_fit.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ucx_mp::verbs {
namespace {

constexpr unsigned kReads = 8;
constexpr double kNominalError = 100e-6;    // possible error of an oscillator
constexpr double kGoodSlope = 2e-6;         // relative error of a slope that is good enough to begin the next one
constexpr double kNominalTolerance = 0.001; // of an adapter's frequency, for counting wraps
constexpr double kNominalTrust = 0.01;      // farther off: a clock that was set anew, no slope

struct Sample {
    std::uint64_t ticks = 0;
    Nanos before = 0, after = 0; // the ticks are of a moment in between

    [[nodiscard]] Nanos width() const { return after - before; }
};

// The closest of several readings: the others were interrupted.
std::optional<Sample> read_clocks(const Device& device, Services& services) {
    std::optional<Sample> best;
    for (unsigned i = 0; i < kReads; ++i) {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        const Nanos before = services.now();
        const int error = ibv_query_rt_values_ex(device.context.get(), &values);
        const Nanos after = services.now();
        if (error || !(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK)) return {};
        // The ticks are in tv_nsec, all 64 bits of them; tv_sec has no meaning.
        const Sample sample{static_cast<std::uint64_t>(values.raw_clock.tv_nsec), before, after};
        if (!best || sample.width() < best->width()) best = sample;
    }
    return best;
}

} // namespace

bool ClockFit::calibrate(const Device& device, Services& services) {
    if (!device.has_timestamps) return false;
    const std::optional<Sample> sample = read_clocks(device, services);
    if (!sample) return false;
    add_point(sample->ticks, sample->before, sample->after, device.ns_per_tick, device.timestamp_bits);
    return true;
}

void ClockFit::add_point(std::uint64_t ticks, Nanos before, Nanos after, double nominal, unsigned bits) {
    const Nanos middle = before + (after - before) / 2, width = after - before;
    if (anchor_host_ == 0) {
        unused_bits_ = 64 - std::clamp(bits, 1u, 64u);
        ns_per_tick_ = nominal;
        slope_error_ = kNominalError;
        anchor(ticks, middle, width);
        rebase(ticks, middle);
        return;
    }
    // Ticks since an earlier reading; wraps of the counter are counted with the nominal rate.
    const double range = std::ldexp(1.0, static_cast<int>(64 - unused_bits_));
    const auto elapsed = [&](std::uint64_t earlier, Nanos earlier_host) {
        const auto moved = static_cast<double>(((ticks - earlier) << unused_bits_) >> unused_bits_);
        const double expected = static_cast<double>(middle - earlier_host) / nominal;
        return moved + range * std::max(0.0, std::round((expected - moved) / range));
    };
    const auto distance = static_cast<double>(middle - anchor_host_);
    const double since_anchor = elapsed(anchor_ticks_, anchor_host_);
    const double slope = since_anchor > 0 ? distance / since_anchor : 0;
    const double uncertain = static_cast<double>(width + anchor_width_) / 2;

    if (distance * kNominalTolerance > range * nominal / 2) {
        anchor(ticks, middle, width); // too long ago to count the wraps
        rebase(ticks, middle);
    } else if (std::abs(slope - nominal) > nominal * kNominalTrust && distance > 10 * uncertain) {
        ns_per_tick_ = nominal; // the adapter's clock has jumped (reset): begin anew
        slope_error_ = kNominalError;
        anchor(ticks, middle, width);
        rebase(ticks, middle);
    } else {
        // The fit is better than the middle of a wide reading, as long as it lies within it.
        const double step = std::min(ns_per_tick_ * elapsed(base_ticks_, std::min(base_host_, middle)), 1e18);
        rebase(ticks, std::clamp(base_host_ + static_cast<Nanos>(step), before, after));
        // Points that are close together, or one of them wide, would make the slope worse than the present one.
        const double error = distance > 0 ? uncertain / distance : 1;
        if (error <= std::max(slope_error_, kGoodSlope)) {
            ns_per_tick_ = slope;
            slope_error_ = error;
        }
        // Drift changes with temperature: measure over the latest points once they are far enough apart.
        if (error <= kGoodSlope || width < anchor_width_ / 4) anchor(ticks, middle, width);
    }
}

} // namespace ucx_mp::verbs
