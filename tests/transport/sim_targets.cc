// mp_dc with several targets per rail.
#define BOOST_TEST_MODULE transport_targets
#include <algorithm>
#include <map>
#include <vector>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

// Peers are spread over the targets; each keeps to its own, which is another one once the adapter has come back.
BOOST_AUTO_TEST_CASE(several_targets) {
    constexpr unsigned kNodes = 9, kTargets = 3, kRails = 2;
    channel::Config config = config_of(connect::Transport::dc);
    config.recovery.reopen_interval = 1'000'000;
    const auto pairs_of = [&](unsigned targets) {
        config.dct_count = targets;
        Cluster cluster("two-rail", 2, config);
        BOOST_TEST(traffic(cluster, 1) == "");
        channel::Interface::Statistics statistics;
        cluster.node(0).iface().statistics(statistics);
        return statistics.queue_pairs;
    };
    const unsigned one = pairs_of(1);
    BOOST_TEST(pairs_of(kTargets) == one + (kTargets - 1) * kRails);
    Cluster cluster("two-rail", kNodes, config);
    const auto number = [&](unsigned peer) {
        return cluster.channel(peer, 0).connection.remote_rails.front().dct_number;
    };
    const auto told = [&] { // who of the peers share a target of node 0: targets in the order in which they are met
        std::map<std::uint32_t, unsigned> met;
        std::vector<unsigned> found;
        for (unsigned peer = 1; peer < kNodes; ++peer)
            found.push_back(met.try_emplace(number(peer), static_cast<unsigned>(met.size())).first->second);
        return found;
    };
    BOOST_TEST(traffic(cluster, 1) == "");
    const auto before = told();
    const std::uint32_t old = number(1);
    BOOST_TEST(*std::max_element(before.begin(), before.end()) + 1 == kTargets);
    cluster.world.fault("adapter-death 0:softhca_0");
    cluster.run_for(5'000'000);
    cluster.world.fault("adapter-revive 0:softhca_0");
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(cluster.until([&] { return number(1) != old && told() == before; }, 1'000'000'000));
    BOOST_TEST(traffic(cluster, 3) == "");
}
