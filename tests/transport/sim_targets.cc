// mp_dc with several targets per rail.
#define BOOST_TEST_MODULE transport_targets
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "both_transports.h"
#include "ring_nodes.h"
#include "simulator/random_faults.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {
// The target of node 0 that each peer has been told, on this rail.
std::vector<std::uint32_t> numbers(Cluster& cluster, unsigned rail) {
    std::vector<std::uint32_t> all;
    for (unsigned peer = 1; peer < cluster.size(); ++peer)
        all.push_back(cluster.channel(peer, 0).connection.remote_rails[rail].dct_number);
    return all;
}
unsigned count(const std::vector<std::uint32_t>& numbers) {
    return static_cast<unsigned>(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size());
}
// Who of the peers share one: targets in the order in which they are met.
std::vector<unsigned> shares(const std::vector<std::uint32_t>& numbers) {
    std::map<std::uint32_t, unsigned> met;
    std::vector<unsigned> all;
    for (const std::uint32_t number : numbers)
        all.push_back(met.try_emplace(number, static_cast<unsigned>(met.size())).first->second);
    return all;
}
unsigned failures(Node& node) { // of paths
    unsigned sum = 0;
    for (const auto& channel : statistics(node).channels)
        for (const auto& path : channel.paths) sum += path.failures;
    return sum;
}
} // namespace

// Whoever goes through its peers uses all initiators, and none of them more than its share: peers have them in turn.
BOOST_DATA_TEST_CASE(initiators_in_turn, boost::unit_test::data::make({2u, 4u, 8u}), initiators) {
    channel::Config c = config();
    c.dci_count = initiators;
    Cluster cluster("two-rail", 9, c);
    BOOST_TEST(traffic(cluster, 1, 20) == "");
    std::map<std::uint32_t, unsigned> peers; // by queue pair number
    for (const auto& channel : statistics(cluster.node(0)).channels)
        for (const auto& path : channel.paths)
            if (path.qp_number) ++peers[path.qp_number];
    BOOST_TEST(peers.size() == 2 * initiators); // two rails
    for (const auto& [number, count] : peers) BOOST_TEST(count == 8 / initiators);
}

// A port that flaps keeps its targets, and whose they are. So does one that flaps while its adapter comes back, whose
// targets are others.
BOOST_AUTO_TEST_CASE(ports_flap) {
    constexpr unsigned kNodes = 9, kTargets = 3;
    channel::Config c = config();
    c.dct_count = kTargets;
    Cluster cluster("two-rail", kNodes, c);
    for (unsigned i = 0; i < kNodes; ++i) cluster.node(i).services().quiet = true;
    BOOST_TEST(traffic(cluster, 1, 20) == "");
    for (unsigned peer = 1; peer < 4; ++peer) BOOST_TEST((serve(cluster, 0, peer, Service::dc_ring) == Status::ok));
    const auto first = numbers(cluster, 0), second = numbers(cluster, 1);
    BOOST_TEST(count(first) == kTargets);
    for (unsigned flap = 0; flap < 4; ++flap) {
        const std::string port = "0:softhca_" + std::to_string(flap % 2) + ":1";
        cluster.world.at(cluster.world.now() + 20'000, [&cluster, port] { cluster.world.fault("port down " + port); });
        cluster.world.at(cluster.world.now() + 300'000, [&cluster, port] { cluster.world.fault("port up " + port); });
        const unsigned before = failures(cluster.node(0));
        BOOST_TEST(traffic(cluster, 2 + flap, 20) == "");
        cluster.run_for(400'000);
        BOOST_TEST(failures(cluster.node(0)) - before >= kNodes - 1);
        BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 2 * (kNodes - 1); }, 1'000 * kMs));
        BOOST_TEST((numbers(cluster, 0) == first));
        BOOST_TEST((numbers(cluster, 1) == second));
    }
    cluster.world.fault("adapter-death 0:softhca_0");
    BOOST_TEST(traffic(cluster, 10, 20) == "");
    cluster.world.fault("adapter-revive 0:softhca_0");
    for (unsigned flap = 0; flap < 3; ++flap) {
        cluster.run_for(150'000);
        cluster.world.fault("port down 0:softhca_0:1");
        BOOST_TEST(traffic(cluster, 11 + flap, 20) == "");
        cluster.world.fault("port up 0:softhca_0:1");
    }
    const auto all_new = [&] {
        const auto now = numbers(cluster, 0);
        for (unsigned i = 0; i < now.size(); ++i)
            if (now[i] == first[i]) return false;
        return shares(now) == shares(first);
    };
    BOOST_TEST(cluster.until(all_new, 1'000 * kMs));
    BOOST_TEST((numbers(cluster, 1) == second));
    BOOST_TEST(traffic(cluster, 20, 20) == "");
}

// Faults of all kinds at random moments, adapters that come back among them, with rings over DC.
BOOST_DATA_TEST_CASE(faults, boost::unit_test::data::make({1u, 2u, 3u, 4u, 5u, 6u}), seed) {
    channel::Config c = config();
    c.dct_count = 3;
    Cluster cluster("two-rail", 4, c, {.seed = seed});
    for (unsigned i = 0; i < cluster.size(); ++i) cluster.node(i).services().threshold = LogLevel::error;
    BOOST_TEST(traffic(cluster, seed) == "");
    const auto told = [&] { return std::pair{numbers(cluster, 0), numbers(cluster, 1)}; };
    const auto first = told();
    const auto before = std::pair{shares(first.first), shares(first.second)};
    for (unsigned peer = 1; peer < 4; ++peer) BOOST_TEST((serve(cluster, 0, peer, Service::dc_ring) == Status::ok));
    Stress stress(cluster, {.seed = seed, .operations = 500, .slot = 1 << 18, .constant = 1 << 18});
    Faults faults(cluster, seed);
    BOOST_TEST(stress.run(4'000'000'000));
    faults.over = true;
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(faults.begun > 3u);
    BOOST_TEST(of_rings(cluster).messages > 0u);
    BOOST_TEST_MESSAGE("faults " << faults.begun << ", by rings " << of_rings(cluster).messages);
    for (unsigned i = 0; i < cluster.size(); ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    cluster.after_progress = {};
    BOOST_TEST(traffic(cluster, seed + 100) == "");
    // Whose adapters have come back has other targets, and each peer shares one with the same ones as before.
    BOOST_TEST_MESSAGE("targets are " << (told() == first ? "the same" : "others"));
    const auto as_before = [&] {
        const auto now = told();
        return std::pair{shares(now.first), shares(now.second)} == before;
    };
    BOOST_TEST(cluster.until(as_before, 1'000 * kMs));
}

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
