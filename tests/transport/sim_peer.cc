// The verdict about a peer that no path leads to: dead if another process at one of its ports answers, else a
// partition.
#define BOOST_TEST_MODULE transport_peer
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "simulator/cluster.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

const connect::Transport kTransports[] = {connect::Transport::rc, connect::Transport::dc};

channel::Config config_of(connect::Transport transport, std::uint64_t seed) {
    channel::Config config;
    config.transport = transport;
    config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
    config.completion_depth = 1024;
    config.reliability.timeout = 5;
    config.reliability.retry_count = 2;
    config.check_interval = 2'000'000;
    config.recovery.partition_timeout = 0; // for ever
    config.seed = seed;
    return config;
}

// Node 0 talks to two processes on node 1, one of which is killed. What node 0 is told of it; ok: nothing in 200 ms.
Status told_of_the_killed(connect::Transport transport, bool with_neighbour) {
    softhca::sim::World world("two-rail", {.seed = 7});
    Node a(world, 0, config_of(transport, 1)), neighbour(world, 1, config_of(transport, 2));
    auto killed = std::make_unique<Node>(world, 1, config_of(transport, 3));
    const auto until = [&](const std::function<bool()>& condition, Nanos limit) {
        const Nanos end = world.now() + limit;
        while (!condition()) {
            if (world.now() > end || !world.step()) return false;
            while (a.progress() | neighbour.progress() | (killed && killed->progress())) {}
        }
        return true;
    };
    std::string error;
    Channel* to_killed = a.iface().attach(killed->iface().address(), error);
    Channel* to_neighbour = with_neighbour ? a.iface().attach(neighbour.iface().address(), error) : nullptr;
    Status told = Status::ok;
    a.on_failure = [&](Channel& channel, Status status) {
        BOOST_TEST(&channel == to_killed);
        told = status;
    };
    const auto send = [&](Channel* channel) {
        return until([&] { return channel::Interface::am_short(*channel, 1, 0, nullptr, 0) != Status::no_resource; },
                     10'000'000);
    };
    BOOST_TEST_REQUIRE(send(to_killed));
    if (to_neighbour) BOOST_TEST_REQUIRE(send(to_neighbour));
    (void)until([] { return false; }, 5'000'000);
    killed.reset();
    BOOST_TEST(send(to_killed));
    (void)until([&] { return told != Status::ok; }, 200'000'000);
    if (to_neighbour) BOOST_TEST(send(to_neighbour));
    return told;
}

} // namespace

BOOST_DATA_TEST_CASE(a_dead_peer_whose_neighbour_answers, boost::unit_test::data::make({false, true}), dc) {
    BOOST_TEST(int(told_of_the_killed(kTransports[dc], true)) == int(Status::endpoint_timeout));
}

BOOST_DATA_TEST_CASE(a_dead_peer_alone_may_be_a_partition, boost::unit_test::data::make({false, true}), dc) {
    BOOST_TEST(int(told_of_the_killed(kTransports[dc], false)) == int(Status::ok));
}
