// Ports that are down when a process starts, or when its peers do, and come up later: they carry traffic from then on.
#define BOOST_TEST_MODULE transport_join
#include <set>

#include "both_transports.h"
#include "simulator/traffic.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct PathFacts {
    std::string rail;
    unsigned remote_lid;
    bool up;
    std::uint64_t requests;
};
std::vector<PathFacts> paths(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    std::vector<PathFacts> out;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths)
            out.push_back({path.local_rail, path.remote_lid, path.state == schedule::PathState::up, path.requests});
    return out;
}
std::vector<std::string> down(const std::vector<std::string>& ports) {
    std::vector<std::string> faults;
    for (const std::string& port : ports) faults.push_back("port down " + port);
    return faults;
}

unsigned spares(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    unsigned n = 0;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths) n += path.carries == std::string_view("spare");
    return n;
}

} // namespace

// At whichever end, or at both. The second rail is an adapter of its own, which had no port at all then.
BOOST_DATA_TEST_CASE(a_port_comes_up, kBoth* boost::unit_test::data::make({1u, 2u, 3u}), transport, who) {
    std::vector<std::string> ports;
    for (unsigned node = 0; node < 2; ++node)
        if (who >> node & 1) ports.push_back(std::to_string(node) + ":softhca_1:1");
    Cluster cluster("two-rail", 2, config_of(transport), {}, {}, down(ports));
    const std::size_t size = connect::packed_size(cluster.node(0).iface().address());
    const double half = cluster.node(0).iface().bandwidth();
    for (std::size_t i = 0; i < ports.size(); ++i)
        cluster.world.at(cluster.world.now() + 1'000'000 + 2'500'000 * i, [&, i] { // more than a try to open takes
            // One port with both of the other side's, as long as it is alone.
            for (unsigned node = 0; node < 2; ++node)
                BOOST_TEST(paths_up(cluster.node(node)) == (who == 3 && i == 0 ? 1u : 2u));
            cluster.world.fault("port up " + ports[i]);
        });
    BOOST_TEST(traffic(cluster, 1, 1000) == ""); // longer than that takes
    BOOST_TEST(all_up(cluster, 3));
    BOOST_TEST(traffic(cluster, 3) == "");
    for (unsigned i = 0; i < 2; ++i)
        for (const PathFacts& path : paths(cluster.node(i)))
            if (path.up) BOOST_TEST(path.requests > 20u);
    // What the address is copied into has no room for more.
    BOOST_TEST(connect::packed_size(cluster.node(0).iface().address()) == size);
    if (who & 1) BOOST_TEST(cluster.node(0).iface().bandwidth() == 2 * half);
    // From now on it is a path like any other.
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 2) == "");
    cluster.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(all_up(cluster, 3));
}

