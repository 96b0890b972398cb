// Goodbye: who closes has acknowledged what it was delivered, and its peers know at once that it is gone.
#define BOOST_TEST_MODULE transport_close
#include <cstring>

#include "both_transports.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::AtomicOp;

namespace {

constexpr Nanos kMs = 1'000'000;

struct Done : Completion {
    Done() : Completion{fired, 1, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Done*>(self)->done = true; }
};

// Node 0 has a channel to 1, where messages of id 3 are counted.
struct Scene {
    Cluster cluster;
    Channel* to = nullptr;
    unsigned got = 0, told = 0;
    Status status = Status::ok; // that node 0 was told

    explicit Scene(connect::Transport transport, unsigned nodes = 2) : Scene(slow(transport), nodes) {}
    explicit Scene(const channel::Config& config, unsigned nodes = 2) : cluster("two-rail", nodes, config) {
        cluster.node(1).on_am(
            3, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &got);
        cluster.node(0).on_failure = [this](Channel& channel, Status s) {
            BOOST_TEST(&channel == to);
            status = s;
            ++told;
        };
        to = &cluster.channel(0, 1);
        BOOST_REQUIRE(send(5));
        run(kMs);
    }
    static channel::Config slow(connect::Transport transport) {
        channel::Config config = config_of(transport);
        config.reliability.timeout = 14; // adapters find out late
        config.reliability.retry_count = 7;
        return config;
    }
    void run(Nanos time) { // not further, if nothing happens
        cluster.world.at(cluster.world.now() + time, [] {});
        cluster.run_for(time);
    }
    bool until(const std::function<bool()>& condition, Nanos limit) {
        cluster.world.at(cluster.world.now() + limit, [] {});
        return cluster.until(condition, limit);
    }
    bool send(unsigned id) {
        return cluster.until([&] {
            return channel::Interface::am_short(*to, static_cast<std::uint8_t>(id), 0, nullptr, 0) == Status::ok;
        });
    }
    Status flush(Done& done) { return cluster.node(0).iface().flush(*to, &done); }
    Nanos close(unsigned node) {
        const Nanos begin = cluster.world.now();
        cluster.node(node).close();
        return cluster.world.now() - begin;
    }
};

const auto kLater = boost::unit_test::data::make({Nanos{0}, Nanos{1'000}, Nanos{10'000}, kMs});

} // namespace

BOOST_DATA_TEST_CASE(right_after_delivery, kBoth* kLater, transport, later) {
    Scene scene(transport);
    auto memory = scene.cluster.node(0).memory(8192);
    const Iov iov = memory.iov(0, 4000);
    Done sent, flushed;
    BOOST_REQUIRE(int(channel::Interface::am_zcopy(*scene.to, 3, nullptr, 0, &iov, 1, &sent)) ==
                  int(Status::in_progress));
    BOOST_REQUIRE(scene.send(3));
    BOOST_REQUIRE(int(scene.flush(flushed)) == int(Status::in_progress));
    BOOST_REQUIRE(scene.cluster.until([&] { return scene.got == 2; }));
    if (later) scene.run(later);
    BOOST_TEST(scene.close(1) < 10 * kMs);
    BOOST_TEST(scene.until([&] { return sent.done && flushed.done; }, 10 * kMs));
    BOOST_TEST(int(sent.status) == int(Status::ok));
    BOOST_TEST(int(flushed.status) == int(Status::ok));
    BOOST_TEST(scene.told == 0u);
}

