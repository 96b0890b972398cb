// Windows that talk to each other over a network of dice (fake_port.h), without MPI, and random operations for them.
// Elements are 64 bit sums. Writes are executed at any time before their flush, or the fence that the next message
// waits for: what is told too early is seen to be wrong.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "pml_glue/core/window/window.h"
#include "tests/pml/fake_port.h"

namespace ucx_mp::glue::test {

constexpr unsigned kCells = 3000;
constexpr std::uint32_t kWindow = 77;

inline bool add(std::uint16_t, std::uint16_t, std::uint32_t unit, std::uint32_t extent, void* memory, std::size_t count,
                const void* in, void* out) {
    if (unit != 8 || extent != 8) return false;
    if (out) std::memcpy(out, memory, count * 8);
    auto* const cells = static_cast<std::byte*>(memory); // a broken peer may say any address
    for (std::size_t i = 0; in && i < count; ++i) {
        std::uint64_t value, sum;
        std::memcpy(&value, static_cast<const std::byte*>(in) + 8 * i, 8);
        std::memcpy(&sum, cells + 8 * i, 8);
        sum += value;
        std::memcpy(cells + 8 * i, &sum, 8);
    }
    return true;
}

struct Done {
    unsigned count = 0, failed = 0;
    Windows* progresses = nullptr; // from within the hook
};
inline void done(void* user, mp_error_t error) {
    auto& counts = *static_cast<Done*>(user);
    ++counts.count;
    counts.failed += error != MP_OK;
    if (counts.progresses) counts.progresses->progress();
}

struct Rank {
    std::unique_ptr<FakePort> port;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Windows> windows;
    Window* window = nullptr;
    std::vector<std::uint64_t> cells = std::vector<std::uint64_t>(kCells);
    std::vector<std::byte> keys;
};

struct World {
    FakeNetwork network;
    std::vector<Rank> ranks;
    unsigned reports = 0;
    const bool dynamic;
    const bool threads; // progress threads have some turns: nobody is told anything meanwhile