// It brings its whole rate along, to both directions: the path that it had taken the place of, from a port that has a
// path of its own to one that has now, is no longer used while others are.
BOOST_DATA_TEST_CASE(its_rate_is_added, kBoth* boost::unit_test::data::make({1u, 2u, 3u}), transport, who) {
    const auto rates = [](Cluster& cluster) {
        std::vector<double> all;
        for (const std::size_t size : {16u << 10, 64u << 10, 1u << 20})
            for (const unsigned from : {0u, 1u}) all.push_back(put_rate(cluster, from, size));
        return all;
    };
    std::vector<double> expected; // of who has had both from the beginning; one world at a time
    {
        Cluster cluster("two-rail", 2, config_of(transport));
        BOOST_TEST(traffic(cluster, 1) == "");
        expected = rates(cluster);
    }
    std::vector<std::string> ports;
    for (unsigned node = 0; node < 2; ++node)
        if (who >> node & 1) ports.push_back(std::to_string(node) + ":softhca_1:1");
    Cluster cluster("two-rail", 2, config_of(transport), {}, {}, down(ports));
    BOOST_TEST(traffic(cluster, 1) == "");
    for (const std::string& port : ports) cluster.world.fault("port up " + port);
    BOOST_TEST(traffic(cluster, 2) == "");
    cluster.run_for(5'000'000);
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(paths_up(cluster.node(i)) - spares(cluster.node(i)) == 2u);
    const std::vector<double> got = rates(cluster);
    for (std::size_t i = 0; i < got.size(); ++i)
        BOOST_TEST(got[i] > 0.97 * expected[i],
                   "measurement " << i << ": " << got[i] << " of " << expected[i] << " bytes/ns");
    if (ports.size() == 2) return; // nobody had to make up for anything
    // What has made up for the port does so again when the port is lost, or what it talks to.
    const std::string other = (who == 1 ? "1" : "0") + std::string(":softhca_1:1");
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(spares(cluster.node(i)) == 1u);
    cluster.world.fault("port down " + other);
    BOOST_TEST(traffic(cluster, 3) == "");
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(spares(cluster.node(i)) == 0u);
    cluster.world.fault("port up " + other);
    BOOST_TEST(traffic(cluster, 4) == "");
    BOOST_TEST(cluster.until([&] { return spares(cluster.node(0)) == 1 && spares(cluster.node(1)) == 1; }, 50'000'000));
}

// Reads have paths of their own, and so they have on the new rail.
BOOST_DATA_TEST_CASE(a_port_comes_up_for_reads, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.paths.split_reads = true;
    Cluster cluster("two-rail", 2, config, {}, {}, {"port down 0:softhca_1:1", "port down 1:softhca_1:1"});
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST(all_up(cluster, 2));
    cluster.world.fault("port up 0:softhca_1:1");
    cluster.world.fault("port up 1:softhca_1:1");
    BOOST_TEST(traffic(cluster, 2, 500) == "");
    BOOST_TEST(
        cluster.until([&] { return paths_up(cluster.node(0)) >= 4 && paths_up(cluster.node(1)) >= 4; }, 50'000'000));
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 3) == "");
}

// A single path is used as if there were no others to come; it becomes one of several under traffic, at any moment.
BOOST_DATA_TEST_CASE(the_only_path_gets_company, kBoth* boost::unit_test::data::make({false, true}), transport,
                     packet_numbers) {
    for (unsigned moment = 0; moment < 12; ++moment) {
        channel::Config config = config_of(transport);
        config.recovery.packet_numbers = packet_numbers;
        Cluster cluster("two-rail", 2, config, {}, {}, {"port down 0:softhca_1:1", "port down 1:softhca_1:1"});
        const auto later = [&](unsigned long after, const char* what) {
            cluster.world.at(cluster.world.now() + after + moment * 7'000,
                             [&cluster, what] { cluster.world.fault(what); });
        };
        later(50'000, "port up 0:softhca_1:1");
        later(60'000, "port up 1:softhca_1:1");
        // The first one goes before or after the second one has joined.
        if (moment % 3) later(moment % 3 == 1 ? 60'100 : 2'000'000, "port down 0:softhca_0:1");
        BOOST_TEST_CONTEXT("moment " << moment) {
            BOOST_TEST(traffic(cluster, 1 + moment, 400) == "");
            BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) >= (moment % 3 ? 1u : 2u); }, 50'000'000));
        }
    }
}

// The only path is lost for good before another port comes up: what waits takes that one.
BOOST_DATA_TEST_CASE(the_only_path_is_replaced, kBoth* boost::unit_test::data::make({false, true}), transport,
                     packet_numbers) {
    channel::Config config = config_of(transport);
    config.recovery.packet_numbers = packet_numbers;
    Cluster cluster("two-rail", 2, config, {}, {}, {"port down 0:softhca_1:1", "port down 1:softhca_1:1"});
    cluster.world.at(cluster.world.now() + 60'000, [&] { cluster.world.fault("port down 0:softhca_0:1"); });
    for (unsigned node = 0; node < 2; ++node)
        cluster.world.at(cluster.world.now() + 5'000'000 + node,
                         [&, node] { cluster.world.fault("port up " + std::to_string(node) + ":softhca_1:1"); });
    BOOST_TEST(traffic(cluster, 1, 500) == "");
    BOOST_TEST(cluster.world.now() > 5'000'000);
}

// Peers that are connected later find it in the address, also by no other port.
BOOST_DATA_TEST_CASE(later_peers_know_it, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of(transport), {}, {}, {"port down 1:softhca_1:1"});
    cluster.world.fault("port up 1:softhca_1:1");
    cluster.run_for(1'000'000);
    cluster.world.fault("port down 1:softhca_0:1");
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 1) == "");
}

