// Windows over a network of dice (window_world.h): peers that fail, and operations that do.
#define BOOST_TEST_MODULE pml_window_failures
#include <boost/test/unit_test.hpp>

#include "tests/pml/window_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

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
            for (unsigned i = 0; i < 2; ++i) {
                BOOST_REQUIRE(world.ranks[i].window->error(2) == MP_FAILED);
                // Each end says it, although what had gone wrong was asked for before.
                world.ranks[i].window->access(2, true);
            }
            const auto said = [&](auto&& end) {
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) { return i == 2 || end(*rank.window); }));
                for (unsigned i = 0; i < 2; ++i) BOOST_REQUIRE(world.ranks[i].window->error(2) == MP_FAILED);
                for (unsigned i = 0; i < 2; ++i) BOOST_REQUIRE(world.ranks[i].window->error(2) == MP_OK);
            };
            said([](Window& window) { return window.completed(2); });
            said([](Window& window) { return window.flushed(2, false); });
            said([](Window& window) { return window.locked(2); });
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

// In a barrier of many nobody hears from all the others himself; few ranks tell each other (core/window/fence.cc). Who
// is through before the survivors have come is told that somebody is gone.
BOOST_AUTO_TEST_CASE(gone_rank_in_a_fence) {
    for (const unsigned count : {2u, 3u, 5u, 7u, 8u, 11u}) {
        for (std::uint32_t seed = 1; seed <= 100; ++seed) {
            BOOST_TEST_CONTEXT(count << " ranks, seed " << seed) {
                World world(seed, count);
                const unsigned gone = world.dice(count), late = world.dice(count);
                for (unsigned i = 0; i < count; ++i) {
                    Peer* const peer = world.ranks[i].engine->peer(100 + gone);
                    if (i == gone) continue;
                    static_cast<FakeEndpoint&>(*peer->endpoint).fail();
                    world.ranks[i].port->listener->endpoint_failed(*peer->endpoint);
                }
                std::vector<bool> begun(count), over(count);
                int turns = 0;
                BOOST_REQUIRE(world.until([&](Rank& rank, unsigned i) {
                    if (i == 0) ++turns;
                    if (i == gone || over[i]) return true;
                    if (!begun[i] && (i == late ? turns < 2000 : world.dice(10) != 0)) return false;
                    begun[i] = true;
                    if (!rank.window->fence()) return false;
                    over[i] = true;
                    BOOST_REQUIRE(rank.window->error(MP_ALL_RANKS) == MP_FAILED);
                    return true;
                }));
            }
        }
    }
}

// What is refused in its midst owes nothing when what had left of it is answered: others get their share.
BOOST_AUTO_TEST_CASE(refused_operations) {
    for (std::uint32_t seed = 1; seed <= 50; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            World world(seed, 2);
            Done counts;
            std::list<Drawn> all;
            const auto read = [&] {
                all.push_back({0, 1, kCells / 2, 600, MP_GET_ACCUMULATE, std::vector<std::uint64_t>(600, 1),
                               std::vector<std::uint64_t>(600)});
                BOOST_REQUIRE(issue(world, all.back(), counts) == MP_OK);
                BOOST_REQUIRE(world.until([&](Rank&, unsigned) { return counts.count == all.size(); }));
            };
            world.network.refuses = 5;
            for (int i = 0; i < 100; ++i) read();
            BOOST_REQUIRE(counts.failed > 0);
            world.network.refuses = 0;
            const unsigned failed = counts.failed;
            for (int i = 0; i < 3; ++i) read();
            BOOST_REQUIRE_EQUAL(counts.failed, failed);
            BOOST_REQUIRE(world.until([](Rank& rank, unsigned) { return rank.window->flushed(MP_ALL_RANKS, false); }));
            BOOST_REQUIRE_EQUAL(world.reports, 0u);
        }
    }
}

} // namespace
