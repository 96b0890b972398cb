// Adapters that are dead when a process starts, or die while it does: it goes on with the others, says so, and they
// join when they are there again.
#define BOOST_TEST_MODULE transport_dead_at_start
#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"
#include "uct_mp/verbs/registry.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

unsigned rails_up(Node& node) {
    unsigned n = 0;
    for (const verbs::Rail& rail : node.iface().core().rails) n += rail.active;
    return n;
}
bool all_rails_up(Cluster& cluster) {
    return cluster.until(
        [&] {
            for (unsigned i = 0; i < cluster.size(); ++i)
                if (rails_up(cluster.node(i)) != 2) return false;
            return true;
        },
        100'000'000);
}

// Each rail alone carries everything.
void each_rail_carries(Cluster& cluster, std::uint64_t seed) {
    for (const std::string rail : {":softhca_0:1", ":softhca_1:1"}) {
        for (unsigned i = 0; i < cluster.size(); ++i) cluster.world.fault("port down " + std::to_string(i) + rail);
        BOOST_TEST(traffic(cluster, ++seed) == "");
        for (unsigned i = 0; i < cluster.size(); ++i) cluster.world.fault("port up " + std::to_string(i) + rail);
        BOOST_TEST(all_rails_up(cluster));
    }
    for (unsigned i = 0; i < cluster.size(); ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
}

} // namespace

// At either end, or at both; the first of its host, which others agree on, or the second.
BOOST_DATA_TEST_CASE(joins_when_it_is_there,
                     kBoth* boost::unit_test::data::make({1u, 2u, 3u}) * boost::unit_test::data::make({0u, 1u}),
                     transport, who, which) {
    std::vector<std::string> adapters, faults;
    for (unsigned node = 0; node < 2; ++node)
        if (who >> node & 1) adapters.push_back(std::to_string(node) + ":softhca_" + std::to_string(which));
    for (const std::string& adapter : adapters) faults.push_back("adapter-death " + adapter);
    Cluster cluster("two-rail", 2, quick_to_reopen(transport), {}, {}, faults);
    const std::size_t size = connect::packed_size(cluster.node(0).iface().address());
    for (unsigned node = 0; node < 2; ++node) {
        const bool lacks = who >> node & 1;
        BOOST_TEST(rails_up(cluster.node(node)) == (lacks ? 1u : 2u));
        BOOST_TEST(cluster.node(node).services().warnings == (lacks ? 1u : 0u));
        BOOST_TEST(cluster.node(node).devices().devices().size() == 2u); // what keys have room for
        if (lacks) BOOST_TEST(cluster.node(node).devices().devices()[1].name == "softhca_" + std::to_string(which));
    }
    Node::Memory kept = cluster.node(1).memory(1 << 16); // registered meanwhile
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.run_for(20'000'000);
    for (const std::string& adapter : adapters) cluster.world.fault("adapter-revive " + adapter);
    BOOST_TEST(traffic(cluster, 2, 1000) == "");
    BOOST_TEST(all_rails_up(cluster));
    BOOST_TEST(all_up(cluster, 3));
    BOOST_TEST(connect::packed_size(cluster.node(0).iface().address()) == size);
    each_rail_carries(cluster, 3);
}

// Before anybody has a connection.
BOOST_DATA_TEST_CASE(is_there_before_the_first_connection, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport), {}, {}, {"adapter-death 1:softhca_0"});
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_rails_up(cluster));
    each_rail_carries(cluster, 1);
}

// With it the others may be exchanged, one after the other.
BOOST_DATA_TEST_CASE(then_one_at_a_time, kBoth, transport) {
    Cluster cluster("two-rail", 3, quick_to_reopen(transport), {}, {}, {"adapter-death 1:softhca_0"});
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("adapter-revive 1:softhca_0");
    std::uint64_t seed = 1;
    for (const std::string adapter : {"2:softhca_0", "1:softhca_1", "2:softhca_1", "1:softhca_0", "0:softhca_1"}) {
        cluster.world.fault("adapter-death " + adapter);
        cluster.run_for(8'000'000);
        BOOST_TEST(traffic(cluster, ++seed) == "");
        cluster.world.fault("adapter-revive " + adapter);
        cluster.run_for(12'000'000);
    }
    BOOST_TEST(all_rails_up(cluster));
    each_rail_carries(cluster, ++seed);
}

// It dies once more before it has joined, and the one that stands in for it dies, too.
BOOST_DATA_TEST_CASE(the_other_one_dies, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport), {}, {}, {"adapter-death 1:softhca_0"});
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("adapter-death 1:softhca_1");
    cluster.run_for(10'000'000);
    cluster.world.fault("adapter-revive 1:softhca_1");
    BOOST_TEST(traffic(cluster, 2) == "");
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_rails_up(cluster));
    each_rail_carries(cluster, 3);
}

