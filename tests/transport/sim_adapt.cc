// Who gets RC is decided by what is counted: one to all, all to one, patterns that change, while links fail. Costs are
// given here, because the emulated adapters of these fabrics do not charge for what DC does; one test measures them.
#define BOOST_TEST_MODULE transport_adapt
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <memory>

#include "both_transports.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::Interface;
using Mode = channel::AdaptConfig::Mode;

namespace {

constexpr Nanos kMs = 1'000'000;

channel::Config config(unsigned max_rc, Mode mode = Mode::on) {
    channel::Config config = config_of(connect::Transport::dc);
    config.adapt.mode = mode;
    config.adapt.max_rc = max_rc;
    config.adapt.tuning.interval = 8 * kMs;
    config.adapt.tuning.min_interval = kMs / 2;
    config.adapt.tuning.costs = {.rc = 150, .make_rc = 10'000};
    config.adapt.measured = false;
    config.paths.num_paths = 1;
    config.reliability = {};
    return config;
}

Interface::Statistics statistics(Node& node) {
    Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

// Messages with numbers, from whomever to whomever; each arrives once and in order.
class Messages {
public:
    explicit Messages(Cluster& cluster)
        : cluster_(cluster), n_(cluster.size()), to_(n_ * n_), sent_(n_ * n_), got_(n_ * n_) {
        for (unsigned i = 0; i < n_; ++i) {
            takers_.push_back(std::make_unique<Taker>(Taker{this, i}));
            cluster.node(i).on_am(3, take, takers_.back().get());
            for (unsigned k = 0; k < n_; ++k)
                if (k != i) to_[i * n_ + k] = &cluster.channel(i, k);
        }
    }
    bool send(unsigned from, unsigned to) {
        std::uint64_t& number = sent_[from * n_ + to];
        cluster_.world.select(from);
        const std::uint64_t header = from | number << 8;
        if (Interface::am_short(*to_[from * n_ + to], 3, header, nullptr, 0) != Status::ok) return false;
        ++number;
        return true;
    }
    // Each of these pairs so many, in turns.
    bool all(const std::vector<std::pair<unsigned, unsigned>>& pairs, unsigned count, Nanos limit = 3'000 * kMs) {
        std::vector<unsigned> left(pairs.size(), count);
        return cluster_.until(
            [&] {
                bool done = true;
                for (std::size_t i = 0; i < pairs.size(); ++i) {
                    for (unsigned burst = 0; burst < 8 && left[i] && send(pairs[i].first, pairs[i].second); ++burst)
                        --left[i];
                    done &= left[i] == 0;
                }
                return done && arrived();
            },
            limit);
    }
    [[nodiscard]] bool arrived() const { return sent_ == got_; }
    unsigned mistakes = 0;

private:
    struct Taker {
        Messages* all;
        unsigned at;
    };
    static Status take(void* arg, void* data, std::size_t, unsigned) {
        const auto& [all, at] = *static_cast<Taker*>(arg);
        std::uint64_t header = 0;
        std::memcpy(&header, data, sizeof header);
        all->mistakes += header >> 8 != all->got_[(header & 0xff) * all->n_ + at]++;
        return Status::ok;
    }
    Cluster& cluster_;
    const unsigned n_;
    std::vector<std::unique_ptr<Taker>> takers_;
    std::vector<Channel*> to_;
    std::vector<std::uint64_t> sent_, got_; // by sender, receiver
};

// Of a node: peers that RC leads to.
std::vector<unsigned> with_rc(Cluster& cluster, unsigned at) {
    std::vector<unsigned> peers;
    const Interface::Statistics now = statistics(cluster.node(at));
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : now.channels)
            if (i != at && channel.peer_uid == cluster.node(i).iface().address().uid &&
                (channel.service.ours == std::string("rc") || channel.service.theirs == std::string("rc")))
                peers.push_back(i);
    return peers;
}
std::uint64_t changes(Cluster& cluster) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < cluster.size(); ++i) sum += statistics(cluster.node(i)).adaptation.changes;
    return sum;
}

