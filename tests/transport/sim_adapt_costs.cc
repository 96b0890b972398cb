// What RC saves is measured: trials, what a flood hides, and what has not been measured yet.
#define BOOST_TEST_MODULE transport_adapt_costs
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>

#include "adapt_nodes.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {
// Messages that teach no latency: they are too large.
class LargeMessages {
public:
    explicit LargeMessages(Cluster& cluster) : cluster_(cluster) {}
    bool send(unsigned from, unsigned to, unsigned count) {
        Channel& channel = cluster_.channel(from, to);
        unsigned sent = 0;
        const auto all = cluster_.until(
            [&] {
                cluster_.world.select(from);
                while (sent < count && Interface::am_bcopy(channel, 4, pack, nullptr) >= 0) ++sent;
                return sent == count;
            },
            1'000 * kMs);
        cluster_.node(from).iface().detach(channel); // channel() has attached
        return all;
    }

private:
    static std::size_t pack(void* dest, void*) {
        std::memset(dest, 0x55, 6000);
        return 6000;
    }
    Cluster& cluster_;
};
} // namespace

// Nothing is assumed: one peer gets RC for trial, and what it saves there decides.
BOOST_AUTO_TEST_CASE(measured) {
    Cluster cluster("connect-ib-64", 4, measuring());
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 10)); // too few to tell
    BOOST_TEST(with_rc(cluster, 0).empty());
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.rc == 0.0);
    for (unsigned round = 0; round < 40; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    const adapt::Costs costs = statistics(cluster.node(0)).adaptation.costs;
    BOOST_TEST_MESSAGE("RC saves " << costs.rc << " ns, making it costs " << costs.make_rc << " ns");
    BOOST_TEST(statistics(cluster.node(0)).adaptation.rc_kept > 0u);
    BOOST_TEST(costs.rc > 0);
    BOOST_TEST(with_rc(cluster, 0).size() == 3u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Without timestamps what lay there while we were away counts until it is found: it is left out. With them it is right.
BOOST_DATA_TEST_CASE(away, boost::unit_test::data::make({false, true}), timestamps) {
    std::vector<std::string> faults;
    if (!timestamps) faults.emplace_back("lacks timestamps on *:*");
    Cluster cluster("connect-ib-64", 4, measuring(), {}, {}, faults);
    Messages messages(cluster);
    const auto known = [&] {
        std::uint32_t sum = 0;
        for (unsigned peer = 1; peer < 4; ++peer) {
            const channel::Wiring& wiring = messages.to(0, peer)->wiring;
            for (schedule::PathIndex path = 0; wiring.scheduler && path < wiring.places; ++path)
                sum += wiring.scheduler->paths()[path].latencies;
        }
        return sum;
    };
    unsigned forgotten = 0;
    double most = 0;
    for (unsigned round = 0; round < 40; ++round) {
        for (unsigned i = 0; i < 64; ++i) (void)messages.send(0, 1 + i % 3);
        cluster.sleep(0, true);
        pass(cluster, 5 * kMs);
        cluster.sleep(0, false);
        for (unsigned i = 0, before = known(); i < 10; ++i, before = known()) {
            BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 100));
            forgotten += known() < before;
        }
        most = std::max(most, statistics(cluster.node(0)).adaptation.costs.rc);
    }
    BOOST_TEST_MESSAGE("RC saves at most " << most << " ns; forgotten " << forgotten << " times");
    BOOST_TEST(most < 10'000);
    BOOST_TEST((forgotten > 0) == !timestamps);
    BOOST_TEST(messages.mistakes == 0u);
}

// A trial costs no commands, where they take milliseconds: neither its own side nor the peer waits for them. So it
// comes as soon as it is known what DC takes.
BOOST_AUTO_TEST_CASE(trials_are_cheap) {
    const channel::Config c = measuring();
    Cluster cluster("connect-ib-64", 4, c);
    Messages messages(cluster);
    const auto kept = [&] { return statistics(cluster.node(0)).adaptation.rc_kept; };
    BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 10)); // connected
    Nanos charged = 0;
    (void)cluster.world.on_command([&](Nanos cost) { charged += cost; });
    unsigned rounds = 0;
    for (; rounds < 100 && !kept(); ++rounds) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST_MESSAGE("a trial after " << rounds << " thousand messages to each");
    BOOST_TEST(rounds >= 1u); // it knows what DC takes
    BOOST_TEST(rounds <= 5u);
    for (unsigned round = 0; round < 40; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.make_rc > 0); // what both sides say to each other
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.make_rc < 100'000);
    BOOST_TEST(charged < kMs); // memory for messages; a queue pair takes more
    BOOST_TEST(messages.mistakes == 0u);
    (void)cluster.world.on_command(nullptr);
}

