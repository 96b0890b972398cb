// Windows over a network of dice (window_world.h): random operations in epochs of locks, of access and exposure, and of
// fences, against a model.
#define BOOST_TEST_MODULE pml_window
#include <boost/test/unit_test.hpp>

#include "tests/pml/window_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

unsigned keys = 0; // ranks that have been given some

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
                        reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from),
                        MP_PASSIVE)) {
                    ++counts.count; // nobody is told of its end
                    continue;
                }
                if (operation.kind == MP_PUT && operation.count <= 9 && world.dice(2) &&
                    world.ranks[operation.origin].window->put_now(
                        operation.target, operation.data.data(), 8 * std::size_t{operation.count},
                        reinterpret_cast<std::uint64_t>(world.ranks[operation.target].cells.data() + operation.from),
                        world.dice(4) ? MP_ACTIVE : MP_PASSIVE)) {
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
            // What is attached anew has other keys, and nobody has the old ones.
            if (world.dynamic && world.dice(2))
                for (Rank& rank : world.ranks) World::detach(rank);
            if (world.dynamic && world.ranks[0].window->detach(world.ranks[0].cells.data()))
                world.ranks[0].window->attach(world.ranks[0].cells.data(), 4 * kCells);
            else if (world.dynamic)
                for (Rank& rank : world.ranks) World::attach(rank);
        }
        BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->settled(); }));
        if (world.dynamic)
            for (Rank& rank : world.ranks) World::detach(rank);
        BOOST_REQUIRE_EQUAL(world.reports, 0u);
        BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
        if (world.dynamic) BOOST_REQUIRE(world.network.exposed.empty());
        BOOST_REQUIRE_EQUAL(world.network.stale, 0u);
        if (world.dynamic) BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
        for (const Rank& rank : world.ranks) keys += rank.windows->statistics().find("keys 0,") == std::string::npos;
    }
}

BOOST_AUTO_TEST_CASE(random_programs) {
    for (std::uint32_t seed = 1; seed <= 400; ++seed) run(seed);
    BOOST_TEST(keys > 50u);
}

// Who is told of an end may wait for something else, which makes progress: everything is served all the same.
BOOST_AUTO_TEST_CASE(progress_within_hooks) {
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            World world(seed, 4);
            world.network.no_room = 2;
            std::vector<Done> counts(4);
            for (unsigned i = 0; i < 4; ++i) counts[i].progresses = world.ranks[i].windows.get();
            auto all = draw(world);
            for (Drawn& operation : all) BOOST_REQUIRE(issue(world, operation, counts[operation.origin]) == MP_OK);
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->flushed(MP_ALL_RANKS, false); }));
            unsigned over = 0;
            for (const Done& each : counts) over += each.count;
            BOOST_REQUIRE_EQUAL(over, all.size());
        }
    }
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
                                                                   at + 8 * std::size_t{operation.from}, MP_ACTIVE))
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
                if (!window.get_now(1, &got.back(), 8, reinterpret_cast<std::uint64_t>(&cells[kGets]), MP_PASSIVE))
                    got.back() = 99;
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