std::vector<std::pair<unsigned, unsigned>> from_one(std::initializer_list<unsigned> to) {
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (const unsigned peer : to) pairs.emplace_back(0, peer);
    return pairs;
}
std::vector<std::pair<unsigned, unsigned>> to_one(std::initializer_list<unsigned> from) {
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (const unsigned peer : from) pairs.emplace_back(peer, 0);
    return pairs;
}

} // namespace

// The limit holds at the one, whoever wishes; who has been refused is served by DC.
BOOST_DATA_TEST_CASE(one_and_all, boost::unit_test::data::make({true, false}), to) {
    Cluster cluster("two-rail", 6, config(4)); // two queue pairs each: two peers
    Messages messages(cluster);
    const auto pairs = to ? from_one({1, 2, 3, 4, 5}) : to_one({1, 2, 3, 4, 5});
    for (unsigned round = 0; round < 12; ++round) BOOST_REQUIRE(messages.all(pairs, 2000));
    BOOST_TEST(messages.mistakes == 0u);
    BOOST_TEST(with_rc(cluster, 0).size() == 2u);
    const Interface::Statistics now = statistics(cluster.node(0));
    BOOST_TEST(now.adaptation.rc_in_use == 4u);
    BOOST_TEST(now.adaptation.looks >= 2u);
    BOOST_TEST(now.adaptation.count_bytes > 0u);
    BOOST_TEST(now.adaptation.count_bytes < 20'000u);
    BOOST_TEST(changes(cluster) < 40u); // no to and fro
}

// The heaviest have it, also those that come later.
BOOST_AUTO_TEST_CASE(the_heaviest) {
    Cluster cluster("two-rail", 6, config(4));
    Messages messages(cluster);
    for (unsigned round = 0; round < 10; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 300));
        BOOST_REQUIRE(messages.all(from_one({4, 5}), 3000));
    }
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{4, 5}));
    BOOST_TEST(messages.mistakes == 0u);
}

// Of those who ask the destination prefers the heaviest: who has it and sends less loses it.
// Whether it wishes by itself, or only judges the wishes of others.
BOOST_DATA_TEST_CASE(the_destination_chooses, boost::unit_test::data::make({true, false}), wishes) {
    std::vector<channel::Config> configs(6, config(4));
    if (!wishes) configs[0].adapt.tuning.costs.rc = 0;
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    unsigned rounds = 0;
    while (with_rc(cluster, 0) != std::vector<unsigned>{1, 2} && rounds++ < 30)
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 2000));
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{1, 2}));
    rounds = 0;
    while (with_rc(cluster, 0) != std::vector<unsigned>{3, 4} && rounds++ < 60) {
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        BOOST_REQUIRE(messages.all(to_one({3, 4}), 3000));
    }
    BOOST_TEST_MESSAGE("the heavier ones have it after " << rounds << " rounds");
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{3, 4}));
    for (unsigned round = 0; round < 10; ++round) { // and keep it
        BOOST_REQUIRE(messages.all(to_one({1, 2}), 200));
        BOOST_REQUIRE(messages.all(to_one({3, 4}), 3000));
    }
    BOOST_TEST((with_rc(cluster, 0) == std::vector<unsigned>{3, 4}));
    BOOST_TEST(messages.mistakes == 0u);
}

// Whoever is new gets it after a while, and nothing is sent again for that.
BOOST_AUTO_TEST_CASE(patterns_change) {
    Cluster cluster("two-rail", 6, config(4));
    Messages messages(cluster);
    for (unsigned phase = 0; phase < 4; ++phase) {
        const auto now = phase % 2 ? from_one({3, 4}) : from_one({1, 2});
        const std::vector<unsigned> wanted = phase % 2 ? std::vector<unsigned>{3, 4} : std::vector<unsigned>{1, 2};
        unsigned rounds = 0;
        while (with_rc(cluster, 0) != wanted && rounds++ < 60) BOOST_REQUIRE(messages.all(now, 1000));
        BOOST_TEST_MESSAGE("phase " << phase << ": " << rounds << " rounds of 1000 messages to each");
        BOOST_TEST((with_rc(cluster, 0) == wanted));
    }
    BOOST_TEST(messages.mistakes == 0u);
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : statistics(cluster.node(i)).channels) {
            BOOST_TEST(channel.recovery.messages_again == 0u);
            BOOST_TEST(channel.duplicates == 0u);
        }
}

