// Queue pairs that connections have given back are used again: with their numbers, and with nothing of their earlier
// life.
#define BOOST_TEST_MODULE transport_pool
#include <cstring>
#include <set>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::Interface;

namespace {

constexpr Nanos kMs = 1'000'000;

channel::Config config() { return config_of(connect::Transport::rc); }

Interface::Statistics statistics(Node& node) {
    Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

std::set<std::uint32_t> numbers(Node& node) {
    std::set<std::uint32_t> all;
    for (const auto& channel : statistics(node).channels)
        for (const auto& path : channel.paths) all.insert(path.qp_number);
    return all;
}

bool park(Cluster& cluster, unsigned a, unsigned b) {
    Channel &there = cluster.channel(a, b), &back = cluster.channel(b, a);
    return cluster.until([&] { return cluster.node(a).iface().park(there) == Status::ok; }, 1'000 * kMs) &&
           cluster.until([&] { return there.parked && back.parked; }, 100 * kMs);
}

} // namespace

// After a rest; before that they are not there for anybody.
BOOST_AUTO_TEST_CASE(used_again) {
    Cluster cluster("two-rail", 2, config());
    BOOST_REQUIRE(traffic(cluster, 1) == "");
    const std::set<std::uint32_t> first = numbers(cluster.node(0));
    for (unsigned round = 1; round < 8; ++round) {
        BOOST_REQUIRE(park(cluster, round % 2, 1 - round % 2));
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_TEST(cluster.until([&] { return statistics(cluster.node(i)).pooled == 2; }, kMs / 2));
            BOOST_TEST(statistics(cluster.node(i)).queue_pairs == 2u);
        }
        cluster.run_for(2 * kMs);
        BOOST_REQUIRE(traffic(cluster, 1 + round) == "");
        BOOST_TEST((numbers(cluster.node(0)) == first));
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_TEST(statistics(cluster.node(i)).reused == 2u * round);
            BOOST_TEST(statistics(cluster.node(i)).pooled == 0u);
            for (const auto& channel : statistics(cluster.node(i)).channels)
                BOOST_TEST(channel.recovery.messages_again + channel.duplicates == 0u);
        }
    }
    BOOST_REQUIRE(park(cluster, 0, 1));
    BOOST_REQUIRE(traffic(cluster, 20) == ""); // at once
    for (const std::uint32_t number : numbers(cluster.node(0))) BOOST_TEST(first.count(number) == 0u);
}

