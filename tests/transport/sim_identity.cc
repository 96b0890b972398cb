// A member of the job that knows the addresses of two others, and everything else but their secrets, speaks in their
// names. Whatever it says, nothing of theirs is lost, and nothing is believed that did not happen.
#define BOOST_TEST_MODULE transport_identity
#include <span>

#include "both_transports.h"
#include "simulator/intruder.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
namespace wire = connect::wire;
using channel::Interface;

namespace {

struct Flushed : Completion {
    Flushed() : Completion{fired, 1, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Flushed*>(self)->done = true; }
};

// Two that talk, and one that listens to nobody.
struct Fixture {
    Cluster cluster;
    Intruder intruder;
    Channel *a, *b; // node 0's to node 1, and back
    unsigned got = 0, told = 0;
    explicit Fixture(connect::Transport transport)
        : cluster("two-rail", 2, config_of(transport), {.seed = 5}), intruder(cluster, 2) {
        for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = [this](Channel&, Status) { ++told; };
        const auto count = [](void* n, void*, std::size_t, unsigned) {
            return ++*static_cast<unsigned*>(n), Status::ok;
        };
        cluster.node(1).on_am(3, count, &got);
        a = &cluster.channel(0, 1);
        b = &cluster.channel(1, 0);
        BOOST_REQUIRE(say(0, 5));
        BOOST_REQUIRE(say(1, 5));
        cluster.run_for(5'000'000);
    }
    bool say(unsigned from, std::uint8_t id, Nanos limit = 1'000'000'000) {
        Channel& to = from ? *b : *a;
        return cluster.until([&] { return Interface::am_short(to, id, 0, nullptr, 0) == Status::ok; }, limit);
    }
    // All of a burst arrives, and is flushed.
    void arrives(unsigned messages = 20) {
        got = 0;
        for (unsigned i = 0; i < messages; ++i) BOOST_REQUIRE(say(0, 3));
        Flushed flushed;
        const Status status = cluster.node(0).iface().flush(*a, &flushed);
        BOOST_REQUIRE((status == Status::ok || status == Status::in_progress));
        if (status == Status::in_progress) BOOST_REQUIRE(cluster.until([&] { return flushed.done; }));
        BOOST_TEST((flushed.status == Status::ok));
        BOOST_TEST(got == messages);
    }
};

} // namespace

BOOST_DATA_TEST_CASE(a_request_in_the_peers_name, kBoth, transport) {
    Fixture f(transport);
    for (unsigned round = 0; round < 3; ++round) {
        for (const wire::Kind kind : Intruder::kOfHandshakes) {
            f.intruder.say(0, *f.a, 1, kind);
            f.intruder.say(1, *f.b, 0, kind);
        }
        f.cluster.run_for(50'000'000);
        f.arrives();
        BOOST_REQUIRE(f.say(1, 5));
    }
    BOOST_TEST(f.told == 0u);
    BOOST_TEST(f.a->connection.incarnation == 1u);
}

