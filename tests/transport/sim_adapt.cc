// Who gets RC is decided by what is counted: one to all, all to one, patterns that change, while links fail. Costs are
// given here, because the emulated adapters of these fabrics do not charge for what DC does; sim_adapt_costs measures.
#define BOOST_TEST_MODULE transport_adapt
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "adapt_nodes.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using adapt::Service;

// The limit holds at the one, whoever wishes; who has been refused is served by DC.
BOOST_DATA_TEST_CASE(one_and_all, boost::unit_test::data::make({true, false}), to) {
    Cluster cluster("two-rail", 6, config(2)); // peers, two queue pairs each
    Messages messages(cluster);
    const auto pairs = to ? from_one({1, 2, 3, 4, 5}) : to_one({1, 2, 3, 4, 5});
    for (unsigned round = 0; round < 12; ++round) BOOST_REQUIRE(messages.all(pairs, 2000));
    BOOST_TEST(messages.mistakes == 0u);
    BOOST_TEST(with_rc(cluster, 0).size() == 2u);
    const Interface::Statistics now = statistics(cluster.node(0));
    BOOST_TEST(now.adaptation.rc_in_use == 2u);
    BOOST_TEST(now.adaptation.looks >= 2u);
    BOOST_TEST(now.adaptation.count_bytes > 0u);
    BOOST_TEST(now.adaptation.count_bytes < 20'000u);
    BOOST_TEST(changes(cluster) < 40u); // no to and fro
}

// The heaviest have it, also those that come later.
BOOST_AUTO_TEST_CASE(the_heaviest) {
    Cluster cluster("two-rail", 6, config(2));
    Messages messages(cluster);
    for (unsigned round = 0; round < 10; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 300));
        BOOST_REQUIRE(messages.all(from_one({4, 5}), 3000));
    }
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{4, 5}));
    BOOST_TEST(messages.mistakes == 0u);
}

// Of those who ask the destination prefers the heaviest: who has it and sends less loses it.
// Whether it wishes by itself, or only judges the wishes of others.
BOOST_DATA_TEST_CASE(the_destination_chooses, boost::unit_test::data::make({true, false}), wishes) {
    std::vector<channel::Config> configs(6, config(2));
    if (!wishes) configs[0].adapt.tuning.costs.rc = 0;
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    unsigned rounds = 0;
    while (with_rc(cluster, 0) != std::vector<unsigned>{1, 2} && rounds++ < 30)
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 2000));
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{1, 2}));
    rounds = 0;
    while (with_rc(cluster, 0) != std::vector<unsigned>{3, 4} && rounds++ < 60) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        BOOST_REQUIRE(messages.all(to_one({3, 4}), 3000));
    }
    BOOST_TEST_MESSAGE("the heavier ones have it after " << rounds << " rounds");
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{3, 4}));
    for (unsigned round = 0; round < 10; ++round) { // and keep it
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        BOOST_REQUIRE(messages.all(to_one({3, 4}), 3000));
    }
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{3, 4}));
    BOOST_TEST(messages.mistakes == 0u);
}

// Whoever is new gets it after a while, and nothing is sent again for that.
BOOST_AUTO_TEST_CASE(patterns_change) {
    Cluster cluster("two-rail", 6, config(2));
    Messages messages(cluster);
    for (unsigned phase = 0; phase < 4; ++phase) {
        const auto now = phase % 2 ? from_one({3, 4}) : from_one({1, 2});
        const std::vector<unsigned> wanted = phase % 2 ? std::vector<unsigned>{3, 4} : std::vector<unsigned>{1, 2};
        unsigned rounds = 0;
        while (with_rc(cluster, 0) != wanted && rounds++ < 200) BOOST_REQUIRE(messages.all(now, 1000));
        BOOST_TEST_MESSAGE("phase " << phase << ": " << rounds << " rounds of 1000 messages to each");
        BOOST_TEST((with_rc(cluster, 0) == wanted));
    }
    BOOST_TEST(messages.mistakes == 0u);
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : statistics(cluster.node(i)).channels) {
            BOOST_TEST(channel.recovery.messages_again == 0u);
            BOOST_TEST(channel.duplicates == 0u);
        }
}

