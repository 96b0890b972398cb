// Windows that talk to each other over a network of dice (fake_port.h), without MPI: random operations in epochs of
// locks, and of access and exposure, against a model; and peers that fail. Elements are 64 bit sums. Writes are
// executed at any time before their flush, or the fence that the next message waits for: what is told too early is seen
// to be wrong.
#define BOOST_TEST_MODULE pml_window
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>

#include "pml_glue/core/window/window.h"
#include "tests/pml/fake_port.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

constexpr unsigned kCells = 3000;
constexpr std::uint32_t kWindow = 77;

bool add(std::uint16_t, std::uint16_t, void* memory, std::size_t count, const void* in, void* out) {
    if (out) std::memcpy(out, memory, count * 8);
    auto* const cells = static_cast<std::uint64_t*>(memory);
    for (std::size_t i = 0; in && i < count; ++i) {
        std::uint64_t value;
        std::memcpy(&value, static_cast<const std::byte*>(in) + 8 * i, 8);
        cells[i] += value;
    }
    return true;
}

struct Done {
    unsigned count = 0, failed = 0;
};
void done(void* user, mp_error_t error) {
    auto& counts = *static_cast<Done*>(user);
    ++counts.count;
    counts.failed += error != MP_OK;
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

    World(std::uint32_t seed, unsigned count, std::uint64_t watch_interval = MP_NEVER) : network(seed), ranks(count) {
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
                                   .completed = nullptr,
                                   .address = address,
                                   .is_source = [](void*, std::uint32_t, std::int32_t, std::uint64_t) { return false; },
                                   .process = nullptr,
                                   .report = [](void* world, const char*) { ++static_cast<World*>(world)->reports; }};
            const mp_config_t config{.process = 100 + i,
                                     .transports = nullptr,
                                     .local = nullptr,
                                     .eager_limit = 4000,
                                     .zero_copy = SIZE_MAX,
                                     .hint_limit = 1000,
                                     .rendezvous_by_put = false,
                                     .burst = 0,
                                     .watch_interval = watch_interval};
            rank.engine = std::make_unique<Engine>(*rank.port, config, hooks);
            rank.windows = std::make_unique<Windows>(*rank.engine, *rank.port, hooks);
            const mp_window_config_t window{.id = kWindow,
                                            .rank = i,
                                            .ranks = count,
                                            .base = rank.cells.data(),
                                            .size = 8 * kCells,
                                            .dynamic = false,
                                            .processes = processes.data(),
                                            .in_flight = 2000};
            rank.window = rank.windows->create(window, {.apply = add, .rma_done = done});
            rank.keys.assign(std::size_t{16} * count, std::byte{0x5a});
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
    static bool address(void*, std::uint64_t process, void** out, std::size_t* length) {
        *length = 1;
        *out = std::malloc(1);
        *static_cast<std::uint8_t*>(*out) = static_cast<std::uint8_t>(process - 100);
        return true;
    }
    void progress() {
        for (Rank& rank : ranks) {
            rank.engine->progress();
            rank.windows->progress();
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

// Puts and gets in the first half, each cell once in a round; sums in the second half.
std::list<Drawn> draw(World& world) {
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
        operation.result.resize(operation.count);
        all.push_back(std::move(operation));
    }
    return all;
}

mp_error_t issue(World& world, Drawn& operation, Done& counts) {
    const auto address = reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from);
    const std::size_t bytes = 8 * std::size_t{operation.count};
    const mp_run_t run{.address = address, .stride = 0, .bytes = bytes, .repeat = 1};
    const bool sums = operation.kind == MP_ACCUMULATE || operation.kind == MP_GET_ACCUMULATE;
    const mp_rma_t rma{.kind = operation.kind,
                       .target = operation.target,
                       .runs = &run,
                       .run_count = 1,
                       .origin = {operation.data.data(), operation.kind == MP_GET ? 0 : bytes, nullptr},
                       .result = {operation.result.data(), bytes, nullptr},
                       .op = 0,
                       .type = 0,
                       .unit = sums ? 8u : 1u,
                       .extent = sums ? 8u : 1u,
                       .user = &counts};
    return world.ranks[operation.origin].window->start(rma);
}

// What is there afterwards, and what gets must have seen.
void check(World& world, std::list<Drawn>& all, std::vector<std::vector<std::uint64_t>>& model) {
    for (Drawn& operation : all)
        for (unsigned k = 0; k < operation.count && operation.kind == MP_GET; ++k)
            BOOST_REQUIRE_EQUAL(operation.result[k], model[operation.target][operation.from + k]);
    for (Drawn& operation : all)
        for (unsigned k = 0; k < operation.count; ++k) {
            std::uint64_t& cell = model[operation.target][operation.from + k];
            if (operation.kind == MP_PUT) cell = operation.data[k];
            if (operation.kind == MP_ACCUMULATE || operation.kind == MP_GET_ACCUMULATE) cell += operation.data[k];
        }
    for (unsigned i = 0; i < world.ranks.size(); ++i) BOOST_REQUIRE(world.ranks[i].cells == model[i]);
}

void check_gets(const std::list<Drawn>& all, unsigned origin, unsigned target,
                const std::vector<std::uint64_t>& cells) {
    for (const Drawn& operation : all)
        if (operation.origin == origin && operation.target == target && operation.kind == MP_GET)
            for (unsigned k = 0; k < operation.count; ++k)
                BOOST_REQUIRE_EQUAL(operation.result[k], cells[operation.from + k]);
}

void run(std::uint32_t seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
        World world(seed, seed % 8 == 2 ? 11 : 1 + seed % 4);
        const auto count = static_cast<unsigned>(world.ranks.size());
        std::vector<std::vector<std::uint64_t>> model(count, std::vector<std::uint64_t>(kCells));
        for (int round = 0; round < 6; ++round) {
            auto all = draw(world);
            Done counts;
            const unsigned epoch = world.dice(4);
            for (unsigned i = 0; i < count; ++i)
                for (unsigned k = 0; k < count; ++k) {
                    if (epoch == 0) world.ranks[i].window->want_lock(k, world.dice(2) != 0);
                    if (epoch == 1) world.ranks[i].window->access(k, true);
                }
            for (Drawn& operation : all) {
                if (operation.kind == MP_GET && operation.count <= 8 && world.dice(2) &&
                    world.ranks[operation.origin].window->get_now(
                        operation.target, operation.result.data(), 8 * std::size_t{operation.count},
                        reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from))) {
                    ++counts.count; // nobody is told of its end
                    continue;
                }
                if (operation.kind == MP_PUT && operation.count <= 9 && world.dice(2) &&
                    world.ranks[operation.origin].window->put_now(
                        operation.target, operation.data.data(), 8 * std::size_t{operation.count},
                        reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from),
                        world.dice(4) != 0)) {
                    ++counts.count;
                    continue;
                }
                BOOST_REQUIRE(issue(world, operation, counts) == MP_OK);
                if (world.dice(3) == 0) world.progress();
            }
            if (epoch == 0) { // one lock after the other may be given back, in any order
                std::vector<std::vector<bool>> over(count, std::vector<bool>(count));
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                    bool every = true;
                    for (unsigned k = 0; k < count; ++k) {
                        if (!over[i][k]) over[i][k] = rank.window->unlocked(k);
                        every = every && over[i][k];
                    }
                    return every;
                }));
            } else if (epoch == 1) { // the target looks as soon as it is told: nobody else has flushed anything
                for (unsigned i = 0; i < count; ++i)
                    for (unsigned k = 0; k < count; ++k) world.ranks[i].window->expose(k, true);
                std::vector<std::vector<bool>> over(count, std::vector<bool>(count));
                // Whose exposure is over uses its memory for something else: all gets must have read it.
                std::vector<std::vector<std::uint64_t>> kept(count);
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                    bool every = true, closed = true;
                    for (unsigned k = 0; k < count; ++k) {
                        if (!over[i][k]) over[i][k] = rank.window->completed(k);
                        every = every && over[i][k];
                        closed = closed && rank.window->closed(k);
                    }
                    if (closed && kept[i].empty()) {
                        kept[i] = rank.cells;
                        std::fill(rank.cells.begin(), rank.cells.end(), 0xdead);
                    }
                    return every && closed;
                }));
                for (unsigned i = 0; i < count; ++i)
                    std::copy(kept[i].begin(), kept[i].end(), world.ranks[i].cells.begin());
            } else if (epoch == 2) { // who is through looks, and uses his memory for something else
                std::vector<std::vector<std::uint64_t>> kept(count);
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                    if (!kept[i].empty()) return true;
                    if (!rank.window->fence()) return false;
                    kept[i] = rank.cells;
                    std::fill(rank.cells.begin(), rank.cells.end(), 0xdead);
                    return true;
                }));
                for (unsigned i = 0; i < count; ++i)
                    std::copy(kept[i].begin(), kept[i].end(), world.ranks[i].cells.begin());
            } else { // who has flushed a target has what he has read there
                std::vector<std::vector<bool>> over(count, std::vector<bool>(count));
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                    bool every = true;
                    for (unsigned k = 0; k < count; ++k) {
                        if (!over[i][k] && rank.window->flushed(k, false)) {
                            over[i][k] = true;
                            check_gets(all, i, k, model[k]);
                        }
                        every = every && over[i][k];
                    }
                    return every;
                }));
            }
            unsigned begun = 0; // nobody leaves a barrier before all have come
            std::vector<int> state(count);
            BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                if (state[i] == 0 && world.dice(5)) return false;
                if (state[i] == 0) ++begun, state[i] = 1;
                if (state[i] == 1 && rank.window->barrier()) {
                    BOOST_REQUIRE_EQUAL(begun, count);
                    state[i] = 2;
                }
                return state[i] == 2;
            }));
            BOOST_REQUIRE_EQUAL(counts.count, all.size());
            BOOST_REQUIRE_EQUAL(counts.failed, 0u);
            check(world, all, model);
        }
        BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->settled(); }));
        BOOST_REQUIRE_EQUAL(world.reports, 0u);
        BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
    }
}

