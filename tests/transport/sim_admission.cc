// A limit of connections (Config::max_connections): whoever is wanted is reached, one after the other, nothing is lost,
// and nobody waits long or for ever.
#define BOOST_TEST_MODULE transport_admission
#include <deque>

#include "both_transports.h"
#include "flavours.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kUs = 1'000, kMs = 1'000'000;
using channel::Interface;

channel::Config limited(const Flavour& flavour, unsigned max_connections,
                        adapt::VictimPolicy victims = adapt::VictimPolicy::leader) {
    channel::Config config = config_of(flavour.transport);
    config.kinds = flavour.kinds;
    config.window = 32;
    config.max_connections = max_connections;
    config.victims = victims;
    config.recovery.partition_timeout = 3'000 * kMs;
    config.connect_timeout = 5'000 * kMs;
    return config;
}

// Nodes that send each other numbered words; what has been wanted is sent as soon as there is room, in order.
struct Talk {
    Cluster cluster;
    const unsigned nodes;
    std::vector<std::vector<Channel*>> to;
    std::vector<std::vector<std::uint64_t>> wanted, sent, got; // by sender and receiver
    unsigned mistakes = 0, told = 0, most = 0;

    Talk(const std::vector<channel::Config>& configs, std::uint64_t seed = 1)
        : cluster("four-path", configs, {.seed = seed}), nodes(static_cast<unsigned>(configs.size())),
          to(nodes, std::vector<Channel*>(nodes)), wanted(nodes, std::vector<std::uint64_t>(nodes)), sent(wanted),
          got(wanted) {
        for (unsigned i = 0; i < nodes; ++i) {
            const auto take = [](void* self, void* data, std::size_t, unsigned) {
                std::uint64_t word[2]; // who, number
                std::memcpy(word, data, sizeof word);
                Talk& talk = *static_cast<Talk*>(self);
                talk.mistakes += talk.got[word[0]][talk.cluster.progressing()]++ != word[1];
                return Status::ok;
            };
            cluster.node(i).on_am(3, take, this);
            cluster.node(i).on_failure = [this](Channel&, Status) { ++told; };
            cluster.node(i).on_room = [this, i](Channel& channel) {
                for (unsigned j = 0; j < nodes; ++j)
                    if (to[i][j] == &channel) pump(i, j);
            };
            for (unsigned j = 0; j < nodes; ++j)
                if (i != j) to[i][j] = &cluster.channel(i, j);
        }
    }
    Talk(unsigned nodes, const channel::Config& config, std::uint64_t seed = 1)
        : Talk(std::vector<channel::Config>(nodes, config), seed) {}
    Interface& iface(unsigned i) { return cluster.node(i).iface(); }
    void pump(unsigned i, unsigned j) {
        while (sent[i][j] < wanted[i][j]) {
            const std::uint64_t number = sent[i][j];
            const Status status = Interface::am_short(*to[i][j], 3, i, &number, sizeof number);
            if (status == Status::ok) {
                ++sent[i][j];
            } else {
                if (status == Status::no_resource && iface(i).want_room(*to[i][j]) == Status::busy) continue;
                return;
            }
        }
    }
    void say(unsigned i, unsigned j, unsigned words = 1) {
        wanted[i][j] += words;
        pump(i, j);
    }
    // How many places are taken at a node.
    unsigned places(unsigned i) {
        Interface::Statistics statistics;
        iface(i).statistics(statistics);
        unsigned n = 0;
        for (const auto& channel : statistics.channels)
            n += channel.state == connect::State::established || channel.state == connect::State::requesting ||
                 channel.state == connect::State::accepting || channel.state == connect::State::confirming;
        return n;
    }
    bool over() {
        for (unsigned i = 0; i < nodes; ++i) most = std::max(most, places(i));
        return got == wanted;
    }
    bool run(Nanos limit = 1'000 * kMs) {
        return cluster.until([&] { return over(); }, limit);
    }
    std::uint64_t parks() {
        std::uint64_t n = 0;
        for (unsigned i = 0; i < nodes; ++i) n += iface(i).core().directory.parks;
        return n;
    }
};

} // namespace

// All to all, in another order everywhere: requests cross, servers are full, everybody wants everybody.
BOOST_DATA_TEST_CASE(everybody_is_reached, kFlavours* boost::unit_test::data::make({1u, 2u, 4u}), flavour, places) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Talk talk(6, limited(flavour, places), seed);
        std::mt19937_64 random(seed);
        const Nanos begin = talk.cluster.world.now();
        for (unsigned round = 0; round < 10; ++round) {
            for (unsigned k = 0; k < 60; ++k) {
                const unsigned i = static_cast<unsigned>(random() % 6), j = static_cast<unsigned>(random() % 6);
                if (i != j) talk.say(i, j, 1 + static_cast<unsigned>(random() % 40));
                if (k % 4 == 0) talk.cluster.run_for(static_cast<Nanos>(random() % (20 * kUs)));
            }
            BOOST_REQUIRE(talk.run());
        }
        BOOST_TEST(talk.mistakes == 0u);
        BOOST_TEST(talk.told == 0u);
        BOOST_TEST(talk.most <= places + 2);
        BOOST_TEST(talk.parks() > 20u);
        BOOST_TEST_MESSAGE("seed " << seed << ": " << talk.parks() << " channels parked, at most " << talk.most
                                   << " places, " << double(talk.cluster.world.now() - begin) / 1e6 << " ms");
        talk.cluster.run_for(20 * kMs);
        for (unsigned i = 0; i < 6; ++i) BOOST_TEST(talk.places(i) <= places);
    }
}

