// The entries of a ring: wrapping, lengths, what is left of earlier messages, what is there by half, what is forged.
#define BOOST_TEST_MODULE unit_ring
#include <boost/test/unit_test.hpp>

#include <random>
#include <vector>

#include "uct_mp/link/ring.h"

using namespace ucx_mp::link;

namespace {

constexpr std::uint64_t kKey = 0x123456789abcdef0;
constexpr std::uint32_t kShortest = 16;

// Both sides of one ring.
struct Ring {
    explicit Ring(RingShape of, std::uint64_t with = kKey) : shape(of), key(with), memory(of.bytes() / 8) {
        BOOST_REQUIRE(shape.valid());
        clear_ring(bytes(), shape, key);
    }
    std::byte* bytes() { return reinterpret_cast<std::byte*>(memory.data()); }
    static std::byte content(std::uint32_t sequence, std::uint32_t at) { return std::byte(sequence * 31 + at * 7 + 1); }
    // The first `placed` bytes of the write (all by default).
    void write(std::uint32_t sequence, std::uint32_t length, std::uint32_t placed = ~0u) {
        std::vector<std::byte> message(ring_bytes(length) + 8, std::byte{0xee});
        for (std::uint32_t i = 0; i < length; ++i) message[i] = content(sequence, i);
        const std::uint32_t all = seal_ring_message(message.data(), length, sequence, key);
        BOOST_TEST(all == ring_bytes(length));
        for (std::uint32_t i = length; i < all - kRingTail; ++i) BOOST_TEST(int(message[i]) == 0);
        BOOST_TEST(int(message[all]) == 0xee);
        std::memcpy(bytes() + shape.end_of(sequence) - all, message.data(), std::min(all, placed));
    }
    RingEntry look(std::uint32_t sequence) {
        return look_into_ring(bytes(), shape, key, sequence, kShortest, message, length);
    }
    bool takes(std::uint32_t sequence, std::uint32_t wanted) {
        if (look(sequence) != RingEntry::message || length != wanted) return false;
        if (message < bytes() || message + length > bytes() + shape.bytes() - kRingTail) return false;
        if (reinterpret_cast<std::uintptr_t>(message) % 8) return false;
        for (std::uint32_t i = 0; i < length; ++i)
            if (message[i] != content(sequence, i)) return false;
        return true;
    }
    void set_tail(std::uint32_t sequence, std::uint64_t tail) {
        std::memcpy(bytes() + shape.end_of(sequence) - kRingTail, &tail, sizeof tail);
    }