// What nobody has measured is not known: the scheduler's first guess is none.
BOOST_AUTO_TEST_CASE(a_guess_is_no_latency) {
    const channel::Config c = measuring();
    Cluster cluster("two-rail", 3, c);
    Messages messages(cluster);
    LargeMessages large(cluster);
    for (unsigned round = 0; round < 40; ++round) {
        BOOST_REQUIRE(large.send(0, 1, 200));
        BOOST_REQUIRE(large.send(0, 2, 200));
        BOOST_REQUIRE(with_rc(cluster, 0).empty());
    }
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.rc == 0.0);
}

// The busiest sends what shows nothing. Its trial ends, and another one's shows what RC saves.
BOOST_AUTO_TEST_CASE(a_mute_trial_ends) {
    const channel::Config c = measuring();
    Cluster cluster("two-rail", 3, c);
    Messages messages(cluster);
    LargeMessages large(cluster);
    bool mute = false, other = false;
    for (unsigned round = 0; with_rc(cluster, 0).empty() && round < 100; ++round)
        BOOST_REQUIRE(messages.all(from_one({1}), 400));
    for (unsigned round = 0; round < 300 && !other; ++round) {
        BOOST_REQUIRE(messages.all(from_one({2}), 100));
        BOOST_REQUIRE(large.send(0, 1, 400));
        const std::vector<unsigned> now = with_rc(cluster, 0);
        mute |= now == std::vector<unsigned>{1};
        other |= std::ranges::find(now, 2u) != now.end();
    }
    BOOST_TEST(mute);
    BOOST_TEST(other);
    BOOST_TEST(messages.mistakes == 0u);
}

// RC has saved nothing when it was tried (these adapters charge nothing for DC). It is tried again, later and later.
BOOST_AUTO_TEST_CASE(no_saving_is_not_final) {
    Cluster cluster("two-rail", 3, measuring());
    Messages messages(cluster);
    const auto trials = [&] {
        std::uint64_t sum = 0;
        for (const auto& channel : statistics(cluster.node(0)).channels) sum += channel.service.switches;
        return sum;
    };
    unsigned tried = 0, without = 0;
    std::uint64_t before = 0;
    for (unsigned round = 0; round < 400; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1, 2}), 400));
        pass(cluster, 4 * kMs);
        tried += trials() > std::exchange(before, trials());
        without += with_rc(cluster, 0).empty();
    }
    BOOST_TEST_MESSAGE(tried << " times, nobody had RC after " << without << " of 400 rounds, saves "
                             << statistics(cluster.node(0)).adaptation.costs.rc);
    BOOST_TEST(tried >= 4u); // given and taken: two trials
    BOOST_TEST(tried <= 40u);
    BOOST_TEST(messages.mistakes == 0u);
}

