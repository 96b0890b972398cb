// Engines over a network of dice, when something goes wrong: peers that are gone or refuse something, messages that
// make no sense.
#define BOOST_TEST_MODULE pml_failures
#include <boost/test/unit_test.hpp>

#include "tests/pml/engine_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

BOOST_AUTO_TEST_CASE(what_is_refused_fails_alone) {
    const auto [first, end] = seeds(200);
    unsigned failed = 0;
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 2, seed % 2);
            world.network.refuses = 5;
            for (int step = 0; step < 300; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(2))];
                if (world.below(2))
                    world.send(rank);
                else
                    world.progress();
            }
            world.finish();
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            BOOST_REQUIRE(world.sent.empty());
            BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
            BOOST_REQUIRE_EQUAL(world.reports, 0u); // nobody is gone
            failed += world.failed;
        }
    }
    BOOST_TEST(failed > 100u);
}

BOOST_AUTO_TEST_CASE(who_is_waited_for_is_asked) {
    World world(3, 3, false);
    Rank& rank = *world.ranks[0];
    for (const auto& each : world.ranks) each->port->tick = 1000; // else no time passes
    const auto checks = [&](int of) {
        unsigned count = 0;
        for (const FakeEndpoint* endpoint : rank.port->endpoints)
            if (&endpoint->to == world.ranks[static_cast<std::size_t>(of)]->port.get()) count += endpoint->checks;
        return count;
    };
    const auto turns = [&] {
        for (int i = 0; i < 3000; ++i) world.progress();
    };
    turns();
    BOOST_TEST(rank.port->endpoints.empty());
    world.receive(rank, {kContext, 1, 5}, true);
    turns();
    BOOST_TEST(checks(1) > 0u);
    BOOST_TEST(checks(2) == 0u);
    Operation& send = rank.operations.emplace_back();
    send.send = true;
    send.resize(20000);
    ++world.open;
    rank.engine->send(send.request(), *rank.engine->peer(102), {kContext, 0, 9}, send.data(), true, Hint::none);
    turns();
    BOOST_TEST(checks(2) > 0u);
}

BOOST_AUTO_TEST_CASE(a_peer_that_fails_ends_what_needs_it) {
    const auto [first, end] = seeds(200);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 3, seed % 2);
            world.faulty = true;
            for (int step = 0; step < 150; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(3))];
                const int what = world.below(14);
                if (what < 6)
                    world.send(rank);
                else if (what < 10)
                    world.receive(rank, {kContext, world.below(3), world.below(2)}, false);
                else
                    world.progress();
            }
            for (const int survivor : {0, 1})
                for (FakeEndpoint* endpoint : world.ranks[static_cast<std::size_t>(survivor)]->port->endpoints)
                    if (&endpoint->to == world.ranks[2]->port.get()) {
                        endpoint->fail();
                        world.ranks[static_cast<std::size_t>(survivor)]->port->listener->endpoint_failed(*endpoint);
                    }
            for (FakeEndpoint* endpoint : world.ranks[2]->port->endpoints) endpoint->failed = true; // says nothing more
            for (const int survivor : {0, 1}) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(survivor)];
                // Connected, so that it is known to have failed.
                Peer* const dead = rank.engine->peer(102);
                if (!dead->failed) {
                    static_cast<FakeEndpoint&>(*dead->endpoint).fail();
                    rank.port->listener->endpoint_failed(*dead->endpoint);
                }
            }
            for (int i = 0; i < 3000; ++i)
                for (const int survivor : {0, 1}) world.ranks[static_cast<std::size_t>(survivor)]->engine->progress();
            for (const int survivor : {0, 1}) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(survivor)];
                for (Operation& each : rank.operations)
                    if (!each.done) {
                        // Only what the other survivor could still match.
                        BOOST_REQUIRE(each.send ? each.request().peer->process != 102 : each.envelope.source != 2);
                    }
                Operation& late = rank.operations.emplace_back();
                late.envelope = {kContext, 2, 77};
                late.resize(8);
                ++world.open;
                rank.engine->receive(late.request(), late.envelope, late.data(), Hint::none);
                BOOST_REQUIRE(late.done);
                BOOST_REQUIRE(rank.engine->source_failed({kContext, kAnySource, 1}));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(messages_that_make_no_sense_are_dropped) {
    World world(3, 2, true);
    FakePort& port = *world.ranks[0]->port;
    for (int i = 0; i < 20000; ++i) {
        std::vector<std::byte> data(static_cast<std::size_t>(world.below(90)));
        for (std::byte& each : data) each = static_cast<std::byte>(world.below(3) ? 0 : world.below(256));
        const auto kind = static_cast<MessageKind>(wire::kClear + world.below(4)); // answers to what was never asked
        port.arrive(kind, data);
    }
    BOOST_TEST(world.reports == 1u); // the first one
    BOOST_TEST(world.ranks[0]->engine->statistics().find("dropped 20000") != std::string::npos);
}