// One after the other: what a switch of peers takes.
BOOST_DATA_TEST_CASE(one_after_the_other, kFlavours, flavour) {
    Talk talk(4, limited(flavour, 1));
    talk.say(0, 1);
    BOOST_REQUIRE(talk.run());
    const Nanos begin = talk.cluster.world.now();
    constexpr unsigned kTurns = 60;
    for (unsigned turn = 0; turn < kTurns; ++turn) {
        talk.say(0, 1 + turn % 3, 3);
        BOOST_REQUIRE(talk.run());
    }
    const double each = double(talk.cluster.world.now() - begin) / kTurns / 1e3;
    BOOST_TEST_MESSAGE(each << " us for each switch");
    BOOST_TEST(each < 250);
    BOOST_TEST(talk.most <= 2u);
    BOOST_TEST(talk.told == 0u);
}

// Each wants the next one of a ring, all at once, and each is full.
BOOST_DATA_TEST_CASE(rings, kFlavours* boost::unit_test::data::make({1u, 2u}), flavour, places) {
    Talk talk(8, limited(flavour, places));
    const Nanos begin = talk.cluster.world.now();
    for (unsigned shift = 1; shift < 8; ++shift) {
        for (unsigned i = 0; i < 8; ++i) talk.say(i, (i + shift) % 8, 5);
        BOOST_REQUIRE(talk.run());
    }
    BOOST_TEST_MESSAGE(double(talk.cluster.world.now() - begin) / 1e6 << " ms");
    BOOST_TEST(talk.cluster.world.now() - begin < kMs);
    BOOST_TEST(talk.mistakes == 0u);
    BOOST_TEST(talk.told == 0u);
}

// A server with few places, and many who want it; it has an endpoint to them, or not.
BOOST_DATA_TEST_CASE(a_server_is_full, kFlavours* boost::unit_test::data::make({1u, 3u}), flavour, places) {
    std::vector<channel::Config> configs(8, limited(flavour, 0));
    configs[0].max_connections = places;
    Talk talk(configs);
    for (unsigned j = 1; j < 8; j += 2) talk.iface(0).detach(*std::exchange(talk.to[0][j], nullptr));
    const Nanos begin = talk.cluster.world.now();
    for (unsigned round = 0; round < 5; ++round) {
        for (unsigned i = 1; i < 8; ++i) talk.say(i, 0, 2);
        BOOST_REQUIRE(talk.run());
    }
    BOOST_TEST_MESSAGE(double(talk.cluster.world.now() - begin) / 1e6 << " ms, at most " << talk.most << " places");
    BOOST_TEST(talk.cluster.world.now() - begin < 4 * kMs);
    BOOST_TEST(talk.told == 0u);
}

// Keepalive neither keeps a connection nor brings one back.
BOOST_DATA_TEST_CASE(keepalive, kFlavours, flavour) {
    Talk talk(4, limited(flavour, 2, adapt::VictimPolicy::lru));
    for (const unsigned j : {1, 2}) {
        talk.say(0, j);
        BOOST_REQUIRE(talk.run());
        talk.cluster.run_for(kMs);
    }
    for (unsigned i = 0; i < 50; ++i) {
        talk.iface(0).check(*talk.to[0][1]);
        talk.cluster.run_for(100 * kUs);
    }
    talk.say(0, 3);
    BOOST_REQUIRE(talk.run());
    BOOST_TEST(talk.to[0][1]->parked);
    BOOST_TEST(!talk.to[0][2]->parked);
    for (unsigned i = 0; i < 50; ++i) {
        talk.iface(0).check(*talk.to[0][1]);
        talk.cluster.run_for(kMs);
    }
    BOOST_TEST(talk.to[0][1]->parked);
    BOOST_TEST(talk.told == 0u);
}

// The program has something waiting for each of its peers and is never done: the limit gives way, and is kept again
// when it can be.
BOOST_DATA_TEST_CASE(all_are_busy, kFlavours, flavour) {
    Talk talk(6, limited(flavour, 1));
    const Nanos longest[] = {kMs, 20 * kMs, 20 * kMs, 150 * kMs, 150 * kMs};
    for (unsigned j = 1; j <= 5; ++j) {
        const Nanos before = talk.cluster.world.now();
        talk.say(0, j);
        BOOST_REQUIRE(talk.run());
        BOOST_TEST(talk.cluster.world.now() - before < longest[j - 1], "peer " << j);
        talk.iface(0).hold(*talk.to[0][j], true);
    }
    BOOST_TEST(talk.places(0) == 5u);
    for (unsigned j = 1; j <= 5; ++j) talk.iface(0).hold(*talk.to[0][j], false);
    talk.cluster.run_for(50 * kMs);
    BOOST_TEST(talk.places(0) <= 1u);
    BOOST_TEST(talk.told == 0u);
}