// Each plane is a subnet of its own, with an LMC of its own, and nobody knew of which subnet the port would be.
BOOST_DATA_TEST_CASE(a_plane_comes_up, kBoth, transport) {
    Cluster cluster("dual-plane", 3, config_of(transport), {}, {},
                    {"port down 0:softhca_0:2", "port down 1:softhca_0:2"});
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("port up 0:softhca_0:2");
    cluster.world.fault("port up 1:softhca_0:2");
    // Plane a has one route, plane b two (LMC 1); of the latter all but one were guessed too few. Each with two others.
    BOOST_TEST(cluster.until(
        [&] {
            return paths_up(cluster.node(0)) >= 4 && paths_up(cluster.node(1)) >= 4 && paths_up(cluster.node(2)) >= 4;
        },
        50'000'000));
    cluster.world.fault("port down 1:softhca_0:1");
    BOOST_TEST(traffic(cluster, 2) == "");
}

// All routes of a port, not more than there are.
BOOST_DATA_TEST_CASE(all_its_routes, kBoth, transport) {
    const char* const names[] = {"softhca_0:1", "softhca_0:2", "softhca_1:1", "softhca_1:2"};
    std::vector<std::string> ports;
    for (unsigned i = 1; i < 4; ++i)
        for (unsigned node = 0; node < 2; ++node) ports.push_back(std::to_string(node) + ":" + names[i]);
    Cluster cluster("dual-port", 2, config_of(transport), {}, {}, down(ports));
    for (std::size_t i = 0; i < ports.size(); ++i)
        cluster.world.at(cluster.world.now() + 100'000 * (i + 1),
                         [&, i] { cluster.world.fault("port up " + ports[i]); });
    BOOST_TEST(traffic(cluster, 5, 500) == "");
    cluster.run_for(20'000'000);
    for (unsigned node = 0; node < 2; ++node) {
        std::set<std::string> rails;
        for (const PathFacts& path : paths(cluster.node(node)))
            if (path.up) rails.insert(path.rail);
        BOOST_TEST(rails.size() == 4u);
    }
}

// The subnet manager gives the port another LID while it is away.
BOOST_DATA_TEST_CASE(a_port_gets_another_lid, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport));
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST(all_up(cluster, 2));
    const unsigned before = paths(cluster.node(0)).at(1).remote_lid;
    cluster.world.fault("port down 1:softhca_1:1");
    cluster.run_for(3'000'000);
    cluster.world.fault("lid-swap 1:softhca_1:1 9:softhca_1:1");
    cluster.world.fault("port up 1:softhca_1:1");
    BOOST_TEST(all_up(cluster, 2));
    BOOST_TEST(paths(cluster.node(0)).at(1).remote_lid != before);
    BOOST_TEST(traffic(cluster, 2) == "");
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(paths(cluster.node(i)).at(1).requests > 20u);
}

