// Partitions: the key is found wherever it is in the table, and its partition is for everything.
#define BOOST_TEST_MODULE transport_partitions
#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

const char* const kFabric = "partitions"; // limited default keys at index 0; nodes 0 to 3: 0x8005, 4 and 5: 0x8006

struct Opened {
    softhca::sim::World world{std::string(kFabric), {}};
    verbs::DeviceSet devices;
    std::string error;
    explicit Opened(std::uint16_t partition, const std::string& fault = {}) {
        if (!fault.empty()) world.fault(fault);
        world.select(0, 0);
        const Status status = verbs::DeviceSet::open({.rails = {}, .partition = partition}, devices, error);
        BOOST_TEST(failed(status) == !error.empty());
    }
};

} // namespace

BOOST_DATA_TEST_CASE(behind_a_limited_key, kBoth, transport) {
    Cluster cluster(kFabric, 2, config_of(transport));
    for (const verbs::Rail& rail : cluster.node(0).devices().rails()) {
        BOOST_TEST(rail.active);
        BOOST_TEST(rail.pkey == 0x8005);
        BOOST_TEST(rail.pkey_index == 1);
    }
    BOOST_TEST(traffic(cluster, 1, 200) == "");
    BOOST_TEST(paths_up(cluster.node(0)) == 2u);
}

BOOST_DATA_TEST_CASE(another_partition_is_not_reached, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.connect_timeout = 50'000'000;
    const std::vector<channel::Config> configs(2, config);
    Cluster cluster(kFabric, std::vector<unsigned>{0, 4}, configs, {.seed = 1});
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    bool failed = false;
    cluster.node(0).on_failure = [&](Channel&, Status status) { failed = status == Status::endpoint_timeout; };
    Channel& to = cluster.channel(0, 1);
    BOOST_TEST(cluster.until(
        [&] {
            if (!failed) (void)cluster.node(0).iface().am_short(to, 1, 0, nullptr, 0);
            return failed;
        },
        200'000'000));
    BOOST_TEST(cluster.node(0).services().errors == 1u); // it says why
    BOOST_TEST(paths_up(cluster.node(1)) == 0u);
}

// The first key with full membership, or the one that is named; full membership goes first.
BOOST_AUTO_TEST_CASE(which_key) {
    const struct {
        const char* table;
        unsigned partition, key, index;
    } cases[] = {{"0x7fff,0x8005", 0, 0x8005, 1},      {"0x8005,0xffff", 0, 0x8005, 0},
                 {"0x8005,0xffff", 0x7fff, 0xffff, 1}, {"0x7fff,5", 5, 5, 1},
                 {"5,0x7fff,0x8005", 5, 0x8005, 2},    {"0x7fff,0x8005", 0x7fff, 0x7fff, 0}};
    for (const auto& c : cases) {
        BOOST_TEST_CONTEXT(c.table << ", partition " << c.partition) {
            const Opened node(static_cast<std::uint16_t>(c.partition), std::string("pkeys ") + c.table + " all");
            BOOST_TEST_REQUIRE(node.error == "");
            BOOST_TEST(node.devices.rails()[0].pkey == c.key);
            BOOST_TEST(node.devices.rails()[0].pkey_index == c.index);
        }
    }
}

BOOST_AUTO_TEST_CASE(no_key_that_fits) {
    BOOST_TEST(Opened(9).error ==
               "UCX_MP_PKEY, UCX_IB_PKEY: no port is a member of partition 0x9 (softhca_0:1, softhca_1:1); "
               "allowed: auto, or a key that one of them has");
    BOOST_TEST(Opened(0, "pkeys 0x7fff all").error ==
               "no active InfiniBand or RoCE port on this host (softhca_0: no partition key with full membership, "
               "softhca_1: no partition key with full membership)");
    const Opened one(5, "pkeys 0x7fff 0:softhca_0:1"); // one rail of two is enough
    BOOST_TEST_REQUIRE(one.error == "");
    BOOST_TEST(!one.devices.rails()[0].active);
    BOOST_TEST(one.devices.rails()[1].active);
}

// Without a wish, too: another key in front of the one in use changes nothing, and when that is gone the first is
// taken.
BOOST_DATA_TEST_CASE(the_key_in_use_stays, kBoth, transport) {
    Cluster cluster(kFabric, 2, config_of(transport));
    BOOST_TEST(traffic(cluster, 1) == "");
    for (const char* port : {"0:softhca_0:1", "0:softhca_1:1"})
        cluster.world.fault(std::string("pkeys 0x8009,0x8005 ") + port);
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(all_up(cluster, 2, 1'000'000'000));
    for (const verbs::Rail& rail : cluster.node(0).iface().core().rails) BOOST_TEST(rail.pkey == 0x8005);
    cluster.world.fault("pkeys 0x8009 0:softhca_1:1");
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(cluster.node(0).iface().core().rails[1].pkey == 0x8009);
}

// The subnet manager changes the tables of a node while it works: queue pairs begin anew under the key's new place.
BOOST_AUTO_TEST_CASE(the_key_moves) {
    Cluster cluster(kFabric, 2, config_of(connect::Transport::rc));
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("pkeys 0x8005,0x7fff 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(all_up(cluster, 2, 1'000'000'000));
    cluster.world.fault("pkeys 0x8005 0:softhca_1:1");
    cluster.world.fault("pkeys 0x9,0x8,0x8005 1:softhca_1:1");
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(all_up(cluster, 2, 1'000'000'000));
    // A connection made after that: control datagrams have followed, too.
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(traffic(cluster, 4) == "");
    cluster.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(all_up(cluster, 2, 1'000'000'000));
}
