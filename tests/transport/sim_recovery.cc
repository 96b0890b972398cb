// What recovery promises beside exactly-once (which tests/faults judges).
#define BOOST_TEST_MODULE transport_recovery
#include <cstring>
#include <functional>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::AtomicOp;

namespace {

struct Done : Completion {
    Done() : Completion{fired, 1, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Done*>(self)->done = true; }
};

bool send(Cluster& cluster, unsigned from, unsigned to) {
    Channel& channel = cluster.channel(from, to);
    auto& iface = cluster.node(from).iface();
    if (!cluster.until([&] { return iface.am_short(channel, 1, 0, nullptr, 0) == Status::ok; })) return false;
    Done done;
    Status status = Status::no_resource;
    if (!cluster.until([&] { return (status = iface.flush(channel, &done)) != Status::no_resource; })) return false;
    return status == Status::ok || cluster.until([&] { return done.done && done.status == Status::ok; });
}

} // namespace

// Atomics name memory by a key of an adapter, which need not be the first one.
BOOST_DATA_TEST_CASE(atomics_on_memory_registered_after_an_adapter_died, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport));
    BOOST_REQUIRE(send(cluster, 0, 1));
    cluster.world.fault("adapter-death 1:softhca_0");
    BOOST_REQUIRE(send(cluster, 0, 1));
    auto memory = cluster.node(1).memory(4096), other = cluster.node(1).memory(4096);
    std::memset(memory.data, 0, 4096);
    BOOST_REQUIRE(memory.registration->rkey[0] == 0u);
    auto& iface = cluster.node(0).iface();
    Channel& to = cluster.channel(0, 1);
    std::uint64_t before = 1;
    Done done;
    Status status = Status::no_resource;
    BOOST_REQUIRE(cluster.until([&] {
        return (status = iface.atomic_fetch(to, AtomicOp::add, 8, 7, 0, &before, memory.address(), memory.keys,
                                            &done)) != Status::no_resource;
    }));
    BOOST_REQUIRE(cluster.until([&] { return done.done; }));
    BOOST_TEST((done.status == Status::ok));
    BOOST_TEST(before == 0u);
    BOOST_TEST(*reinterpret_cast<std::uint64_t*>(memory.data) == 7u);
}

BOOST_DATA_TEST_CASE(a_port_with_many_peers, kBoth, transport) {
    constexpr unsigned kPeers = 15;
    Cluster cluster("fattree-144", kPeers + 1, config_of(transport));
    for (unsigned peer = 1; peer <= kPeers; ++peer) BOOST_REQUIRE(send(cluster, 0, peer));
    const unsigned all = paths_up(cluster.node(0));
    BOOST_REQUIRE(all >= kPeers);
    cluster.world.fault("port down 0:softhca_0:1");
    cluster.run_for(3'000'000);
    BOOST_TEST(paths_up(cluster.node(0)) < all);
    cluster.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == all; }));
    for (unsigned peer = 1; peer <= kPeers; ++peer) BOOST_TEST(send(cluster, peer, 0));
}

namespace {
struct Totals {
    unsigned failures = 0, migrations = 0;
};
Totals totals(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    Totals sum;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths) sum.failures += path.failures, sum.migrations += path.migrations;
    return sum;
}
} // namespace

