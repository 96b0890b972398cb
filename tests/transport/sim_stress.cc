// Random traffic of every kind, all to all, checked byte for byte and for order, on fabrics and policies that make
// paths differ: unequal rates, delays, data that appear late.
#define BOOST_TEST_MODULE transport_stress
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "simulator/stress.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct Case {
    const char* fabric;
    connect::Transport transport;
    const char* policy;
    unsigned nodes;
    unsigned window;
    const char* nasty; // fault command, or null
    Nanos late = 0;    // StressOptions::late
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.fabric << (c.transport == connect::Transport::rc ? " rc " : " dc ") << c.policy << " nodes "
               << c.nodes << " window " << c.window << " " << (c.nasty ? c.nasty : "") << (c.late ? " late" : "");
}
using enum connect::Transport;
const Case kCases[] = {
    {"ideal-2rail", rc, "default", 3, 256, nullptr},
    {"two-rail", rc, "default", 3, 256, nullptr},
    {"two-rail", dc, "default", 3, 256, nullptr},
    {"two-rail-unequal", rc, "default", 2, 64, nullptr},
    {"two-rail-unequal", rc, "even", 2, 256, "delay 50us 0:softhca_1:1"},
    {"two-rail-unequal", dc, "round_robin", 2, 32, "delay 50us 0:softhca_1:1"},
    {"four-path", rc, "round_robin", 4, 16, "place-delay 30us *:softhca_0"},
    {"four-path", rc, "spray", 4, 256, "place-delay 30us *:softhca_1"},
    {"four-path", dc, "even", 4, 256, "place-delay 30us *:softhca_0"},
    {"four-path", rc, "bss:n_paths=4,n_batch=2", 3, 256, nullptr},
    {"four-path", rc, "adaptive", 3, 8, "delay 20us 1:softhca_0:1"},
    {"four-path", dc, "load_balanced", 3, 256, "delay 20us 1:softhca_0:1"},
    {"dual-port", rc, "epc", 3, 256, nullptr},
    {"two-rail", rc, "default", 3, 256, nullptr, 30'000},
    {"two-rail", dc, "round_robin", 3, 64, nullptr, 30'000},
    {"four-path", rc, "even", 3, 256, "delay 20us 1:softhca_0:1", 30'000},
    {"four-path", dc, "default", 3, 256, nullptr, 100'000},
};

} // namespace

BOOST_DATA_TEST_CASE(random_traffic, boost::unit_test::data::make(kCases), c) {
    channel::Config config;
    config.transport = c.transport;
    config.policy = *schedule::make_policy(c.policy).config;
    config.window = c.window;
    config.receive_depth = 128; // fewer than the senders may have under way: receivers push back (RNR)
    config.send_depth = 32;
    config.dci_count = 2;
    for (const std::uint64_t seed : {1, 2}) {
        Cluster cluster(c.fabric, c.nodes, config, {.seed = seed});
        if (c.nasty) cluster.world.fault(c.nasty);
        Stress stress(cluster, {.seed = seed, .late = c.late});
        const bool done = stress.run();
        BOOST_TEST(done, "seed " << seed);
        BOOST_TEST(stress.verdict() == "", "seed " << seed << ": " << stress.verdict());
        std::uint64_t early = 0, markers = 0;
        for (unsigned i = 0; i < cluster.size(); ++i) {
            channel::Interface::Statistics statistics;
            cluster.node(i).iface().statistics(statistics);
            BOOST_TEST(statistics.dropped == 0u);
            for (const auto& channel : statistics.channels) early += channel.early, markers += channel.markers_sent;
        }
        BOOST_TEST_MESSAGE("seed " << seed << ": " << stress.bytes / 1e6 << " MB in "
                                   << static_cast<double>(cluster.world.now() - 1'000'000'000) / 1e6 << " ms, " << early
                                   << " early messages, " << markers << " markers");
    }
}

// Sends are looked for only while one has asked for a completion: here never in between, which would find a lost count
// out.
BOOST_DATA_TEST_CASE(completions_are_counted, boost::unit_test::data::make({"rc 1", "rc 4", "dc 4"}), which) {
    channel::Config config;
    config.transport = which[0] == 'd' ? dc : rc;
    config.paths.num_paths = which[3] == '1' ? 1 : 4;
    config.silent_interval = 1u << 30;
    config.send_depth = 32;
    const verbs::DeviceConfig rails{{"softhca_0:1"}};
    Cluster cluster("four-path", 3, config, {.seed = 3}, rails);
    Stress stress(cluster, {.seed = 3});
    const bool done = stress.run();
    BOOST_TEST(done);
    BOOST_TEST(stress.verdict() == "");
}

BOOST_AUTO_TEST_CASE(repeats_bit_for_bit) {
    std::uint64_t fingerprint = 0;
    for (int round = 0; round < 2; ++round) {
        channel::Config config;
        Cluster cluster("four-path", 3, config, {.seed = 5});
        Stress stress(cluster, {.seed = 5, .operations = 100});
        BOOST_TEST(stress.run());
        BOOST_TEST(stress.verdict() == "");
        if (round) BOOST_TEST(cluster.world.fingerprint() == fingerprint);
        fingerprint = cluster.world.fingerprint();
    }
}