// It comes up while the handshake is under way, at every moment of it.
BOOST_DATA_TEST_CASE(in_the_middle_of_a_handshake, kBoth, transport) {
    for (unsigned moment = 0; moment < 40; ++moment) {
        for (unsigned node = 0; node < 2; ++node) {
            const std::string port = std::to_string(node) + ":softhca_1:1";
            Cluster cluster("two-rail", 2, config_of(transport), {}, {}, {"port down " + port});
            cluster.world.at(cluster.world.now() + 1 + moment * 700, [&] { cluster.world.fault("port up " + port); });
            BOOST_TEST_CONTEXT("node " << node << ", moment " << moment) {
                BOOST_TEST(traffic(cluster, 1) == "");
                const auto rails_up = [&](unsigned i) {
                    std::set<std::string> rails;
                    for (const PathFacts& path : paths(cluster.node(i)))
                        if (path.up) rails.insert(path.rail);
                    return rails.size();
                };
                BOOST_TEST(cluster.until([&] { return rails_up(0) == 2 && rails_up(1) == 2; }, 50'000'000));
            }
        }
    }
}

// Of many peers, and each of them has to be told although datagrams are lost.
BOOST_DATA_TEST_CASE(many_peers_are_told, kBoth, transport) {
    constexpr unsigned kPeers = 9;
    Cluster cluster("two-rail", kPeers, config_of(transport), {}, {}, {"port down 0:softhca_1:1"});
    BOOST_TEST(traffic(cluster, 1) == "");
    // With repetitions as short as here congestion is taken for death now and then, and a path that it takes twice is
    // left alone for 100 ms.
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 2 * (kPeers - 1); }, 400'000'000));
    cluster.world.fault("drop 30% 0:softhca_0:1");
    cluster.world.fault("port up 0:softhca_1:1");
    cluster.run_for(100'000);
    cluster.world.fault("drop 0% 0:softhca_0:1");
    BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == 3 * (kPeers - 1); }, 400'000'000));
}

BOOST_AUTO_TEST_CASE(some_port_must_be_up) {
    BOOST_CHECK_THROW(Cluster("two-rail", 1, config_of(connect::Transport::rc), {}, {},
                              {"port down 0:softhca_0:1", "port down 0:softhca_1:1"}),
                      std::runtime_error);
}

// The first message to a peer while no port is active, of ours, of the peer's, or of both: it waits.
BOOST_DATA_TEST_CASE(first_contact_during_an_outage, kBoth* boost::unit_test::data::make({1u, 2u, 3u}), transport,
                     who) {
    Cluster cluster("two-rail", 2, config_of(transport));
    std::vector<std::string> ports;
    for (unsigned node = 0; node < 2; ++node)
        for (unsigned rail = 0; rail < 2; ++rail)
            if (who >> node & 1) ports.push_back(std::to_string(node) + ":softhca_" + std::to_string(rail) + ":1");
    for (const std::string& port : ports) cluster.world.fault("port down " + port);
    cluster.world.at(cluster.world.now() + 700'000'000, [&] {
        for (const std::string& port : ports) cluster.world.fault("port up " + port);
    });
    BOOST_TEST(traffic(cluster, 1) == "");
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    BOOST_TEST(all_up(cluster, 2));
    BOOST_TEST(traffic(cluster, 2) == "");
}

// One that lasts too long ends the operations that wait for it. Not before, and not never.
BOOST_DATA_TEST_CASE(first_contact_waits_for_a_bounded_time, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.connect_timeout = 300'000'000;
    Cluster cluster("two-rail", 2, config);
    for (const char* port : {"0:softhca_0:1", "0:softhca_1:1"}) cluster.world.fault(std::string("port down ") + port);
    bool failed = false;
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    cluster.node(0).on_failure = [&](Channel&, Status status) { failed = status == Status::endpoint_timeout; };
    Channel& to = cluster.channel(0, 1);
    const Nanos began = cluster.world.now();
    BOOST_TEST(cluster.until([&] {
        if (!failed) (void)cluster.node(0).iface().am_short(to, 1, 0, nullptr, 0);
        return failed;
    }));
    BOOST_TEST(cluster.world.now() - began >= 300'000'000);
    BOOST_TEST(cluster.world.now() - began < 400'000'000);
    BOOST_TEST(cluster.node(0).services().errors == 1u); // it says why
}