    RingShape shape;
    std::uint64_t key;
    std::vector<std::uint64_t> memory;
    std::byte* message = nullptr;
    std::uint32_t length = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(shapes) {
    for (const RingShape bad :
         {RingShape{0, 64}, {1, 64}, {3, 64}, {2048, 64}, {16, 0}, {16, 32}, {16, 100}, {16, 65600}})
        BOOST_TEST(!bad.valid());
    for (const RingShape good : {RingShape{2, 64}, {16, 4096}, {1024, 65536}}) BOOST_TEST(good.valid());
}

// Any lengths, one after the other, over the end of the numbers: the message before is never taken for the next one.
BOOST_AUTO_TEST_CASE(wraps) {
    Ring ring({16, 256});
    std::mt19937 random(1);
    for (std::uint32_t i = 0; i < 4096; ++i) {
        const std::uint32_t sequence = 0xfffff800u + i, length = kShortest + random() % (256 - 8 - kShortest + 1);
        BOOST_REQUIRE((ring.look(sequence) == RingEntry::none));
        ring.write(sequence, length);
        BOOST_REQUIRE(ring.takes(sequence, length));
        BOOST_REQUIRE((ring.look(sequence + 1) == RingEntry::none));
        BOOST_REQUIRE((ring.look(sequence + 16) == RingEntry::none));
    }
}

// All slots are full, and each is what it is; the slots of messages that came by other ways stay empty.
BOOST_AUTO_TEST_CASE(full_and_skipped) {
    Ring ring({8, 128});
    for (std::uint32_t i = 0; i < 8; ++i) ring.write(100 + i, 120 - i);
    for (std::uint32_t i = 0; i < 8; ++i) BOOST_TEST(ring.takes(100 + i, 120 - i));
    for (std::uint32_t i = 0; i < 8; i += 2) ring.write(108 + i, 32);
    for (std::uint32_t i = 0; i < 8; ++i)
        BOOST_TEST((ring.look(108 + i) == (i % 2 ? RingEntry::none : RingEntry::message)));
}

// Any part of a write, from its beginning, is not a message, whatever was there before.
BOOST_AUTO_TEST_CASE(torn) {
    for (const std::uint32_t before : {0u, 16u, 17u, 100u, 248u}) {
        for (const std::uint32_t length : {16u, 23u, 24u, 64u, 200u, 248u}) {
            Ring ring({4, 256});
            if (before) ring.write(3, before);
            for (std::uint32_t placed = 0; placed < ring_bytes(length); ++placed) {
                ring.write(7, length, placed);
                // The words of the tail are compared as a whole; an adapter places them at once.
                if (placed > ring_bytes(length) - kRingTail) continue;
                BOOST_REQUIRE((ring.look(7) == RingEntry::none));
            }
            ring.write(7, length);
            BOOST_TEST(ring.takes(7, length));
        }
    }
}

// An empty ring has no message, whatever key and number; memory of zeros would have one for some key.
BOOST_AUTO_TEST_CASE(empty) {
    std::mt19937_64 random(2);
    for (unsigned i = 0; i < 20'000; ++i) {
        Ring ring({4, 64}, random());
        for (unsigned slot = 0; slot < 4; ++slot) {
            const auto low = static_cast<std::uint32_t>(ring.key);
            BOOST_REQUIRE((ring.look(low - low % 4 + slot) == RingEntry::none));
            BOOST_REQUIRE((ring.look(slot) == RingEntry::none));
        }
    }
}

// Lengths that no message has, from somebody who knows the key; and anything from somebody who does not.
BOOST_AUTO_TEST_CASE(forged) {
    Ring ring({16, 256});
    for (const std::uint32_t length : {0u, 1u, 15u, 249u, 256u, 4096u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
        ring.set_tail(5, (std::uint64_t{length} << 32 | 5) ^ kKey);
        BOOST_TEST((ring.look(5) == RingEntry::garbled));
    }
    std::mt19937_64 random(3);
    for (unsigned i = 0; i < 100'000; ++i) {
        ring.set_tail(5, i < 1000 ? std::uint64_t{i % 300} << 32 | 5 : random());
        BOOST_REQUIRE((ring.look(5) == RingEntry::none));
    }
    // A ring before this one, in the same memory.
    Ring other({16, 256}, ~kKey);
    other.write(5, 40);
    ring.memory = other.memory;
    BOOST_TEST((ring.look(5) == RingEntry::none));
}

// A slot that has not been used for long: in the next round of all numbers its message would be a new one.
BOOST_AUTO_TEST_CASE(what_is_left_of_a_round_before) {
    constexpr std::uint32_t kQuarter = 1u << 30;
    for (const std::uint32_t sequence : {5u, 0x7ffffff5u, 0xfffffff5u})
        for (const std::uint32_t age : {1u, kQuarter - 1, kQuarter, kQuarter + 100, 2 * kQuarter - 1, 2 * kQuarter}) {
            Ring ring({16, 256});
            ring.write(sequence, 40);
            BOOST_TEST(!wipe_foreign_entry(ring.bytes(), ring.shape, ring.key, sequence % 16, sequence + age));
            BOOST_TEST((ring.look(sequence) == RingEntry::message) == (age < kQuarter));
        }
}