// While links fail and come back.
BOOST_DATA_TEST_CASE(links_fail,
                     boost::unit_test::data::make({1u, 2u, 3u}) * boost::unit_test::data::make({false, true}), seed,
                     measured) {
    channel::Config c = config(2);
    c.adapt.measured = measured;
    c.dci_count = 2;
    c.adapt.pool = seed % 2 ? 0 : 128;
    c.recovery.hold_down = kMs;
    c.recovery.watch_interval = kMs / 10;
    c.recovery.partition_timeout = 0;
    c.reliability.timeout = 5;
    c.reliability.retry_count = 2;
    Cluster cluster("two-rail", 5, c, {.seed = seed});
    Messages messages(cluster);
    std::mt19937_64 random(seed);
    bool over = false;
    std::function<void()> fail = [&] {
        if (over) return;
        const std::string port = std::to_string(random() % 5) + ":softhca_" + std::to_string(random() % 2) + ":1";
        cluster.world.fault("port down " + port);
        cluster.world.at(cluster.world.now() + 1 + random() % kMs, [&, port] {
            cluster.world.fault("port up " + port);
            cluster.world.at(cluster.world.now() + 1 + random() % kMs, fail);
        });
    };
    cluster.world.at(cluster.world.now() + kMs, fail);
    for (unsigned phase = 0; phase < 8; ++phase)
        for (unsigned round = 0; round < 6; ++round)
            BOOST_REQUIRE(messages.all(phase % 3 == 0   ? from_one({1, 2, 3, 4})
                                       : phase % 3 == 1 ? to_one({1, 2, 3, 4})
                                                        : from_one({1 + phase % 4}),
                                       600));
    over = true;
    BOOST_TEST(messages.mistakes == 0u);
    BOOST_TEST((measured || changes(cluster) > 0u));
    cluster.run_for(50 * kMs);
    BOOST_TEST(traffic(cluster, seed) == "");
}

// Few peers get RC at once, and keep it.
BOOST_AUTO_TEST_CASE(eager) {
    Cluster cluster("two-rail", 3, config(2, Mode::eager));
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all({{0, 1}, {1, 2}, {2, 0}}, 1));
    cluster.run_for(kMs);
    for (unsigned i = 0; i < 3; ++i) BOOST_TEST(with_rc(cluster, i).size() == 2u);
    for (unsigned round = 0; round < 10; ++round) BOOST_REQUIRE(messages.all({{0, 1}}, 1000));
    for (unsigned i = 0; i < 3; ++i) BOOST_TEST(with_rc(cluster, i).size() == 2u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Who had no endpoint yet has refused. It is asked again.
BOOST_AUTO_TEST_CASE(eager_asks_again) {
    std::vector<channel::Config> configs{config(2, Mode::eager), config(2)};
    configs[1].adapt.tuning.costs.make_rc = 1e12; // it wishes nothing
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    while (messages.to(1, 0)->usage.endpoints) cluster.node(1).iface().detach(*messages.to(1, 0));
    BOOST_REQUIRE(messages.all({{0, 1}}, 1000));
    pass(cluster, 10 * kMs);
    BOOST_TEST(with_rc(cluster, 0).empty());
    std::string error;
    BOOST_REQUIRE(cluster.node(1).iface().attach(cluster.node(0).iface().address(), error));
    for (unsigned round = 0; round < 100 && with_rc(cluster, 0).empty(); ++round) {
        BOOST_REQUIRE(messages.all({{0, 1}}, 100));
        pass(cluster, 10 * kMs);
    }
    BOOST_TEST(with_rc(cluster, 0).size() == 1u);
    BOOST_TEST(messages.mistakes == 0u);
}

// The limit is of peers, however many paths each of them has.
BOOST_AUTO_TEST_CASE(peers_are_counted) {
    channel::Config c = config(2, Mode::eager);
    c.paths.num_paths = 0;               // four routes between two rails each
    c.adapt.tuning.costs.make_rc = 1e12; // the counts choose nobody
    Cluster cluster("four-path", 4, c);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all({{0, 1}, {0, 2}, {1, 2}}, 1));
    BOOST_REQUIRE(messages.all({{0, 3}}, 1));
    cluster.run_for(10 * kMs);
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{1, 2}));
    BOOST_TEST(with_rc(cluster, 3).empty());
    const Interface::Statistics now = statistics(cluster.node(0));
    BOOST_TEST(now.adaptation.rc_in_use == 2u);
    BOOST_TEST(now.adaptation.rc_kept == 16u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Connections that come and go by a limit do not bring RC each time: it would cost more than the connection.
BOOST_AUTO_TEST_CASE(eager_with_a_limit) {
    channel::Config c = config(8, Mode::eager);
    c.adapt.tuning.costs.make_rc = 1e9; // the counts choose nobody
    c.max_connections = 1;
    Cluster cluster("two-rail", 4, c);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1}), 1));
    BOOST_TEST(cluster.until([&] { return with_rc(cluster, 0).size() == 1; }, 10 * kMs));
    for (unsigned round = 0; round < 4; ++round)
        for (const unsigned peer : {2u, 3u, 1u}) {
            unsigned left = 10;
            for (unsigned turn = 0; turn < 2000 && (left || !messages.arrived()); ++turn, pass(cluster, 10'000))
                while (left && messages.send(0, peer)) --left;
            BOOST_REQUIRE(messages.arrived());
            pass(cluster, 10 * kMs);
            if (round) // each has been parked before
                for (unsigned i = 0; i < 4; ++i) BOOST_TEST(with_rc(cluster, i).empty());
        }
    BOOST_TEST(statistics(cluster.node(0)).parks > 6u);
    BOOST_TEST(messages.mistakes == 0u);
}

// What costs more than it saves is not done.
BOOST_AUTO_TEST_CASE(not_worth_it) {
    channel::Config dear = config(2);
    dear.adapt.tuning.costs.make_rc = 1e9;
    Cluster cluster("two-rail", 4, dear);
    Messages messages(cluster);
    for (unsigned round = 0; round < 20; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST(with_rc(cluster, 0).empty());
    BOOST_TEST(messages.mistakes == 0u);
}

// Whom we send most to comes before those that have asked us and send little.
BOOST_AUTO_TEST_CASE(our_own_heaviest) {
    std::vector<channel::Config> configs(4, config(2));
    configs[3].adapt.tuning.costs.make_rc = 1e12; // it wishes nothing
    configs[0].adapt.tuning.costs.make_rc = 3'000'000;
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    for (unsigned round = 0; with_rc(cluster, 0) != std::vector<unsigned>{1, 2} && round < 60; ++round) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        pass(cluster, kMs / 10);
    }
    BOOST_REQUIRE((with_rc(cluster, 0) == std::vector<unsigned>{1, 2}));
    const auto has = [&] {
        const std::vector<unsigned> now = with_rc(cluster, 0);
        return std::ranges::find(now, 3u) != now.end();
    };
    unsigned rounds = 0;
    for (; !has() && rounds < 60; ++rounds) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        BOOST_REQUIRE(messages.all(from_one({3}), 4000));
    }
    BOOST_TEST(has());
    BOOST_TEST(messages.mistakes == 0u);
}

