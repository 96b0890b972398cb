// What a ring saves is measured on this machine: with the emulated adapter it is what its verbs cost.
#define BOOST_TEST_MODULE transport_ucx_ring_costs
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <string>

#include "uct_mp/link/ring_costs.h"

using namespace ucx_mp;
using link::RingCosts;

namespace {
struct Opened {
    Opened() { BOOST_REQUIRE_MESSAGE(verbs::DeviceSet::open({}, devices, error) == Status::ok, error); }
    verbs::DeviceSet devices;
    std::string error;
};
constexpr link::RingShape kShape{32, 2048};
} // namespace

BOOST_FIXTURE_TEST_CASE(measured, Opened) {
    for (const link::RingShape& shape : {kShape, link::RingShape{4, 64}, link::RingShape{1024, 64}}) {
        RingCosts costs;
        BOOST_REQUIRE(link::measure_ring_costs(devices, devices.rails()[0], shape, costs));
        BOOST_TEST_MESSAGE("a ring of " << shape.slots << ": saves " << costs.saved << " ns, a look in vain "
                                        << costs.miss << " ns, a credit " << costs.credit << " ns, making one "
                                        << costs.make << " ns");
        BOOST_TEST(costs.saved > costs.miss); // to poll a completion is more than to look at a word
        BOOST_TEST(costs.miss > 0);
        BOOST_TEST(costs.miss < 1000);
        BOOST_TEST(costs.credit > costs.saved);
        BOOST_TEST(costs.make >= costs.credit);
    }
}

BOOST_FIXTURE_TEST_CASE(cannot_be_measured, Opened) {
    RingCosts costs;
    verbs::Rail rail = devices.rails()[0];
    BOOST_TEST(!link::measure_ring_costs(devices, rail, {}, costs));
    BOOST_TEST(!link::measure_ring_costs(devices, rail, {16, 32}, costs));
    rail.lid = 0xbff0; // nobody's: nothing comes back
    const auto began = std::chrono::steady_clock::now();
    BOOST_TEST(!link::measure_ring_costs(devices, rail, kShape, costs));
    BOOST_TEST((std::chrono::steady_clock::now() - began < std::chrono::seconds(5)));
    rail.active = false;
    BOOST_TEST(!link::measure_ring_costs(devices, rail, kShape, costs));
    BOOST_TEST(costs.saved == 0);
    // Whoever closes does not wait for it.
    const std::atomic<bool> stop{true};
    BOOST_TEST(!link::measure_ring_costs(devices, devices.rails()[0], kShape, costs, &stop));
}
