// Channels are parked: both sides agree that nothing is under way, the connection is given back, and the next operation
// of either side makes another one. Nobody notices, whatever is lost on the way or fails meanwhile.
#define BOOST_TEST_MODULE transport_park
#include <malloc.h>

#include <sstream>

#include "both_transports.h"
#include "flavours.h"
#include "simulator/client_server.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kUs = 1'000, kMs = 1'000'000;
using channel::Interface;

Interface::Statistics statistics(Node& node) {
    Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

channel::Config config_of(const Flavour& flavour) {
    channel::Config config = sim::config_of(flavour.transport);
    config.kinds = flavour.kinds;
    return config;
}

// Two nodes with an endpoint to each other, which count what they get.
struct Pair {
    Cluster cluster;
    Channel* to[2]; // by the sender
    unsigned got[2] = {0, 0}, sent[2] = {0, 0};
    unsigned told = 0; // failures
    Status status = Status::ok;

    explicit Pair(const Flavour& flavour, std::uint64_t seed = 1) : Pair(make(flavour), seed) {}
    explicit Pair(const channel::Config& config, std::uint64_t seed, const std::string& rails = "")
        : cluster("two-rail", 2, config, {.seed = seed},
                  rails.empty() ? verbs::DeviceConfig{} : verbs::DeviceConfig{{"softhca_0:1"}}) {
        for (unsigned i = 0; i < 2; ++i) {
            to[i] = &cluster.channel(i, 1 - i);
            to[i]->user = this;
            const auto take = [](void* count, void*, std::size_t, unsigned) {
                return ++*static_cast<unsigned*>(count), Status::ok;
            };
            cluster.node(i).on_am(3, take, &got[i]);
            cluster.node(i).on_failure = [this](Channel&, Status why) { ++told, status = why; };
        }
    }
    static channel::Config make(const Flavour& flavour) {
        channel::Config config = config_of(flavour);
        config.recovery.partition_timeout = 3'000 * kMs;
        config.connect_timeout = 5'000 * kMs;
        return config;
    }
    Interface& iface(unsigned i) { return cluster.node(i).iface(); }
    bool try_send(unsigned from) {
        const Status sending = Interface::am_short(*to[from], 3, 0, nullptr, 0);
        if (sending == Status::ok) ++sent[from];
        return sending == Status::ok;
    }
    bool arrived() const { return got[0] == sent[1] && got[1] == sent[0]; }
    bool send(unsigned from, Nanos limit = 1'000 * kMs) {
        return cluster.until([&] { return try_send(from); }, limit) && cluster.until([&] { return arrived(); }, limit);
    }
    // A message in each direction, at once.
    bool both(Nanos limit = 1'000 * kMs) {
        bool went[2] = {false, false};
        return cluster.until(
            [&] {
                for (unsigned i = 0; i < 2; ++i)
                    if (!went[i]) went[i] = try_send(i);
                return went[0] && went[1] && arrived();
            },
            limit);
    }
    // The question is under way.
    bool ask(unsigned i) {
        return cluster.until([&] { return iface(i).park(*to[i]) == Status::in_progress; }, 100 * kMs);
    }
    bool is_parked(unsigned i) const { return to[i]->parked; }
    bool park(unsigned i) {
        return cluster.until([&] { return iface(i).park(*to[i]) == Status::ok; }, 1'000 * kMs) &&
               cluster.until([&] { return is_parked(0) && is_parked(1); }, 100 * kMs);
    }
};

} // namespace

// Everything is given back at both sides; endpoints, their user's pointer and what is hinted stay.
BOOST_DATA_TEST_CASE(idle, kFlavours, flavour) {
    Pair pair(flavour);
    pair.iface(0).set_hint(*pair.to[0], schedule::TrafficHint::blocking);
    BOOST_TEST((pair.iface(0).park(*pair.to[0]) == Status::ok)); // never connected
    BOOST_TEST(!pair.is_parked(0));
    const unsigned before = statistics(pair.cluster.node(0)).queue_pairs;
    for (unsigned round = 1; round <= 6; ++round) {
        BOOST_REQUIRE(pair.send(round % 2));
        BOOST_REQUIRE(pair.send(round / 2 % 2));
        BOOST_TEST(statistics(pair.cluster.node(0)).parked == 0u);
        BOOST_REQUIRE(pair.park(round / 3 % 2));
        for (unsigned i = 0; i < 2; ++i) {
            // Some stay for other connections (sim_pool).
            BOOST_TEST(pair.cluster.until([&] {
                const auto now = statistics(pair.cluster.node(i));
                return now.queue_pairs - now.pooled == before;
            }));
            const auto now = statistics(pair.cluster.node(i));
            BOOST_TEST(now.parked == 1u);
            BOOST_TEST(now.parks == round);
            BOOST_REQUIRE(now.channels.size() == 1u);
            BOOST_TEST(now.channels[0].parked);
            BOOST_TEST(now.channels[0].parks == round);
            BOOST_TEST(now.channels[0].paths.empty());
            BOOST_TEST(!pair.to[i]->wiring.paths);
            BOOST_TEST(!pair.to[i]->wiring.retained);
            BOOST_TEST(!pair.to[i]->wiring.scheduler);
            BOOST_TEST(!pair.to[i]->early);
            BOOST_TEST(pair.to[i]->user == &pair);
            BOOST_TEST(pair.iface(i).core().directory.connected == 0u);
        }
        BOOST_TEST((pair.iface(0).park(*pair.to[0]) == Status::ok));
        BOOST_TEST((pair.iface(0).flush(*pair.to[0], nullptr) == Status::ok));
        BOOST_TEST((pair.to[0]->hint == schedule::TrafficHint::blocking));
    }
    BOOST_REQUIRE(pair.both());
    BOOST_TEST(pair.told == 0u);
}

// The keepalive of a program neither wakes nor disturbs what is parked.
BOOST_DATA_TEST_CASE(keepalive, kFlavours, flavour) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.send(0));
    BOOST_REQUIRE(pair.ask(0));
    for (unsigned i = 0; i < 100; ++i) {
        for (unsigned side = 0; side < 2; ++side) pair.iface(side).check(*pair.to[side]);
        pair.cluster.run_for(20 * kUs);
    }
    for (unsigned i = 0; i < 50; ++i) {
        for (unsigned side = 0; side < 2; ++side) pair.iface(side).check(*pair.to[side]);
        pair.cluster.run_for(100 * kMs);
    }
    BOOST_TEST(pair.is_parked(0));
    BOOST_TEST(pair.is_parked(1));
    BOOST_TEST(pair.told == 0u);
    BOOST_REQUIRE(pair.both());
}

