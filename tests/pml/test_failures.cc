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
            world.threads = seed % 3 == 1;
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

namespace {

// Rank 0 of a world in which time passes: with every look at the clock as much as is between two questions.
struct Watch : World {
    Rank& rank;
    explicit Watch(int count, std::uint32_t seed = 3, bool strangers = false)
        : World(seed, count, false, strangers), rank(*ranks[0]) {
        faulty = true;
        for (const auto& each : ranks) each->port->tick = 1000;
    }
    FakePort& port(int of) { return *ranks[static_cast<std::size_t>(of)]->port; }
    Peer& peer(int of) { return *rank.engine->peer(100 + static_cast<std::uint64_t>(of)); }
    unsigned checks(int of) {
        unsigned count = 0;
        for (const FakeEndpoint* endpoint : rank.port->endpoints)
            if (&endpoint->to == &port(of)) count += endpoint->checks;
        return count;
    }
    // Of rank 0 alone; so many questions.
    void looks(int count) {
        for (int i = 0; i < 1024 * (count + 1); ++i) rank.engine->progress();
    }
    Operation& send(Rank& from, int to, std::size_t bytes, std::int32_t tag) {
        Operation& send = from.operations.emplace_back();
        send.send = true;
        send.number = ++from.sends;
        send.resize(bytes);
        for (std::size_t i = 0; i < bytes; ++i) send.memory[i] = content(from.number, send.number, i);
        std::memcpy(send.memory.data(), &send.number, 4);
        sent[{from.number, send.number}] = bytes;
        ++open;
        from.engine->send(send.request(), *from.engine->peer(100 + static_cast<std::uint64_t>(to)),
                          {kContext, from.number, tag}, send.data(), false, Hint::none);
        return send;
    }
    Operation& receive(std::int32_t source, std::int32_t tag, std::size_t bytes) {
        Operation& receive = rank.operations.emplace_back();
        receive.envelope = {kContext, source, tag};
        receive.resize(bytes);
        ++open;
        rank.engine->receive(receive.request(), receive.envelope, receive.data(), Hint::none);
        return receive;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(who_is_looked_for_is_asked) {
    Watch world(4);
    const auto look = [&](std::int32_t source) { return world.rank.engine->source_failed({kContext, source, 5}); };
    for (int i = 0; i < 3000; ++i) {
        BOOST_REQUIRE(!look(1));
        BOOST_REQUIRE(!look(2));
        world.rank.engine->progress();
    }
    BOOST_TEST(world.checks(1) > 0u);
    BOOST_TEST(world.checks(2) > 0u);
    BOOST_TEST(world.checks(3) == 0u);
    world.looks(3); // nobody looks any more
    const unsigned before = world.checks(1);
    world.looks(3);
    BOOST_TEST(world.checks(1) == before);
    world.port(2).gone = true;
    for (int i = 0; i < 3000 && !look(kAnySource); ++i) world.rank.engine->progress();
    BOOST_TEST(look(kAnySource));
    BOOST_TEST(look(2));
    BOOST_TEST(!look(1));
}

// Eager messages make no peer of who sends them.
BOOST_AUTO_TEST_CASE(members_are_asked_for_a_receive_from_any_source) {
    for (const bool has_sent : {true, false})
        for (const bool looks : {true, false}) {
            Watch world(3);
            if (has_sent) {
                Operation& first = world.receive(kAnySource, 5, 8);
                world.send(*world.ranks[1], 0, 8, 5);
                while (!first.done) world.progress();
            }
            BOOST_TEST(world.rank.port->endpoints.empty());
            world.port(1).gone = true;
            const auto look = [&] { return world.rank.engine->source_failed({kContext, kAnySource, 5}); };
            if (looks) {
                for (int i = 0; i < 5000 && !look(); ++i) world.rank.engine->progress();
                BOOST_TEST(look());
            } else {
                Operation& any = world.receive(kAnySource, 5, 8);
                world.looks(4);
                BOOST_TEST(any.done);
            }
        }
}

BOOST_AUTO_TEST_CASE(members_are_met_by_and_by) {
    constexpr int kMembers = 100; // 16 at a time
    Watch world(kMembers + 1);
    const auto& endpoints = world.rank.port->endpoints;
    for (int i = 0; i < 20; ++i) { // none waits for long
        Operation& any = world.receive(kAnySource, 5, 8);
        for (int turn = 0; turn < 1024; ++turn) world.rank.engine->progress();
        BOOST_REQUIRE(world.rank.engine->cancel(any.request()));
    }
    BOOST_TEST(endpoints.empty());
    world.receive(kAnySource, 5, 8);
    std::size_t before = 0;
    for (int look = 0; look < 10; ++look) {
        for (int turn = 0; turn < 1024; ++turn) world.rank.engine->progress();
        BOOST_TEST(endpoints.size() <= before + 16);
        before = endpoints.size();
    }
    for (int i = 1; i <= kMembers; ++i) BOOST_TEST(world.checks(i) > 0u);
    BOOST_TEST(before == std::size_t{kMembers});
}

// They may have left, and had nobody to say it to.
BOOST_AUTO_TEST_CASE(members_of_other_jobs_are_not_met) {
    Watch world(3, 3, true);
    world.receive(kAnySource, 5, 8);
    world.looks(6);
    BOOST_TEST(world.rank.port->endpoints.empty());
}

BOOST_AUTO_TEST_CASE(who_has_said_goodbye_ends_only_what_names_it) {
    for (const bool says : {true, false}) {
        Watch world(3);
        (void)world.peer(2);
        Operation& any = world.receive(kAnySource, 5, 8);
        Operation& named = world.receive(2, 6, 8);
        const std::uint64_t process = 102;
        std::vector<std::byte> bye(sizeof process);
        std::memcpy(bye.data(), &process, sizeof process);
        if (says) world.port(0).arrive(wire::kBye, bye);
        world.port(2).gone = true;
        world.looks(4);
        BOOST_TEST(named.done);
        BOOST_TEST(any.done == !says);
        BOOST_TEST(world.rank.engine->source_failed({kContext, kAnySource, 5}) == !says);
        BOOST_TEST(world.rank.engine->source_failed({kContext, 2, 5}));
    }
}

BOOST_AUTO_TEST_CASE(nobody_is_left_for_any_source) {
    Watch world(3);
    world.alone = true;
    Operation& any = world.receive(kAnySource, 5, 8);
    for (const int gone : {1, 2}) {
        BOOST_TEST(!any.done);
        (void)world.peer(gone);
        const std::uint64_t process = 100 + static_cast<std::uint64_t>(gone);
        std::vector<std::byte> bye(sizeof process);
        std::memcpy(bye.data(), &process, sizeof process);
        world.port(0).arrive(wire::kBye, bye);
        world.port(gone).gone = true;
        world.looks(4);
    }
    BOOST_TEST(any.done);
}

BOOST_AUTO_TEST_CASE(a_sender_that_is_gone_between_two_pieces) {
    const auto [first, end] = seeds(40);
    unsigned parted = 0;
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            Watch world(2, seed * 20 + 7); // not at once, and by messages
            Operation& receive = world.receive(1, 5, 3000);
            world.send(*world.ranks[1], 0, 3000, 5);
            while (receive.request().phase == Phase::posted) world.progress();
            parted += receive.request().phase == Phase::filling;
            world.port(0).gone = true; // whatever is under way
            world.port(1).gone = true;
            world.looks(4);
            BOOST_REQUIRE(receive.done);
        }
    }
    BOOST_TEST(parted > 10u);
}

BOOST_AUTO_TEST_CASE(who_takes_nothing_more_is_asked) {
    Watch world(2);
    (void)world.peer(1);
    world.port(1).gone = true;
    Operation& send = world.send(world.rank, 1, 8, 5);
    BOOST_REQUIRE(!send.done); // there is no room
    world.looks(4);
    BOOST_TEST(send.done);
}

BOOST_AUTO_TEST_CASE(many_that_are_waited_for_are_asked_in_turn) {
    constexpr int kPeers = 128; // 64 at a time
    Watch world(kPeers + 1);
    for (int i = 1; i <= kPeers; ++i) (void)world.peer(i);
    world.receive(kAnySource, 5, 8);
    world.looks(6);
    for (int i = 1; i <= kPeers; ++i) BOOST_TEST(world.checks(i) > 0u);
}

BOOST_AUTO_TEST_CASE(many_receives_from_one_hide_no_other) {
    Watch world(3);
    for (int i = 0; i < 1000; ++i) world.receive(1, 5 + i, 8);
    world.receive(2, 5, 8);
    world.looks(4);
    BOOST_TEST(world.checks(1) > 0u);
    BOOST_TEST(world.checks(2) > 0u);
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
