// The table of memory that atomics may change: ranges, growth, and readers beside writers.
#define BOOST_TEST_MODULE key_table
#include "uct_mp/verbs/key_table.h"
#include "uct_mp/verbs/memory.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

using ucx_mp::verbs::KeyTable;

BOOST_AUTO_TEST_CASE(only_within_the_region) {
    KeyTable keys;
    keys.insert(7, 0x1000, 0x100);
    BOOST_TEST(keys.allows(7, 0x1000, 0x100));
    BOOST_TEST(keys.allows(7, 0x10f8, 8));
    BOOST_TEST(!keys.allows(7, 0x10f9, 8));
    BOOST_TEST(!keys.allows(7, 0xff8, 8));
    BOOST_TEST(!keys.allows(7, 0x1000, 0x101));
    BOOST_TEST(!keys.allows(7, 0x1100, 1));
    BOOST_TEST(!keys.allows(7, 0x1000, 0)); // nothing is not a range
    BOOST_TEST(!keys.allows(8, 0x1000, 8));
}

BOOST_AUTO_TEST_CASE(sums_that_overflow_are_refused) {
    KeyTable keys;
    keys.insert(1, 0x1000, 0x100);
    BOOST_TEST(!keys.allows(1, 0x1008, UINT64_MAX));
    BOOST_TEST(!keys.allows(1, 0x1008, UINT64_MAX - 0x1007));
    BOOST_TEST(!keys.allows(1, UINT64_MAX, 8));
    keys.insert(2, UINT64_MAX - 15, 16); // the last bytes there are
    BOOST_TEST(keys.allows(2, UINT64_MAX - 7, 8));
    BOOST_TEST(!keys.allows(2, UINT64_MAX - 6, 8));
}

BOOST_AUTO_TEST_CASE(zero_and_the_largest_are_keys_as_others) {
    KeyTable keys;
    BOOST_TEST(!keys.allows(0, 0, 1));
    keys.insert(0, 64, 64);
    keys.insert(UINT32_MAX, 128, 64);
    BOOST_TEST(keys.allows(0, 64, 64));
    BOOST_TEST(keys.allows(UINT32_MAX, 128, 64));
    keys.erase(0);
    BOOST_TEST(!keys.allows(0, 64, 64));
    BOOST_TEST(keys.allows(UINT32_MAX, 128, 64));
    keys.erase(0); // again: no effect
    keys.insert(UINT32_MAX, 256, 8);
    BOOST_TEST(!keys.allows(UINT32_MAX, 128, 64)); // replaced
    BOOST_TEST(keys.allows(UINT32_MAX, 256, 8));
}

BOOST_AUTO_TEST_CASE(unmapped_memory_is_refused) {
    KeyTable keys;
    keys.unmapped(0, UINT64_MAX); // nothing there
    keys.insert(1, 0x1000, 0x1000);
    keys.insert(2, 0x2000, 0x1000);
    keys.insert(3, 0x3000, 0x1000);
    keys.insert(4, UINT64_MAX - 0xfff, 0x1000);
    keys.unmapped(0x4000, 0x100000);
    keys.unmapped(0, 0x1000);
    keys.unmapped(0x2000, 0);
    for (const std::uint64_t key : {1, 2, 3}) BOOST_TEST(keys.allows(key, 0x1000 * key, 8));
    keys.unmapped(0x2fff, 1);
    BOOST_TEST(keys.allows(1, 0x1000, 8));
    BOOST_TEST(keys.allows(2, 0x2000, 0xfff)); // what is left
    BOOST_TEST(!keys.allows(2, 0x2ff8, 8));
    BOOST_TEST(keys.allows(3, 0x3000, 8));
    keys.unmapped(0x1800, 0x1801);
    BOOST_TEST(keys.allows(1, 0x1000, 0x800));
    BOOST_TEST(!keys.allows(1, 0x17f9, 8));
    BOOST_TEST(!keys.allows(2, 0x2000, 8)); // all of it
    BOOST_TEST(!keys.allows(3, 0x3000, 8));
    BOOST_TEST(keys.allows(3, 0x3001, 0xfff));
    keys.insert(5, 0x5000, 0x1000);
    keys.unmapped(0x5100, 0x100); // cut in two: the larger part
    BOOST_TEST(!keys.allows(5, 0x5000, 8));
    BOOST_TEST(keys.allows(5, 0x5200, 0xe00));
    BOOST_TEST(keys.allows(4, UINT64_MAX - 7, 8));
    keys.unmapped(UINT64_MAX, 1);
    BOOST_TEST(!keys.allows(4, UINT64_MAX - 7, 8));
    BOOST_TEST(keys.allows(4, UINT64_MAX - 0xfff, 0xfff));
    // Among many, at random places of the table.
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> names;
    for (std::uint64_t i = 0; i < 1000; ++i) keys.insert(names.emplace_back(random()), 0x10000 * i, 0x10000);
    keys.unmapped(0x10000 * 100, 0x10000 * 700);
    for (std::uint64_t i = 0; i < 1000; ++i) BOOST_TEST(keys.allows(names[i], 0x10000 * i, 8) == (i < 100 || i >= 800));
}

