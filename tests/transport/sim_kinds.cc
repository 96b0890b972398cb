// Channels with paths of both kinds at once: an RC path and a DC path on every route. All kinds of traffic go over
// both, both fail and come back, and everything is checked as ever.
#define BOOST_TEST_MODULE transport_kinds
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "simulator/random_faults.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "two_kinds.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using path::Kind;
using path::Kinds;

namespace ucx_mp::path {
std::ostream& operator<<(std::ostream& out, Kinds kinds) { // NOLINT: found by Boost.Test
    return out << (kinds == Kinds::both ? "both" : kinds == Kinds::dc ? "dc" : kinds == Kinds::rc ? "rc" : "none");
}
} // namespace ucx_mp::path

namespace {

channel::Config with(Kinds kinds, connect::Transport transport = connect::Transport::rc) {
    channel::Config config = quick_config(transport);
    config.kinds = kinds;
    return config;
}

std::uint64_t dropped(Cluster& cluster) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < cluster.size(); ++i) {
        channel::Interface::Statistics statistics;
        cluster.node(i).iface().statistics(statistics);
        sum += statistics.dropped;
    }
    return sum;
}

struct Case {
    const char* fabric;
    connect::Transport transport;
    const char* policy;
    unsigned nodes;
    const char* nasty; // fault command, or null
    Nanos late;        // StressOptions::late
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.fabric << " " << c.transport << " " << c.policy << (c.nasty ? c.nasty : "")
               << (c.late ? " late" : "");
}
using enum connect::Transport;
const Case kCases[] = {
    {"two-rail", rc, "default", 3, nullptr, 0},
    {"two-rail", dc, "round_robin", 2, nullptr, 0},
    {"dual-port", rc, "round_robin", 2, nullptr, 0},
    {"two-rail-unequal", rc, "even", 2, "delay 50us 0:softhca_1:1", 0},
    {"four-path", rc, "round_robin", 3, "place-delay 30us *:softhca_0", 0},
    {"four-path", dc, "default", 3, "delay 20us 1:softhca_0:1", 100'000},
    {"two-rail", rc, "spray", 3, nullptr, 30'000},
};

} // namespace

// Both kinds carry messages, writes and reads.
BOOST_DATA_TEST_CASE(random_traffic, boost::unit_test::data::make(kCases), c) {
    channel::Config config;
    config.transport = c.transport;
    config.kinds = Kinds::both;
    config.policy = *schedule::make_policy(c.policy).config;
    config.receive_depth = 128; // receivers push back
    config.send_depth = 32;
    config.dci_count = 2;
    for (const std::uint64_t seed : {1, 2}) {
        Cluster cluster(c.fabric, c.nodes, config, {.seed = seed});
        if (c.nasty) cluster.world.fault(c.nasty);
        Stress stress(cluster, {.seed = seed, .late = c.late});
        BOOST_TEST(stress.run());
        BOOST_TEST(stress.verdict() == "");
        BOOST_TEST(dropped(cluster) == 0u);
        const OfKind rc_paths = of_kind(cluster, Kind::rc), dc_paths = of_kind(cluster, Kind::dc);
        BOOST_TEST(rc_paths.paths >= c.nodes * (c.nodes - 1));
        BOOST_TEST(rc_paths.paths == dc_paths.paths);
        for (const OfKind& one : {rc_paths, dc_paths}) {
            BOOST_TEST(one.up == one.paths);
            BOOST_TEST(one.failures == 0u);
            BOOST_TEST(one.written > 500'000u);
            BOOST_TEST(one.read > 500'000u);
        }
    }
}

// Paths of both kinds fail and come back under traffic of all kinds; everything happens once.
BOOST_DATA_TEST_CASE(faults_over_both,
                     boost::unit_test::data::make({connect::Transport::rc, connect::Transport::dc}) *
                         boost::unit_test::data::make({1u, 2u, 3u, 4u, 5u, 6u}),
                     transport, seed) {
    channel::Config config = with(Kinds::both, transport);
    config.recovery.packet_numbers = seed % 3 != 0; // else markers decide
    config.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    config.recovery.partition_timeout = 0;
    Cluster cluster("two-rail", 2, config, {.seed = seed});
    Stress stress(cluster, {.seed = seed, .operations = 1500, .slot = 1 << 18, .constant = 1 << 18});
    Faults faults(cluster, seed);
    BOOST_TEST(stress.run(4'000'000'000));
    faults.over = true;
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(faults.begun > 3u);
    // The last faults end, and a control plane that has found no route asks again.
    BOOST_TEST(cluster.until([&] { return of_kind(cluster, Kind::rc).up == 4 && of_kind(cluster, Kind::dc).up == 4; },
                             200'000'000));
    for (const Kind kind : {Kind::rc, Kind::dc}) {
        const OfKind one = of_kind(cluster, kind);
        BOOST_TEST(one.paths == 4u);
        BOOST_TEST(one.failures > 0u);
        BOOST_TEST(one.returns > 0u);
        BOOST_TEST(one.written > 100'000u);
        BOOST_TEST(one.read > 100'000u);
        BOOST_TEST(one.up == one.paths);
    }
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    cluster.after_progress = {};
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// PathConfig::rc_paths
BOOST_AUTO_TEST_CASE(so_many_of_rc) {
    for (const unsigned count : {1u, 3u}) {
        channel::Config config = with(Kinds::both);
        config.paths.rc_paths = count;
        Cluster cluster("four-path", 2, config);
        BOOST_TEST(traffic(cluster, count) == "");
        for (unsigned i = 0; i < 2; ++i) {
            const OfKind rc_paths = of_kind(cluster.node(i), Kind::rc), dc_paths = of_kind(cluster.node(i), Kind::dc);
            BOOST_TEST(rc_paths.paths == count);
            BOOST_TEST(dc_paths.paths > 0u);
        }
    }
}

// Peers of which only one has both kinds: their channel has the other one's, and only one direction has tags.
BOOST_DATA_TEST_CASE(sides_that_differ,
                     boost::unit_test::data::make({connect::Transport::rc, connect::Transport::dc}) *
                         boost::unit_test::data::make({0u, 1u}),
                     transport, mixed) {
    std::vector<channel::Config> configs(2, with(Kinds::none, transport));
    configs[mixed].kinds = Kinds::both;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 3, 200, true) == "");
    const Kind common = transport == connect::Transport::dc ? Kind::dc : Kind::rc;
    BOOST_TEST(of_kind(cluster, common).paths == 4u);
    BOOST_TEST(of_kind(cluster, path::other(common)).paths == 0u);
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 4, 200) == "");
    cluster.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(cluster.until([&] { return of_kind(cluster, common).up == 4; }, 1'000'000'000));
    BOOST_TEST(traffic(cluster, 5, 200) == "");
    BOOST_TEST(dropped(cluster) == 0u);
}

// Both kinds have places for a port that is down.
BOOST_DATA_TEST_CASE(a_port_comes_up, boost::unit_test::data::make({1u, 2u, 3u}), who) {
    std::vector<std::string> down;
    for (unsigned i = 0; i < 2; ++i)
        if (who >> i & 1) down.push_back("port down " + std::to_string(i) + ":softhca_1:1");
    Cluster cluster("two-rail", 2, with(Kinds::both), {}, {}, down);
    BOOST_TEST(traffic(cluster, 1, 60) == "");
    const unsigned before = of_kind(cluster, Kind::rc).up;
    BOOST_TEST(before >= 2u);
    BOOST_TEST(of_kind(cluster, Kind::dc).up == before);
    for (const std::string& fault : down) cluster.world.fault("port up" + fault.substr(9));
    for (const Kind kind : {Kind::rc, Kind::dc})
        BOOST_TEST(cluster.until([&] { return of_kind(cluster, kind).up >= before + 2; }, 1'000'000'000));
    BOOST_TEST(traffic(cluster, 2, 200) == "");
    cluster.run_for(10'000'000);
    for (const Kind kind : {Kind::rc, Kind::dc}) {
        const OfKind now = of_kind(cluster, kind);
        BOOST_TEST(now.up == now.paths - now.absent);
        // Of both at once each side has chosen a path to the other's first port, before it heard of the second one.
        if (who != 3) BOOST_TEST(now.up == before + 2);
    }
}

// Nothing can be made of two interfaces without a kind in common.
BOOST_AUTO_TEST_CASE(nothing_in_common) {
    Cluster cluster("two-rail", {with(Kinds::rc), with(Kinds::dc)});
    bool failed = false;
    for (unsigned i = 0; i < 2; ++i)
        cluster.node(i).on_failure = [&](Channel&, Status status) { failed = status == Status::unreachable; };
    cluster.node(0).services().quiet = cluster.node(1).services().quiet = true;
    BOOST_TEST(cluster.until([&] {
        (void)cluster.node(0).iface().am_short(cluster.channel(0, 1), 1, 0, nullptr, 0);
        return failed;
    }));
}