    World(std::uint32_t seed, unsigned count, std::uint64_t watch_interval = MP_NEVER)
        : network(seed), ranks(count), dynamic(seed % 3 == 1), threads(seed % 7 < 3) {
        network.no_room = seed % 3 == 0 ? 0 : 2 + seed % 5;
        network.can_move = seed % 4 != 0;
        network.fences_cost = seed % 5 == 1;
        std::vector<std::uint64_t> processes;
        for (unsigned i = 0; i < count; ++i) processes.push_back(100 + i);
        for (unsigned i = 0; i < count; ++i) {
            Rank& rank = ranks[i];
            rank.port = std::make_unique<FakePort>(network);
            const mp_hooks_t hooks{.argument = this,
                                   .pack = nullptr,
                                   .unpack = nullptr,
                                   .completed = [](void*, mp_request_t*) {},
                                   .address = address,
                                   .is_source = [](void*, std::uint32_t, std::int32_t, std::uint64_t) { return false; },
                                   .process = nullptr,
                                   .forgotten = nullptr,
                                   .report = [](void* world, const char*) { ++static_cast<World*>(world)->reports; },
                                   .unmapped = nullptr};
            const mp_config_t config{.process = 100 + i,
                                     .transports = nullptr,
                                     .local = nullptr,
                                     .eager_limit = 4000,
                                     .zero_copy = SIZE_MAX,
                                     .hint_limit = 1000,
                                     .rendezvous_by_put = seed % 2 == 1,
                                     .burst = 0,
                                     .watch_interval = watch_interval,
                                     .watch_strangers = false};
            rank.engine = std::make_unique<Engine>(*rank.port, config, hooks);
            rank.windows = std::make_unique<Windows>(*rank.engine, *rank.port, hooks);
            const mp_window_config_t window{.id = kWindow,
                                            .rank = i,
                                            .ranks = count,
                                            .base = rank.cells.data(),
                                            .size = 8 * kCells,
                                            .dynamic = dynamic,
                                            .processes = processes.data(),
                                            .in_flight = 2000};
            rank.window = rank.windows->create(window, {.apply = add, .rma_done = done});
            rank.keys.resize(std::size_t{16} * count); // of memory that stays
            for (unsigned k = 0; k < count; ++k) rank.keys[std::size_t{16} * k] = std::byte{0x5a};
            if (dynamic) attach(rank);
        }
        for (Rank& rank : ranks) {
            rank.window->set_keys(rank.keys.data(), 16);
            rank.window->set_direct_fences(seed % 2 == 0); // if there are few ranks
        }
    }
    ~World() {
        for (Rank& rank : ranks) {
            rank.window->free();
            rank.windows.reset();
            rank.engine.reset();
        }
    }
    // In two pieces: puts and gets are in the first.
    static void attach(Rank& rank) {
        rank.window->attach(rank.cells.data(), 4 * kCells);
        rank.window->attach(rank.cells.data() + kCells / 2, 4 * kCells);
    }
    static void detach(Rank& rank) {
        BOOST_REQUIRE(rank.window->detach(rank.cells.data()));
        BOOST_REQUIRE(rank.window->detach(rank.cells.data() + kCells / 2));
    }
    static bool address(void* world, std::uint64_t process, void** out, std::size_t* length) {
        if (process - 100 >= static_cast<World*>(world)->ranks.size()) return false;
        *length = 1;
        *out = std::malloc(1);
        *static_cast<std::uint8_t*>(*out) = static_cast<std::uint8_t>(process - 100);
        return true;
    }
    void progress() {
        for (Rank& rank : ranks)
            if (threads && dice(2)) rank.engine->kept().in_thread = true;
        for (Rank& rank : ranks) {
            (void)(rank.engine->kept().in_thread ? rank.engine->progress_in_thread() : rank.engine->progress());
            rank.windows->progress();
        }
        for (Rank& rank : ranks) {
            rank.engine->kept().in_thread = false;
            rank.engine->tell_kept();
        }
    }
    // All of them in turn, until everybody says true. False: somebody waits for ever.
    template <class Asked> [[nodiscard]] bool until(Asked&& asked) {
        for (int i = 0; i < 200000; ++i) {
            bool all = true;
            for (unsigned rank = 0; rank < ranks.size(); ++rank) all &= asked(ranks[rank], rank);
            if (all) return true;
            progress();
        }
        return false;
    }
    unsigned dice(unsigned n) { return static_cast<unsigned>(network.random() % n); }
};

struct Drawn {
    unsigned origin, target, from, count;
    mp_rma_kind_t kind;
    std::vector<std::uint64_t> data, result;
};

// Puts and gets in the first half, each cell once in a round; sums in the second half, some of less than is read.
inline std::list<Drawn> draw(World& world) {
    std::list<Drawn> all;
    std::vector<std::vector<bool>> used(world.ranks.size(), std::vector<bool>(kCells));
    for (unsigned i = world.dice(40); i > 0; --i) {
        Drawn operation{};
        operation.origin = world.dice(static_cast<unsigned>(world.ranks.size()));
        operation.target = world.dice(static_cast<unsigned>(world.ranks.size()));
        operation.kind = static_cast<mp_rma_kind_t>(MP_PUT + world.dice(4));
        operation.count = 1 + world.dice(world.dice(2) ? 8 : 600);
        operation.from = world.dice(kCells / 2 - operation.count);
        const bool sums = operation.kind == MP_ACCUMULATE || operation.kind == MP_GET_ACCUMULATE;
        if (sums) operation.from += kCells / 2;
        bool free = true;
        for (unsigned k = 0; k < operation.count; ++k) free &= sums || !used[operation.target][operation.from + k];
        if (!free) continue;
        for (unsigned k = 0; k < operation.count; ++k) used[operation.target][operation.from + k] = true;
        for (unsigned k = 0; k < operation.count; ++k)
            operation.data.push_back(sums ? 1 + world.dice(9) : world.network.random());
        // What an origin does not bring is only read. The model adds nothing there.
        if (operation.kind == MP_GET_ACCUMULATE && world.dice(3) == 0)
            operation.data.resize(world.dice(operation.count + 1));
        operation.result.resize(operation.count);
        all.push_back(std::move(operation));
    }
    return all;
}

inline mp_error_t issue(World& world, Drawn& operation, Done& counts) {
    const auto address = reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from);
    const std::size_t bytes = 8 * std::size_t{operation.count};
    const mp_run_t run{.address = address, .stride = 0, .bytes = bytes, .repeat = 1};
    const bool sums = operation.kind == MP_ACCUMULATE || operation.kind == MP_GET_ACCUMULATE;
    const mp_rma_t rma{
        .kind = operation.kind,
        .target = operation.target,
        .runs = &run,
        .run_count = 1,
        .origin = {operation.data.data(), operation.kind == MP_GET ? 0 : 8 * operation.data.size(), nullptr},
        .result = {operation.result.data(), bytes, nullptr},
        .op = 0,
        .type = 0,
        .unit = sums ? 8u : 1u,
        .extent = sums ? 8u : 1u,
        .user = &counts};
    return world.ranks[operation.origin].window->start(rma);
}

// What is there afterwards, and what gets must have seen.
inline void check(World& world, std::list<Drawn>& all, std::vector<std::vector<std::uint64_t>>& model) {
    for (Drawn& operation : all)
        for (unsigned k = 0; k < operation.count && operation.kind == MP_GET; ++k)
            BOOST_REQUIRE_EQUAL(operation.result[k], model[operation.target][operation.from + k]);
    for (Drawn& operation : all)
        for (unsigned k = 0; k < operation.data.size(); ++k) {
            std::uint64_t& cell = model[operation.target][operation.from + k];
            if (operation.kind == MP_PUT) cell = operation.data[k];
            if (operation.kind == MP_ACCUMULATE || operation.kind == MP_GET_ACCUMULATE) cell += operation.data[k];
        }
    for (unsigned i = 0; i < world.ranks.size(); ++i) BOOST_REQUIRE(world.ranks[i].cells == model[i]);
}

inline void check_gets(const std::list<Drawn>& all, unsigned origin, unsigned target,
                       const std::vector<std::uint64_t>& cells) {
    for (const Drawn& operation : all)
        if (operation.origin == origin && operation.target == target && operation.kind == MP_GET)
            for (unsigned k = 0; k < operation.count; ++k)
                BOOST_REQUIRE_EQUAL(operation.result[k], cells[operation.from + k]);
}

} // namespace ucx_mp::glue::test
