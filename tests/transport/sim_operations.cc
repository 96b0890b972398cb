// Every operation between two interfaces, over RC and DC, one path and many: content, order, completions.
#define BOOST_TEST_MODULE transport_operations
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "simulator/cluster.h"
#include "softhca/fabric.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::AtomicOp;

namespace {

struct Case {
    const char* fabric;
    connect::Transport transport;
    const char* policy;
    bool split_reads = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.fabric << (c.transport == connect::Transport::rc ? " rc " : " dc ") << c.policy
               << (c.split_reads ? " split" : "");
}
const Case kCases[] = {
    {"ideal-2rail", connect::Transport::rc, "default"},    {"two-rail", connect::Transport::rc, "default"},
    {"two-rail", connect::Transport::dc, "default"},       {"four-path", connect::Transport::rc, "spray"},
    {"four-path", connect::Transport::dc, "even"},         {"two-rail", connect::Transport::rc, "round_robin"},
    {"two-rail", connect::Transport::rc, "default", true}, {"four-path", connect::Transport::dc, "bss", true},
};

channel::Config config_of(const Case& c) {
    channel::Config config;
    config.transport = c.transport;
    const auto choice = schedule::make_policy(c.policy);
    BOOST_REQUIRE_MESSAGE(choice.config, choice.error);
    config.policy = *choice.config;
    config.receive_depth = 256;
    config.paths.split_reads = c.split_reads;
    return config;
}

struct Inbox {
    std::vector<std::vector<std::byte>> messages;
    static Status take(void* self, void* data, std::size_t length, unsigned) {
        const auto* bytes = static_cast<const std::byte*>(data);
        static_cast<Inbox*>(self)->messages.emplace_back(bytes, bytes + length);
        return Status::ok;
    }
};

struct Done : Completion {
    Done(int n = 1) : Completion{fired, n, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Done*>(self)->done = true; }
};

// Repeats an operation until it is accepted.
#define DO(cluster, call)                                                                                              \
    do {                                                                                                               \
        Status status_ = Status::no_resource;                                                                          \
        BOOST_REQUIRE((cluster).until([&] {                                                                            \
            status_ = static_cast<Status>(std::min<long>(static_cast<long>(call), 1));                                 \
            return status_ != Status::no_resource;                                                                     \
        }));                                                                                                           \
        BOOST_REQUIRE(!failed(status_));                                                                               \
    } while (0)

std::byte pattern(std::size_t i, unsigned seed) { return static_cast<std::byte>(i * 131 + seed * 17 + (i >> 8)); }

struct Pack {
    const std::byte* data;
    std::size_t length;
    static std::size_t pack(void* dest, void* arg) {
        const auto* self = static_cast<Pack*>(arg);
        std::memcpy(dest, self->data, self->length);
        return self->length;
    }
};

} // namespace

BOOST_DATA_TEST_CASE(messages, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 2, config_of(c));
    Inbox inbox;
    cluster.node(1).on_am(3, Inbox::take, &inbox);
    Channel& to = cluster.channel(0, 1);
    auto& iface = cluster.node(0).iface();
    auto memory = cluster.node(0).memory(1 << 16);
    for (std::size_t i = 0; i < memory.size; ++i) memory.data[i] = pattern(i, 1);

    const char text[] = "sixteen letters";
    DO(cluster, iface.am_short(to, 3, 0x1122334455667788, text, sizeof text));
    const Iov pieces[] = {memory.iov(0, 5), memory.iov(100, 0), memory.iov(200, 7)};
    DO(cluster, iface.am_short_iov(to, 3, pieces, 3));
    Pack pack{memory.data, 8000};
    DO(cluster, iface.am_bcopy(to, 3, Pack::pack, &pack));
    Done done;
    const Iov large[] = {memory.iov(10, 3000), memory.iov(5000, 4000)};
    DO(cluster, iface.am_zcopy(to, 3, text, 8, large, 2, &done));
    DO(cluster, iface.am_short(to, 3, 1, text, 0));
    BOOST_REQUIRE(cluster.until([&] { return inbox.messages.size() == 5 && done.done; }));
    BOOST_TEST(inbox.messages[0].size() == 8 + sizeof text);
    BOOST_TEST(std::memcmp(inbox.messages[0].data() + 8, text, sizeof text) == 0);
    BOOST_TEST(inbox.messages[1].size() == 12);
    BOOST_TEST(std::memcmp(inbox.messages[1].data() + 5, memory.data + 200, 7) == 0);
    BOOST_TEST(inbox.messages[2].size() == 8000);
    BOOST_TEST(std::memcmp(inbox.messages[2].data(), memory.data, 8000) == 0);
    BOOST_TEST(inbox.messages[3].size() == 7008);
    BOOST_TEST(std::memcmp(inbox.messages[3].data(), text, 8) == 0);
    BOOST_TEST(std::memcmp(inbox.messages[3].data() + 8, memory.data + 10, 3000) == 0);
    BOOST_TEST(std::memcmp(inbox.messages[3].data() + 3008, memory.data + 5000, 4000) == 0);
    BOOST_TEST(inbox.messages[4].size() == 8);
}

