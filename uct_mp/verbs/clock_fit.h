// Maps an adapter's completion clock to the host's (Services::now). It is an affine fit,
// calibrated off the data path, since reading an adapter's clock costs microseconds on hardware.
//
// Threads: the thread that progresses the interface. Error: below the time of one ibv_query_rt_values_ex.
#pragma once

#include <cstdint>

#include "uct_mp/host/services.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

class ClockFit {
public:
    // Slow path: reads both clocks a few times and keeps the closest pair. To be called at open and then every second
    // or so: the slope is refined with the distance of the two latest points. False: the device has no readable clock.
    [[nodiscard]] bool calibrate(const Device& device, Services& services);

    // The arithmetic alone, which calibrate() feeds: `ticks` was read between `before` and `after` (not 0). `nominal`
    // in ns per tick; `bits`: how many of a tick count are valid.
    void add_point(std::uint64_t ticks, Nanos before, Nanos after, double nominal, unsigned bits);

    // Host time of a completion timestamp; wraps of the adapter's counter (valid bits) are followed.
    [[nodiscard]] Nanos to_host(std::uint64_t ticks) const {
        // Signed: a completion may be older than the last calibration.
        const auto delta = static_cast<std::int64_t>((ticks - base_ticks_) << unused_bits_) >> unused_bits_;
        return base_host_ + static_cast<Nanos>(static_cast<std::int64_t>(static_cast<double>(delta) * ns_per_tick_));
    }

private:
    void rebase(std::uint64_t ticks, Nanos host) {
        base_ticks_ = ticks;
        base_host_ = host;
    }
    void anchor(std::uint64_t ticks, Nanos host, Nanos width) {
        anchor_ticks_ = ticks;
        anchor_host_ = host;
        anchor_width_ = width;
    }

    // The latest reading, from which to_host() counts.
    std::uint64_t base_ticks_ = 0;
    Nanos base_host_ = 0;
    double ns_per_tick_ = 1;
    double slope_error_ = 0;   // relative, a bound
    unsigned unused_bits_ = 0; // 64 - valid bits of the counter
    // The reading from which the next slope is measured; 0: not calibrated yet.
    std::uint64_t anchor_ticks_ = 0;
    Nanos anchor_host_ = 0, anchor_width_ = 0;
};

} // namespace ucx_mp::verbs
