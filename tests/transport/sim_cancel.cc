// Memory is the adapter's until its request is back: what is sent to one peer never has bytes that were meant for
// another, however the channel to it ends while its messages are on their way.
#define BOOST_TEST_MODULE transport_cancel
#include <cstring>

#include "both_transports.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr unsigned kId = 3, kMessages = 40;
constexpr std::size_t kSize = 59'000; // many packets: the adapter reads it for a while

struct Pack {
    unsigned char byte;
    static std::size_t pack(void* to, void* self) {
        std::memset(to, static_cast<Pack*>(self)->byte, kSize);
        return kSize;
    }
};

// Takes messages that have this byte everywhere.
struct Box {
    explicit Box(unsigned char byte) : wanted(byte) {}
    unsigned char wanted;
    unsigned good = 0, bad = 0;
    static Status take(void* self, void* data, std::size_t length, unsigned) {
        auto& box = *static_cast<Box*>(self);
        const auto* bytes = static_cast<const unsigned char*>(data);
        const bool good =
            length == kSize && std::all_of(bytes, bytes + length, [&](unsigned char b) { return b == box.wanted; });
        ++(good ? box.good : box.bad);
        return Status::ok;
    }
};

struct Done : Completion {
    explicit Done(std::function<void()> fn) : Completion{fired, 1, Status::ok}, told(std::move(fn)) {}
    std::function<void()> told;
    static void fired(Completion* self) { static_cast<Done*>(self)->told(); }
};

std::uint64_t dropped(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    return statistics.dropped;
}

// Node 0 sends to 1 and then, when that has ended, to 2, with the same buffers if they are free.
struct Scene {
    Cluster cluster;
    Box one{0x11}, two{0x22};
    Channel *to_one = nullptr, *to_two = nullptr;