// Against a map of the standard library: keys come and go, as an adapter makes them (index and variant) and at random.
BOOST_AUTO_TEST_CASE(follows_a_map) {
    std::mt19937 random(4711);
    KeyTable keys;
    std::unordered_map<uint32_t, uint64_t> model;
    const auto key = [&]() -> uint32_t { return random() % 2 ? random() % 4096 << 8 : random() % 3000 * 0x10001; };
    for (unsigned i = 0; i < 60000; ++i) {
        const uint32_t k = key();
        if (random() % 5 < (i < 20000 ? 4u : 2u)) { // first more come than go
            const uint64_t address = (i + 1) * 4096ull;
            keys.insert(k, address, 64);
            model[k] = address;
        } else {
            keys.erase(k);
            model.erase(k);
        }
        const uint32_t asked = key();
        const auto found = model.find(asked);
        const uint64_t address = found == model.end() ? 4096 : found->second;
        BOOST_REQUIRE_EQUAL(keys.allows(asked, address, 64), found != model.end());
    }
    for (const auto& [k, address] : model) BOOST_REQUIRE(keys.allows(k, address, 64));
    BOOST_TEST(model.size() > 1000u);
}

// Readers see each key as it is before or after a change, never half of it, while the table grows and shrinks; keys
// that nobody touches are always there, keys that never were are never there.
BOOST_AUTO_TEST_CASE(readers_beside_writers) {
    constexpr uint32_t kStable = 200, kMoving = 4000;
    constexpr unsigned kRounds = 12;
    KeyTable keys;
    for (uint32_t k = 0; k < kStable; ++k) keys.insert(k << 8, 1 + k * 1000ull, 500);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> lost{0}, ghosts{0}, torn{0}, asked{0};
    std::vector<std::thread> readers;
    for (unsigned r = 0; r < 2; ++r)
        readers.emplace_back([&, r] {
            std::mt19937 random(r);
            while (!stop.load(std::memory_order_relaxed)) {
                const uint32_t k = random() % kStable;
                if (!keys.allows(k << 8, 1 + k * 1000ull, 500)) ++lost;
                if (keys.allows((k << 8) + 3, 1, 1)) ++ghosts;
                // A moving key alternates between a short region high up and a long one low down: no mix of the two
                // covers this range.
                if (keys.allows((random() % kMoving << 8) + 1, 0x900000, 0x900)) ++torn;
                ++asked;
            }
        });
    std::vector<std::thread> writers;
    for (unsigned w = 0; w < 2; ++w)
        writers.emplace_back([&, w] {
            for (unsigned round = 0; round < kRounds; ++round) {
                for (uint32_t k = w; k < kMoving; k += 2) {
                    keys.insert((k << 8) + 1, 0x900000, 0x100);
                    keys.insert((k << 8) + 1, 0x100000, 0x1000);
                }
                for (uint32_t k = w; k < kMoving; k += 2) keys.erase((k << 8) + 1);
            }
        });
    for (std::thread& t : writers) t.join();
    while (asked < 10000) std::this_thread::yield();
    stop = true;
    for (std::thread& t : readers) t.join();
    BOOST_TEST(lost == 0u);
    BOOST_TEST(ghosts == 0u);
    BOOST_TEST(torn == 0u);
    for (uint32_t k = 0; k < kMoving; ++k) BOOST_REQUIRE(!keys.allows((k << 8) + 1, 0x100000, 1));
}

// One key that changes all the time, between two regions of which no mix may be seen.
BOOST_AUTO_TEST_CASE(no_mix_of_old_and_new) {
    KeyTable keys;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> mixed{0}, asked{0};
    keys.insert(5, 0x900000, 0x100);
    std::thread reader([&] {
        while (!stop.load(std::memory_order_relaxed)) {
            mixed += keys.allows(5, 0x900100, 8); // the high address with the large length
            ++asked;
        }
    });
    for (unsigned i = 0; i < 300000 || asked < 10000; ++i) {
        keys.insert(5, 0x100000, 0x1000);
        keys.insert(5, 0x900000, 0x100);
    }
    stop = true;
    reader.join();
    BOOST_TEST(mixed == 0u);
}

