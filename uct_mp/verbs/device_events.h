// Port and device events of one open device, for any number of readers. An event can be taken from the device once
// only, while every interface on it wants to know. So each reader takes all events that are there and counts them for
// all.
//
// Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace ucx_mp::verbs {

class DeviceEvents {
public:
    static constexpr unsigned kMaxPorts = 16;
    // A reader's position; counters that wrap.
    struct Seen {
        std::uint32_t downs = 0, ups = 0, fatal = 0;
        std::uint32_t renewals = 0; // its LID, GID or partition keys may have changed
    };

    DeviceEvents() = default;
    DeviceEvents(const DeviceEvents&) = delete;
    ~DeviceEvents();
    // Sets the device's descriptor to not block: reading asks it, and waits for nothing. False: errno.
    [[nodiscard]] bool start(ibv_context* context);
    // Replaces start(): the device could not be opened, and counts as one that has died.
    void start_dead() { fatal_.store(1, std::memory_order_release); }
    void read();
    // Readable anew whenever somebody has read events; never drained (so: EPOLLET). -1: errno. For those who sleep
    // while others read.
    [[nodiscard]] int told_fd();
    [[nodiscard]] Seen seen(unsigned port) const {
        if (port >= kMaxPorts) return {};
        return {downs_[port].load(std::memory_order_acquire), ups_[port].load(std::memory_order_acquire),
                fatal_.load(std::memory_order_acquire), renewals_[port].load(std::memory_order_acquire)};
    }

    // Queue pairs that have migrated (APM), ever; the numbers of those since a count (which
    // becomes the present one). If more have migrated than are kept, the oldest are missing.
    [[nodiscard]] std::uint32_t migrations() const { return migrations_.load(std::memory_order_acquire); }
    [[nodiscard]] std::vector<std::uint32_t> migrated_since(std::uint32_t& count) const;

private:
    static constexpr std::uint32_t kKept = 4096;
    ibv_context* context_ = nullptr;
    std::mutex reading_;
    std::atomic<int> told_fd_ = -1; // an eventfd, from the first wish on
    std::atomic<std::uint32_t> downs_[kMaxPorts] = {}, ups_[kMaxPorts] = {}, fatal_ = 0, renewals_[kMaxPorts] = {};
    mutable std::mutex keeping_;
    std::deque<std::uint32_t> migrated_; // the latest
    std::atomic<std::uint32_t> migrations_ = 0;
};

} // namespace ucx_mp::verbs