BOOST_AUTO_TEST_CASE(random_programs) {
    for (std::uint32_t seed = 1; seed <= 400; ++seed) run(seed);
}

// A fence is everybody's: who is through it at once reads what one rank has put into the memory of another one, or puts
// something else there. It is the later of both that stays.
BOOST_AUTO_TEST_CASE(third_ranks) {
    for (std::uint32_t seed = 2; seed <= 600; seed += 2) { // fences of few ranks
        BOOST_TEST_CONTEXT("seed " << seed) {
            World world(seed, 3 + seed % 3);
            const auto count = static_cast<unsigned>(world.ranks.size());
            const bool writes = world.dice(2) != 0;
            Done counts;
            std::vector<std::vector<std::uint64_t>> model(count, std::vector<std::uint64_t>(kCells));
            const auto put = [&](Drawn& operation) {
                const auto at = reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data());
                if (operation.count > 8 || world.dice(2) ||
                    !world.ranks[operation.origin].window->put_now(operation.target, operation.data.data(),
                                                                   8 * std::size_t{operation.count},
                                                                   at + 8 * std::size_t{operation.from}, true))
                    BOOST_REQUIRE(issue(world, operation, counts) == MP_OK);
                for (unsigned k = 0; k < operation.count; ++k)
                    model[operation.target][operation.from + k] = operation.data[k];
            };
            std::list<Drawn> first, second;
            for (Drawn& operation : draw(world))
                if (operation.kind == MP_PUT) first.push_back(std::move(operation));
            for (Drawn& operation : first) put(operation);
            std::vector<bool> through(count), over(count);
            BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                if (!through[i]) {
                    if (!rank.window->fence()) return false;
                    through[i] = true;
                    for (const Drawn& operation : first) {
                        if ((operation.origin + 1) % count != i || operation.target == i) continue;
                        Drawn& other = second.emplace_back(operation);
                        other.origin = i;
                        other.kind = writes ? MP_PUT : MP_GET;
                        if (writes) std::fill(other.data.begin(), other.data.end(), seed);
                        if (writes)
                            put(other);
                        else
                            BOOST_REQUIRE(issue(world, other, counts) == MP_OK);
                    }
                }
                over[i] = over[i] || rank.window->fence();
                return bool{over[i]};
            }));
            for (unsigned i = 0; i < count; ++i) BOOST_REQUIRE(world.ranks[i].cells == model[i]);
            for (unsigned i = 0; i < count; ++i) check_gets(second, i, (i + 1) % count, model[(i + 1) % count]);
            for (unsigned i = 0; i < count; ++i) check_gets(second, i, (i + 2) % count, model[(i + 2) % count]);
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->settled(); }));
            BOOST_REQUIRE_EQUAL(world.reports, 0u);
        }
    }
}