// Erased means refused for whoever asks afterwards, in any thread.
BOOST_AUTO_TEST_CASE(erased_is_refused_at_once) {
    KeyTable keys;
    std::atomic<uint32_t> erased{0}; // all keys below are gone
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> late{0};
    constexpr uint32_t kKeys = 20000;
    for (uint32_t k = 0; k < kKeys; ++k) keys.insert(k, 4096, 64);
    std::thread reader([&] {
        while (!stop.load(std::memory_order_relaxed))
            if (const uint32_t n = erased.load(std::memory_order_acquire); n && keys.allows(n - 1, 4096, 64)) ++late;
    });
    for (uint32_t k = 0; k < kKeys; ++k) {
        keys.erase(k);
        erased.store(k + 1, std::memory_order_release);
    }
    stop = true;
    reader.join();
    BOOST_TEST(late == 0u);
}

// Who unmaps waits for what is being executed there, also by a key that has been erased meanwhile; not for anything
// else.
BOOST_DATA_TEST_CASE(unmapping_waits_for_users,
                     boost::unit_test::data::make({"unmapped", "erased", "erased with many"}), how) {
    KeyTable keys;
    KeyTable::User user(keys), other(keys);
    keys.insert(1, 0x1000, 0x1000);
    keys.insert(2, 0x4000, 0x1000);
    BOOST_TEST(user.enter(1, 0x1ff8, 8));
    BOOST_TEST(other.enter(2, 0x4000, 8));
    const bool erased = how[0] == 'e';
    if (erased) keys.erase(1);
    if (erased && how[6]) // not awaited: it stays out of the way of who releases memory
        for (unsigned i = 0; i < 20; ++i) {
            keys.insert(3, 0x10000 + 0x1000 * i, 0x1000);
            keys.erase(3);
        }
    keys.unmapped(0x8000, 0x1000); // nobody is there
    std::atomic<bool> done{false};
    std::thread unmaps([&] {
        keys.unmapped(0, 0x4000);
        done = true;
    });
    while (!erased && keys.allows(1, 0x1000, 8)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    BOOST_TEST(!done);
    user.leave();
    unmaps.join();
    BOOST_TEST(!user.enter(1, 0x1000, 8));
    user.leave();
    BOOST_TEST(keys.allows(2, 0x4000, 8));
    other.leave();
}

// One thread maps, offers, takes back and unmaps; another one changes what it may, whenever it may.
BOOST_DATA_TEST_CASE(memory_that_comes_and_goes, boost::unit_test::data::make({false, true}), erased) {
    constexpr std::size_t kBytes = 4096;
    KeyTable keys;
    std::atomic<std::uint64_t> where{0};
    std::atomic<bool> stop{false};
    std::atomic<unsigned> changes{0};
    std::thread user_thread([&] {
        KeyTable::User user(keys);
        while (!stop.load(std::memory_order_relaxed)) {
            const std::uint64_t at = where.load();
            if (user.enter(7, at, 8)) {
                __atomic_fetch_add(reinterpret_cast<std::uint64_t*>(at), 1, __ATOMIC_SEQ_CST); // else a crash
                changes.fetch_add(1, std::memory_order_relaxed);
            }
            user.leave();
        }
    });
    for (unsigned round = 0; round < 3000 || changes < 1000; ++round) {
        void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        BOOST_REQUIRE(memory != MAP_FAILED);
        const auto at = reinterpret_cast<std::uint64_t>(memory);
        keys.insert(7, at, kBytes);
        where = at;
        if (round % 16 == 0) sched_yield();
        if (erased) keys.erase(7);
        keys.unmapped(at, kBytes);
        munmap(memory, kBytes);
    }
    stop = true;
    user_thread.join();
}

// A forked child has not got the thread that holds the lock, nor the one that is being waited for.
BOOST_AUTO_TEST_CASE(a_forked_child_waits_for_nobody) {
    KeyTable keys;
    KeyTable::User user(keys);
    keys.insert(1, 0x1000, 0x1000);
    BOOST_TEST(user.enter(1, 0x1000, 8));
    std::thread unmaps([&] { keys.unmapped(0x1000, 0x1000); }); // holds the lock, and waits
    while (keys.allows(1, 0x1000, 8)) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        keys.unmapped(0x1000, 0x1000);
        keys.insert(2, 0x3000, 0x1000);
        keys.erase(1);
        KeyTable fresh; // its own is as any
        fresh.insert(5, 0x5000, 0x1000);
        const bool good = fresh.allows(5, 0x5000, 8);
        fresh.unmapped(0x5000, 0x1000);
        _exit(good && !fresh.allows(5, 0x5000, 8) ? 0 : 1);
    }
    BOOST_REQUIRE(child > 0);
    int status = -1;
    BOOST_TEST(waitpid(child, &status, 0) == child);
    BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    user.leave();
    unmaps.join();
}
