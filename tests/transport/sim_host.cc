// The transport where processors take their time (World's HostCosts).
#define BOOST_TEST_MODULE transport_host
#include <boost/test/unit_test.hpp>
#include <cstring>

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
    // A message, a read posted and completed at the least. The last poll's completions are handed over before all of
    // them have been paid for.
    BOOST_TEST(slow.time > (kMessages * 3 - 16) * 20'000u);
    BOOST_TEST(slow.fingerprint == again.fingerprint);
    BOOST_TEST(slow.fingerprint != free.fingerprint);
}

BOOST_AUTO_TEST_CASE(who_cannot_keep_up_cuts_less) {
    // The rails are idle nearly always: a read takes 8 us of both, a stripe 40 us of the processor.
    const Result slow = run({.post = 20'000, .completion = 20'000});
    BOOST_TEST(slow.reads < kMessages * 7 / 4); // half of them whole, and a few acknowledgments
}

namespace {

constexpr std::uint8_t kNote = 5;

// Two processes on node 0, one on node 1; each counts what it gets.
struct Shared {
    explicit Shared(bool background = false, softhca::sim::HostCosts host = {})
        : cluster("two-rail", std::vector<unsigned>{0, 0, 1}, make(background), {.seed = 3, .host = host}) {
        for (unsigned i = 0; i < 3; ++i)
            cluster.node(i).on_am(
                kNote, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; },
                &got[i]);
    }
    static channel::Config make(bool background) {
        channel::Config config;
        config.background = background;
        return config;
    }
    bool send(unsigned from, unsigned to) {
        const unsigned before = got[to];
        Channel& channel = cluster.channel(from, to);
        return cluster.until([&] {
            return cluster.node(from).iface().am_short(channel, kNote, 0, nullptr, 0) == Status::ok;
        }) && cluster.until([&] { return got[to] > before; });
    }
    Cluster cluster;
    unsigned got[3] = {};
};

} // namespace

BOOST_AUTO_TEST_CASE(processes_of_one_node_talk_and_have_their_own_time) {
    Shared s(false, {.post = 1'000});
    for (const auto& [from, to] : {std::pair{0u, 1u}, {1u, 0u}, {0u, 2u}, {2u, 1u}}) BOOST_TEST(s.send(from, to));
    s.cluster.run_for(1'000'000);
    const Nanos now = s.cluster.world.now();
    s.cluster.node(1).spend(77'000);
    BOOST_TEST(s.cluster.node(1).services().now() == now + 77'000);
    BOOST_TEST(s.cluster.node(0).services().now() == now);
    BOOST_TEST(s.send(2, 0)); // who shares a node with a busy one has its turn
    BOOST_TEST(s.cluster.world.now() < now + 77'000);
    BOOST_TEST(s.send(2, 1));
    BOOST_TEST(s.cluster.world.now() >= now + 77'000);
}

BOOST_AUTO_TEST_CASE(who_computes_has_no_turn_but_its_control_plane_has) {
    constexpr Nanos kWork = 5'000'000;
    for (const bool background : {false, true}) {
        Shared s(background);
        const Nanos start = s.cluster.world.now();
        bool over = false;
        s.cluster.node(2).compute(kWork, [&] { over = true; });
        BOOST_TEST(s.cluster.node(2).computing());
        // A connection is made meanwhile, if another thread answers; what is sent over it is not delivered.
        Channel& to = s.cluster.channel(0, 2);
        BOOST_TEST(s.cluster.until(
            [&] { return s.cluster.node(0).iface().am_short(to, kNote, 0, nullptr, 0) == Status::ok; }));
        BOOST_TEST((s.cluster.world.now() < start + kWork) == background);
        BOOST_TEST(s.cluster.until([&] { return s.got[2] == 1; }));
        BOOST_TEST(over);
        BOOST_TEST(s.cluster.world.now() >= start + kWork);
        BOOST_TEST(s.cluster.world.now() < start + kWork + 1'000'000);
    }
}

BOOST_AUTO_TEST_CASE(looks_at_rings_cost_what_they_are_said_to) {
    Shared s(false, {.poll_miss = 10, .poll_hit = 100});
    BOOST_TEST(s.send(0, 2));
    s.cluster.run_for(1'000'000);
    RingLooks looks{.misses = 5, .hits = 1}; // what has been looked at before counts with the first call
    s.cluster.node(2).ring_looks = [&] { return looks; };
    const Nanos now = s.cluster.world.now();
    (void)s.cluster.node(2).progress();
    BOOST_TEST(s.cluster.node(2).services().now() == now + 150);
    s.cluster.run_for(1'000);
    looks = {.misses = 8, .hits = 1};
    (void)s.cluster.node(2).progress();
    BOOST_TEST(s.cluster.node(2).services().now() == s.cluster.world.now() + 30);
}

namespace {

struct Told {
    Node::Memory source, target;
    unsigned arrived = 0, stale = 0;
    static Status message(void* arg, void*, std::size_t, unsigned) {
        auto& self = *static_cast<Told*>(arg);
        ++self.arrived;
        self.stale += std::memcmp(self.source.data, self.target.data, kSize) != 0;
        return Status::ok;
    }
};

// Writes in four stripes to one adapter, each followed by a fence and a message: markers of the last half of them.
std::uint64_t markers(softhca::sim::HostCosts host, bool completed) {
    constexpr unsigned kRounds = 32, kFar = 4;
    channel::Config config;
    config.policy.kind = schedule::PolicyKind::even;
    config.paths.num_paths = 4;
    Cluster cluster("four-path", 8, config, {.seed = 1, .host = host}, verbs::DeviceConfig{{"softhca_0:1"}});
    Told told{cluster.node(0).memory(kSize), cluster.node(kFar).memory(kSize)};
    cluster.node(kFar).on_am(1, Told::message, &told);
    Channel& to = cluster.channel(0, kFar);
    const auto sent = [&] {
        channel::Interface::Statistics s;
        cluster.node(0).iface().statistics(s);
        std::uint64_t n = 0;
        for (const auto& channel : s.channels) n += channel.markers_sent;
        return n;
    };
    const auto go = [&](auto&& call) { BOOST_REQUIRE(cluster.until([&] { return call() != Status::no_resource; })); };
    std::uint64_t before = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        if (round == kRounds / 2) before = sent();
        struct Put : Completion {
            bool over = false;
        } put;
        put.callback = [](Completion* self) { static_cast<Put*>(self)->over = true; };
        put.count = 1;
        std::memset(told.source.data, static_cast<int>(round + 1), kSize);
        const Iov iov = told.source.iov(0, kSize);
        go([&] { return channel::Interface::put_zcopy(to, &iov, 1, told.target.address(), told.target.keys, &put); });
        if (completed) BOOST_REQUIRE(cluster.until([&] { return put.over; }));
        BOOST_REQUIRE(channel::Interface::fence(to) == Status::ok);
        go([&] { return channel::Interface::am_short(to, 1, 0, nullptr, 0); });
        BOOST_REQUIRE(cluster.until([&] { return put.over && told.arrived > round; }));
    }
    BOOST_TEST(told.stale == 0u);
    return sent() - before;
}

} // namespace

BOOST_AUTO_TEST_CASE(no_markers_where_completions_are_sooner) {
    BOOST_TEST(markers({}, false) == 3 * 16u);
    BOOST_TEST(markers({.post = 4'000, .completion = 4'000}, false) == 0u);
    BOOST_TEST(markers({}, true) == 0u);
}