BOOST_DATA_TEST_CASE(order_of_many, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 2, config_of(c));
    struct Count {
        std::uint64_t next = 0, wrong = 0;
        static Status take(void* self, void* data, std::size_t length, unsigned) {
            auto& count = *static_cast<Count*>(self);
            std::uint64_t number;
            std::memcpy(&number, data, 8);
            if (number != count.next++) ++count.wrong;
            const auto* bytes = static_cast<const std::byte*>(data);
            for (std::size_t i = 8; i < length; ++i)
                if (bytes[i] != pattern(i, static_cast<unsigned>(number))) ++count.wrong;
            return Status::ok;
        }
    } count;
    cluster.node(1).on_am(1, Count::take, &count);
    Channel& to = cluster.channel(0, 1);
    auto& iface = cluster.node(0).iface();
    std::vector<std::byte> data(8192);
    for (std::uint64_t n = 0; n < 3000; ++n) {
        const std::size_t length = 8 + n * n % (n % 7 == 0 ? 8000 : 100);
        for (std::size_t i = 8; i < length; ++i) data[i] = pattern(i, static_cast<unsigned>(n));
        std::memcpy(data.data(), &n, 8);
        Pack pack{data.data(), length};
        DO(cluster, iface.am_bcopy(to, 1, Pack::pack, &pack));
    }
    BOOST_REQUIRE(cluster.until([&] { return count.next == 3000; }));
    BOOST_TEST(count.wrong == 0u);
    Done flushed;
    Status status = Status::no_resource;
    BOOST_REQUIRE(cluster.until([&] { return (status = iface.flush(to, &flushed)) != Status::no_resource; }));
    BOOST_REQUIRE((status == Status::ok || cluster.until([&] { return flushed.done; })));
}

BOOST_DATA_TEST_CASE(puts_and_gets, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 2, config_of(c));
    Channel& to = cluster.channel(0, 1);
    auto& iface = cluster.node(0).iface();
    auto mine = cluster.node(0).memory(8 << 20);
    auto theirs = cluster.node(1).memory(8 << 20);
    unsigned seed = 0;
    for (const std::size_t size : {1ul, 8ul, 100ul, 4096ul, 70'000ul, 1'000'000ul, 8ul << 20}) {
        ++seed;
        for (std::size_t i = 0; i < size; ++i) mine.data[i] = pattern(i, seed);
        std::memset(theirs.data, 0, size);
        Done put, got, flushed;
        const Iov from[] = {mine.iov(0, size / 2), mine.iov(size / 2, size - size / 2)};
        DO(cluster, iface.put_zcopy(to, from, 2, theirs.address(), theirs.keys, &put));
        BOOST_REQUIRE(cluster.until([&] { return put.done; }));
        DO(cluster, iface.fence(to));
        std::memset(mine.data, 0, size);
        const Iov into[] = {mine.iov(0, size)};
        DO(cluster, iface.get_zcopy(to, into, 1, theirs.address(), theirs.keys, &got));
        BOOST_REQUIRE(cluster.until([&] { return got.done; }));
        BOOST_TEST(std::memcmp(mine.data, theirs.data, size) == 0);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) wrong += mine.data[i] != pattern(i, seed);
        BOOST_TEST(wrong == 0u);
    }
    // Short, bcopy, get_bcopy
    DO(cluster, iface.put_short(to, "hello", 5, theirs.address(64), theirs.keys));
    for (std::size_t i = 0; i < 6000; ++i) mine.data[i] = pattern(i, 99);
    Pack pack{mine.data, 6000};
    DO(cluster, iface.put_bcopy(to, Pack::pack, &pack, theirs.address(128), theirs.keys));
    Done flushed;
    DO(cluster, iface.flush(to, &flushed));
    BOOST_REQUIRE(cluster.until([&] { return flushed.done; }));
    BOOST_TEST(std::memcmp(theirs.data + 64, "hello", 5) == 0);
    BOOST_TEST(std::memcmp(theirs.data + 128, mine.data, 6000) == 0);
    std::vector<std::byte> got;
    Done done;
    DO(cluster, iface.get_bcopy(
                    to,
                    [](void* arg, const void* data, std::size_t length) {
                        const auto* bytes = static_cast<const std::byte*>(data);
                        static_cast<std::vector<std::byte>*>(arg)->assign(bytes, bytes + length);
                    },
                    &got, 5000, theirs.address(128), theirs.keys, &done));
    BOOST_REQUIRE(cluster.until([&] { return done.done; }));
    BOOST_TEST(got.size() == 5000u);
    BOOST_TEST(std::memcmp(got.data(), mine.data, 5000) == 0);
}