// A path goes to the other port of its adapters and back, and nothing is settled or sent again: by the event of our
// port, of the peer's port, by the watchdog, and by the adapter itself.
BOOST_DATA_TEST_CASE(queue_pairs_migrate,
                     boost::unit_test::data::make({"port down 0:softhca_0:1", "port down 1:softhca_0:1",
                                                   "drop 100% 1:softhca_0:1", "alone"}),
                     fault) {
    channel::Config config = config_of(connect::Transport::rc);
    config.apm = true;
    config.paths.num_paths = 1;
    const bool alone = std::string(fault) == "alone";
    if (alone) config.recovery.watch_interval = 0; // the adapter by itself, when its repetitions are used up
    const verbs::DeviceConfig rails{{"softhca_0:1", "softhca_0:2"}};
    Cluster cluster("dual-port", 2, config, {}, rails);
    for (unsigned i = 0; i < 20; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2)); // armed
    const std::string down = alone ? "drop 100% 1:softhca_0:1" : fault;
    cluster.world.fault(down);
    for (unsigned i = 0; i < 200; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    const Totals left = totals(cluster.node(0)), right = totals(cluster.node(1));
    BOOST_TEST(left.failures + right.failures == 0u);
    BOOST_TEST(left.migrations >= 1u);
    BOOST_TEST(left.migrations == right.migrations);
    // Back again: the other port fails now.
    cluster.world.fault(down.starts_with("port") ? "port up " + down.substr(10) : "drop 0% 1:softhca_0:1");
    cluster.run_for(1'000'000);
    for (unsigned i = 0; i < 20; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    cluster.world.fault("port down 0:softhca_0:2");
    for (unsigned i = 0; i < 200; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    BOOST_TEST(totals(cluster.node(0)).failures + totals(cluster.node(1)).failures == 0u);
    BOOST_TEST(totals(cluster.node(0)).migrations > left.migrations);
}

namespace {
std::uint64_t datagrams(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    return statistics.control.sent;
}
} // namespace

// After a silent loss it goes back by itself, not before the route works again, and not at once if that keeps failing.
BOOST_AUTO_TEST_CASE(it_goes_home_after_a_silent_loss) {
    channel::Config config = config_of(connect::Transport::rc);
    config.apm = true;
    config.paths.num_paths = 1;
    config.recovery.hold_down = 10'000'000;
    Cluster cluster("dual-port", 2, config, {}, {{"softhca_0:1", "softhca_0:2"}});
    for (unsigned i = 0; i < 20; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    const auto send_for = [&](Nanos time) {
        for (const Nanos end = cluster.world.now() + time; cluster.world.now() < end; cluster.run_for(200'000))
            if (!send(cluster, 0, 1) || !send(cluster, 1, 0)) return false;
        return true;
    };
    const unsigned before = totals(cluster.node(0)).migrations;
    for (unsigned round = 0; round < 2; ++round) {
        cluster.world.fault("drop 100% 1:softhca_0:1");
        BOOST_REQUIRE(
            cluster.until([&] { return send(cluster, 0, 1) && totals(cluster.node(0)).migrations % 2 != before % 2; }));
        const unsigned gone = totals(cluster.node(0)).migrations;
        BOOST_REQUIRE(send_for(30'000'000));
        BOOST_TEST(totals(cluster.node(0)).migrations == gone); // its route swallows everything
        const std::uint64_t before_that = datagrams(cluster.node(0));
        BOOST_REQUIRE(send_for(500'000'000));
        BOOST_TEST(datagrams(cluster.node(0)) - before_that < 20u); // probes are rare by now
        cluster.world.fault("drop 0% 1:softhca_0:1");
        const Nanos works = cluster.world.now();
        while (totals(cluster.node(0)).migrations == gone && cluster.world.now() < works + 1'000'000'000)
            BOOST_REQUIRE(send_for(1'000'000));
        BOOST_TEST(totals(cluster.node(0)).migrations == gone + 1);
        BOOST_REQUIRE(send_for(5'000'000));
        BOOST_TEST(totals(cluster.node(1)).migrations == gone + 1); // the other side has followed
    }
    BOOST_TEST(totals(cluster.node(0)).failures + totals(cluster.node(1)).failures == 0u);
}

// A route that swallows everything, and nobody tells. What has been found out once holds for the next connections,
// until the route is back.
BOOST_DATA_TEST_CASE(dead_routes_are_remembered, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.policy.kind = schedule::PolicyKind::round_robin;
    config.reliability.timeout = 14; // adapters find out late
    config.reliability.retry_count = 7;
    Cluster cluster("two-rail", 2, config);
    Channel* const to[] = {&cluster.channel(0, 1), &cluster.channel(1, 0)};
    const auto round = [&] {
        for (unsigned i = 0; i < 8; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
        BOOST_REQUIRE(cluster.until([&] { return cluster.node(0).iface().park(*to[0]) == Status::ok; }));
        BOOST_REQUIRE(cluster.until([&] { return to[0]->parked && to[1]->parked; }));
    };
    round();
    cluster.world.fault("drop 100% switch->node1:1");
    for (unsigned i = 0; i < 3; ++i) round(); // until both have noticed
    const Nanos began = cluster.world.now();
    for (unsigned i = 0; i < 20; ++i) round();
    BOOST_TEST(cluster.world.now() - began < Nanos{20} * 5'000'000);
    // Back, and no connection lasts long enough for it to be opened anew: after 1 s it is tried in earnest.
    cluster.world.fault("drop 0% switch->node1:1");
    for (unsigned i = 0; i < 60; ++i) {
        round();
        cluster.run_for(20'000'000);
    }
    round();
    BOOST_TEST(to[0]->dead_routes.empty());
    BOOST_REQUIRE(send(cluster, 0, 1));
    BOOST_TEST(paths_up(cluster.node(0)) == 2u);
}

namespace {

// Two rails with four routes each, between leaf switches; one message after the other over all of them.
struct Routes {
    Cluster cluster{"four-path", std::vector<unsigned>{0, 4}, make(), {}};
    bool polls = true;
    std::function<void()> poll = [this] {
        auto& services = cluster.node(0).services();
        if (polls) (void)services.at(services.now() + 1'000'000, poll); // else virtual time does not pass by its looks
    };

    Routes() {
        for (unsigned i = 0; i < 40; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
        BOOST_TEST(paths_up(cluster.node(0)) == 8u);
    }
    static channel::Config make() {
        channel::Config config = config_of(connect::Transport::rc);
        config.policy.kind = schedule::PolicyKind::round_robin;
        config.reliability.timeout = 14; // adapters find out late
        config.reliability.retry_count = 7;
        return config;
    }
    Nanos interval() { return cluster.node(0).iface().core().config.recovery.watch_interval; }
    // Until so many are left. ns.
    Nanos lose(const char* fault, unsigned left) {
        cluster.world.fault(fault);
        const Nanos began = cluster.world.now();
        polls = true;
        poll();
        while (paths_up(cluster.node(0)) > left && cluster.world.now() < began + 1'000'000'000)
            BOOST_REQUIRE(send(cluster, 0, 1));
        BOOST_TEST(paths_up(cluster.node(0)) == left);
        return cluster.world.now() - began;
    }
    unsigned usable() { return cluster.channel(0, 1).wiring.scheduler->paths().usable_count(); }
    ~Routes() { polls = false; }
};

} // namespace

// A port that swallows everything takes four routes along. That is found out once, not four times.
BOOST_AUTO_TEST_CASE(routes_of_a_mute_port) {
    Routes routes;
    BOOST_TEST(routes.lose("drop 100% 4:softhca_1:1", 4) < 12 * routes.interval());
    routes.cluster.world.fault("drop 0% 4:softhca_1:1");
    BOOST_TEST(routes.cluster.until(
        [&] { return paths_up(routes.cluster.node(0)) == 8 && paths_up(routes.cluster.node(1)) == 8; }));
}

// One of the routes alone: the others are asked, answer, and go on.
BOOST_AUTO_TEST_CASE(siblings_of_a_mute_route) {
    Routes routes;
    BOOST_TEST(routes.lose("drop 100% leaf2->spine2", 7) < 8 * routes.interval());
    const Nanos end = routes.cluster.world.now() + 3 * routes.interval();
    while (routes.cluster.world.now() < end) BOOST_REQUIRE(send(routes.cluster, 0, 1));
    BOOST_TEST(routes.usable() == 7u);
}

// Both of its ports are lost: then it has failed as any other path does, and comes back.
BOOST_AUTO_TEST_CASE(nowhere_to_migrate_to) {
    channel::Config config = config_of(connect::Transport::rc);
    config.apm = true;
    Cluster cluster("dual-port", 2, config, {}, {{"softhca_0:1", "softhca_0:2", "softhca_1:1"}});
    for (unsigned i = 0; i < 40; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    cluster.world.fault("port down 0:softhca_0:1");
    for (unsigned i = 0; i < 10; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    cluster.world.fault("port down 0:softhca_0:2");
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
    BOOST_TEST(totals(cluster.node(0)).failures >= 1u);
    cluster.world.fault("port up 0:softhca_0:1");
    cluster.world.fault("port up 0:softhca_0:2");
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 3 && paths_up(cluster.node(1)) == 3; }));
    for (unsigned i = 0; i < 20; ++i) BOOST_REQUIRE(send(cluster, i % 2, 1 - i % 2));
}

// The server's new half has been made, and fails before the client has heard of it: it is to execute nothing any more
// when the server says what has come over it.
BOOST_AUTO_TEST_CASE(a_half_that_fails_is_ended) {
    Cluster cluster("two-rail", 2, config_of(connect::Transport::rc)); // node 0 is the client
    BOOST_REQUIRE(send(cluster, 0, 1));
    const auto path = [&] {
        channel::Interface::Statistics statistics;
        cluster.node(1).iface().statistics(statistics);
        return statistics.channels.at(0).paths.at(1);
    };
    cluster.world.fault("port down 1:softhca_1:1");
    cluster.run_for(3'000'000);
    cluster.world.fault("drop 100% node1:1->switch");
    cluster.world.fault("port up 1:softhca_1:1");
    BOOST_REQUIRE(cluster.until([&] { return std::string(path().recovery) == "half"; }));
    const auto state = [&] { return cluster.world.queue_pair_state(path().qp_number); };
    BOOST_TEST(state() == std::uint32_t{IBV_QPS_RTS});
    cluster.world.fault("port down 1:softhca_1:1");
    BOOST_REQUIRE(cluster.until([&] { return std::string(path().recovery) == "asking"; }, 3'000'000));
    BOOST_TEST(state() == std::uint32_t{IBV_QPS_ERR});
    cluster.world.fault("drop 0% node1:1->switch");
    cluster.world.fault("port up 1:softhca_1:1");
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 2 && paths_up(cluster.node(1)) == 2; }));
    BOOST_TEST(send(cluster, 1, 0));
}

// What mp_info --history shows.
BOOST_DATA_TEST_CASE(history_of_a_port, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport));
    BOOST_REQUIRE(send(cluster, 0, 1));
    cluster.world.fault("port down 0:softhca_1:1");
    cluster.run_for(5'000'000);
    cluster.world.fault("port up 0:softhca_1:1");
    BOOST_REQUIRE(cluster.until([&] { return paths_up(cluster.node(0)) == 2; }));
    channel::Interface::Statistics statistics;
    cluster.node(0).iface().statistics(statistics);
    std::vector<std::string> seen;
    for (const auto& event : statistics.history) seen.push_back(event.what);
    BOOST_TEST(seen == (std::vector<std::string>{"down", "settled", "up"}), boost::test_tools::per_element());
    BOOST_REQUIRE(statistics.history.size() == 3);
    BOOST_TEST(statistics.history[0].cause == "its port is down here");
    BOOST_TEST(statistics.history[0].path == 1);
    BOOST_TEST(statistics.history[2].took >= 5'000'000);
    BOOST_TEST(statistics.transitions == 3u);
}

// The other side sees no event of its own; it would go on sending there until the watchdog or the adapter notices.
BOOST_DATA_TEST_CASE(a_peer_hears_of_a_port_that_is_down, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.recovery.watch_interval = 0;
    config.reliability = {};
    Cluster cluster("two-rail", 2, config);
    BOOST_REQUIRE(send(cluster, 0, 1));
    BOOST_REQUIRE(send(cluster, 1, 0));
    BOOST_REQUIRE(paths_up(cluster.node(1)) == 2u);
    cluster.world.fault("port down 0:softhca_0:1");
    cluster.run_for(1'000'000);
    BOOST_TEST(paths_up(cluster.node(0)) == 1u);
    BOOST_TEST(paths_up(cluster.node(1)) == 1u);
    for (unsigned i = 0; i < 8; ++i) BOOST_TEST(send(cluster, 1, 0));
    cluster.run_for(20'000'000); // its attempts are rare by now
    cluster.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(
        cluster.until([&] { return paths_up(cluster.node(0)) == 2 && paths_up(cluster.node(1)) == 2; }, 10'000'000));
}

// A fence waits while a path that has carried writes is suspect. Nothing else happens then but that it is cleared.
BOOST_AUTO_TEST_CASE(a_cleared_suspect_lets_a_fence_go) {
    channel::Config config;
    config.receive_depth = 256;
    config.policy = *schedule::make_policy("round_robin").config;
    config.reliability.timeout = 13; // 34 ms: the adapter repeats after the look that suspects and before the next one
    Cluster cluster("two-rail", 2, config);
    BOOST_REQUIRE(send(cluster, 0, 1));
    auto& iface = cluster.node(0).iface();
    Channel& to = cluster.channel(0, 1);
    auto ours = cluster.node(0).memory(4096), theirs = cluster.node(1).memory(4096);
    const Iov iov = ours.iov(0, 4096);
    cluster.world.fault("drop 100% 0:softhca_1:1");
    Done puts[2];
    for (Done& put : puts) // one on each path
        BOOST_REQUIRE((iface.put_zcopy(to, &iov, 1, theirs.address(), theirs.keys, &put) == Status::in_progress));
    const auto suspects = [&] {
        channel::Interface::Statistics statistics;
        cluster.node(0).iface().statistics(statistics);
        unsigned count = 0;
        for (const auto& channel : statistics.channels)
            for (const auto& path : channel.paths) count += path.state == schedule::PathState::suspect;
        return count;
    };
    // Programs that wait for something progress all the time.
    const auto progress_until = [&](const auto& condition) {
        for (const Nanos end = cluster.world.now() + 2'000'000'000; !condition() && cluster.world.now() < end;) {
            cluster.world.at(cluster.world.now() + 5'000, [] {});
            cluster.run_for(5'000);
            (void)cluster.settle_all();
        }
        return condition();
    };
    BOOST_REQUIRE(progress_until([&] { return suspects() == 1; }));
    bool sent = false;
    const auto try_it = [&] {
        if (!sent) sent = iface.am_short(to, 1, 0, nullptr, 0) == Status::ok;
        return sent;
    };
    BOOST_REQUIRE((iface.fence(to) == Status::ok));
    BOOST_REQUIRE(!try_it());
    cluster.node(0).on_room = [&](Channel&) {
        if (!try_it()) (void)iface.want_room(to);
    };
    BOOST_REQUIRE((iface.want_room(to) != Status::busy));
    cluster.world.fault("drop 0% 0:softhca_1:1"); // before the path is given up: the adapter repeats
    BOOST_TEST(progress_until([&] { return sent; }));
    BOOST_TEST(puts[0].done);
    BOOST_TEST(puts[1].done);
    BOOST_TEST(totals(cluster.node(0)).failures == 0u);
}

// Over RoCE there is no address handle while the neighbour is silent: a path less, not no connection.
BOOST_DATA_TEST_CASE(an_address_handle_that_can_not_be_made, boost::unit_test::data::make({false, true}), server) {
    Cluster cluster("two-rail", 2, config_of(connect::Transport::dc), {}, {},
                    {"address-handles refused 0:softhca_0:1"});
    BOOST_REQUIRE(send(cluster, server, !server));
    BOOST_REQUIRE(send(cluster, !server, server));
    cluster.run_for(5'000'000);
    BOOST_TEST(paths_up(cluster.node(0)) == 1u);
    BOOST_TEST(paths_up(cluster.node(1)) == 2u); // it has handles, and its targets are reached
    for (unsigned i = 0; i < 8; ++i) BOOST_TEST(send(cluster, i % 2, !(i % 2)));
    cluster.world.fault("address-handles granted 0:softhca_0:1");
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 2; }, 500'000'000));
    Stress stress(cluster, {.seed = 5, .operations = 60, .slot = 1 << 16, .constant = 1 << 16, .with_self = false});
    BOOST_TEST(stress.run(2'000'000'000));
    BOOST_TEST(stress.verdict() == "");
}