// Who has asked once and does not come again takes RC from somebody once at most.
BOOST_AUTO_TEST_CASE(an_old_wish) {
    std::vector<channel::Config> configs(4, config(2));
    configs[0].adapt.tuning.costs.rc = 0; // it only judges
    configs[3].adapt.mode = Mode::manual; // it asks once
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    for (unsigned round = 0; with_rc(cluster, 0) != std::vector<unsigned>{1, 2} && round < 60; ++round) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        pass(cluster, kMs / 10);
    }
    BOOST_REQUIRE((with_rc(cluster, 0) == std::vector<unsigned>{1, 2}));
    BOOST_REQUIRE(messages.all(to_one({3}), 40'000)); // it is the heaviest for long
    BOOST_TEST((cluster.node(3).iface().serve_by(cluster.channel(3, 0), Service::rc) == Status::ok));
    const auto switches = [&] {
        std::uint64_t sum = 0;
        for (const unsigned at : {1u, 2u})
            for (const auto& channel : statistics(cluster.node(at)).channels) sum += channel.service.switches;
        return sum;
    };
    const std::uint64_t before = switches();
    for (unsigned round = 0; round < 200; ++round) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 100));
        pass(cluster, kMs);
    }
    BOOST_TEST_MESSAGE(switches() - before << " switches");
    BOOST_TEST(switches() - before <= 4u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Writes count as messages do.
BOOST_AUTO_TEST_CASE(writes_count) {
    Cluster cluster("two-rail", 3, config(2));
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1, 2}), 1));
    std::vector<Node::Memory> memory;
    for (unsigned peer = 1; peer < 3; ++peer) memory.push_back(cluster.node(peer).memory(64));
    for (unsigned i = 0; i < 20'000; ++i) {
        BOOST_REQUIRE(cluster.until([&] {
            const unsigned peer = 1 + i % 2;
            const std::uint64_t value = i;
            cluster.world.select(0);
            return Interface::put_short(*messages.to(0, peer), &value, sizeof value, memory[peer - 1].address(),
                                        memory[peer - 1].keys) == Status::ok;
        }));
        if (i % 100 == 0) pass(cluster, kMs / 10);
    }
    BOOST_TEST(with_rc(cluster, 0).size() == 2u);
}