// The message behind a fence must never overtake the data before it.
BOOST_DATA_TEST_CASE(fence_makes_puts_visible, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 2, config_of(c));
    Channel& to = cluster.channel(0, 1);
    auto& iface = cluster.node(0).iface();
    auto mine = cluster.node(0).memory(1 << 20);
    struct Check {
        Node::Memory memory;
        unsigned arrived = 0;
        std::size_t wrong = 0;
        static Status take(void* self, void* data, std::size_t, unsigned) {
            auto& check = *static_cast<Check*>(self);
            std::uint64_t size;
            std::memcpy(&size, data, 8);
            ++check.arrived;
            for (std::size_t i = 0; i < size; ++i) check.wrong += check.memory.data[i] != pattern(i, check.arrived);
            return Status::ok;
        }
    } check{cluster.node(1).memory(1 << 20)};
    cluster.node(1).on_am(2, Check::take, &check);
    for (unsigned round = 1; round <= 40; ++round) {
        const std::size_t size = round % 3 == 0 ? 1 << 20 : round % 3 == 1 ? 3000 : 100'000;
        for (std::size_t i = 0; i < size; ++i) mine.data[i] = pattern(i, round);
        Done put;
        const Iov from[] = {mine.iov(0, size)};
        DO(cluster, iface.put_zcopy(to, from, 1, check.memory.address(), check.memory.keys, &put));
        DO(cluster, iface.fence(to));
        DO(cluster, iface.am_short(to, 2, size, nullptr, 0));
        BOOST_REQUIRE(cluster.until([&] { return check.arrived == round && put.done; }));
    }
    BOOST_TEST(check.wrong == 0u);
}

BOOST_DATA_TEST_CASE(atomics, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 3, config_of(c));
    auto target = cluster.node(2).memory(4096);
    std::memset(target.data, 0, 4096);
    auto* counter = reinterpret_cast<std::uint64_t*>(target.data);
    auto* word = reinterpret_cast<std::uint32_t*>(target.data + 64);
    std::uint64_t sum = 0;
    for (unsigned round = 0; round < 50; ++round)
        for (unsigned source : {0u, 1u}) {
            auto& iface = cluster.node(source).iface();
            Channel& to = cluster.channel(source, 2);
            DO(cluster, iface.atomic_post(to, AtomicOp::add, 8, round + 1, target.address(), target.keys));
            sum += round + 1;
            std::uint64_t before = 77;
            Done done;
            DO(cluster,
               iface.atomic_fetch(to, AtomicOp::add, 4, 1, 0, &before, target.address(64), target.keys, &done));
            BOOST_REQUIRE(cluster.until([&] { return done.done; }));
            BOOST_TEST(static_cast<std::uint32_t>(before) == round * 2 + source);
        }
    for (unsigned source : {0u, 1u}) {
        Done flushed;
        Status status = Status::no_resource;
        auto& iface = cluster.node(source).iface();
        Channel& to = cluster.channel(source, 2);
        BOOST_REQUIRE(cluster.until([&] { return (status = iface.flush(to, &flushed)) != Status::no_resource; }));
        BOOST_REQUIRE((status == Status::ok || cluster.until([&] { return flushed.done; })));
    }
    BOOST_TEST(*counter == sum);
    BOOST_TEST(*word == 100u);
    auto& iface = cluster.node(0).iface();
    Channel& to = cluster.channel(0, 2);
    std::uint64_t result = 0;
    Done swapped;
    DO(cluster,
       iface.atomic_fetch(to, AtomicOp::compare_swap, 8, 5, sum, &result, target.address(), target.keys, &swapped));
    BOOST_REQUIRE(cluster.until([&] { return swapped.done; }));
    BOOST_TEST(result == sum);
    BOOST_TEST(*counter == 5u);
    // Outside registered memory: refused, nothing changes, the channel lives on.
    Done refused;
    DO(cluster, iface.atomic_fetch(to, AtomicOp::swap, 8, 9, 0, &result, target.address(4096), target.keys, &refused));
    BOOST_REQUIRE(cluster.until([&] { return refused.done; }));
    BOOST_TEST((refused.status == Status::io_error));
    BOOST_TEST(cluster.node(2).services().errors == 1u);
}