// Everything that waits for a peer that is gone comes to an end: operations, flushes, locks, both sides of an epoch.
BOOST_AUTO_TEST_CASE(gone_peers) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            World world(seed, 3);
            Done counts;
            auto all = draw(world);
            for (unsigned i = 0; i < 3; ++i) world.ranks[i].window->want_lock(2, true); // one of them will hold it
            unsigned started = 0;
            for (Drawn& operation : all) {
                if (issue(world, operation, counts) == MP_OK) ++started;
                if (world.dice(4) == 0) world.progress();
            }
            for (unsigned i = 0; i < 2; ++i) {
                world.ranks[i].window->expose(2, true);
                for (FakeEndpoint* endpoint : world.ranks[i].port->endpoints)
                    if (&endpoint->to == world.ranks[2].port.get()) {
                        endpoint->fail();
                        world.ranks[i].port->listener->endpoint_failed(*endpoint);
                    }
            }
            for (FakeEndpoint* endpoint : world.ranks[2].port->endpoints) {
                endpoint->fail();
                world.ranks[2].port->listener->endpoint_failed(*endpoint);
            }
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned i) {
                return i == 2 || (rank.window->flushed(MP_ALL_RANKS, false) && rank.window->unlocked(2) &&
                                  rank.window->locked(2) && rank.window->closed(2));
            }));
            for (unsigned i = 0; i < 2; ++i) BOOST_REQUIRE(world.ranks[i].window->error(2) == MP_FAILED);
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->flushed(MP_ALL_RANKS, true); }));
            BOOST_REQUIRE_EQUAL(counts.count, started);
            world.ranks[0].window->want_lock(1, true); // the others go on
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned i) { return i != 0 || rank.window->locked(1); }));
        }
    }
}