// The goodbye acknowledges them. The adapter never hears of one: what it sent has come, its acknowledgment is lost.
BOOST_DATA_TEST_CASE(goodbye_before_the_completion, kBoth* boost::unit_test::data::make({0, 1}), transport, rail) {
    channel::Config config = Scene::slow(transport);
    config.policy.kind = schedule::PolicyKind::round_robin;
    Scene scene(config);
    auto memory = scene.cluster.node(0).memory(8192);
    const Iov iov = memory.iov(0, 4000);
    Done sent[2];
    scene.cluster.world.fault("drop 100% switch->node0:" + std::to_string(rail));
    for (Done& done : sent)
        BOOST_REQUIRE(int(channel::Interface::am_zcopy(*scene.to, 3, nullptr, 0, &iov, 1, &done)) ==
                      int(Status::in_progress));
    BOOST_REQUIRE(scene.cluster.until([&] { return scene.got == 2; }));
    scene.close(1);
    BOOST_TEST(scene.until([&] { return sent[0].done && sent[1].done; }, 1000 * kMs));
    for (const Done& done : sent) BOOST_TEST(int(done.status) == int(Status::ok));
}

// A flush counts from the completion of its memory, a reply is owed, too.
BOOST_DATA_TEST_CASE(an_atomic_has_its_reply, kBoth, transport) {
    Scene scene(transport);
    auto memory = scene.cluster.node(1).memory(4096);
    std::memset(memory.data, 0, 4096);
    std::uint64_t before = 1;
    Done done;
    BOOST_REQUIRE(int(scene.cluster.node(0).iface().atomic_fetch(*scene.to, AtomicOp::add, 8, 7, 0, &before,
                                                                 memory.address(), memory.keys, &done)) ==
                  int(Status::in_progress));
    BOOST_REQUIRE(scene.cluster.until([&] { return *reinterpret_cast<std::uint64_t*>(memory.data) == 7; }));
    scene.close(1);
    BOOST_TEST(scene.until([&] { return done.done; }, 10 * kMs));
    BOOST_TEST(int(done.status) == int(Status::ok));
    BOOST_TEST(before == 0u);
}

// With a rail that has failed, or that swallows everything without a word.
BOOST_DATA_TEST_CASE(over_what_is_left,
                     kBoth* boost::unit_test::data::make({"port down 0:softhca_0:1", "port down 1:softhca_1:1",
                                                          "drop 100% node1:0->switch", "drop 100% switch->node0:1"}),
                     transport, fault) {
    Scene scene(transport);
    Done flushed;
    std::vector<std::unique_ptr<Done>> sent;
    auto memory = scene.cluster.node(0).memory(8192);
    const Iov iov = memory.iov(0, 4000);
    scene.cluster.world.fault(fault);
    for (unsigned i = 0; i < 4; ++i) {
        sent.push_back(std::make_unique<Done>());
        BOOST_REQUIRE(scene.cluster.until([&] {
            return channel::Interface::am_zcopy(*scene.to, 3, nullptr, 0, &iov, 1, sent.back().get()) ==
                   Status::in_progress;
        }));
    }
    BOOST_REQUIRE(scene.cluster.until([&] { return scene.got == 4; }));
    BOOST_TEST(scene.close(1) <= 120 * kMs);
    // One whose own completion does not come is over when its adapter reads that memory no more: over DC others are on
    // its queue pair, and it is given a second.
    BOOST_TEST(scene.until([&] { return std::ranges::all_of(sent, [](auto& d) { return d->done; }); },
                           transport == connect::Transport::rc ? 100 * kMs : 1500 * kMs));
    for (const auto& done : sent)
        BOOST_TEST((int(done->status) == int(Status::ok) || int(done->status) == int(Status::connection_reset)));
}

// What was not delivered is lost, and the sender hears it at once.
BOOST_DATA_TEST_CASE(what_was_not_delivered, kBoth, transport) {
    Scene scene(transport);
    scene.cluster.sleep(1, true);
    auto memory = scene.cluster.node(0).memory(8192);
    const Iov iov = memory.iov(0, 4000);
    Done sent;
    BOOST_REQUIRE(int(channel::Interface::am_zcopy(*scene.to, 3, nullptr, 0, &iov, 1, &sent)) ==
                  int(Status::in_progress));
    scene.run(kMs);
    BOOST_TEST(scene.close(1) < 10 * kMs);
    BOOST_TEST(scene.until([&] { return sent.done && scene.told == 1; }, 10 * kMs));
    BOOST_TEST(int(sent.status) == int(Status::connection_reset));
    BOOST_TEST(int(scene.status) == int(Status::connection_reset));
    BOOST_TEST(scene.got == 0u);
}