    explicit Scene(connect::Transport transport) : cluster("two-rail", 3, large(transport)) {
        cluster.node(1).on_am(kId, Box::take, &one);
        cluster.node(2).on_am(kId, Box::take, &two);
        for (unsigned i = 0; i < 3; ++i) cluster.node(i).on_failure = [](Channel&, Status) {};
        to_one = &cluster.channel(0, 1);
        to_two = &cluster.channel(0, 2);
        for (Channel* to : {to_one, to_two})
            BOOST_REQUIRE(
                cluster.until([&] { return channel::Interface::am_short(*to, 5, 0, nullptr, 0) == Status::ok; }));
        cluster.run_for(1'000'000);
    }
    static channel::Config large(connect::Transport transport) {
        channel::Config config = config_of(transport);
        config.segment = 60'000;
        return config;
    }
    unsigned send(Channel& to, unsigned char byte) {
        Pack pack{byte};
        unsigned sent = 0;
        while (sent < kMessages && channel::Interface::am_bcopy(to, kId, Pack::pack, &pack) > 0) ++sent;
        return sent;
    }
    // The program goes on with the other peer, and computes.
    void go_on(Nanos computes) {
        const unsigned sent = send(*to_two, 0x22);
        BOOST_TEST(sent > 10u);
        cluster.sleep(0, true);
        cluster.run_for(computes);
        cluster.sleep(0, false);
        unsigned all = sent;
        BOOST_TEST(cluster.until(
            [&] {
                if (all < kMessages + sent)
                    all += channel::Interface::am_bcopy(*to_two, kId, Pack::pack, &pack_two) > 0;
                return two.good + two.bad == kMessages + sent;
            },
            2'000'000'000)); // all buffers have come back
        BOOST_TEST(one.bad + two.bad == 0u);
        BOOST_TEST(dropped(cluster.node(2)) == 0u);
        cluster.run_for(2'000'000'000);
        BOOST_TEST(one.bad == 0u);
    }
    Pack pack_two{0x22};
};

const auto kComputes = boost::unit_test::data::make({Nanos{1'000}, Nanos{100'000}, Nanos{1'000'000}});

} // namespace

// UCT_FLUSH_FLAG_CANCEL and uct_ep_invalidate.
BOOST_DATA_TEST_CASE(cancelled, kBoth* kComputes* boost::unit_test::data::make({false, true}), transport, computes,
                     quiet) {
    Scene scene(transport);
    BOOST_TEST(scene.send(*scene.to_one, 0x11) > 10u);
    scene.cluster.run_for(30'000);
    scene.cluster.node(0).iface().invalidate(*scene.to_one, quiet ? Status::canceled : Status::connection_reset, quiet);
    scene.go_on(computes);
}

// An operation with a key that the target's adapter refuses, among the messages.
BOOST_DATA_TEST_CASE(by_its_own_fault, kBoth* kComputes, transport, computes) {
    Scene scene(transport);
    auto ours = scene.cluster.node(0).memory(4096), theirs = scene.cluster.node(1).memory(4096);
    for (auto& key : theirs.keys.rkey) key ^= 0x5500;
    const Iov iov = ours.iov(0, 4096);
    bool told = false;
    Done done([&] { told = true; });
    (void)scene.send(*scene.to_one, 0x11);
    BOOST_REQUIRE(scene.cluster.until([&] {
        return channel::Interface::put_zcopy(*scene.to_one, &iov, 1, theirs.address(), theirs.keys, &done) !=
               Status::no_resource;
    }));
    (void)scene.send(*scene.to_one, 0x11);
    BOOST_TEST(scene.cluster.until([&] { return told; }));
    BOOST_TEST((done.status != Status::ok));
    scene.go_on(computes);
}

// A message without copies: whoever is told that it has ended may change its bytes at once.
BOOST_DATA_TEST_CASE(memory_of_the_program, kBoth* kComputes, transport, computes) {
    Scene scene(transport);
    auto memory = scene.cluster.node(0).memory(kMessages * kSize);
    std::memset(memory.data, 0x11, memory.size);
    std::vector<std::unique_ptr<Done>> all;
    for (unsigned i = 0; i < kMessages; ++i) {
        unsigned char* const bytes = reinterpret_cast<unsigned char*>(memory.data) + i * kSize;
        all.push_back(std::make_unique<Done>([bytes] { std::memset(bytes, 0x22, kSize); }));
        const Iov iov = memory.iov(i * kSize, kSize);
        if (channel::Interface::am_zcopy(*scene.to_one, kId, nullptr, 0, &iov, 1, all.back().get()) !=
            Status::in_progress)
            break;
    }
    scene.cluster.run_for(30'000);
    scene.cluster.node(0).iface().invalidate(*scene.to_one, Status::canceled, true);
    scene.go_on(computes);
}

// Those whose path has failed go again over the other one and are acknowledged; the adapter of the first one may still
// be repeating them, since ending the queue pairs of many peers takes a while.
BOOST_DATA_TEST_CASE(sent_again_elsewhere, kBoth, transport) {
    constexpr unsigned kPeers = 15;
    channel::Config config = Scene::large(transport);
    config.window = 16;
    config.reliability.timeout = 12; // 16 ms
    config.reliability.retry_count = 7;
    config.recovery.watch_interval = 1'000'000;
    config.dci_count = kPeers;
    Cluster cluster("two-rail", kPeers + 1, config);
    std::vector<Box> boxes;
    for (unsigned i = 0; i < kPeers; ++i) boxes.emplace_back(static_cast<unsigned char>(i + 1));
    std::vector<Channel*> to;
    for (unsigned i = 0; i < kPeers; ++i) {
        cluster.node(i + 1).on_am(kId, Box::take, &boxes[i]);
        to.push_back(&cluster.channel(0, i + 1));
        BOOST_REQUIRE(
            cluster.until([&] { return channel::Interface::am_short(*to[i], 5, 0, nullptr, 0) == Status::ok; }));
    }
    cluster.run_for(1'000'000);
    const auto send = [&] {
        for (unsigned i = 0; i < kPeers; ++i) {
            Pack pack{static_cast<unsigned char>(i + 1)};
            (void)channel::Interface::am_bcopy(*to[i], kId, Pack::pack, &pack);
        }
    };
    for (unsigned n = 0; n < 4; ++n) send();
    // Each command takes node 0 a while.
    auto& services = cluster.node(0).services();
    cluster.world.fault("command-cost modify 3ms 0:softhca_0");
    cluster.world.on_command([&](Nanos cost) { services.spent += cost; });
    cluster.world.fault("drop 100% node0:0->switch");
    const auto send_for = [&](Nanos time) {
        for (const Nanos end = cluster.world.now() + time; cluster.world.now() < end; cluster.run_for(50'000)) send();
    };
    send_for(14'000'000); // given up, and all is sent again and acknowledged
    cluster.world.fault("drop 0% node0:0->switch");
    send_for(20'000'000);
    cluster.run_for(100'000'000);
    BOOST_TEST(services.spent >= Nanos{3'000'000});
    std::uint64_t strays = 0, bad = 0, good = 0;
    for (unsigned i = 0; i < kPeers; ++i) {
        strays += dropped(cluster.node(i + 1));
        bad += boxes[i].bad;
        good += boxes[i].good;
    }
    BOOST_TEST(bad == 0u);
    BOOST_TEST(strays == 0u); // of others' channels
    BOOST_TEST(good >= 4 * kPeers);
}

// A cancel holds its channel for a while and gives it back: whoever counts endpoints counts as before.
BOOST_DATA_TEST_CASE(endpoints_are_counted, kBoth, transport) {
    Scene scene(transport);
    Node& node = scene.cluster.node(0);
    channel::Core& core = node.iface().core();
    const auto is_right = [&] {
        unsigned sum = 0;
        for (std::uint32_t slot = 0; slot < core.directory.channels.size(); ++slot)
            sum += core.directory.channels[slot]->usage.endpoints;
        return core.directory.endpoints == sum;
    };
    auto ours = node.memory(1 << 22), theirs = scene.cluster.node(1).memory(1 << 22);
    const Iov iov = ours.iov(0, ours.size);
    for (unsigned round = 0; round < 3; ++round) {
        bool told = false;
        Done done([&] { told = true; });
        BOOST_REQUIRE(scene.cluster.until([&] {
            return channel::Interface::put_zcopy(*scene.to_one, &iov, 1, theirs.address(), theirs.keys, &done) ==
                   Status::in_progress;
        }));
        std::uint32_t user = 0;
        BOOST_TEST((node.iface().cancel(*scene.to_one, user, nullptr) == Status::in_progress));
        BOOST_TEST(is_right());
        BOOST_TEST(scene.cluster.until([&] { return told && core.cancels.list.empty(); }, 1'000'000'000));
        BOOST_TEST((done.status == Status::canceled));
        BOOST_TEST(is_right());
    }
    const auto pooled = [&] {
        channel::Interface::Statistics statistics;
        node.iface().statistics(statistics);
        return statistics.pooled;
    };
    BOOST_TEST(scene.cluster.until([&] { return node.iface().park(*scene.to_two) == Status::ok; }, 1'000'000'000));
    if (transport == connect::Transport::rc) BOOST_TEST(scene.cluster.until([&] { return pooled() != 0; }, 10'000'000));
    for (Channel* to : {scene.to_one, scene.to_two})
        while (to->usage.endpoints) node.iface().detach(*to);
    BOOST_TEST(core.directory.endpoints == 0u);
    BOOST_TEST(scene.cluster.until([&] { return node.progress(), pooled() == 0; }, 100'000'000));
}