// While links fail and come back.
BOOST_DATA_TEST_CASE(links_fail, boost::unit_test::data::make({1u, 2u, 3u}), seed) {
    channel::Config c = config(4);
    c.adapt.pool = seed % 2 ? 0 : 128;
    c.recovery.hold_down = kMs;
    c.recovery.watch_interval = kMs / 10;
    c.recovery.partition_timeout = 0;
    c.reliability.timeout = 5;
    c.reliability.retry_count = 2;
    Cluster cluster("two-rail", 5, c, {.seed = seed});
    Messages messages(cluster);
    std::mt19937_64 random(seed);
    bool over = false;
    std::function<void()> fail = [&] {
        if (over) return;
        const std::string port = std::to_string(random() % 5) + ":softhca_" + std::to_string(random() % 2) + ":1";
        cluster.world.fault("port down " + port);
        cluster.world.at(cluster.world.now() + 1 + random() % kMs, [&, port] {
            cluster.world.fault("port up " + port);
            cluster.world.at(cluster.world.now() + 1 + random() % kMs, fail);
        });
    };
    cluster.world.at(cluster.world.now() + kMs, fail);
    for (unsigned phase = 0; phase < 8; ++phase)
        for (unsigned round = 0; round < 6; ++round)
            BOOST_REQUIRE(messages.all(phase % 3 == 0   ? from_one({1, 2, 3, 4})
                                       : phase % 3 == 1 ? to_one({1, 2, 3, 4})
                                                        : from_one({1 + phase % 4}),
                                       600));
    over = true;
    BOOST_TEST(messages.mistakes == 0u);
    BOOST_TEST(changes(cluster) > 0u);
    cluster.run_for(50 * kMs);
    BOOST_TEST(traffic(cluster, seed) == "");
}

// Few peers get RC at once, and keep it.
BOOST_AUTO_TEST_CASE(eager) {
    Cluster cluster("two-rail", 3, config(4, Mode::eager));
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all({{0, 1}, {1, 2}, {2, 0}}, 1));
    cluster.run_for(kMs);
    for (unsigned i = 0; i < 3; ++i) BOOST_TEST(with_rc(cluster, i).size() == 2u);
    for (unsigned round = 0; round < 10; ++round) BOOST_REQUIRE(messages.all({{0, 1}}, 1000));
    for (unsigned i = 0; i < 3; ++i) BOOST_TEST(with_rc(cluster, i).size() == 2u);
    BOOST_TEST(messages.mistakes == 0u);
}

// What costs more than it saves is not done.
BOOST_AUTO_TEST_CASE(not_worth_it) {
    channel::Config dear = config(4);
    dear.adapt.tuning.costs.make_rc = 1e9;
    Cluster cluster("two-rail", 4, dear);
    Messages messages(cluster);
    for (unsigned round = 0; round < 20; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST(with_rc(cluster, 0).empty());
    BOOST_TEST(messages.mistakes == 0u);
}

// Nothing is assumed: one peer gets RC for trial, and what it saves there decides.
BOOST_AUTO_TEST_CASE(measured) {
    channel::Config c = config(4);
    c.adapt.measured = true;
    c.adapt.tuning.costs = {};
    Cluster cluster("two-rail", 4, c);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 10)); // too few to tell
    BOOST_TEST(with_rc(cluster, 0).empty());
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.rc == 0.0);
    for (unsigned round = 0; round < 20; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    const adapt::Costs costs = statistics(cluster.node(0)).adaptation.costs;
    BOOST_TEST_MESSAGE("RC saves " << costs.rc << " ns, making it costs " << costs.make_rc << " ns");
    BOOST_TEST(costs.rc != 0.0);
    BOOST_TEST(with_rc(cluster, 0).size() == (costs.rc > c.adapt.tuning.least_gain ? 2u : 0u));
    BOOST_TEST(messages.mistakes == 0u);
}