// A program that computes meanwhile comes back when nobody is there to complete what it has posted. All of that was
// delivered: nobody is told, and a flush ends well. A write that the peer did not take any more is an error of its own.
BOOST_DATA_TEST_CASE(delivered_before_it_computed,
                     kBoth* boost::unit_test::data::make({false, true}) * boost::unit_test::data::make({false, true}),
                     transport, flushes, writes) {
    channel::Config config = Scene::slow(transport);
    config.policy.kind = schedule::PolicyKind::round_robin;
    Scene scene(config);
    auto memory = scene.cluster.node(0).memory(4096), theirs = scene.cluster.node(1).memory(4096);
    const Iov iov = memory.iov(0, 4000);
    Done flushed, written;
    for (unsigned i = 0; i < 9; ++i) BOOST_REQUIRE(scene.send(3));
    BOOST_REQUIRE(scene.until([&] { return scene.got == 9; }, 10 * kMs));
    if (flushes) scene.cluster.world.fault("drop 100% switch->node0:1"); // half of the completions
    if (flushes) BOOST_REQUIRE(int(scene.flush(flushed)) == int(Status::in_progress));
    scene.cluster.sleep(0, true);
    scene.close(1);
    if (writes)
        BOOST_REQUIRE(int(channel::Interface::put_zcopy(*scene.to, &iov, 1, theirs.address(), theirs.keys, &written)) ==
                      int(Status::in_progress));
    scene.run(50 * kMs);
    scene.cluster.sleep(0, false);
    scene.until([&] { return scene.told != 0; }, 100 * kMs);
    scene.run(1500 * kMs);
    BOOST_TEST(scene.told == (writes ? 1u : 0u));
    if (writes) BOOST_TEST(int(written.status) == int(Status::connection_reset));
    if (flushes) BOOST_TEST(flushed.done);
    if (flushes) BOOST_TEST(int(flushed.status) == int(writes ? Status::connection_reset : Status::ok));
    if (!writes) BOOST_TEST(int(scene.flush(flushed)) == int(Status::ok));
}

// A program that computes meanwhile finds its requests failed first. If its peer has said goodbye there is nothing to
// warn of, else there is.
BOOST_DATA_TEST_CASE(sent_before_the_goodbye_was_read, kBoth* boost::unit_test::data::make({false, true}), transport,
                     leaves) {
    channel::Config config = config_of(transport);
    config.reliability = {.timeout = 8, .retry_count = 1};
    config.policy.kind = schedule::PolicyKind::round_robin;
    Scene scene(config);
    scene.cluster.sleep(0, true);
    if (leaves)
        scene.close(1);
    else
        scene.cluster.world.fault("drop 100% all");
    auto memory = scene.cluster.node(0).memory(8192);
    const Iov iov = memory.iov(0, 4000);
    Done sent[2]; // over both rails
    for (Done& done : sent)
        BOOST_REQUIRE(int(channel::Interface::am_zcopy(*scene.to, 3, nullptr, 0, &iov, 1, &done)) ==
                      int(Status::in_progress));
    scene.run(100 * kMs); // the adapters give up
    scene.cluster.sleep(0, false);
    BOOST_TEST(scene.until([&] { return sent[0].done && sent[1].done && scene.told == 1; }, 10 * kMs) == leaves);
    BOOST_TEST(int(scene.status) == int(leaves ? Status::connection_reset : Status::ok));
    scene.run(100 * kMs); // what is over by then is no warning
    BOOST_TEST(scene.cluster.node(0).services().warnings == (leaves ? 0u : 1u));
}

