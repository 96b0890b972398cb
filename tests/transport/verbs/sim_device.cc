// Adapters and rails of a node: what is found, what a user may name, what older or other hardware looks like.
#define BOOST_TEST_MODULE sim_device
#include <dlfcn.h>

#include "uct_mp/verbs/port_query.h"
#include "verbs_world.h"

using namespace verbs_test;

// Stands between the code under test and the adapter, to make it look like hardware that is not emulated, and to count
// what must be given back.
namespace {

struct Meddle {
    int lists = 0, contexts = 0, domains = 0; // held
    unsigned ethernet_port = 0;               // this port of every adapter is Ethernet
    bool without_extensions = false;          // a provider that knows the calls of libibverbs 1.0 only
    std::string unopenable;                   // adapter's name
} meddle;

int (*true_query_port)(ibv_context*, uint8_t, ibv_port_attr*, size_t) = nullptr;

int query_port_with_ethernet(ibv_context* context, uint8_t port, ibv_port_attr* attributes, size_t size) {
    const int result = true_query_port(context, port, attributes, size);
    if (port == meddle.ethernet_port) attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
    return result;
}

template <class F> F next(F, const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

} // namespace

extern "C" {
ibv_device** ibv_get_device_list(int* count) {
    ibv_device** list = next(&ibv_get_device_list, "ibv_get_device_list")(count);
    meddle.lists += list != nullptr;
    return list;
}
void ibv_free_device_list(ibv_device** list) {
    --meddle.lists;
    next(&ibv_free_device_list, "ibv_free_device_list")(list);
}
ibv_context* ibv_open_device(ibv_device* device) {
    if (meddle.unopenable == device->name) {
        errno = EACCES;
        return nullptr;
    }
    ibv_context* context = next(&ibv_open_device, "ibv_open_device")(device);
    if (!context) return nullptr;
    ++meddle.contexts;
    verbs_context* extended = verbs_get_ctx(context);
    if (meddle.ethernet_port) {
        true_query_port = extended->query_port;
        extended->query_port = query_port_with_ethernet;
    }
    if (meddle.without_extensions) {
        extended->query_device_ex = nullptr;
        extended->query_rt_values = nullptr;
        extended->create_cq_ex = nullptr;
        extended->create_qp_ex = nullptr;
    }
    return context;
}
int ibv_close_device(ibv_context* context) {
    --meddle.contexts;
    return next(&ibv_close_device, "ibv_close_device")(context);
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
    ibv_pd* pd = next(&ibv_alloc_pd, "ibv_alloc_pd")(context);
    meddle.domains += pd != nullptr;
    return pd;
}
int ibv_dealloc_pd(ibv_pd* pd) {
    const int result = next(&ibv_dealloc_pd, "ibv_dealloc_pd")(pd);
    BOOST_CHECK_EQUAL(result, 0); // nothing is left in it
    --meddle.domains;
    return result;
}
}

namespace {

// Every test: everything is given back at the end.
struct Balance {
    Balance() { meddle = {}; }
    ~Balance() {
        BOOST_CHECK_EQUAL(meddle.lists, 0);
        BOOST_CHECK_EQUAL(meddle.contexts, 0);
        BOOST_CHECK_EQUAL(meddle.domains, 0);
    }
};

std::vector<std::string> names(const DeviceSet& set) {
    std::vector<std::string> out;
    for (const Rail& rail : set.rails()) out.push_back(rail.name);
    return out;
}

std::string refusal(std::vector<std::string> rails, Status expected = Status::invalid_param) {
    DeviceSet set;
    std::string error;
    const Status status = DeviceSet::open({.rails = std::move(rails)}, set, error);
    BOOST_CHECK(status == expected);
    BOOST_CHECK(set.devices().empty() && set.rails().empty());
    BOOST_CHECK(!has(error, "\n"));
    return error;
}

using Names = std::vector<std::string>;

} // namespace

BOOST_FIXTURE_TEST_CASE(two_rails, Balance) {
    World world(fabric("two-rail"));
    const DeviceSet set = open_devices(world, 3);
    BOOST_TEST(names(set) == (Names{"softhca_0:1", "softhca_1:1"}), boost::test_tools::per_element());
    BOOST_REQUIRE_EQUAL(set.devices().size(), 2u);
    BOOST_TEST(set.all_have_dc());
    for (unsigned i = 0; i < 2; ++i) {
        const Rail& rail = set.rails()[i];
        const Device& device = set.device_of(rail);
        BOOST_TEST(rail.index == i);
        BOOST_TEST(device.index == i);
        BOOST_TEST(device.name == "softhca_" + std::to_string(i));
        BOOST_TEST(device.guid == world.image().device(world.image().node(3).first_device + i).guid);
        BOOST_TEST(device.max_rd_atomic == 16u);
        BOOST_TEST(device.max_qp_wr == 32768u);
        BOOST_TEST(device.max_sge == 30u);
        BOOST_TEST(device.max_cqe > 1000u);
        BOOST_TEST(device.max_srq_wr > 1000u);
        BOOST_TEST(device.has_timestamps);
        BOOST_TEST(device.ns_per_tick == 1.0);
        BOOST_TEST(device.timestamp_bits == 63u);
        BOOST_TEST(rail.rate == 1.0); // SDR 4x: 8 Gb/s of data
        BOOST_TEST(rail.lid != 0);
        BOOST_TEST(rail.lmc == 0);
        BOOST_TEST(rail.subnet_prefix == 0xfe80000000000000ull);
        BOOST_TEST(rail.port_guid == device.guid + 1);
        BOOST_TEST(rail.mtu == IBV_MTU_4096);
        BOOST_TEST(rail.active);
    }
    BOOST_TEST(set.rails()[0].lid != set.rails()[1].lid);
    BOOST_TEST(meddle.contexts == 2);
    BOOST_TEST(DeviceSet::active_ports() == names(set), boost::test_tools::per_element());
    BOOST_TEST(meddle.contexts == 2); // a query keeps nothing open
}

BOOST_FIXTURE_TEST_CASE(two_ports_per_adapter, Balance) {
    World world(fabric("dual-port"));
    const DeviceSet all = open_devices(world, 0);
    BOOST_TEST(names(all) == (Names{"softhca_0:1", "softhca_0:2", "softhca_1:1", "softhca_1:2"}),
               boost::test_tools::per_element());
    BOOST_TEST(all.devices().size() == 2u);
    BOOST_TEST(all.rails()[3].device == 1u);
    BOOST_TEST(all.rails()[3].port == 2);
    // The user's order of rails is ours; devices go by GUID, whatever the order of rails.
    const DeviceSet some = open_devices(world, 0, {"softhca_1:2", " softhca_0 "});
    BOOST_TEST(names(some) == (Names{"softhca_1:2", "softhca_0:1", "softhca_0:2"}), boost::test_tools::per_element());
    BOOST_TEST(some.devices()[0].name == "softhca_0");
    BOOST_TEST(some.device_of(some.rails()[0]).name == "softhca_1");
    BOOST_TEST(some.device_of(some.rails()[2]).name == "softhca_0");
    BOOST_TEST(some.devices()[1].index == 1u);
    const DeviceSet one = open_devices(world, 0, {"softhca_1:1"});
    BOOST_TEST(one.devices().size() == 1u);
    BOOST_TEST(meddle.contexts == 5); // adapters that nobody named are closed again
}

BOOST_FIXTURE_TEST_CASE(sixteen_rails_on_eight_adapters, Balance) {
    World world(fabric("sixteen-rail"));
    const DeviceSet all = open_devices(world, 2);
    BOOST_TEST(all.rails().size() == kMaxRails);
    BOOST_TEST(all.devices().size() == kMaxDevices);
    for (const Rail& rail : all.rails()) BOOST_TEST(all.device_of(rail).index == rail.index / 2);
    std::vector<std::string> adapters;
    for (const Device& device : all.devices()) adapters.push_back(device.name);
    BOOST_TEST(open_devices(world, 2, adapters).rails().size() == kMaxRails);
}

BOOST_FIXTURE_TEST_CASE(lids_and_prefixes, Balance) {
    {
        World world(fabric("four-path"));
        const DeviceSet set = open_devices(world, 5);
        for (const Rail& rail : set.rails()) {
            BOOST_TEST(rail.lmc == 2);
            BOOST_TEST(rail.lid % 4 == 0);
        }
    }
    World world(fabric("dual-plane"));
    const DeviceSet set = open_devices(world, 0);
    BOOST_REQUIRE_EQUAL(set.rails().size(), 2u);
    BOOST_TEST(set.devices().size() == 1u);
    BOOST_TEST(set.rails()[0].subnet_prefix == 0xfe80000000000000ull);
    BOOST_TEST(set.rails()[1].subnet_prefix == 0xfe80000000000001ull);
    BOOST_TEST(set.rails()[0].lmc == 0);
    BOOST_TEST(set.rails()[1].lmc == 1);
}

BOOST_FIXTURE_TEST_CASE(unequal_rates, Balance) {
    World world(fabric("two-rail-unequal"));
    const DeviceSet set = open_devices(world, 0);
    BOOST_TEST(set.rails()[0].rate == 1.0);
    BOOST_TEST(set.rails()[1].rate == 0.25);
}

BOOST_AUTO_TEST_CASE(rates_of_all_speeds) {
    const auto gb = [](unsigned speed, unsigned width) { return link_rate(speed, width) * 8; };
    BOOST_TEST(gb(1, 1) == 2.0);                                         // SDR 1x
    BOOST_TEST(gb(1, 8) == 24.0);                                        // SDR 12x
    BOOST_TEST(gb(2, 2) == 16.0);                                        // DDR 4x
    BOOST_TEST(gb(4, 2) == 32.0);                                        // QDR 4x
    BOOST_TEST(gb(8, 2) == 40.0);                                        // FDR10 4x
    BOOST_TEST(gb(16, 2) == 54.54, boost::test_tools::tolerance(0.001)); // FDR 4x
    BOOST_TEST(gb(32, 2) == 100.0);                                      // EDR 4x
    BOOST_TEST(gb(64, 2) == 200.0);                                      // HDR 4x
    BOOST_TEST(gb(64, 16) == 100.0);                                     // HDR100: two lanes
    BOOST_TEST(gb(128, 2) == 400.0);                                     // NDR 4x
    BOOST_TEST(gb(128, 4) == 800.0);                                     // 8x
    BOOST_TEST(gb(3, 2) == 0.0);
    BOOST_TEST(gb(1, 3) == 0.0);
    BOOST_TEST(gb(0, 0) == 0.0);
}

BOOST_FIXTURE_TEST_CASE(bad_names, Balance) {
    World world(fabric("dual-port"));
    world.select(0);
    struct Case {
        Names rails;
        std::string value, reason;
    };
    const std::vector<Case> cases{
        {{"mlx5_0"}, "\"mlx5_0\"", "not an adapter"},
        {{"mlx5_0:1"}, "\"mlx5_0:1\"", "not an adapter"},
        {{"softhca_0:1", "softhca_7"}, "\"softhca_7\"", "not an adapter"},
        {{"softhca_"}, "\"softhca_\"", "not an adapter"},
        {{"softhca_0:3"}, "\"softhca_0:3\"", "port that the adapter doesn't have"},
        {{"softhca_0:0"}, "\"softhca_0:0\"", "port that the adapter doesn't have"},
        {{"softhca_0:257"}, "\"softhca_0:257\"", "port that the adapter doesn't have"}, // not port 1
        {{"softhca_0:"}, "\"softhca_0:\"", "no port number"},
        {{"softhca_0:1x"}, "\"softhca_0:1x\"", "no port number"},
        {{"softhca_0:-1"}, "\"softhca_0:-1\"", "no port number"},
        {{"softhca_0:99999999999999999999"}, "\"softhca_0:99999999999999999999\"", "no port number"},
        {{"softhca_0:1:1"}, "\"softhca_0:1:1\"", "not an adapter"},
        {{""}, "\"\"", "is empty"},
        {{"softhca_0", "  "}, "\"\"", "is empty"},
        {{":1"}, "\":1\"", "not an adapter"},
        {{"softhca_0:1", "softhca_0:1"}, "\"softhca_0:1\"", "named twice"},
        {{"softhca_0:2", "softhca_0"}, "\"softhca_0\"", "named twice"},
        {{"soft\nhca"}, "\"soft?hca\"", "not an adapter"},
    };
    for (const Case& c : cases) {
        const std::string error = refusal(c.rails);
        BOOST_TEST_CONTEXT(error) {
            BOOST_TEST(error.starts_with("UCX_MP_RAILS: " + c.value + " "));
            BOOST_TEST(has(error, c.reason));
            BOOST_TEST(has(error, "allowed: softhca_0:1, softhca_0:2, softhca_1:1, softhca_1:2,"));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(ports_that_are_down, Balance) {
    World world(fabric("dual-port"));
    world.fault("port down 0:softhca_0:2");
    // It may come up, named or not.
    const DeviceSet all = open_devices(world, 0);
    BOOST_TEST(names(all) == (Names{"softhca_0:1", "softhca_0:2", "softhca_1:1", "softhca_1:2"}),
               boost::test_tools::per_element());
    for (const Rail& one : all.rails()) BOOST_TEST(one.active == (one.name != "softhca_0:2"));
    BOOST_TEST(names(open_devices(world, 0, {"softhca_0"})) == (Names{"softhca_0:1", "softhca_0:2"}),
               boost::test_tools::per_element());
    const DeviceSet named = open_devices(world, 0, {"softhca_0:2"});
    BOOST_REQUIRE_EQUAL(named.rails().size(), 1u);
    Rail rail = named.rails()[0];
    BOOST_TEST(!rail.active);
    BOOST_TEST(named.devices()[0].has_dc); // what the adapter can do doesn't depend on its cable
    world.fault("port up 0:softhca_0:2");
    BOOST_TEST(refresh(named.device_of(rail), rail));
    BOOST_TEST(rail.active);
    BOOST_TEST(rail.lid != 0);
    BOOST_TEST(rail.name == "softhca_0:2");

    // An adapter without any port is opened, too, but never the first one, which is the home of atomics.
    for (const char* port : {"0:softhca_0:1", "0:softhca_0:2"}) world.fault(std::string("port down ") + port);
    {
        const DeviceSet both = open_devices(world, 0);
        BOOST_TEST(both.rails().size() == 4u);
        BOOST_TEST(both.devices()[0].name == "softhca_1");
        BOOST_TEST(both.devices()[1].name == "softhca_0");
        BOOST_TEST(both.all_have_dc());
    }
    for (const char* port : {"0:softhca_0:1", "0:softhca_0:2", "0:softhca_1:1", "0:softhca_1:2"})
        world.fault(std::string("port down ") + port);
    const std::string error = refusal({}, Status::unreachable);
    BOOST_TEST(has(error, "no active InfiniBand or RoCE port"));
    BOOST_TEST(has(error, "softhca_0: down, softhca_1: down"));
    BOOST_TEST(DeviceSet::active_ports().empty());
    BOOST_TEST(open_devices(world, 0, {"softhca_1"}).rails().size() == 2u); // it may come up
}

BOOST_FIXTURE_TEST_CASE(adapters_without_dc_and_timestamps, Balance) {
    const softhca::FabricBlock block = crossbar("has_dc: false, has_timestamps: false");
    World world(block.image());
    const DeviceSet set = open_devices(world, 0);
    BOOST_TEST(!set.devices()[0].has_dc);
    BOOST_TEST(!set.devices()[0].has_timestamps);
    BOOST_TEST(!set.all_have_dc());
}

BOOST_FIXTURE_TEST_CASE(an_old_provider, Balance) {
    const softhca::FabricBlock block = crossbar("has_dc: false");
    World world(block.image());
    meddle.without_extensions = true;
    const DeviceSet set = open_devices(world, 1);
    const Device& device = set.devices()[0];
    BOOST_TEST(!device.has_timestamps);
    BOOST_TEST(device.max_rd_atomic == 16u);
    BOOST_TEST(device.max_qp_wr == 32768u);
    BOOST_TEST(device.guid == world.image().device(world.image().node(1).first_device).guid);
}

// One port InfiniBand, the other Ethernet (RoCE), as many cards are wired.
BOOST_FIXTURE_TEST_CASE(ethernet_ports_are_no_rails, Balance) {
    World world(fabric("dual-port"));
    meddle.ethernet_port = 1;
    BOOST_TEST(names(open_devices(world, 0)) == (Names{"softhca_0:2", "softhca_1:2"}),
               boost::test_tools::per_element());
    BOOST_TEST(names(open_devices(world, 0, {"softhca_0"})) == (Names{"softhca_0:2"}),
               boost::test_tools::per_element());
    const std::string error = refusal({"softhca_0:1"});
    BOOST_TEST(has(error, "\"softhca_0:1\" is an Ethernet port without RoCE"));
    BOOST_TEST(has(error, "allowed: softhca_0:2, softhca_1:2,"));
}

BOOST_FIXTURE_TEST_CASE(nothing_but_ethernet, Balance) {
    World world(fabric("two-rail"));
    meddle.ethernet_port = 1;
    world.select(0);
    BOOST_TEST(has(refusal({}, Status::unreachable), "softhca_0: neither InfiniBand nor RoCE"));
    BOOST_TEST(has(refusal({"softhca_0"}), "has no InfiniBand or RoCE port; allowed: nothing"));
}

BOOST_FIXTURE_TEST_CASE(an_adapter_that_cannot_be_opened, Balance) {
    World world(fabric("two-rail"));
    meddle.unopenable = "softhca_0";
    BOOST_TEST(names(open_devices(world, 0)) == (Names{"softhca_1:1"}), boost::test_tools::per_element());
    const std::string error = refusal({"softhca_0"});
    BOOST_TEST(has(error, "can't be used (ibv_open_device: Permission denied)"));
    BOOST_TEST(has(error, "allowed: softhca_1:1,"));
}

BOOST_FIXTURE_TEST_CASE(more_ports_than_rails, Balance) {
    const softhca::FabricBlock block = crossbar("ports: 2", 9);
    World world(block.image());
    const DeviceSet set = open_devices(world, 0);
    BOOST_TEST(set.rails().size() == kMaxRails);
    BOOST_TEST(set.devices().size() == kMaxDevices);
    BOOST_TEST(set.rails()[0].rate == 12.5); // EDR 4x
    std::vector<std::string> names;
    for (const Device& device : set.devices()) names.push_back(device.name);
    names.push_back("softhca_8:1");
    const std::string error = refusal(names);
    BOOST_TEST(has(error, "\"softhca_8:1\" is one rail too many"));
    BOOST_TEST(has(error, "at most 16 on 8 adapters"));
}

BOOST_FIXTURE_TEST_CASE(more_adapters_than_keys, Balance) {
    const softhca::FabricBlock block = crossbar("ports: 1", 9);
    World world(block.image());
    const DeviceSet set = open_devices(world, 0);
    BOOST_TEST(set.rails().size() == kMaxDevices);
    BOOST_TEST(set.devices().size() == kMaxDevices);
    std::vector<std::string> names;
    for (unsigned i = 0; i <= kMaxDevices; ++i) names.push_back("softhca_" + std::to_string(i));
    BOOST_TEST(has(refusal(names), "\"softhca_8\" is one adapter too many"));
}

BOOST_FIXTURE_TEST_CASE(opening_again_replaces, Balance) {
    World world(fabric("two-rail"));
    world.select(0);
    DeviceSet set;
    std::string error;
    for (int i = 0; i < 3; ++i) BOOST_CHECK(DeviceSet::open({}, set, error) == Status::ok);
    BOOST_TEST(meddle.contexts == 2);
    BOOST_TEST(meddle.domains == 2);
}