// A trial costs no commands, where they take milliseconds: neither its own side nor the peer waits for them. So it
// comes as soon as it is known what DC takes.
BOOST_AUTO_TEST_CASE(trials_are_cheap) {
    channel::Config c = config(4);
    c.adapt.measured = true;
    c.adapt.tuning.costs = {};
    Cluster cluster("connect-ib-64", 4, c);
    Messages messages(cluster);
    const auto kept = [&] { return statistics(cluster.node(0)).adaptation.rc_kept; };
    BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 10)); // connected
    Nanos charged = 0;
    (void)cluster.world.on_command([&](Nanos cost) { charged += cost; });
    unsigned rounds = 0;
    for (; rounds < 100 && !kept(); ++rounds) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST_MESSAGE("a trial after " << rounds << " thousand messages to each");
    BOOST_TEST(rounds >= 2u); // it knows what DC takes
    BOOST_TEST(rounds <= 5u);
    for (unsigned round = 0; round < 20; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2, 3}), 1000));
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.make_rc > 0); // what both sides say to each other
    BOOST_TEST(statistics(cluster.node(0)).adaptation.costs.make_rc < 100'000);
    BOOST_TEST(charged < kMs); // memory for messages; a queue pair takes more
    BOOST_TEST(messages.mistakes == 0u);
    (void)cluster.world.on_command(nullptr);
}

// Who has no endpoints any more holds no queue pairs of RC.
BOOST_AUTO_TEST_CASE(without_endpoints) {
    Cluster cluster("two-rail", 3, config(4));
    Messages messages(cluster);
    for (unsigned round = 0; round < 10; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2}), 1000));
    BOOST_REQUIRE(with_rc(cluster, 0).size() == 2u);
    Node& node = cluster.node(0);
    for (unsigned peer = 1; peer < 3; ++peer) {
        Channel& channel = cluster.channel(0, peer);
        while (channel.usage.endpoints) node.iface().detach(channel);
    }
    BOOST_TEST(cluster.until(
        [&] {
            BOOST_REQUIRE(messages.send(1, 0)); // something happens there
            cluster.run_for(kMs / 10);
            const Interface::Statistics now = statistics(node);
            return now.adaptation.rc_in_use == 0 && now.adaptation.rc_kept == 0;
        },
        1'000 * kMs));
}

// Who only receives from a peer has no endpoint there, and gives RC to that peer all the same.
BOOST_AUTO_TEST_CASE(who_only_receives) {
    std::vector<channel::Config> configs(3, config(4));
    configs[1].adapt.tuning.costs.make_rc = configs[2].adapt.tuning.costs.make_rc = 1e9; // they wish nothing
    Cluster cluster("two-rail", configs);
    Messages messages(cluster);
    for (const auto& [at, to] : {std::pair{1u, 0u}, std::pair{2u, 0u}}) {
        Channel& channel = cluster.channel(at, to);
        while (channel.usage.endpoints) cluster.node(at).iface().detach(channel);
    }
    for (unsigned round = 0; round < 10; ++round) BOOST_REQUIRE(messages.all(from_one({1, 2}), 1000));
    BOOST_TEST(with_rc(cluster, 0).size() == 2u);
    BOOST_TEST(messages.mistakes == 0u);
}

// Connections that are parked before anybody has counted: their messages count.
BOOST_AUTO_TEST_CASE(parked_between_counts) {
    channel::Config c = config(4);
    c.adapt.tuning.min_interval = c.adapt.tuning.interval = 80 * kMs;
    c.adapt.tuning.costs.make_rc = 600'000; // 4000 messages
    Cluster cluster("two-rail", 2, c);
    Messages messages(cluster);
    BOOST_REQUIRE(messages.all(from_one({1}), 8));
    const std::uint32_t slot = cluster.channel(0, 1).local_id & channel::kSlotMask;
    for (unsigned round = 0; round < 200; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1}), 40));
        for (unsigned i = 0; i < 2; ++i) (void)cluster.node(i).iface().park(cluster.channel(i, 1 - i));
        BOOST_TEST(cluster.until([&] { return cluster.channel(0, 1).parked; }, 100 * kMs));
    }
    BOOST_TEST((cluster.channel(0, 1).local_id & channel::kSlotMask) == slot);
    BOOST_TEST(messages.mistakes == 0u);
    for (unsigned round = 0; with_rc(cluster, 0).empty() && round < 400; ++round) {
        BOOST_REQUIRE(messages.all(from_one({1}), 1)); // too few by themselves
        cluster.run_for(kMs);
    }
    BOOST_TEST(with_rc(cluster, 0).size() == 1u);
}