// RC at once leaves DC unknown: now and then one of them goes by DC. Nobody does where all have RC.
BOOST_DATA_TEST_CASE(eager_learns, boost::unit_test::data::make({1u, 2u}), limit) {
    std::vector<channel::Config> configs(3, config(4));
    for (channel::Config& c : configs) c.adapt.tuning.costs.make_rc = 1e12; // they wish nothing
    configs[0] = measuring(Mode::eager);
    configs[0].adapt.max_rc = limit;
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    unsigned without = 0, rounds = 0;
    const auto dc = [&](unsigned peer) {
        std::uint64_t sum = 0;
        for (const auto& channel : statistics(cluster.node(0)).channels)
            for (const auto& path : channel.paths)
                if (channel.peer_uid == cluster.node(peer).iface().address().uid && path.kind == path::Kind::dc)
                    sum += path.requests;
        return sum;
    };
    BOOST_REQUIRE(messages.all(from_one({1}), 100)); // the first
    BOOST_REQUIRE(messages.all(from_one({2}), 100));
    cluster.run_for(kMs);
    BOOST_TEST(with_rc(cluster, 0).size() == limit);
    const std::uint64_t before = dc(1);
    for (; rounds < 100; ++rounds) {
        BOOST_REQUIRE(messages.all(from_one({1, 2}), 1000));
        without += with_rc(cluster, 0).size() < limit;
    }
    BOOST_TEST_MESSAGE(without << " rounds without, " << dc(1) - before << " requests by DC");
    BOOST_TEST(without < 50u);
    BOOST_TEST((dc(1) > before + 1024) == (limit == 1));
    if (limit == 2) BOOST_TEST(without == 0u);
    BOOST_TEST(with_rc(cluster, 0).size() == limit);
    BOOST_TEST(messages.mistakes == 0u);
}

// Who goes by DC for a window has RC again for the reason that it had before: the counts have chosen nobody.
BOOST_AUTO_TEST_CASE(a_reference_keeps_its_reason) {
    std::vector<channel::Config> configs(3, config(4));
    for (channel::Config& c : configs) c.adapt.tuning.costs.make_rc = 1e12; // they wish nothing
    configs[0] = measuring(Mode::eager);
    configs[0].adapt.max_rc = 1;
    Cluster cluster("connect-ib-64", configs);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1}), 100));
    BOOST_REQUIRE(messages.all(from_one({2}), 100));
    std::map<std::string, unsigned> seen; // by reason
    for (unsigned round = 0; round < 200; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1}), 1200));
        BOOST_REQUIRE(messages.all(from_one({2}), 100));
        pass(cluster, 2 * kMs);
        for (const auto& channel : statistics(cluster.node(0)).channels) ++seen[channel.service.why];
    }
    for (const auto& [why, times] : seen) BOOST_TEST_MESSAGE(why << " " << times);
    BOOST_TEST(statistics(cluster.node(0)).adaptation.looks > 0u);
    BOOST_TEST(statistics(cluster.node(0)).adaptation.changes == 0u);
    BOOST_TEST(seen["reference"] > 0u);
    BOOST_TEST(seen["first_peers"] > seen["reference"]);
    BOOST_TEST(seen["counts"] == 0u);
    BOOST_TEST(messages.mistakes == 0u);
}

// A flood hides in its latencies what initiators lose that turn to other targets, and large messages teach none. It is
// measured by itself, and shared among all messages.
BOOST_AUTO_TEST_CASE(turns) {
    channel::Config c = measuring();
    c.dci_count = 1;
    Cluster cluster("connect-ib-64", 7, c);
    Messages messages(cluster);
    LargeMessages large(cluster);
    const auto costs = [&] { return statistics(cluster.node(0)).adaptation.costs; };
    BOOST_REQUIRE(messages.all(from_one({1, 2, 3, 4, 5, 6}), 1)); // connected
    for (unsigned round = 0; round < 200; ++round) {
        for (unsigned peer = 1; peer < 7; ++peer) BOOST_REQUIRE(large.send(0, peer, 10));
        pass(cluster, kMs / 10); // nothing is under way
    }
    BOOST_TEST_MESSAGE("a turn takes " << costs().turn << " ns, RC saves " << costs().rc << " ns a message");
    BOOST_TEST(costs().turn > 0);
    BOOST_TEST(costs().rc > costs().turn / 2);
    BOOST_TEST(costs().rc < costs().turn);
    BOOST_TEST(with_rc(cluster, 0).size() == 4u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Short messages ask for few completions: what is left of them is pushed out for a round.
BOOST_AUTO_TEST_CASE(turns_of_short_messages) {
    channel::Config c = measuring();
    c.dci_count = 1;
    Cluster cluster("connect-ib-64", 7, c);
    Messages messages(cluster);
    const auto turn = [&] { return statistics(cluster.node(0)).adaptation.costs.turn; };
    for (unsigned round = 0; round < 300 && turn() <= 0; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1, 2, 3, 4, 5, 6}), 3));
        pass(cluster, kMs / 10);
    }
    BOOST_TEST_MESSAGE("a turn takes " << turn() << " ns");
    BOOST_TEST(turn() > 0);
    BOOST_TEST(messages.mistakes == 0u);
}

