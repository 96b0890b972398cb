// Channels by slot. Ownership: the table owns them.
//
// Threads: both the interface's and the handshake's thread add channels, with the lock held, while the data path looks
// others up without it. So the table grows by publishing a larger copy. The old copies stay until the end; together
// they are smaller than the last one.
//
// A channel keeps its slot until the thread that progresses removes it, with the lock held. The slot then holds
// `nobody`, a channel that no id matches. Slots are used again, the one that has been free for longest first. The new
// channel's id has another generation, so late messages for the old one find no channel.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "uct_mp/channel/wire.h"

namespace ucx_mp::channel {

class Channel;

class ChannelTable {
public:
    static constexpr std::uint32_t kMaxSlots = kSlotMask; // the last number is no channel's

    explicit ChannelTable(Channel& nobody) : nobody_(nobody) {}

    // Any thread. A slot below size() holds a channel, or `nobody`.
    [[nodiscard]] std::uint32_t size() const { return count_.load(std::memory_order_acquire); }
    [[nodiscard]] Channel* operator[](std::uint32_t slot) const {
        return slots_.load(std::memory_order_relaxed)[slot].load(std::memory_order_acquire);
    }
    [[nodiscard]] bool is_free(std::uint32_t slot) const { return (*this)[slot] == &nobody_; }

    // The functions below need the lock.
    // The id for the channel that is added next; `random` gives the first generation of a new slot. False: the table is
    // full.
    [[nodiscard]] bool next_id(std::uint32_t random, std::uint32_t& id) {
        const std::uint32_t slot = next_slot();
        if (slot >= kMaxSlots) return false;
        if (slot == generations_.size()) generations_.push_back(random);
        id = slot | generations_[slot] << kSlotBits;
        return true;
    }
    // The id with another generation, for a channel that keeps its slot.
    [[nodiscard]] std::uint32_t renew_id(std::uint32_t id) {
        const std::uint32_t slot = id & kSlotMask;
        return slot | ++generations_[slot] << kSlotBits;
    }
    template <class C> void add(std::unique_ptr<C> channel) {
        const std::uint32_t slot = next_slot();
        if (slot == capacity_) grow();
        slots_.load(std::memory_order_relaxed)[slot].store(channel.get(), std::memory_order_release);
        Owned owned(channel.release(), [](void* c) { delete static_cast<C*>(c); });
        if (slot == owned_.size()) {
            owned_.push_back(std::move(owned));
            count_.store(slot + 1, std::memory_order_release); // after the slot, and after a new copy
        } else {
            owned_[slot] = std::move(owned);
            free_.pop_front();
        }
    }
    void remove(std::uint32_t slot) {
        slots_.load(std::memory_order_relaxed)[slot].store(&nobody_, std::memory_order_release);
        owned_[slot].reset();
        ++generations_[slot];
        free_.push_back(slot);
    }

    void clear() {
        count_.store(0, std::memory_order_release);
        owned_.clear();
        free_.clear();
        generations_.clear();
    }

private:
    using Slot = std::atomic<Channel*>;
    using Owned = std::unique_ptr<void, void (*)(void*)>;

    [[nodiscard]] std::uint32_t next_slot() const { return free_.empty() ? size() : free_.front(); }
    void grow() {
        const std::uint32_t capacity = capacity_ ? capacity_ * 2 : 64;
        Slot* const copy = copies_.emplace_back(std::make_unique<Slot[]>(capacity)).get();
        for (std::uint32_t i = 0; i < capacity_; ++i) copy[i].store((*this)[i], std::memory_order_relaxed);
        capacity_ = capacity;
        slots_.store(copy, std::memory_order_release);
    }

    Channel& nobody_;
    std::atomic<std::uint32_t> count_{0};
    std::atomic<Slot*> slots_{nullptr};
    std::uint32_t capacity_ = 0;
    std::vector<std::unique_ptr<Slot[]>> copies_;
    std::vector<Owned> owned_;
    std::vector<std::uint32_t> generations_; // by slot: of the channel in it, or of the next one
    std::deque<std::uint32_t> free_;
};

} // namespace ucx_mp::channel