// Traffic of every kind from all sides, and channels are parked by either of them at any moment.
BOOST_DATA_TEST_CASE(under_traffic, kFlavours* boost::unit_test::data::make({"two-rail", "four-path", "one-rail"}),
                     flavour, fabric) {
    unsigned parks = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        channel::Config config = config_of(flavour);
        config.window = 32;
        if (seed % 3 == 0) config.atomics = channel::AtomicsMode::adapter;
        if (seed % 3 == 1) config.read_back = channel::ReadBack::always;
        const bool one = std::string(fabric) == "one-rail";
        verbs::DeviceConfig rails;
        if (one) rails.rails = {"softhca_0:1"};
        Cluster cluster(one ? "two-rail" : fabric, 2 + seed % 2, config, {.seed = seed}, rails);
        Stress stress(cluster, {.seed = seed,
                                .operations = 300,
                                .slot = 1 << 16,
                                .constant = 1 << 16,
                                .with_self = false,
                                .late = seed % 2 ? Nanos{20'000} : 0,
                                .lull = Nanos(20'000 << seed % 4)});
        const bool done = stress.run(10'000 * kMs);
        BOOST_TEST(done, "seed " << seed);
        BOOST_TEST(stress.verdict() == "", "seed " << seed << ": " << stress.verdict());
        unsigned now = 0;
        for (unsigned i = 0; i < cluster.size(); ++i) now += static_cast<unsigned>(statistics(cluster.node(i)).parks);
        BOOST_TEST_MESSAGE("seed " << seed << ": asked " << stress.asked_to_park << " times, " << now
                                   << " channels parked, "
                                   << static_cast<double>(cluster.world.now() - 1'000 * kMs) / 1e6 << " ms");
        parks += now;
    }
    BOOST_TEST(parks > 30u);
}

// Both want to at once, or nearly so; and one of them, or both, have something to say soon after.
BOOST_DATA_TEST_CASE(crossing, kFlavours, flavour) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    for (Nanos skew = 0; skew < 40 * kUs; skew += kUs / 2)
        for (unsigned first = 0; first < 2; ++first) {
            BOOST_REQUIRE(pair.ask(first));
            pair.cluster.run_for(skew);
            (void)pair.iface(1 - first).park(*pair.to[1 - first]);
            pair.cluster.run_for(skew * 7 % (11 * kUs));
            const unsigned who = static_cast<unsigned>(skew / (kUs / 2)) % 3;
            BOOST_REQUIRE((who == 2 ? pair.both() : pair.send(who)));
        }
    BOOST_TEST(pair.told == 0u);
    BOOST_TEST(statistics(pair.cluster.node(0)).parks > 40u);
}

// Nothing comes through for a while, whatever was on its way then: question, answer, request, reply, confirm, ready.
BOOST_DATA_TEST_CASE(control_messages_are_lost, kFlavours* boost::unit_test::data::make({"all", "0", "1"}), flavour,
                     whose) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    const std::string where = std::string(whose) == "all" ? "all" : std::string(whose) + ":*:1";
    unsigned random = 1;
    for (Nanos when = 0; when < 120 * kUs; when += 3 * kUs / 2) {
        random = random * 1'664'525 + 1'013'904'223;
        const unsigned asks = random >> 16 & 1, says = random >> 17 & 3;
        BOOST_REQUIRE(pair.ask(asks));
        if (random >> 19 & 1) (void)pair.iface(1 - asks).park(*pair.to[1 - asks]);
        const Nanos early = when < 40 * kUs ? when : 20 * kUs; // the rest of it for the handshake that follows
        pair.cluster.run_for(early);
        bool went[2] = {false, false};
        const auto try_to = [&] {
            for (unsigned i = 0; i < 2; ++i)
                if (!went[i] && (says == 2 || says % 2 == i)) went[i] = pair.try_send(i);
            return true;
        };
        (void)pair.cluster.until(try_to, 0);
        const Nanos end = pair.cluster.world.now() + (when - early);
        (void)pair.cluster.world.at(end, [] {});
        (void)pair.cluster.until([&] { return try_to() && pair.cluster.world.now() >= end; }, when);
        pair.cluster.world.fault("drop 100% " + where);
        pair.cluster.run_for(Nanos(random >> 20) % (8 * kMs));
        pair.cluster.world.fault("drop 0% " + where);
        BOOST_REQUIRE(pair.cluster.until(
            [&] {
                (void)try_to();
                return (went[0] || went[1]) && (says != 2 || (went[0] && went[1])) && pair.arrived();
            },
            5'000 * kMs));
        BOOST_REQUIRE(pair.both(5'000 * kMs));
    }
    BOOST_TEST(pair.told == 0u);
    BOOST_TEST(statistics(pair.cluster.node(0)).parks >= 20u);
}

// Paths fail and adapters die while one side asks, and while the channel is parked.
BOOST_DATA_TEST_CASE(paths_fail,
                     kFlavours* boost::unit_test::data::make({"port down 0:softhca_0:1", "port down 1:softhca_1:1",
                                                              "adapter-death 0:softhca_1",
                                                              "adapter-death 1:softhca_0"}),
                     flavour, fault) {
    for (unsigned i = 0; i < 24; ++i) {
        Pair pair(flavour, i + 1);
        BOOST_REQUIRE(pair.both());
        const unsigned paths = paths_up(pair.cluster.node(0));
        const Nanos when = i * i * kUs / 4;
        BOOST_REQUIRE(pair.ask(i % 2));
        pair.cluster.run_for(when);
        pair.cluster.world.fault(fault);
        pair.cluster.run_for(i % 3 * 10 * kUs);
        BOOST_REQUIRE((i % 4 < 2 ? pair.both(3'000 * kMs) : pair.send(i % 2, 3'000 * kMs)));
        BOOST_REQUIRE(pair.park(1 - i % 2)); // a path is missing
        const std::string end = std::string(fault).starts_with("port")
                                    ? "port up" + std::string(fault).substr(9)
                                    : "adapter-revive" + std::string(fault).substr(13);
        pair.cluster.world.fault(end);
        BOOST_REQUIRE(pair.both(3'000 * kMs));
        BOOST_TEST(pair.cluster.until([&] { return paths_up(pair.cluster.node(0)) == paths; }, 5'000 * kMs));
        BOOST_TEST(pair.told == 0u);
    }
}

// Adapters are opened anew while the channel is parked, one after the other or those of one rail at both sides at once:
// in the end nobody is where his peer has seen him last. Whoever speaks first is heard.
BOOST_DATA_TEST_CASE(adapters_are_exchanged,
                     kFlavours* boost::unit_test::data::make({"00 01", "10 11", "00 01 10 11", "10 00 11 01",
                                                              "00+10 01+11", "00 01 00 01 10 11", "01 00 11 10 01 00"}),
                     flavour, order) {
    for (unsigned who = 0; who < 3; ++who) {
        channel::Config config = Pair::make(flavour);
        config.recovery.reopen_interval = kMs;
        config.recovery.max_reopen_interval = 2 * kMs;
        Pair pair(config, who + 1);
        BOOST_REQUIRE(pair.both());
        const unsigned paths = paths_up(pair.cluster.node(0));
        BOOST_REQUIRE(pair.park(who % 2));
        std::istringstream steps(order);
        for (std::string step; steps >> step;) {
            const auto all = [&](const std::string& what) {
                for (std::size_t i = 0; i < step.size(); i += 3)
                    pair.cluster.world.fault("adapter-" + what + " " + step[i] + ":softhca_" + step[i + 1]);
            };
            all("death");
            pair.cluster.run_for(3 * kMs);
            all("revive");
            pair.cluster.run_for(30 * kMs);
            for (unsigned i = 0; i < 2; ++i) BOOST_TEST(statistics(pair.cluster.node(i)).channels[0].rails_known);
        }
        BOOST_TEST(pair.is_parked(0));
        BOOST_TEST(pair.is_parked(1));
        BOOST_REQUIRE((who == 2 ? pair.both(20 * kMs) : pair.send(who, 20 * kMs)));
        BOOST_TEST(pair.cluster.until([&] { return paths_up(pair.cluster.node(0)) == paths; }, 5'000 * kMs));
        BOOST_TEST(pair.told == 0u);
    }
}

// A rail is missing when the program wants the peer again, and it is the only one: the program waits.
BOOST_DATA_TEST_CASE(no_way_for_a_while, kFlavours* boost::unit_test::data::make({"adapter-death", "port"}), flavour,
                     what) {
    for (unsigned who = 0; who < 2; ++who) {
        channel::Config config = Pair::make(flavour);
        config.recovery.reopen_interval = kMs;
        config.paths.num_paths = 1;
        Pair pair(config, 5, "one-rail");
        BOOST_REQUIRE(pair.both());
        BOOST_REQUIRE(pair.park(0));
        const bool port = what[0] == 'p';
        pair.cluster.world.fault(port ? "port down 0:softhca_0:1" : "adapter-death 0:softhca_0");
        pair.cluster.run_for(3 * kMs);
        BOOST_TEST(!pair.try_send(who));
        pair.cluster.run_for(50 * kMs);
        BOOST_TEST(!pair.try_send(who));
        pair.cluster.world.fault(port ? "port up 0:softhca_0:1" : "adapter-revive 0:softhca_0");
        BOOST_REQUIRE(pair.send(who, 500 * kMs));
        BOOST_REQUIRE(pair.both());
        BOOST_TEST(pair.told == 0u);
    }
}

// The list is told while the question is under way, or right behind the agreement, and gets lost.
BOOST_DATA_TEST_CASE(lists_of_rails_are_lost, kFlavours, flavour) {
    for (unsigned i = 0; i < 16; ++i) {
        channel::Config config = Pair::make(flavour);
        config.recovery.reopen_interval = kMs;
        Pair pair(config, i + 1);
        BOOST_REQUIRE(pair.both());
        BOOST_REQUIRE(pair.ask(i % 2));
        pair.cluster.run_for(i * kUs);
        pair.cluster.world.fault("drop 100% all");
        pair.cluster.world.fault("adapter-death 0:softhca_0");
        pair.cluster.run_for(2 * kMs);
        pair.cluster.world.fault("adapter-revive 0:softhca_0");
        pair.cluster.run_for(5 * kMs);
        pair.cluster.world.fault("drop 0% all");
        pair.cluster.run_for(2'000 * kMs);
        BOOST_TEST(statistics(pair.cluster.node(0)).channels[0].rails_known);
        pair.cluster.world.fault("adapter-death 0:softhca_1");
        pair.cluster.run_for(5 * kMs);
        BOOST_REQUIRE(pair.send(1 - i % 2, 500 * kMs));
        BOOST_REQUIRE(pair.both());
        BOOST_TEST(pair.told == 0u);
    }
}

// The peer makes no progress meanwhile: what is to be sent waits for it.
BOOST_DATA_TEST_CASE(the_peer_computes, kFlavours, flavour) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    pair.cluster.sleep(1, true);
    BOOST_REQUIRE(pair.ask(0));
    pair.cluster.run_for(5'000 * kMs); // longer than a partition may last
    BOOST_TEST(!pair.try_send(0));
    pair.cluster.sleep(1, false);
    BOOST_REQUIRE(pair.send(0, 3'000 * kMs));
    BOOST_TEST(pair.told == 0u);
}

// Who closes tells those whose channels are parked, too: they need not wait for the time-out of a connection.
BOOST_DATA_TEST_CASE(the_peer_closes, kFlavours* boost::unit_test::data::make({"idle", "says", "asking"}), flavour,
                     which) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    const bool asking = which[0] == 'a', says = which[0] == 's';
    BOOST_REQUIRE((asking ? pair.ask(0) : pair.park(0)));
    const Nanos before = pair.cluster.world.now();
    pair.cluster.node(1).close();
    BOOST_TEST(pair.cluster.world.now() - before < 30 * kMs);
    BOOST_TEST(pair.told == 0u);
    if (says) (void)pair.try_send(0);
    pair.cluster.run_for(10 * kMs);
    if (!says) BOOST_TEST(pair.told == 0u);
    BOOST_TEST((Interface::am_short(*pair.to[0], 3, 0, nullptr, 0) == Status::connection_reset));
    BOOST_TEST(pair.cluster.until([&] { return pair.told == 1; }, 10 * kMs));
    pair.iface(0).detach(*pair.to[0]);
    BOOST_TEST(pair.cluster.until([&] { return statistics(pair.cluster.node(0)).channels.empty(); }, 1'000 * kMs));
}

// Who closes right behind an agreement, or in the middle of the handshake that follows, is not waited for.
BOOST_DATA_TEST_CASE(the_peer_agrees_and_closes, kFlavours* boost::unit_test::data::make({"agrees", "asks"}), flavour,
                     which) {
    for (Nanos when = 0; when < 60 * kUs; when += 4 * kUs)
        for (unsigned lost = 0; lost < 2; ++lost) {
            Pair pair(flavour, when / kUs + 1);
            BOOST_REQUIRE(pair.both());
            if (which[0] == 'a' && which[1] == 'g') {
                BOOST_REQUIRE(pair.ask(0));
                (void)pair.cluster.until(
                    [&] { return pair.to[1]->gates & channel::gate::failed || pair.is_parked(1); });
            } else { // for another connection
                BOOST_REQUIRE(pair.park(0));
                (void)pair.try_send(1);
            }
            if (lost) pair.cluster.world.fault("drop 100% 1:*:1"); // what it has just said is not heard
            pair.cluster.run_for(when);
            if (lost) pair.cluster.world.fault("drop 0% 1:*:1");
            pair.cluster.node(1).close();
            pair.cluster.run_for(5 * kMs);
            BOOST_TEST((Interface::am_short(*pair.to[0], 3, 0, nullptr, 0) == Status::connection_reset),
                       which << " " << when << " " << lost);
            BOOST_TEST(pair.cluster.until([&] { return pair.told == 1; }, kMs));
        }
}

// Who closes tells many parked peers: more than there is room for at once.
BOOST_DATA_TEST_CASE(many_are_told, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.window = 16;
    ClientServer scene("two-rail", config);
    constexpr unsigned kClients = 150;
    std::vector<Channel*> back;
    for (unsigned i = 0; i < kClients; ++i) {
        Node& client = scene.add();
        BOOST_REQUIRE(scene.send(scene.attach(client, scene.server)));
        back.push_back(&scene.attach(scene.server, client));
        BOOST_REQUIRE(scene.until([&] { return scene.server.iface().park(*back[i]) == Status::ok; }, 1'000 * kMs));
    }
    BOOST_TEST(statistics(scene.server).parked == kClients);
    const Nanos before = scene.world.now();
    scene.server.close();
    BOOST_TEST(scene.world.now() - before < 30 * kMs);
    scene.run(kMs);
    unsigned told = 0;
    for (const auto& client : scene.clients)
        told += statistics(*client).channels[0].gates & channel::gate::failed ? 1 : 0;
    BOOST_TEST(told == kClients);
}

// A peer that dies without a word is found at the next operation, or by the question.
BOOST_DATA_TEST_CASE(the_peer_dies, kFlavours* boost::unit_test::data::make({"parked", "asking"}), flavour, which) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    const bool asking = which[0] == 'a';
    if (!asking) BOOST_REQUIRE(pair.park(0));
    if (asking) BOOST_REQUIRE(pair.ask(0));
    pair.cluster.node(1).services().on_wait = {};
    pair.cluster.world.fault("drop 100% all"); // nobody hears the question, nor its goodbye
    pair.cluster.node(1).close();
    pair.cluster.world.fault("drop 0% all");
    pair.cluster.run_for(100 * kMs);
    BOOST_TEST(!pair.try_send(0));
    BOOST_TEST(pair.cluster.until([&] { return pair.told == 1; }, 15'000 * kMs));
    BOOST_TEST((pair.status == Status::endpoint_timeout));
}

// Endpoints go while the channel is parked, or about to be.
BOOST_DATA_TEST_CASE(endpoints_go, kFlavours* boost::unit_test::data::make({"parked", "asking"}), flavour, which) {
    Pair pair(flavour);
    BOOST_REQUIRE(pair.both());
    BOOST_REQUIRE((which[0] == 'p' ? pair.park(0) : pair.ask(0)));
    for (unsigned i = 0; i < 2; ++i) {
        std::uint32_t none = 0; // nothing is under way
        BOOST_TEST((pair.iface(i).cancel(*pair.to[i], none, nullptr) == Status::ok));
        pair.iface(i).detach(*pair.to[i]);
    }
    for (unsigned i = 0; i < 2; ++i)
        BOOST_TEST(pair.cluster.until([&] { return statistics(pair.cluster.node(i)).channels.empty(); }, 1'000 * kMs));
    for (unsigned i = 0; i < 2; ++i) pair.to[i] = &pair.cluster.channel(i, 1 - i);
    BOOST_REQUIRE(pair.both());
    BOOST_TEST(pair.told == 0u);
}

// Again and again: nothing piles up.
BOOST_DATA_TEST_CASE(a_thousand_times, kFlavours, flavour) {
    Pair pair(flavour);
    std::size_t most = 0; // of the looks before the last
    std::uint64_t first_bytes = 0;
    for (unsigned round = 1; round <= 1200; ++round) {
        BOOST_REQUIRE((round % 3 ? pair.send(round % 2) : pair.both()));
        BOOST_REQUIRE(pair.park(round / 2 % 2));
        if (round % 300) continue;
        pair.cluster.run_for(10'000 * kMs); // timers of the simulation are over, too
        const std::size_t heap = mallinfo2().uordblks;
        const auto now = statistics(pair.cluster.node(0));
        const std::uint64_t bytes = now.send_buffer_bytes + now.receive_buffer_bytes;
        BOOST_TEST_MESSAGE("round " << round << ": heap " << heap << ", buffers " << bytes);
        if (round == 300) first_bytes = bytes;
        // What the simulation itself holds swings by some 0.1 to 0.5 MB; over 6000 rounds it is flat.
        if (round == 1200) BOOST_TEST(heap < most + 262'144);
        most = std::max(most, heap);
        BOOST_TEST(bytes == first_bytes);
        BOOST_TEST(now.parks == round);
    }
    BOOST_TEST(pair.told == 0u);
}