// Who has nothing under way is told when he wants something of the peer.
BOOST_DATA_TEST_CASE(nothing_was_outstanding, kBoth* boost::unit_test::data::make({false, true}), transport, check) {
    Scene scene(transport);
    BOOST_TEST(scene.close(1) < 10 * kMs);
    scene.run(50 * kMs);
    BOOST_TEST(scene.told == 0u);
    Done flushed;
    BOOST_TEST(int(scene.flush(flushed)) == int(Status::ok));
    channel::Interface& iface = scene.cluster.node(0).iface();
    if (check)
        iface.check(*scene.to);
    else
        BOOST_TEST(int(channel::Interface::am_short(*scene.to, 3, 0, nullptr, 0)) == int(Status::connection_reset));
    (void)iface.progress();
    scene.run(kMs);
    BOOST_TEST(scene.told == 1u);
    BOOST_TEST(int(scene.status) == int(Status::connection_reset));
}

// All close, one after the other, and none waits for those who have closed before.
BOOST_DATA_TEST_CASE(everybody_closes, kBoth, transport) {
    constexpr unsigned kNodes = 6;
    Scene scene(transport, kNodes);
    for (unsigned i = 0; i < kNodes; ++i)
        for (unsigned k = 0; k < kNodes; ++k) {
            if (i == k) continue;
            Channel& channel = scene.cluster.channel(i, k);
            BOOST_REQUIRE(scene.cluster.until(
                [&] { return channel::Interface::am_short(channel, 5, 0, nullptr, 0) == Status::ok; }));
        }
    scene.run(kMs);
    Nanos all = 0;
    for (unsigned i = 0; i < kNodes; ++i) all += scene.close(i);
    BOOST_TEST(all < 10 * kMs);
    BOOST_TEST(scene.told == 0u);
}

// Nobody answers: it ends all the same.
BOOST_DATA_TEST_CASE(a_peer_that_is_silent, kBoth* boost::unit_test::data::make({"drop 100% all", "stop 1"}), transport,
                     fault) {
    Scene scene(transport);
    scene.cluster.world.fault(fault);
    scene.cluster.sleep(1, true);
    BOOST_REQUIRE(scene.send(3));
    BOOST_TEST(scene.close(0) < 150 * kMs);
}

namespace {
// The other one has heard of node `a` by a request, and is not connected to it yet.
bool accepts(Cluster& cluster, unsigned at, unsigned a) {
    auto& directory = cluster.node(at).iface().core().directory;
    const auto found = directory.by_uid.find(cluster.node(a).iface().address().uid);
    return found != directory.by_uid.end() && found->second->connection.state == connect::State::accepting;
}
struct Pair : Cluster {
    explicit Pair(connect::Transport transport) : Cluster("two-rail", 2, config_of(transport)) {
        for (unsigned i = 0; i < 2; ++i) node(i).services().quiet = true;
        node(0).on_failure = [this](Channel&, Status s) { ++told, status = s; };
        node(1).on_failure = [](Channel&, Status) {};
    }
    unsigned told = 0;
    Status status = Status::ok;
};
} // namespace

// Whoever is in the middle of a handshake with one that closes hears it at once, too.
BOOST_DATA_TEST_CASE(closes_during_a_handshake, kBoth* boost::unit_test::data::make({false, true}), transport, late) {
    Pair cluster(transport);
    Channel& to = cluster.channel(0, 1);
    (void)channel::Interface::am_short(to, 3, 0, nullptr, 0);
    BOOST_REQUIRE(cluster.until([&] { return accepts(cluster, 1, 0); }));
    // Its answer is on its way, and has made the client's half.
    if (late) BOOST_REQUIRE(cluster.until([&] { return to.connection.state == connect::State::confirming; }));
    cluster.node(1).close();
    cluster.world.at(cluster.world.now() + 100 * kMs, [] {});
    BOOST_TEST(cluster.until(
        [&] {
            (void)channel::Interface::am_short(to, 3, 0, nullptr, 0);
            return cluster.told != 0;
        },
        100 * kMs));
    BOOST_TEST(int(cluster.status) == int(Status::connection_reset));
}