// A peer whose connection is to end computes and does not answer: others give theirs back instead.
BOOST_DATA_TEST_CASE(an_idle_peer_computes, kFlavours, flavour) {
    Talk talk(6, limited(flavour, 2, adapt::VictimPolicy::lru));
    for (const unsigned j : {1, 2}) {
        talk.say(0, j);
        BOOST_REQUIRE(talk.run());
        talk.cluster.run_for(5 * kMs);
    }
    talk.cluster.sleep(1, true);
    for (unsigned turn = 0; turn < 40; ++turn) {
        const Nanos before = talk.cluster.world.now();
        talk.say(0, 2 + (turn + 1) % 4, 3);
        BOOST_REQUIRE(talk.run());
        BOOST_TEST(talk.cluster.world.now() - before < 5 * kMs, "turn " << turn);
        BOOST_TEST(talk.places(0) <= 2u, "turn " << turn);
        talk.cluster.run_for(60 * kMs);
    }
    talk.cluster.sleep(1, false);
    talk.say(0, 1, 2);
    talk.say(1, 0, 2);
    BOOST_REQUIRE(talk.run());
    BOOST_TEST(talk.most <= 3u);
    BOOST_TEST(talk.mistakes == 0u);
    BOOST_TEST(talk.told == 0u);
}

// It has not acknowledged what we have said, either: it is asked for that, and not again and again.
BOOST_DATA_TEST_CASE(a_peer_computes_that_owes_acknowledgments, kFlavours, flavour) {
    Talk talk(4, limited(flavour, 1));
    talk.say(0, 1);
    BOOST_REQUIRE(talk.run());
    talk.cluster.sleep(1, true);
    talk.say(0, 1, 3);
    const auto& acks = talk.to[0][1]->counts.acks_sent;
    const std::uint64_t before = acks;
    talk.say(0, 2);
    BOOST_REQUIRE(talk.cluster.until([&] { return talk.got[0][2] == 1; }, 50 * kMs));
    talk.iface(0).hold(*talk.to[0][2], true); // so that there are too many all the time
    talk.cluster.run_for(3'000 * kMs);
    BOOST_TEST(acks - before >= 1u);
    BOOST_TEST(acks - before < 30u);
    BOOST_TEST_MESSAGE(acks - before << " requests in 3 s");
    talk.cluster.sleep(1, false);
    BOOST_REQUIRE(talk.run());
    talk.iface(0).hold(*talk.to[0][2], false);
    talk.cluster.run_for(1'000 * kMs);
    BOOST_TEST(talk.places(0) <= 1u);
    BOOST_TEST(talk.mistakes == 0u);
    BOOST_TEST(talk.told == 0u);
}

// Traffic of every kind, with few places.
BOOST_DATA_TEST_CASE(traffic_of_every_kind, kFlavours* boost::unit_test::data::make({1u, 2u}), flavour, places) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Cluster cluster("four-path", 4, limited(flavour, places), {.seed = seed});
        Stress stress(cluster, {.seed = seed,
                                .operations = 200,
                                .slot = 1 << 16,
                                .constant = 1 << 16,
                                .with_self = false,
                                .lull = Nanos(20'000 << seed % 4)});
        const bool done = stress.run(10'000 * kMs);
        BOOST_TEST(done, "seed " << seed);
        BOOST_TEST(stress.verdict() == "", "seed " << seed << ": " << stress.verdict());
    }
}

// Paths fail and adapters die meanwhile.
BOOST_DATA_TEST_CASE(faults, kFlavours, flavour) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        channel::Config config = limited(flavour, 1 + seed % 2);
        config.recovery.reopen_interval = kMs;
        config.recovery.hold_down = kMs;
        Talk talk(5, config, seed);
        std::mt19937_64 random(seed);
        for (unsigned round = 0; round < 12; ++round) {
            const std::string port = std::to_string(random() % 5) + ":softhca_" + std::to_string(random() % 2);
            const unsigned kind = static_cast<unsigned>(random() % 3);
            const char* const names[3][2] = {
                {"port down ", "port up "}, {"adapter-death ", "adapter-revive "}, {"drop 100% ", "drop 0% "}};
            const std::string where = kind == 1 ? port : port + ":1";
            for (unsigned k = 0; k < 20; ++k) {
                const unsigned i = static_cast<unsigned>(random() % 5), j = static_cast<unsigned>(random() % 5);
                if (i != j) talk.say(i, j, 3);
                if (k == 7) talk.cluster.world.fault(names[kind][0] + where);
                if (k == 14) talk.cluster.world.fault(names[kind][1] + where);
                talk.cluster.run_for(static_cast<Nanos>(random() % (30 * kUs)));
            }
            BOOST_REQUIRE(talk.run(4'000 * kMs));
            talk.cluster.run_for(30 * kMs); // everybody knows where everybody is (U5)
        }
        BOOST_TEST(talk.mistakes == 0u);
        BOOST_TEST(talk.told == 0u);
    }
}
