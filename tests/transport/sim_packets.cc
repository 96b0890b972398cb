// What a queue pair has sent is counted in packets, as its adapter counts them: a failure decides by it what has come
// through.
#define BOOST_TEST_MODULE transport_packets
#include <string>
#include <vector>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "softhca/fabric.h"
#include "uct_mp/channel/data_path.h"
#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/verbs/queue_pair.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::Interface;

namespace {
Status count(void* self, void*, std::size_t, unsigned) {
    ++*static_cast<unsigned*>(self);
    return Status::ok;
}
} // namespace

// A request may hold more than a packet of the path (MAX_INLINE): what a failure decides by is counted all the same.
// Over an only path, over several, and where the policy leaves no choice.
BOOST_DATA_TEST_CASE(packets_of_short_messages,
                     boost::unit_test::data::make({"a", "a, a", "a, a"}) ^
                         boost::unit_test::data::make({"default", "default", "binding"}),
                     adapters, policy) {
    const softhca::FabricBlock block = softhca::parse_fabric(
        std::string("ideal: true\nadapters:\n  a: {mtu: 256}\nnodes:\n  - {name: 'n[0-1]', adapters: [") + adapters +
            "]}\nsubnets:\n  - {name: all, crossbar: true, rate: EDR 4x}\n",
        "small.yaml");
    channel::Config config = config_of(connect::Transport::rc);
    config.inline_bytes = 1024;
    config.policy = *schedule::make_policy(policy).config;
    Cluster cluster(block.image(), 2, config);
    channel::Channel& to = cluster.channel(0, 1);
    unsigned arrived = 0;
    cluster.node(1).on_am(2, count, &arrived);
    const std::vector<std::byte> bytes(900);
    Node::Memory there = cluster.node(1).memory(bytes.size());
    for (unsigned i = 0; i < 50; ++i) // one behind the other: they share records
        BOOST_REQUIRE(cluster.until([&] { return Interface::am_short(to, 2, i, bytes.data(), i * 18) == Status::ok; }));
    for (unsigned i = 0; i < 50; ++i)
        BOOST_REQUIRE(cluster.until(
            [&] { return Interface::put_short(to, bytes.data(), i * 18, there.address(), there.keys) == Status::ok; }));
    channel::Completion done{[](channel::Completion*) {}, 1, Status::ok};
    if (cluster.node(0).iface().flush(to, &done) == Status::in_progress)
        BOOST_REQUIRE(cluster.until([&] { return done.count == 0; }));
    BOOST_TEST(cluster.until([&] { return arrived == 50; }));
    for (unsigned path = 0; path < to.wiring.path_count; ++path) {
        channel::SendQueue& queue = *to.wiring.paths[path].queue[0];
        BOOST_REQUIRE(queue.idle());
        verbs::QueuePairTruth truth{};
        BOOST_REQUIRE_EQUAL(verbs::query(queue.qp.get(), truth), 0);
        BOOST_TEST((queue.psn() & 0xffffff) == truth.sq_psn);
    }
}
