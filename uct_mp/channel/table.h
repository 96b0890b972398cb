// Channels by slot. Either side of Services::lock() adds one (with the lock held) while the data path looks others up
// without it. So the table grows by publishing a larger copy; the old copies stay until the end (all together they are
// smaller than the last). A channel stays where it is until the interface closes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace ucx_mp::channel {

class Channel;

class ChannelTable {
public:
    // Any thread. A slot below size() holds a channel.
    [[nodiscard]] std::uint32_t size() const { return count_.load(std::memory_order_acquire); }
    [[nodiscard]] Channel* operator[](std::uint32_t slot) const { return slots_.load(std::memory_order_relaxed)[slot]; }

    // With the lock held. Returns the slot.
    template <class C> std::uint32_t add(std::unique_ptr<C> channel) {
        const std::uint32_t slot = size();
        if (slot == capacity_) grow();
        slots_.load(std::memory_order_relaxed)[slot] = channel.get();
        owned_.emplace_back(channel.release(), [](void* c) { delete static_cast<C*>(c); });
        count_.store(slot + 1, std::memory_order_release); // after the slot, and after a new copy
        return slot;
    }

    void clear() {
        count_.store(0, std::memory_order_release);
        owned_.clear();
    }

private:
    void grow() {
        const std::uint32_t capacity = capacity_ ? capacity_ * 2 : 64;
        Channel** const copy = copies_.emplace_back(std::make_unique<Channel*[]>(capacity)).get();
        for (std::uint32_t i = 0; i < capacity_; ++i) copy[i] = slots_.load(std::memory_order_relaxed)[i];
        capacity_ = capacity;
        slots_.store(copy, std::memory_order_release);
    }

    std::atomic<std::uint32_t> count_{0};
    std::atomic<Channel**> slots_{nullptr};
    std::uint32_t capacity_ = 0;
    std::vector<std::unique_ptr<Channel*[]>> copies_;
    std::vector<std::unique_ptr<void, void (*)(void*)>> owned_;
};

} // namespace ucx_mp::channel