// Who holds a lock and is killed is missed by nobody but him who waits for it, and he asks only the lock's owner.
BOOST_AUTO_TEST_CASE(gone_holder_of_a_lock) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        for (const bool exclusive : {false, true}) {
            BOOST_TEST_CONTEXT("seed " << seed) {
                World world(seed, 3, 1000);
                for (Rank& rank : world.ranks) rank.port->tick = 1000;
                world.ranks[1].window->want_lock(0, exclusive);
                BOOST_REQUIRE(world.until([](Rank& rank, unsigned i) { return i != 1 || rank.window->locked(0); }));
                world.ranks[1].port->gone = true;
                for (FakeEndpoint* endpoint : world.ranks[1].port->endpoints) endpoint->failed = true;
                world.ranks[2].window->want_lock(0, true);
                BOOST_REQUIRE(world.until([](Rank& rank, unsigned i) { return i != 2 || rank.window->locked(0); }));
            }
        }
    }
}

// A flush waits for what was started before it, not for another thread that goes on and on.
BOOST_AUTO_TEST_CASE(flushes_of_a_moving_target) {
    enum { kPuts, kSums = 1000, kGets = 2000, kOthers = 2500 };
    struct Call {
        std::uint32_t rank;
        bool local;
        std::uint64_t call = 0, put = 0, added = 0; // what must be there
        std::size_t gets = 0;                       // that must be over
        bool begun = false, over = false;
    };
    for (std::uint32_t seed = 1; seed <= 150; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            World world(seed, 2);
            Window& window = *world.ranks[0].window;
            std::vector<std::uint64_t>& cells = world.ranks[1].cells;
            cells[kGets] = 99;
            Done counts;
            std::list<Drawn> all;
            std::list<std::uint64_t> got;
            std::uint64_t added = 0, put = 0;
            const auto another = [&] { // the other thread's: a put by the transport, a sum, a get, a larger put
                const auto add = [&](mp_rma_kind_t kind, unsigned from, unsigned count, std::uint64_t value) {
                    all.push_back({0, 1, from, count, kind, std::vector<std::uint64_t>(count, value),
                                   std::vector<std::uint64_t>(count)});
                    BOOST_REQUIRE(issue(world, all.back(), counts) == MP_OK);
                };
                add(MP_PUT, kPuts, 1, ++put);
                add(MP_PUT, kOthers, 300, put);
                add(MP_ACCUMULATE, kSums, 1, 1);
                ++added;
                if (world.dice(2)) add(MP_GET, kGets, 1, 0);
                got.push_back(0);
                if (!window.get_now(1, &got.back(), 8, reinterpret_cast<std::uint64_t>(&cells[kGets]))) got.back() = 99;
            };
            std::vector<Call> calls;
            for (const std::uint32_t rank : {1u, MP_ALL_RANKS + 0u})
                for (const bool local : {false, true, false}) calls.push_back({rank, local});
            unsigned over = 0;
            for (int turn = 0; over < calls.size(); ++turn) {
                BOOST_REQUIRE(turn < 20000);
                while (all.size() - counts.count < 3) another(); // it is never quiet
                for (Call& call : calls) {
                    if (call.over || (!call.begun && world.dice(20))) continue;
                    if (!call.begun) call.put = put, call.added = added, call.gets = got.size();
                    call.begun = true;
                    if (!window.flushed(call.rank, call.local, call.call)) continue;
                    call.over = true;
                    ++over;
                    auto at = got.begin();
                    for (std::size_t i = 0; i < call.gets; ++i) BOOST_REQUIRE_EQUAL(*at++, 99u);
                    if (call.local) continue;
                    BOOST_REQUIRE(cells[kSums] >= call.added);
                    BOOST_REQUIRE(cells[kPuts] != 0);
                    for (unsigned i = 0; i < 300; ++i) BOOST_REQUIRE(cells[kOthers + i] != 0);
                }
                world.progress();
            }
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->flushed(MP_ALL_RANKS, false); }));
            BOOST_REQUIRE_EQUAL(counts.count, all.size());
            BOOST_REQUIRE_EQUAL(cells[kSums], added);
        }
    }
}

} // namespace
