// Port and device events of one open device, for any number of readers: an event can be taken from the device once only,
// while every interface on it wants to know. Whoever looks takes what is there and counts it for all.
//
// Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ucx_mp::verbs {

class DeviceEvents {
public:
    static constexpr unsigned kMaxPorts = 16;
    // What a reader has seen so far; counters that wrap.
    struct Seen {
        std::uint32_t downs = 0, ups = 0, fatal = 0;
    };

    // The device's descriptor is set to not block: reading asks it, and waits for nothing. False: errno.
    [[nodiscard]] bool start(ibv_context* context);
    void read();
    [[nodiscard]] Seen seen(unsigned port) const {
        if (port >= kMaxPorts) return {};
        return {downs_[port].load(std::memory_order_acquire), ups_[port].load(std::memory_order_acquire),
                fatal_.load(std::memory_order_acquire)};
    }

private:
    ibv_context* context_ = nullptr;
    std::mutex reading_;
    std::atomic<std::uint32_t> downs_[kMaxPorts] = {}, ups_[kMaxPorts] = {}, fatal_ = 0;
};

} // namespace ucx_mp::verbs