// No more than are allowed, and none where nobody has an endpoint.
BOOST_AUTO_TEST_CASE(bounds) {
    for (const unsigned limit : {0u, 4u}) {
        channel::Config c = config();
        c.queue_pair_pool = 5;
        c.max_connections = limit;
        Cluster cluster("two-rail", 12, c);
        for (unsigned i = 1; i < 12; ++i) {
            Channel& channel = cluster.channel(0, i);
            BOOST_REQUIRE(cluster.until(
                [&] {
                    if (Interface::am_short(channel, 3, 0, nullptr, 0) == Status::ok) return true;
                    cluster.node(0).progress(); // a program that wants something calls it
                    return false;
                },
                1'000 * kMs));
            cluster.run_for(kMs / 10);
            BOOST_TEST(statistics(cluster.node(0)).pooled <= 2 * (limit ? 3u : 5u));
        }
        cluster.run_for(10 * kMs);
        for (unsigned i = 1; i < 12; ++i) {
            Channel& channel = cluster.channel(0, i);
            (void)cluster.until([&] { return cluster.node(0).iface().park(channel) != Status::busy; }, 100 * kMs);
            cluster.run_for(kMs);
            BOOST_TEST(statistics(cluster.node(0)).pooled <= 2 * (limit ? 3u : 5u));
        }
        BOOST_TEST(statistics(cluster.node(0)).pooled == 2 * (limit ? 3u : 5u));
        for (unsigned i = 1; i < 12; ++i) {
            Channel& channel = cluster.channel(0, i);
            while (channel.usage.endpoints) cluster.node(0).iface().detach(channel);
        }
        BOOST_TEST(cluster.until(
            [&] {
                cluster.node(0).progress();
                return statistics(cluster.node(0)).pooled == 0;
            },
            100 * kMs));
    }
}

// What belongs to the connection before, and comes by the same queue pair: nobody's.
BOOST_AUTO_TEST_CASE(stale_messages) {
    Cluster cluster("two-rail", 2, config());
    unsigned got = 0;
    cluster.node(1).on_am(
        3, [](void* count, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(count), Status::ok; },
        &got);
    Channel &there = cluster.channel(0, 1), &back = cluster.channel(1, 0);
    const auto say = [&] {
        return cluster.until([&] { return Interface::am_short(there, 3, 0, nullptr, 0) == Status::ok; }, 100 * kMs);
    };
    for (unsigned i = 0; i < 3; ++i) BOOST_REQUIRE(say());
    BOOST_REQUIRE(cluster.until([&] { return got == 3; }));
    const std::uint32_t before = there.remote_id;
    BOOST_REQUIRE(park(cluster, 0, 1));
    cluster.run_for(2 * kMs);
    BOOST_REQUIRE(say());
    BOOST_REQUIRE(cluster.until([&] { return got == 4; }));
    BOOST_REQUIRE(statistics(cluster.node(1)).reused == 2u);
    BOOST_TEST(there.remote_id != before);
    const std::uint32_t expected = back.expected;
    const std::uint64_t dropped = statistics(cluster.node(1)).dropped;
    unsigned posted = 0;
    for (const std::uint32_t sequence : {0u, 1u, expected, expected + 1})
        for (channel::PathIndex path = 0; path < 2; ++path) {
            struct {
                channel::MessageHeader header{};
                std::uint64_t body = 0;
            } message;
            message.header.kind = static_cast<std::uint8_t>(channel::Kind::am) & 0xf;
            message.header.version = channel::kWireVersion & 0xf;
            message.header.am_id = 3;
            message.header.channel = before;
            message.header.sequence = sequence;
            message.header.ack = 3;
            channel::SendQueue& queue =
                *cluster.node(0).iface().core().placement.queue_for(there, path, schedule::Direction::write);
            const channel::Posted record{.channel = &there, .path = path};
            BOOST_REQUIRE(queue.send_inline({}, &message, sizeof message, record, IBV_SEND_SIGNALED));
            ++posted;
        }
    cluster.run_for(kMs);
    BOOST_TEST(got == 4u);
    BOOST_TEST(back.expected == expected);
    BOOST_TEST(statistics(cluster.node(1)).dropped == dropped + posted);
    BOOST_REQUIRE(say());
    BOOST_TEST(cluster.until([&] { return got == 5; }));
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Those of an adapter that has died go with it.
BOOST_AUTO_TEST_CASE(adapters_die) {
    channel::Config c = config();
    c.recovery.reopen_interval = 200'000;
    c.recovery.max_reopen_interval = 400'000;
    Cluster cluster("two-rail", 2, c);
    BOOST_REQUIRE(traffic(cluster, 1) == "");
    for (unsigned round = 0; round < 4; ++round) {
        BOOST_REQUIRE(park(cluster, 0, 1));
        cluster.run_for(2 * kMs);
        const std::string adapter = std::to_string(round % 2) + ":softhca_" + std::to_string(round / 2);
        cluster.world.fault("adapter-death " + adapter);
        if (round % 2) BOOST_REQUIRE(traffic(cluster, 10 + round) == ""); // or while it is dead
        cluster.run_for(kMs);
        cluster.world.fault("adapter-revive " + adapter);
        cluster.run_for(20 * kMs);
        BOOST_REQUIRE(traffic(cluster, 2 + round) == "");
        // Or more: what has been connected without that adapter has a path that is spare now.
        BOOST_TEST(
            cluster.until([&] { return paths_up(cluster.node(0)) >= 2 && paths_up(cluster.node(1)) >= 2; }, 100 * kMs));
    }
}

// An adapter that makes no more of them: those that rest are given back to it. The handshake takes longer, and that is
// all.
BOOST_DATA_TEST_CASE(adapter_is_full, boost::unit_test::data::make({false, true}), is_server) {
    channel::Config c = config();
    c.recovery.packet_lifetime = 200 * kMs;
    Cluster cluster("two-rail", 3, c);
    const auto say = [&](unsigned from, unsigned to) {
        Channel& channel = cluster.channel(from, to);
        return cluster.until([&] { return Interface::am_short(channel, 3, 0, nullptr, 0) == Status::ok; }, 1'000 * kMs);
    };
    BOOST_REQUIRE(say(0, 1));
    BOOST_REQUIRE(say(1, 0));
    cluster.run_for(kMs);
    for (unsigned adapter = 0; adapter < 2; ++adapter)
        cluster.world.fault("queue-pair-limit " + std::to_string(cluster.world.objects(adapter).queue_pairs) +
                            " 0:softhca_" + std::to_string(adapter));
    for (unsigned round = 0; round < 3; ++round) {
        const unsigned before = 1 + round % 2, next = 3 - before;
        BOOST_REQUIRE(park(cluster, 0, before));
        BOOST_TEST(cluster.until([&] { return statistics(cluster.node(0)).pooled == 2; }, 10 * kMs));
        const Nanos began = cluster.world.now();
        BOOST_REQUIRE((is_server ? say(next, 0) : say(0, next)));
        BOOST_REQUIRE((is_server ? say(0, next) : say(next, 0)));
        BOOST_TEST(cluster.world.now() - began < c.recovery.packet_lifetime); // nobody waits until they have rested
        BOOST_TEST(statistics(cluster.node(0)).pooled == 0u);
        BOOST_TEST(statistics(cluster.node(0)).reused == 0u);
    }
    BOOST_TEST(statistics(cluster.node(0)).queue_pairs != 0u);
}