// A flush's request for an acknowledgment may overtake what it asks about, on another path.
BOOST_DATA_TEST_CASE(flush_behind_a_slow_path, boost::unit_test::data::make({false, true}), dc) {
    const auto transport = dc ? connect::Transport::dc : connect::Transport::rc;
    Cluster cluster("two-rail", 2, config_of({"two-rail", transport, "round_robin"}));
    cluster.world.fault("delay 50us 0:softhca_1:1");
    auto target = cluster.node(1).memory(64);
    std::memset(target.data, 0, 64);
    auto& iface = cluster.node(0).iface();
    Channel& to = cluster.channel(0, 1);
    for (unsigned round = 1; round <= 5; ++round) {
        for (unsigned i = 0; i < 11; ++i)
            DO(cluster, iface.atomic_post(to, AtomicOp::add, 8, 1, target.address(), target.keys));
        Done flushed;
        DO(cluster, iface.flush(to, &flushed));
        BOOST_REQUIRE(cluster.until([&] { return flushed.done; }, 10'000'000));
        BOOST_TEST(*reinterpret_cast<std::uint64_t*>(target.data) == round * 11u);
    }
}

BOOST_DATA_TEST_CASE(atomics_by_the_adapter, boost::unit_test::data::make(kCases), c) {
    channel::Config config = config_of(c);
    config.atomics = channel::AtomicsMode::adapter;
    Cluster cluster(c.fabric, 2, config);
    auto target = cluster.node(1).memory(4096);
    auto* counter = reinterpret_cast<std::uint64_t*>(target.data);
    *counter = 0;
    auto& iface = cluster.node(0).iface();
    Channel& to = cluster.channel(0, 1);
    for (unsigned round = 0; round < 20; ++round) {
        DO(cluster, iface.atomic_post(to, AtomicOp::add, 8, 5, target.address(), target.keys));
        std::uint64_t before = 77;
        Done done;
        DO(cluster, iface.fence(to));
        DO(cluster, iface.atomic_fetch(to, AtomicOp::add, 8, 1, 0, &before, target.address(), target.keys, &done));
        BOOST_REQUIRE(cluster.until([&] { return done.done; }));
        BOOST_TEST(before == round * 6 + 5);
    }
    std::uint64_t result = 0;
    Done swapped;
    DO(cluster,
       iface.atomic_fetch(to, AtomicOp::compare_swap, 8, 9, 120, &result, target.address(), target.keys, &swapped));
    BOOST_REQUIRE(cluster.until([&] { return swapped.done; }));
    BOOST_TEST(result == 120u);
    BOOST_TEST(*counter == 9u);
    BOOST_TEST((iface.atomic_post(to, AtomicOp::swap, 8, 5, target.address(), target.keys) == Status::unsupported));
    BOOST_TEST((iface.atomic_post(to, AtomicOp::add, 4, 5, target.address(), target.keys) == Status::unsupported));
}

