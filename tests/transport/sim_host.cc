// The transport where processors take their time (World's HostCosts).
#define BOOST_TEST_MODULE transport_host
#include <boost/test/unit_test.hpp>

#include "simulator/cluster.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr unsigned kMessages = 128;
constexpr std::size_t kSize = 16384;

struct Receiver {
    struct Read : Completion {
        Receiver* owner;
    };
    Cluster& cluster;
    Channel& back;
    Node::Memory mine, theirs;
    unsigned arrived = 0, read = 0;
    std::vector<Nanos> times = {}; // its own, of arrival
    static Status message(void* arg, void*, std::size_t, unsigned) {
        auto& self = *static_cast<Receiver*>(arg);
        self.times.push_back(self.cluster.node(1).services().now());
        ++self.arrived;
        const Iov iov = self.mine.iov(0, kSize);
        auto* done = new Read{{[](Completion* c) {
                                   ++static_cast<Read*>(c)->owner->read;
                                   delete static_cast<Read*>(c);
                               },
                               1, Status::ok},
                              &self};
        const Status status =
            channel::Interface::get_zcopy(self.back, &iov, 1, self.theirs.address(), self.theirs.keys, done);
        BOOST_TEST_REQUIRE(int(status) == int(Status::in_progress));
        return Status::ok;
    }
};

struct Result {
    Nanos time;          // from the first message on
    std::uint64_t reads; // requests
    std::uint64_t fingerprint;
};

// Node 0 sends messages as fast as it can, node 1 reads 16 KiB from it for each.
Result run(softhca::sim::HostCosts host) {
    Cluster cluster("two-rail", 2, {}, {.seed = 1, .host = host});
    Receiver receiver{cluster, cluster.channel(1, 0), cluster.node(1).memory(kSize), cluster.node(0).memory(kSize)};
    cluster.node(1).on_am(1, Receiver::message, &receiver);
    Channel& to = cluster.channel(0, 1);
    // Before anything is measured: connected, nothing under way.
    const auto short_message = [&](unsigned id) {
        return channel::Interface::am_short(to, static_cast<std::uint8_t>(id), 0, nullptr, 0) == Status::ok;
    };
    BOOST_REQUIRE(cluster.until([&] { return short_message(2); }));
    cluster.run_for(5'000'000);
    const auto reads = [&] {
        channel::Interface::Statistics s;
        cluster.node(1).iface().statistics(s);
        std::uint64_t n = 0;
        for (const auto& channel : s.channels)
            for (const auto& path : channel.paths) n += path.requests;
        return n;
    };
    const std::uint64_t before = reads();
    const Nanos start = cluster.node(0).services().now();
    unsigned sent = 0;
    cluster.after_progress = [&] {
        while (sent < kMessages && short_message(1)) ++sent;
    };
    cluster.after_progress();
    BOOST_REQUIRE(cluster.until([&] { return receiver.read == kMessages; }));
    // Each message has been posted, and each has been collected, one after the other.
    for (unsigned i = 0; i < kMessages; ++i) BOOST_TEST(receiver.times[i] >= start + (i + 1) * host.post);
    for (unsigned i = 16; i < kMessages; ++i)
        BOOST_TEST(receiver.times[i] >= receiver.times[i - 16] + 15 * host.completion);
    return {cluster.world.now() - start, reads() - before, cluster.world.fingerprint()};
}

} // namespace

BOOST_AUTO_TEST_CASE(what_processors_do_takes_time_and_repeats) {
    const Result free = run({}), slow = run({.post = 20'000, .completion = 20'000}),
                 again = run({.post = 20'000, .completion = 20'000});
    BOOST_TEST_MESSAGE("free " << free.time << " ns, " << free.reads << " requests; slow " << slow.time << " ns, "
                               << slow.reads);
    BOOST_TEST(free.time < kMessages * 16384u); // two rails of 1 byte/ns
    // A message, a read posted and completed at the least.
    BOOST_TEST(slow.time > kMessages * 3 * 20'000u);
    BOOST_TEST(slow.fingerprint == again.fingerprint);
    BOOST_TEST(slow.fingerprint != free.fingerprint);
}

BOOST_AUTO_TEST_CASE(who_cannot_keep_up_cuts_less) {
    // The rails are idle nearly always: a read takes 8 us of both, a stripe 40 us of the processor.
    const Result slow = run({.post = 20'000, .completion = 20'000});
    BOOST_TEST(slow.reads < kMessages * 7 / 4); // half of them whole, and a few acknowledgments
}
