// What the user says of the rails is what they carry (weighted, weighted_rr), whatever their routes.
#define BOOST_TEST_MODULE transport_weights
#include <map>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

channel::Config weighted(connect::Transport transport, const std::string& policy) {
    channel::Config config = config_of(transport);
    config.policy = *schedule::make_policy(policy).config;
    return config;
}

// The part of what node 0 has written that its first rail has carried.
double part_of_first(Cluster& cluster) {
    channel::Interface::Statistics statistics;
    cluster.node(0).iface().statistics(statistics);
    double first = 0, all = 0;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths) {
            all += static_cast<double>(path.written);
            if (path.local_rail == "softhca_0:1") first += static_cast<double>(path.written);
        }
    return first / all;
}

} // namespace

BOOST_DATA_TEST_CASE(rails_carry_their_weights, kBoth, transport) {
    for (const char* fabric : {"two-rail", "four-path"}) // one route of a rail, four
        for (const char* policy : {"weighted", "weighted_rr"}) {
            BOOST_TEST_CONTEXT(fabric << ' ' << policy) {
                const auto part = [&](const std::string& weights) {
                    const channel::Config config = weighted(transport, policy + weights);
                    Cluster cluster(fabric, {config, config});
                    (void)put_rate(cluster, 0, 1 << 18);
                    return part_of_first(cluster);
                };
                BOOST_TEST(part("") == 0.5, boost::test_tools::tolerance(0.05)); // their rates are the same
                BOOST_TEST(part(":weights=3,1") == 0.75, boost::test_tools::tolerance(0.05));
                BOOST_TEST(part(":weights=0,1") == 0.0);
            }
        }
}

BOOST_AUTO_TEST_CASE(one_for_each_rail) {
    const channel::Config config = weighted(connect::Transport::rc, "weighted:weights=1,1,1");
    BOOST_CHECK_EXCEPTION(Cluster("two-rail", {config, config}), std::runtime_error, [](const auto& e) {
        return std::string(e.what()).find("POLICY: 3 weights are not allowed; allowed: 2, one for each rail in use") !=
               std::string::npos;
    });
}