// Fewer completion queue entries than messages that ask for no completion: those to peers that get nothing more must
// not keep the entries for ever.
BOOST_DATA_TEST_CASE(many_silent_peers, boost::unit_test::data::make({false, true}), dc) {
    channel::Config config = config_of(dc ? kCases[4] : Case{"four-path", connect::Transport::rc, "default"});
    config.completion_depth = 32;
    Cluster cluster("four-path", 8, config);
    std::vector<Inbox> inboxes(8);
    auto& iface = cluster.node(0).iface();
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned peer = 1; peer < 8; ++peer) {
            cluster.node(peer).on_am(2, Inbox::take, &inboxes[peer]);
            Channel& to = cluster.channel(0, peer);
            for (unsigned i = 0; i < 14; ++i) DO(cluster, iface.am_short(to, 2, i, nullptr, 0));
        }
    }
    for (unsigned peer = 1; peer < 8; ++peer)
        BOOST_REQUIRE(cluster.until([&] { return inboxes[peer].messages.size() == 42; }));
}

BOOST_DATA_TEST_CASE(to_oneself, boost::unit_test::data::make(kCases), c) {
    Cluster cluster(c.fabric, 1, config_of(c));
    Inbox inbox;
    cluster.node(0).on_am(7, Inbox::take, &inbox);
    Channel& self = cluster.channel(0, 0);
    auto& iface = cluster.node(0).iface();
    for (unsigned i = 0; i < 1000; ++i) DO(cluster, iface.am_short(self, 7, i, "abc", 3));
    BOOST_REQUIRE(cluster.until([&] { return inbox.messages.size() == 1000; }));
    for (unsigned i = 0; i < 1000; ++i) BOOST_REQUIRE(std::memcmp(inbox.messages[i].data(), &i, 4) == 0);
    auto memory = cluster.node(0).memory(1 << 20);
    Done done;
    std::memset(memory.data, 7, 1000);
    const Iov from[] = {memory.iov(0, 1000)};
    DO(cluster, iface.put_zcopy(self, from, 1, memory.address(5000), memory.keys, &done));
    BOOST_REQUIRE(cluster.until([&] { return done.done; }));
    BOOST_TEST(std::memcmp(memory.data, memory.data + 5000, 1000) == 0);
}

namespace {
// What a node has posted on each path to its first peer, messages and acknowledgments.
std::vector<std::uint64_t> posted(Cluster& cluster, unsigned node, std::size_t channel = 0) {
    channel::Interface::Statistics statistics;
    cluster.node(node).iface().statistics(statistics);
    std::vector<std::uint64_t> of;
    for (const auto& path : statistics.channels.at(channel).paths) of.push_back(path.requests + path.posted);
    return of;
}
} // namespace

// Small messages to a peer stay on one path, and so do the answers: neither side looks at another adapter for them.
BOOST_AUTO_TEST_CASE(one_path_both_ways) {
    Cluster cluster("two-rail", 3, config_of({"two-rail", connect::Transport::rc, "default"}));
    std::vector<Inbox> inboxes(3);
    std::vector<std::size_t> path_of;
    for (const unsigned peer : {1u, 2u}) {
        cluster.node(peer).on_am(2, Inbox::take, &inboxes[peer]);
        Channel& to = cluster.channel(0, peer);
        for (unsigned i = 0; i < 300; ++i) {
            DO(cluster, cluster.node(0).iface().am_short(to, 2, i, "12345678", i % 9));
            BOOST_REQUIRE(cluster.until([&] { return inboxes[peer].messages.size() == i + 1; }));
        }
        const auto there = posted(cluster, 0, peer - 1), back = posted(cluster, peer);
        BOOST_REQUIRE(there.size() == 2u);
        path_of.push_back(there[0] ? 0 : 1);
        BOOST_TEST(there[path_of.back()] == 300u);
        BOOST_TEST(back[path_of.back()] >= 4u);
        BOOST_TEST(back[1 - path_of.back()] == 0u);
    }
    BOOST_TEST(path_of[0] != path_of[1]);
}

