// A ring of messages in the receiver's memory, which one source alone writes to: the format of its entries. Pure code.
//
// The entry of message k is number k mod slots. Each message is one write, which ends with the entry:
//
//     | not used ... | message | up to 7 bytes of 0 | tail (8) |
//
// The tail is (length << 32 | sequence number) ^ key. It lies at the same place for messages of any length.
// Only tails are ever written there, so nothing that is left of an earlier message can be taken for one. It is
// the last word of its write. Adapters place a write from its beginning to its end, as is usual for InfiniBand
// (mp_info --check tries it): a reader that sees the tail sees the message. An aligned word is placed at once.
//
// The key is a secret of the two sides, another one for each ring. Words that anybody else
// writes there, or that were written under an earlier ring, do not look like the next message.
//
// See channel/rings.h for the writers. Threads: one at each side.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ucx_mp::link {

inline constexpr unsigned kRingTail = 8;

struct RingShape {
    std::uint32_t slots = 0; // a power of two
    std::uint32_t entry = 0; // bytes of each, a multiple of 64

    static constexpr std::uint32_t kMinSlots = 2, kMaxSlots = 1024, kMinEntry = 64, kMaxEntry = 65536;
    [[nodiscard]] constexpr bool valid() const {
        return std::has_single_bit(slots) && slots >= kMinSlots && slots <= kMaxSlots && entry % 64 == 0 &&
               entry >= kMinEntry && entry <= kMaxEntry;
    }
    [[nodiscard]] constexpr std::size_t bytes() const { return std::size_t{slots} * entry; }
    [[nodiscard]] constexpr std::uint32_t longest() const { return entry - kRingTail; } // message
    // Where the entry of this message ends, from the beginning of the ring.
    [[nodiscard]] constexpr std::size_t end_of(std::uint32_t sequence) const {
        return (std::size_t{sequence & (slots - 1)} + 1) * entry;
    }
    friend bool operator==(const RingShape&, const RingShape&) = default;
};

[[nodiscard]] constexpr std::uint32_t ring_bytes(std::uint32_t length) { return ((length + 7) & ~7u) + kRingTail; }

// Writes the tail behind the message, where there is room for ring_bytes(length) in all. Returns these.
inline std::uint32_t seal_ring_message(std::byte* message, std::uint32_t length, std::uint32_t sequence,
                                       std::uint64_t key) {
    constexpr std::uint64_t kZero = 0;
    std::memcpy(message + length, &kZero, sizeof kZero); // nothing of ours but the message leaves this process
    const std::uint64_t tail = (std::uint64_t{length} << 32 | sequence) ^ key;
    std::byte* const end = message + ((length + 7) & ~7u);
    std::memcpy(end, &tail, sizeof tail);
    return ring_bytes(length);
}

// Clears `memory`: shape.bytes(), aligned to 8. No entry then looks like
// the message that is expected there: each looks like that of another slot.
inline void clear_ring(std::byte* memory, const RingShape& shape, std::uint64_t key) {
    for (std::uint32_t slot = 0; slot < shape.slots; ++slot) {
        const std::uint64_t tail = std::uint64_t{slot + 1} ^ key;
        std::memcpy(memory + shape.end_of(slot) - kRingTail, &tail, sizeof tail);
    }
}

// Wipes words that no holder of the key has written into this slot. True: there was something. `expected`:
// the next message. A message of long ago, whose slot has not been used since, is wiped, too: in the next
// round of all numbers it would be taken for a new one. Called at least once in a quarter of a round.
inline bool wipe_foreign_entry(std::byte* memory, const RingShape& shape, std::uint64_t key, std::uint32_t slot,
                               std::uint32_t expected) {
    const std::atomic_ref tail(*reinterpret_cast<std::uint64_t*>(memory + shape.end_of(slot) - kRingTail));
    const std::uint64_t empty = std::uint64_t{slot + 1} ^ key; // clear_ring()
    std::uint64_t found = tail.load(std::memory_order_relaxed);
    const std::uint64_t told = found ^ key;
    const auto sequence = static_cast<std::uint32_t>(told);
    constexpr std::uint32_t kQuarter = 1u << 30;
    const bool own = (sequence & (shape.slots - 1)) == slot && told >> 32 <= shape.longest() &&
                     static_cast<std::int32_t>(sequence - expected) < static_cast<std::int32_t>(shape.slots);
    const bool is_old = own && expected - sequence >= kQuarter && expected - sequence <= 2 * kQuarter;
    if (found == empty || (own && !is_old)) return false;
    (void)tail.compare_exchange_strong(found, empty); // unless a message comes at this moment
    return !is_old;
}

enum class RingEntry : std::uint8_t {
    none,    // it has not come yet
    message, // whole
    garbled, // written with the key, but no message is so short or so long
};

// Looks for message `sequence`. message: its address and length. All of it has been placed before the tail.
[[nodiscard, gnu::always_inline]] inline RingEntry look_into_ring(std::byte* memory, const RingShape& shape,
                                                                  std::uint64_t key, std::uint32_t sequence,
                                                                  std::uint32_t shortest, std::byte*& message,
                                                                  std::uint32_t& length) {
    std::byte* const end = memory + shape.end_of(sequence) - kRingTail;
    const std::uint64_t tail = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(end)).load(std::memory_order_acquire);
    const std::uint64_t told = tail ^ key;
    if (static_cast<std::uint32_t>(told) != sequence) return RingEntry::none;
    length = static_cast<std::uint32_t>(told >> 32);
    if (length < shortest || length > shape.longest()) [[unlikely]]
        return RingEntry::garbled;
    message = end - ((length + 7) & ~7u);
    return RingEntry::message;
}

} // namespace ucx_mp::link