// Who has asked for a connection closes: the other side, which wants one as well, does not wait for it.
BOOST_DATA_TEST_CASE(a_client_closes_during_its_handshake, kBoth, transport) {
    Pair cluster(transport);
    Channel &to = cluster.channel(0, 1), &back = cluster.channel(1, 0);
    (void)channel::Interface::am_short(back, 3, 0, nullptr, 0);
    BOOST_REQUIRE(cluster.until([&] { return accepts(cluster, 0, 1); }));
    (void)channel::Interface::am_short(to, 3, 0, nullptr, 0);
    (void)cluster.node(0).iface().want_room(to);
    cluster.node(1).close();
    cluster.world.at(cluster.world.now() + 100 * kMs, [] {});
    BOOST_TEST(cluster.until(
        [&] {
            (void)channel::Interface::am_short(to, 3, 0, nullptr, 0);
            return cluster.told != 0;
        },
        100 * kMs));
    BOOST_TEST(int(cluster.status) == int(Status::connection_reset));
}

// The last endpoint goes before its peer has answered: nothing more is asked, nobody hears of it, and neither side
// keeps anything. A peer that answers late is refused; and so it can be connected to afterwards.
BOOST_DATA_TEST_CASE(endpoint_goes_during_its_handshake, kBoth* boost::unit_test::data::make({false, true}), transport,
                     answers) {
    Pair cluster(transport);
    channel::Interface& iface = cluster.node(0).iface();
    cluster.sleep(1, true);
    for (unsigned i = 0; i < 3; ++i) {
        Channel& to = cluster.channel(0, 1);
        (void)channel::Interface::am_short(to, 3, 0, nullptr, 0);
        cluster.run_for(3 * kMs);
        BOOST_REQUIRE((to.connection.state == connect::State::requesting));
        iface.detach(to);
        cluster.world.at(cluster.world.now() + 10 * kMs, [] {});
        cluster.run_for(10 * kMs);
        BOOST_TEST(iface.core().directory.by_uid.empty());
    }
    const std::uint64_t sent = iface.core().control->counters().sent;
    if (answers) cluster.sleep(1, false);
    cluster.world.at(cluster.world.now() + 1'000 * kMs, [] {});
    cluster.run_for(1'000 * kMs);
    BOOST_TEST(iface.core().control->counters().sent <= sent + (answers ? 9 : 0)); // refusals of what was answered
    if (answers) BOOST_TEST(cluster.node(1).iface().core().directory.by_uid.empty());
    cluster.sleep(1, false);
    unsigned got = 0;
    cluster.node(1).on_am(
        3, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &got);
    Channel& to = cluster.channel(0, 1);
    BOOST_TEST(cluster.until([&] { return channel::Interface::am_short(to, 3, 0, nullptr, 0) == Status::ok; }));
    BOOST_TEST(cluster.until([&] { return got == 1; }));
    BOOST_TEST(cluster.told == 0u);
    BOOST_TEST(cluster.node(0).services().errors == 0u);
}

// A channel is beyond repair, and no progress has met it yet. A new endpoint to the peer gets another channel, and a
// program that wants to sleep is told to call again.
BOOST_DATA_TEST_CASE(who_comes_before_a_failed_channel_has_ended, kBoth, transport) {
    Scene scene(transport);
    Channel* const failed = scene.to;
    channel::mark_failed(scene.cluster.node(0).iface().core(), *failed, Status::io_error);
    BOOST_TEST((scene.cluster.node(0).iface().arm() == Status::busy));
    Channel& next = scene.cluster.channel(0, 1);
    BOOST_TEST(&next != failed);
    BOOST_TEST(scene.until([&] { return scene.told == 1; }, 2'000 * kMs));
    BOOST_TEST((scene.status == Status::io_error));
    const unsigned before = scene.got;
    scene.to = &next;
    BOOST_TEST(scene.send(3));
    BOOST_TEST(scene.until([&] { return scene.got == before + 1; }, 2'000 * kMs));
}