// An adapter's clock that is off by more than any oscillator (or a host clock that is) does not show in latencies for
// long.
BOOST_AUTO_TEST_CASE(clocks_are_fitted_soon) {
    const softhca::FabricBlock block =
        softhca::parse_fabric("ideal: true\nadapters:\n  a: {clock_drift: 800 ppm}\n"
                              "nodes:\n  - {name: 'n[0-1]', adapters: [a, a]}\n"
                              "subnets:\n  - {name: all, crossbar: true, rate: EDR 4x}\n",
                              "drift.yaml");
    Cluster cluster(block.image(), 2, config_of({"", connect::Transport::rc, "default"}));
    Inbox inbox;
    cluster.node(1).on_am(2, Inbox::take, &inbox);
    Channel& to = cluster.channel(0, 1);
    for (unsigned i = 0; i < 2000; ++i) {
        DO(cluster, cluster.node(0).iface().am_short(to, 2, i, nullptr, 0));
        cluster.run_for(100'000);
    }
    channel::Interface::Statistics statistics;
    cluster.node(0).iface().statistics(statistics);
    for (const auto& path : statistics.channels.at(0).paths) BOOST_TEST(path.latency < 10'000);
}

namespace {
Status count(void* self, void*, std::size_t, unsigned) {
    ++*static_cast<unsigned*>(self);
    return Status::ok;
}
} // namespace

// Receives are posted for a window of every peer: nobody has to wait for one that computes (RNR_TIMEOUT, 640 us).
BOOST_DATA_TEST_CASE(receives_for_every_peer, boost::unit_test::data::make({false, true}), dc) {
    channel::Config config;
    config.transport = dc ? connect::Transport::dc : connect::Transport::rc;
    config.window = 64;
    config.policy = *schedule::make_policy("binding").config; // all to the same adapter
    const verbs::DeviceConfig rails{{"softhca_0:1"}};
    constexpr unsigned kPeers = 3;
    Cluster cluster("two-rail", 1 + kPeers, config, {}, rails);
    unsigned arrived = 0;
    cluster.node(0).on_am(1, count, &arrived);
    std::vector<Channel*> to;
    for (unsigned i = 1; i <= kPeers; ++i) {
        to.push_back(&cluster.channel(i, 0));
        DO(cluster, cluster.node(i).iface().am_short(*to.back(), 1, 0, nullptr, 0));
    }
    BOOST_REQUIRE(cluster.until([&] { return arrived == kPeers; }));
    cluster.run_for(1'000'000); // acknowledged
    cluster.sleep(0, true);
    const unsigned each = config.window - 1; // the first may not be acknowledged yet
    for (unsigned k = 0; k < each; ++k)
        for (unsigned i = 1; i <= kPeers; ++i)
            DO(cluster, cluster.node(i).iface().am_short(*to[i - 1], 1, 0, nullptr, 0));
    cluster.world.run_until(cluster.world.now() + 100'000); // all are here, or refused
    cluster.sleep(0, false);
    BOOST_TEST(cluster.until([&] { return arrived == kPeers * (1 + each); }, 10'000));
}

// However long an adapter has been silent, a message over it waits for no more calls of progress() than the interval
// says.
BOOST_AUTO_TEST_CASE(silent_adapters_are_looked_at) {
    channel::Config config;
    config.policy = *schedule::make_policy("round_robin").config;
    config.quiet_interval = 2;
    config.silent_interval = 8;
    Cluster cluster("ideal-2rail", 2, config);
    unsigned arrived = 0;
    cluster.node(1).on_am(1, count, &arrived);
    Channel& to = cluster.channel(0, 1);
    const auto turn = [&] {
        for (unsigned k = 0; k < 16; ++k) cluster.node(0).progress(), cluster.node(1).progress();
        return cluster.world.step();
    };
    unsigned sent = 0;
    const auto send_two = [&] {
        for (const unsigned end = sent + 2; sent < end;)
            if (cluster.node(0).iface().am_short(to, 1, 0, nullptr, 0) == Status::ok)
                ++sent;
            else
                BOOST_REQUIRE(turn());
    };
    send_two();
    while (arrived < 2) BOOST_REQUIRE(turn());
    for (unsigned pause : {0, 100, 10'000}) {
        while (cluster.world.now() % 1'000'000 != 0 && turn()) {} // all at rest
        for (unsigned k = 0; k < pause; ++k) BOOST_REQUIRE(cluster.node(1).iface().progress() == 0u);
        cluster.sleep(1, true);
        send_two();
        while (turn()) {}
        const unsigned before = arrived;
        unsigned calls = 0;
        while (arrived < before + 2 && ++calls < 100) (void)cluster.node(1).iface().progress();
        BOOST_TEST(calls <= config.silent_interval, "after " << pause << " empty rounds: " << calls << " calls");
        cluster.sleep(1, false);
    }
}
