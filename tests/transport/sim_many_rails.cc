// Sixteen rails on eight adapters.
#define BOOST_TEST_MODULE transport_many_rails
#include <set>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/channel.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

const char* const kFabric = "sixteen-rail";
constexpr unsigned kRails = 16;

channel::Config even(connect::Transport transport) {
    channel::Config config = config_of(transport);
    config.policy.kind = schedule::PolicyKind::round_robin;
    return config;
}

// Rails of node 0 over which it has written.
std::set<std::string> used(Cluster& cluster) {
    channel::Interface::Statistics statistics;
    cluster.node(0).iface().statistics(statistics);
    std::set<std::string> out;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths)
            if (path.written) out.insert(path.local_rail);
    return out;
}

} // namespace

BOOST_DATA_TEST_CASE(all_are_used, kBoth, transport) {
    Cluster cluster(kFabric, {even(transport), even(transport)});
    BOOST_REQUIRE_EQUAL(cluster.node(0).devices().rails().size(), kRails);
    BOOST_TEST(cluster.node(0).devices().devices().size() == 8u);
    BOOST_TEST(traffic(cluster, 1, 300) == "");
    const double all = put_rate(cluster, 0, 1 << 20);
    BOOST_TEST(used(cluster).size() == kRails);
    BOOST_TEST(paths_up(cluster.node(0)) == kRails);
    BOOST_TEST(all > 0.8 * kRails * 0.25); // bytes/ns of SDR 1x
}

BOOST_DATA_TEST_CASE(the_last_ones_fail_and_come_back, kBoth, transport) {
    Cluster cluster(kFabric, {even(transport), even(transport)});
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(all_up(cluster, kRails));
    cluster.world.fault("port down 0:softhca_7:2");
    cluster.world.fault("port down 1:softhca_6:1");
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(all_up(cluster, kRails - 2));
    cluster.world.fault("port up 0:softhca_7:2");
    cluster.world.fault("port up 1:softhca_6:1");
    BOOST_TEST(all_up(cluster, kRails, 1'000'000'000));
    // Both ports of the last adapter, and with new keys.
    cluster.world.fault("adapter-death 0:softhca_7");
    BOOST_TEST(traffic(cluster, 4) == "");
    cluster.world.fault("adapter-revive 0:softhca_7");
    BOOST_TEST(all_up(cluster, kRails, 3'000'000'000));
    BOOST_TEST(traffic(cluster, 5) == "");
}
