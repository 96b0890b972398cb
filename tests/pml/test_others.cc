// Peers of other jobs over a network of dice: they are forgotten when no communicator has them, and known again when
// one comes. Nothing that is under way is lost by it.
#define BOOST_TEST_MODULE pml_others
#include <boost/test/unit_test.hpp>

#include "tests/pml/engine_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

void name_all(World& world, bool comes) {
    for (const auto& rank : world.ranks)
        for (const auto& other : world.ranks)
            if (rank != other) rank->engine->named(world.process(other->number), comes);
}

// Time enough for looks at who may go.
void pass(World& world) {
    for (int i = 0; i < 3 * 1024; ++i) world.progress();
}

std::size_t connections(const World& world) {
    std::size_t count = 0;
    for (const auto& rank : world.ranks) count += rank->port->endpoints.size();
    return count;
}

} // namespace

BOOST_AUTO_TEST_CASE(who_is_named_no_more_is_forgotten_when_all_is_over) {
    const auto [first, end] = seeds(60);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 3, seed % 2, true);
            for (int round = 0; round < 3; ++round) {
                name_all(world, true);
                name_all(world, true); // a second communicator
                for (int step = 0; step < 60; ++step) {
                    Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(3))];
                    const int what = world.below(10);
                    if (what < 5)
                        world.send(rank);
                    else if (what < 8)
                        world.receive(rank, world.pattern(), false);
                    else
                        world.progress();
                }
                name_all(world, false);
                const unsigned before = world.forgotten_peers;
                if (round == 0) pass(world);
                BOOST_REQUIRE_EQUAL(world.forgotten_peers, before); // the second one has them
                name_all(world, false);
                if (world.below(2)) pass(world); // much is under way
                world.finish();
                BOOST_REQUIRE_EQUAL(world.open, 0u);
                BOOST_REQUIRE(world.sent.empty());
                pass(world); // those, too, that late answers have connected again
                BOOST_REQUIRE_GT(world.forgotten_peers, before);
                for (const auto& rank : world.ranks)
                    for (const FakeEndpoint* left : rank->port->endpoints) BOOST_REQUIRE(&left->to == rank->port.get());
            }
            BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
            BOOST_REQUIRE_EQUAL(world.reports, 0u);
        }
    }
}

BOOST_AUTO_TEST_CASE(who_is_named_again_stays) {
    World world(3, 2, false, true);
    Rank& rank = *world.ranks[0];
    rank.engine->named(world.process(1), true);
    Peer* const peer = rank.engine->peer(world.process(1));
    rank.engine->named(world.process(1), false);
    rank.engine->named(world.process(1), true);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 0u);
    BOOST_TEST(rank.engine->peer(world.process(1)) == peer);
    BOOST_TEST(connections(world) == 1u);
    rank.engine->named(world.process(1), false);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 1u);
    BOOST_TEST(connections(world) == 0u);
}

BOOST_AUTO_TEST_CASE(what_is_on_its_way_arrives) {
    World world(3, 2, false, true);
    Rank &from = *world.ranks[0], &to = *world.ranks[1];
    from.engine->named(world.process(1), true);
    Peer& peer = *from.engine->peer(world.process(1));
    const std::uint64_t data = 7;
    BOOST_REQUIRE(from.engine->send_now(peer, wire::compact({kContext, 0, 5}), &data, sizeof data, true));
    from.port->stalls = true;
    from.engine->named(world.process(1), false);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 0u);
    from.port->stalls = false;
    pass(world);
    BOOST_TEST(world.forgotten_peers == 1u);
    BOOST_TEST(to.engine->find({kContext, 0, 5}) != nullptr);
}

BOOST_AUTO_TEST_CASE(who_has_failed_is_forgotten_and_may_come_back) {
    World world(3, 2, false, true);
    world.faulty = true;
    Rank& rank = *world.ranks[0];
    rank.engine->named(world.process(1), true);
    Peer& peer = *rank.engine->peer(world.process(1));
    auto& endpoint = static_cast<FakeEndpoint&>(*peer.endpoint);
    endpoint.fail();
    rank.port->listener->endpoint_failed(endpoint);
    rank.engine->named(world.process(1), false);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 1u);
    BOOST_TEST(!rank.engine->source_failed({kContext, 1, 5}));
    BOOST_TEST(!rank.engine->peer(world.process(1))->failed);
}

namespace {

// One that leaves, and two that stay; all know each other. The one that stays waits for anybody.
struct Leaving {
    World world{3, 3, false, true};
    Rank &leaves = *world.ranks[0], &stays = *world.ranks[1];
    Leaving() {
        world.faulty = true;
        leaves.engine->named(world.process(1), true);
        for (const int other : {0, 2}) {
            stays.engine->named(world.process(other), true);
            BOOST_REQUIRE(stays.engine->peer(world.process(other)));
        }
        BOOST_REQUIRE(leaves.engine->peer(world.process(1)));
        world.receive(stays, {kContext, kAnySource, kAnyTag}, true);
    }
    void end() {
        auto& endpoint = static_cast<FakeEndpoint&>(*stays.engine->peer(world.process(0))->endpoint);
        endpoint.fail();
        stays.port->listener->endpoint_failed(endpoint);
        pass(world);
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(who_forgets_has_said_goodbye_and_is_not_missed, Leaving) {
    leaves.engine->named(world.process(1), false);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 1u);
    end();
    BOOST_TEST(world.failed == 0u);
    BOOST_TEST(world.open == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_has_not_left_is_missed, Leaving) {
    pass(world);
    end();
    BOOST_TEST(world.failed == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_comes_back_before_it_is_forgotten_is_missed, Leaving) {
    leaves.port->stalls = true;
    leaves.engine->named(world.process(1), false);
    pass(world);
    BOOST_TEST(world.forgotten_peers == 0u); // the goodbye is on its way
    leaves.engine->named(world.process(1), true);
    leaves.port->stalls = false;
    pass(world);
    end();
    BOOST_TEST(world.failed == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_is_met_again_is_missed, Leaving) {
    leaves.engine->named(world.process(1), false);
    pass(world);
    stays.engine->named(world.process(0), true);
    end();
    BOOST_TEST(world.failed == 1u);
}