// Node 0 has no endpoint any more.
static void detach_all(Cluster& cluster) {
    for (unsigned peer = 1; peer < cluster.size(); ++peer) {
        Channel& channel = cluster.channel(0, peer);
        while (channel.usage.endpoints) cluster.node(0).iface().detach(channel);
    }
}

// Who has no endpoints any more holds no queue pairs of RC.
BOOST_AUTO_TEST_CASE(without_endpoints) {
    Cluster cluster("two-rail", 3, config(2));
    Messages messages(cluster);
    for (unsigned round = 0; round < 40; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2}), 1000));
    BOOST_REQUIRE(with_rc(cluster, 0).size() == 2u);
    Node& node = cluster.node(0);
    detach_all(cluster);
    BOOST_TEST(cluster.until(
        [&] {
            BOOST_REQUIRE(messages.send(1, 0)); // something happens there
            cluster.run_for(kMs / 10);
            const Interface::Statistics now = statistics(node);
            return now.adaptation.rc_in_use == 0 && now.adaptation.rc_kept == 0;
        },
        1'000 * kMs));
}

BOOST_AUTO_TEST_CASE(rings_without_endpoints) {
    channel::Config c = config(2);
    c.adapt.max_rings = 8;
    c.adapt.rings_at_once = true;
    Cluster cluster("two-rail", 3, c);
    Messages messages(cluster);
    Node& node = cluster.node(0);
    const auto rings = [&] { return statistics(node).rings.rings; };
    for (unsigned round = 0; round < 100 && rings() < 2; ++round) BOOST_REQUIRE(messages.all(to_one({1, 2}), 100));
    BOOST_REQUIRE(rings() == 2u);
    detach_all(cluster);
    BOOST_TEST(cluster.until(
        [&] {
            BOOST_REQUIRE(messages.send(1, 0)); // something happens there
            cluster.run_for(kMs / 10);
            return rings() == 0;
        },
        1'000 * kMs));
    BOOST_TEST(messages.mistakes == 0u);
}

// Who only receives from a peer has no endpoint there, and gives RC to that peer all the same.
BOOST_AUTO_TEST_CASE(who_only_receives) {
    std::vector<channel::Config> configs(3, config(2));
    configs[1].adapt.tuning.costs.make_rc = configs[2].adapt.tuning.costs.make_rc = 1e9; // they wish nothing
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    for (const auto& [at, to] : {std::pair{1u, 0u}, std::pair{2u, 0u}}) {
        Channel& channel = cluster.channel(at, to);
        while (channel.usage.endpoints) cluster.node(at).iface().detach(channel);
    }
    for (unsigned round = 0; round < 40; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2}), 1000));
    BOOST_TEST(with_rc(cluster, 0).size() == 2u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Connections that are parked before anybody has counted: their messages count.
BOOST_AUTO_TEST_CASE(parked_between_counts) {
    channel::Config c = config(2);
    c.adapt.tuning.min_interval = c.adapt.tuning.interval = 80 * kMs;
    c.adapt.tuning.costs.make_rc = 600'000; // 4000 messages
    Cluster cluster("two-rail", 2, c);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1}), 8));
    const std::uint32_t slot = cluster.channel(0, 1).local_id & channel::kSlotMask;
    for (unsigned round = 0; round < 200; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1}), 40));
        for (unsigned i = 0; i < 2; ++i) (void)cluster.node(i).iface().park(cluster.channel(i, 1 - i));
        BOOST_TEST(cluster.until([&] { return cluster.channel(0, 1).parked; }, 100 * kMs));
    }
    BOOST_TEST((cluster.channel(0, 1).local_id & channel::kSlotMask) == slot);
    BOOST_TEST(messages.mistakes == 0u);
    for (unsigned round = 0; with_rc(cluster, 0).empty() && round < 400; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1}), 1)); // too few by themselves
        cluster.run_for(kMs);
    }
    BOOST_TEST(with_rc(cluster, 0).size() == 1u);
}