// In the middle of a round the peer's port goes down, its adapter dies, or its process is killed. We have sent it
// nothing of our own. The others go on.
BOOST_DATA_TEST_CASE(faults_in_a_round, boost::unit_test::data::make({0, 1, 2}), kind) {
    channel::Config c = measuring();
    c.dci_count = 1;
    c.reliability.timeout = 5;
    c.reliability.retry_count = 2;
    c.check_interval = 2 * kMs;
    c.recovery.partition_timeout = 20 * kMs;
    Cluster cluster("connect-ib-64", 5, c);
    unsigned failures = 0, here = 0;
    for (unsigned i = 0; i < cluster.size(); ++i)
        cluster.node(i).on_failure = [&, i](Channel&, Status) { ++failures, here += i == 0; };
    Messages messages(cluster);
    const channel::Core& core = cluster.node(0).iface().core();
    unsigned victim = 0;
    for (unsigned i = 0; i < 100 && !victim; ++i) {
        BOOST_REQUIRE(messages.all(to_one({1, 2, 3, 4}), 3));
        (void)cluster.until([&] { return !(core.due & channel::due::turns); }, kMs);
        // As soon as writes to it are on the way: that many of ours are nothing else.
        const auto look = [&] {
            for (unsigned peer = 1; peer < 5 && (core.due & channel::due::turns); ++peer)
                if (messages.to(0, peer)->wiring.paths[0].open >= 8) victim = peer;
            return victim != 0;
        };
        for (unsigned k = 0; k < 20 && !victim; ++k) {
            (void)cluster.world.at(cluster.world.now() + kMs / 100, [] {});
            (void)cluster.until(look, kMs / 100);
            cluster.world.select(0);
            (void)cluster.node(0).progress();
            (void)look();
        }
    }
    BOOST_REQUIRE(victim != 0u);
    const std::string adapter = std::to_string(victim) + ":softhca_0";
    if (kind == 0) {
        cluster.world.fault("port down " + adapter + ":1");
    } else if (kind == 1) {
        cluster.world.fault("adapter-death " + adapter);
    } else { // nobody hears of it
        cluster.node(victim).services().on_wait = {};
        cluster.world.fault("drop 100% all");
        cluster.node(victim).close();
        cluster.world.fault("drop 0% all");
    }
    std::vector<std::pair<unsigned, unsigned>> to, pairs;
    for (unsigned peer = 1; peer < 5; ++peer)
        if (peer != victim) to.emplace_back(peer, 0), pairs.emplace_back(0, peer), pairs.emplace_back(peer, 0);
    for (unsigned i = 0; i < 20; ++i) BOOST_REQUIRE(messages.all(to, 3)); // it has been heard of lately
    pass(cluster, 100 * kMs);
    BOOST_TEST(here > 0u); // a round has met with it
    for (unsigned round = 0; round < 20; ++round) BOOST_REQUIRE(messages.all(pairs, 100));
    BOOST_TEST(messages.mistakes == 0u);
    BOOST_TEST(failures <= 2u); // at both ends
}