// Nothing is acknowledged, and everything on the way is lost.
BOOST_DATA_TEST_CASE(what_was_not_delivered, kBoth, transport) {
    Fixture f(transport);
    f.cluster.sleep(1, true);
    for (const char* port : {"drop 100% 1:softhca_0:1", "drop 100% 1:softhca_1:1"}) f.cluster.world.fault(port);
    f.got = 0;
    unsigned sent = 0;
    while (sent < 20 && Interface::am_short(*f.a, 3, 0, nullptr, 0) == Status::ok) ++sent;
    BOOST_REQUIRE(sent == 20u);
    Flushed flushed;
    BOOST_REQUIRE((f.cluster.node(0).iface().flush(*f.a, &flushed) == Status::in_progress));
    f.cluster.run_for(100'000);
    const std::uint32_t acked = f.a->acked;
    for (unsigned round = 0; round < 20; ++round) {
        for (const wire::Kind kind : Intruder::kOfConnections) f.intruder.say(0, *f.a, 1, kind);
        f.cluster.run_for(1'000'000);
        BOOST_TEST(f.a->acked == acked);
    }
    BOOST_TEST(!flushed.done);
    f.cluster.world.fault("clear");
    f.cluster.sleep(1, false);
    BOOST_TEST(f.cluster.until([&] { return flushed.done; }));
    BOOST_TEST((flushed.status == Status::ok));
    BOOST_TEST(f.got == sent);
    BOOST_TEST(f.told == 0u);
    f.arrives();
}

// Parked sides know each other by the secrets of the connection that has ended. With them a request costs no question.
BOOST_DATA_TEST_CASE(parked, kBoth, transport) {
    Fixture f(transport);
    for (unsigned round = 0; round < 4; ++round) {
        const auto park = [&] {
            return f.cluster.until([&] { return f.cluster.node(0).iface().park(*f.a) == Status::ok; }) &&
                   f.cluster.until([&] { return f.a->parked && f.b->parked; });
        };
        BOOST_REQUIRE(park());
        for (unsigned i = 0; i < 5; ++i) {
            const auto say_all = [&](std::span<const wire::Kind> kinds) {
                for (const wire::Kind kind : kinds) {
                    f.intruder.say(0, *f.a, 1, kind);
                    f.intruder.say(1, *f.b, 0, kind);
                }
            };
            say_all(Intruder::kOfConnections);
            say_all(Intruder::kOfHandshakes);
            f.cluster.run_for(20'000'000);
        }
        BOOST_TEST(f.a->parked);
        BOOST_TEST(f.b->parked);
        const Nanos begin = f.cluster.world.now();
        f.got = 0;
        BOOST_REQUIRE(round % 2 ? f.say(1, 5) : f.say(0, 3));
        if (round % 2 == 0) BOOST_TEST(f.cluster.until([&] { return f.got == 1; }));
        BOOST_TEST(f.cluster.world.now() - begin < 4'000'000); // less than a request's repetition
        f.arrives();
    }
    BOOST_TEST(f.told == 0u);
}

// Who has really forgotten is asked, and let in.
BOOST_DATA_TEST_CASE(a_peer_that_begins_anew, kBoth, transport) {
    Fixture f(transport);
    f.cluster.node(0).iface().invalidate(*f.a, Status::canceled, true);
    f.cluster.node(0).iface().detach(*f.a);
    BOOST_TEST(f.cluster.until([&] { return f.cluster.node(0).iface().core().directory.by_uid.empty(); }));
    f.a = &f.cluster.channel(0, 1);
    const Nanos begin = f.cluster.world.now();
    BOOST_REQUIRE(f.say(0, 3));
    BOOST_TEST(f.cluster.until([&] { return f.got == 1; }));
    BOOST_TEST(f.cluster.world.now() - begin < 100'000'000);
    BOOST_TEST(f.told == 1u); // node 1, whose connection has ended
    f.arrives();
}

// All adapters of a peer have been exchanged, one after the other, since its address was told. A connection that
// follows one that has failed is asked for where the peer is now.
BOOST_DATA_TEST_CASE(a_peer_that_is_elsewhere_by_now, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.recovery.reopen_interval = config.recovery.hold_down = 1'000'000;
    config.recovery.max_reopen_interval = config.recovery.max_hold_down = 4'000'000;
    Cluster cluster("two-rail", 2, config);
    BOOST_TEST(traffic(cluster, 1) == "");
    const unsigned all = paths_up(cluster.node(0));
    Channel& old = cluster.channel(0, 1);
    const connect::InterfaceAddress address = old.connection.peer;
    for (const std::string adapter : {"1:softhca_0", "1:softhca_1"}) {
        cluster.world.fault("adapter-death " + adapter);
        cluster.run_for(2'000'000);
        cluster.world.fault("adapter-revive " + adapter);
        BOOST_REQUIRE(all_up(cluster, all));
    }
    for (unsigned i = 0; i < address.count; ++i)
        for (const path::RemoteRail& now : old.connection.remote_rails)
            BOOST_REQUIRE(now.control_qpn != address.control[i].qp_number);
    unsigned got = 0;
    cluster.node(1).on_am(
        3, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &got);
    cluster.node(1).on_failure = [](Channel&, Status) {}; // its connection ends with the new one
    cluster.node(0).iface().invalidate(old, Status::canceled, true);
    std::string error;
    Channel* const next = cluster.node(0).iface().attach(address, error);
    BOOST_REQUIRE((next && next != &old));
    const auto say = [&] { return Interface::am_short(*next, 3, 0, nullptr, 0) == Status::ok; };
    BOOST_TEST(cluster.until(say, 100'000'000));
    BOOST_TEST(cluster.until([&] { return got == 1; }, 100'000'000));
}