// None lives: nobody has to wait for that.
BOOST_AUTO_TEST_CASE(all_are_dead) {
    BOOST_CHECK_EXCEPTION(Cluster("two-rail", 1, quick_to_reopen(connect::Transport::rc), {}, {},
                                  {"adapter-death 0:softhca_0", "adapter-death 0:softhca_1"}),
                          std::runtime_error, [](const std::runtime_error& error) {
                              return std::string(error.what()).find("softhca_0: ibv_open_device: ") !=
                                     std::string::npos;
                          });
}

// Named by the user: one that lives suffices.
BOOST_AUTO_TEST_CASE(is_named) {
    Cluster cluster("two-rail", 2, quick_to_reopen(connect::Transport::rc), {}, {{"softhca_1:1", "softhca_0"}},
                    {"adapter-death 1:softhca_0"});
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_rails_up(cluster));
    each_rail_carries(cluster, 1);
}

// While the process opens it: at any third of its commands to either adapter.
BOOST_DATA_TEST_CASE(dies_meanwhile, kBoth* boost::unit_test::data::make({0u, 1u}), transport, which) {
    const std::string adapter = "1:softhca_" + std::to_string(which);
    unsigned moment = 0;
    for (bool died = true; died; moment += 3) {
        died = false;
        Cluster cluster("two-rail", 1, quick_to_reopen(transport));
        for (const std::string of : {"1:softhca_0", "1:softhca_1"})
            for (const std::string kind : {"create", "modify", "query", "reg"})
                cluster.world.fault("command-cost " + kind + " 1us " + of);
        cluster.world.on_command([&, left = moment](Nanos) mutable {
            if (left-- != 0) return;
            died = true;
            cluster.world.fault("adapter-death " + adapter);
        });
        BOOST_TEST_CONTEXT("command " << moment) {
            BOOST_REQUIRE_NO_THROW(cluster.add(quick_to_reopen(transport), 1));
            cluster.world.on_command({});
            if (!died) continue;
            BOOST_TEST(traffic(cluster, 1) == "");
            BOOST_TEST(rails_up(cluster.node(1)) == 1u);
            cluster.world.fault("adapter-revive " + adapter);
            BOOST_TEST(all_rails_up(cluster));
            BOOST_TEST(traffic(cluster, 2) == "");
            BOOST_TEST(cluster.node(1).services().errors == 0u);
        }
    }
    BOOST_TEST(moment > 20u);
}

// Its initiators are being repaired when it dies: no command to it succeeds any more, and nobody needs a warning.
BOOST_AUTO_TEST_CASE(dies_while_it_is_repaired) {
    unsigned moment = 0;
    for (bool died = true; died; ++moment) {
        died = false;
        Cluster cluster("two-rail", 2, quick_to_reopen(connect::Transport::dc));
        BOOST_TEST(traffic(cluster, 1) == "");
        cluster.world.fault("command-cost modify 1us 0:softhca_0");
        cluster.world.on_command([&, left = moment](Nanos) mutable {
            if (left-- != 0) return;
            died = true;
            cluster.world.fault("adapter-death 0:softhca_0");
        });
        cluster.world.fault("drop 100% 0:softhca_0:1");
        BOOST_TEST_CONTEXT("command " << moment) {
            BOOST_TEST(traffic(cluster, 2) == "");
            cluster.run_for(2'000'000);
            BOOST_TEST(cluster.node(0).services().warnings == 0u);
        }
        cluster.world.on_command({});
    }
    BOOST_TEST(moment > 3u);
}

// An adapter that has few queue pairs left.
BOOST_DATA_TEST_CASE(few_queue_pairs, boost::unit_test::data::make({6u, 7u, 9u, 10u}), limit) {
    Cluster cluster("two-rail", 2, quick_to_reopen(connect::Transport::dc), {}, {},
                    {"queue-pair-limit " + std::to_string(limit) + " 1:softhca_0"});
    BOOST_TEST(cluster.node(0).services().warnings == 0u);
    BOOST_TEST(cluster.node(1).services().warnings == (limit < 10 ? 1u : 0u));
    BOOST_TEST(traffic(cluster, 1) == "");
    const unsigned all = paths_up(cluster.node(0));
    cluster.world.fault("adapter-death 1:softhca_0");
    BOOST_TEST(traffic(cluster, 2) == "");
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_up(cluster, all));
    each_rail_carries(cluster, 3);
}
