// Paths of RC that come and go in channels of DC: either side wishes, the other one agrees or not, and nothing stops,
// is lost or comes twice, whatever fails meanwhile.
#define BOOST_TEST_MODULE transport_demand
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "simulator/random_faults.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "switches.h"
#include "two_kinds.h"
#include "uct_mp/channel/core.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using adapt::Service;
using channel::Interface;
using path::Kind;

namespace {

constexpr Nanos kMs = 1'000'000;

channel::Config config(unsigned pool = 128) {
    channel::Config config = quick_config(connect::Transport::dc);
    config.adapt.mode = channel::AdaptConfig::Mode::manual;
    config.adapt.pool = pool;
    config.recovery.partition_timeout = 0;
    return config;
}

bool settles(Cluster& cluster, unsigned up, unsigned absent) {
    return cluster.until(
        [&] {
            const OfKind now = of_kind(cluster, Kind::rc);
            return now.up == up && now.absent == absent;
        },
        1'000 * kMs);
}
std::uint64_t again(Cluster& cluster) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : statistics(cluster.node(i)).channels)
            sum += channel.recovery.messages_again + channel.recovery.puts_again + channel.recovery.gets_again +
                   channel.recovery.puts_found_done + channel.duplicates;
    return sum;
}

Status serve(Cluster& cluster, unsigned at, unsigned from, Service service) {
    return cluster.node(at).iface().serve_by(cluster.channel(at, from), service);
}

} // namespace

// Whoever wishes: RC comes, carries everything, and goes; its queue pairs are given back.
BOOST_DATA_TEST_CASE(comes_and_goes, boost::unit_test::data::make({0u, 1u, 2u}), who) {
    Cluster cluster("two-rail", 2, config(0));
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::busy)); // not connected
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST(settles(cluster, 0, 4));
    const unsigned before = statistics(cluster.node(0)).queue_pairs;
    for (unsigned round = 0; round < 4; ++round) {
        const std::uint64_t written = of_kind(cluster, Kind::rc).written, dc = of_kind(cluster, Kind::dc).written;
        for (unsigned i = 0; i < 2; ++i)
            if (who == 2 || who == i) BOOST_TEST((serve(cluster, i, 1 - i, Service::rc) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 4, 0));
        BOOST_TEST(of_kind(cluster, Kind::dc).spare == 4u);
        BOOST_TEST(traffic(cluster, 2 + round) == "");
        BOOST_TEST(of_kind(cluster, Kind::rc).written > written + 100'000);
        BOOST_TEST(of_kind(cluster, Kind::dc).written < dc + 100'000); // lanes that were begun
        for (unsigned i = 0; i < 2; ++i)
            if (who == 2 || who == i) BOOST_TEST((serve(cluster, i, 1 - i, Service::shared) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 0, 4));
        BOOST_TEST(of_kind(cluster, Kind::dc).spare == 0u);
        for (unsigned i = 0; i < 2; ++i)
            BOOST_TEST(cluster.until([&] { // some stay for other connections (sim_pool)
                const Interface::Statistics now = statistics(cluster.node(i));
                return now.queue_pairs - now.pooled == before;
            }));
        BOOST_TEST(traffic(cluster, 20 + round) == "");
    }
    BOOST_TEST(of_kind(cluster, Kind::rc).failures == 0u);
    BOOST_TEST(again(cluster) == 0u); // nothing was in the way of a switch
}

// RC takes over from DC on all routes at once, though its queue pairs come one after the other, and knows then what DC
// has shown of them.
BOOST_AUTO_TEST_CASE(all_routes_at_once) {
    Cluster cluster("four-path", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.world.fault("command-cost create 100us all");
    const unsigned routes = of_kind(cluster.node(0), Kind::dc).up;
    BOOST_REQUIRE(routes == 8u);
    const schedule::PathTable& paths = cluster.channel(0, 1).wiring.scheduler->paths();
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    unsigned waited = 0;
    BOOST_TEST(cluster.until(
        [&] {
            for (unsigned i = 0; i < 2; ++i) {
                const OfKind dc = of_kind(cluster.node(i), Kind::dc), rc = of_kind(cluster.node(i), Kind::rc);
                BOOST_REQUIRE((dc.spare == 0 || (dc.spare == routes && rc.spare == 0)));
                BOOST_REQUIRE(rc.spare <= rc.up);
                waited += rc.up > 0 && rc.up < routes;
            }
            return of_kind(cluster, Kind::dc).spare == 2 * routes;
        },
        100 * kMs));
    BOOST_TEST(waited > 0u);
    for (schedule::PathIndex path = 0; path < routes; ++path) {
        BOOST_TEST(paths[path].of(schedule::Direction::write).rate > 0);
        BOOST_TEST(paths[static_cast<schedule::PathIndex>(routes + path)].of(schedule::Direction::write).rate ==
                   paths[path].of(schedule::Direction::write).rate);
    }
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    BOOST_TEST(of_kind(cluster.node(0), Kind::rc).spare == routes);
    BOOST_TEST(of_kind(cluster.node(0), Kind::dc).spare == 0u);
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(again(cluster) == 0u);
}

// Whoever makes progress pays no command when RC comes, and no message waits for it. What is not wanted any more when
// it has been made is kept for others.
BOOST_DATA_TEST_CASE(commands_are_paid_aside, boost::unit_test::data::make({0u, 1u}), who) {
    Cluster cluster("connect-ib-64", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    constexpr Nanos kCommand = 20 * kMs;
    for (const char* const kind : {"create", "modify", "destroy"})
        cluster.world.fault(std::string("command-cost ") + kind + " " + std::to_string(kCommand) + "ns all");
    cluster.world.fault("command-cost reg 0ns all"); // traffic() does
    Nanos charged = 0;
    (void)cluster.world.on_command([&](Nanos cost) { charged += cost; });
    const unsigned before = statistics(cluster.node(0)).queue_pairs;
    const Nanos began = cluster.world.now();
    BOOST_TEST((serve(cluster, who, 1 - who, Service::rc) == Status::ok));
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(cluster.world.now() - began < kCommand);
    BOOST_TEST((serve(cluster, who, 1 - who, Service::shared) == Status::ok));
    cluster.run_for(20 * kCommand);
    BOOST_TEST(of_kind(cluster, Kind::rc).up == 0u);
    const unsigned made = statistics(cluster.node(0)).queue_pairs - before;
    BOOST_TEST((serve(cluster, who, 1 - who, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, of_kind(cluster, Kind::dc).up, 0));
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(made <= statistics(cluster.node(0)).queue_pairs - before);
    BOOST_TEST(charged == 0u);
    BOOST_TEST(again(cluster) == 0u);
    (void)cluster.world.on_command(nullptr);
}

// Nor when it goes, but for what touches completion queues: these have one user.
BOOST_DATA_TEST_CASE(ends_are_paid_aside, boost::unit_test::data::make({0u, 1u}), who) {
    Cluster cluster("two-rail", 2, config(0));
    BOOST_TEST(traffic(cluster, 1) == "");
    for (unsigned round = 0; round < 3; ++round) {
        BOOST_TEST((serve(cluster, who, 1 - who, Service::rc) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 4, 0));
        BOOST_TEST(traffic(cluster, 2 + round) == "");
        constexpr Nanos kCommand = 20'000; // the peer is not patient for much longer (quick_config)
        for (const char* const kind : {"modify", "query"})
            cluster.world.fault(std::string("command-cost ") + kind + " " + std::to_string(kCommand) + "ns all");
        Nanos charged = 0;
        (void)cluster.world.on_command([&](Nanos cost) { charged += cost; });
        BOOST_TEST((serve(cluster, who, 1 - who, Service::shared) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 0, 4));
        cluster.run_for(20 * kMs);
        // Of twelve only the four that reset them for others, and one pair may have something under way that is ended.
        BOOST_TEST(charged <= 6 * kCommand);
        BOOST_TEST(statistics(cluster.node(0)).pooled >= 2u);
        (void)cluster.world.on_command(nullptr);
        for (const char* const kind : {"modify", "query"})
            cluster.world.fault(std::string("command-cost ") + kind + " 0ns all");
        BOOST_TEST(traffic(cluster, 20 + round) == "");
    }
    BOOST_TEST(again(cluster) == 0u);
}

// What is not wanted is kept, connected, as long as the pool has room.
BOOST_AUTO_TEST_CASE(pool) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 4, 0));
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    cluster.run_for(50 * kMs);
    BOOST_TEST(of_kind(cluster, Kind::rc).spare == 4u);
    BOOST_TEST(of_kind(cluster, Kind::rc).up == 4u);
    const std::uint64_t written = of_kind(cluster, Kind::rc).written;
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(of_kind(cluster, Kind::rc).written == written);
    BOOST_TEST((serve(cluster, 1, 0, Service::rc) == Status::ok));
    BOOST_TEST(cluster.until([&] { return of_kind(cluster, Kind::dc).spare == 4; }, 10 * kMs));
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(of_kind(cluster, Kind::rc).written > written);
    BOOST_TEST(again(cluster) == 0u);
}

// A peer that looks into memory and makes no progress is written to: giving RC back does not stop that. Neither writes
// nor what must be ordered behind them waits for its answer.
BOOST_DATA_TEST_CASE(to_a_peer_without_progress, boost::unit_test::data::make({false, true}), fenced_before) {
    Cluster cluster("two-rail", 2, config(0));
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 4, 0));
    Node::Memory theirs = cluster.node(1).memory(64);
    Channel& to = cluster.channel(0, 1);
    std::uint64_t value = 0, arrived = 0;
    cluster.node(1).on_am(
        5,
        [](void* arg, void* data, std::size_t, unsigned) {
            std::memcpy(arg, data, sizeof(std::uint64_t));
            return Status::ok;
        },
        &arrived);
    const auto put = [&] {
        ++value;
        return cluster.until(
            [&] {
                cluster.world.select(0);
                return Interface::put_short(to, &value, sizeof value, theirs.address(), theirs.keys) == Status::ok;
            },
            20 * kMs);
    };
    const auto say = [&] {
        return cluster.until(
            [&] {
                cluster.world.select(0);
                return Interface::am_short(to, 5, value, nullptr, 0) == Status::ok;
            },
            20 * kMs);
    };
    cluster.sleep(1, true);
    const std::uint64_t written = of_kind(cluster.node(0), Kind::rc).written;
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(put());
    BOOST_TEST(of_kind(cluster.node(0), Kind::rc).written > written);
    if (fenced_before) (void)Interface::fence(to);
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    BOOST_TEST(cluster.until([&] { return of_kind(cluster.node(0), Kind::rc).up == 0; }, 50 * kMs)); // by this side
    const std::uint64_t by_dc = of_kind(cluster.node(0), Kind::dc).written;
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(put());
    cluster.run_for(kMs);
    BOOST_TEST(of_kind(cluster.node(0), Kind::dc).written > by_dc);
    BOOST_TEST(std::memcmp(theirs.data, &value, sizeof value) == 0);
    (void)Interface::fence(to);
    BOOST_TEST(say());
    cluster.sleep(1, false);
    BOOST_TEST(cluster.until([&] { return arrived == value; }, 50 * kMs));
    BOOST_REQUIRE(settles(cluster, 0, 4));
    BOOST_TEST(again(cluster) == 0u);
    BOOST_TEST(traffic(cluster, 2) == "");
}

// A pool for one peer of three: who has not been wanted for longest goes.
BOOST_AUTO_TEST_CASE(pool_of_one) {
    channel::Config small = config(2);
    std::vector<channel::Config> configs(4, config());
    configs[0] = small;
    Cluster cluster("four-path", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    for (unsigned from = 1; from < 4; ++from) {
        BOOST_TEST((serve(cluster, 0, from, Service::rc) == Status::ok));
        BOOST_TEST(cluster.until([&] { return of_kind(cluster.node(from), Kind::rc).up > 0; }));
        BOOST_TEST((serve(cluster, 0, from, Service::shared) == Status::ok));
        cluster.run_for(10 * kMs);
    }
    const OfKind now = of_kind(cluster.node(0), Kind::rc);
    BOOST_TEST(now.up <= 2u);
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Who has as many as are allowed says no; the wish is repeated by whom it concerns.
BOOST_AUTO_TEST_CASE(limits) {
    channel::Config limited = config();
    limited.adapt.max_rc = 1; // a peer, on two paths
    std::vector<channel::Config> configs(4, config());
    configs[0] = limited;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    const auto refused = [&](unsigned i) { return statistics(cluster.node(i)).channels; };
    for (unsigned from = 1; from < 4; ++from) // their sources' limit
        BOOST_TEST((serve(cluster, from, 0, Service::rc) == Status::ok));
    unsigned taken = 0, no = 0;
    cluster.run_for(20 * kMs);
    for (unsigned i = 1; i < 4; ++i)
        for (const auto& channel : refused(i)) {
            taken += channel.service.ours == std::string("rc") && channel.service.answered;
            no += channel.service.refused;
        }
    BOOST_TEST(taken == 1u);
    BOOST_TEST(no == 2u);
    BOOST_TEST(of_kind(cluster.node(0), Kind::rc).up == 2u);
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok || serve(cluster, 0, 2, Service::rc) == Status::ok));
    BOOST_TEST(traffic(cluster, 2) == "");
}

namespace {
// All wishes are answered, and both sides have the same paths.
std::string at_rest(Cluster& cluster) {
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : statistics(cluster.node(i)).channels) {
            if (!channel.service.answered) return "a wish is not answered";
            for (const auto& path : channel.paths)
                if (path.recovery != std::string("up") && path.recovery != std::string("absent"))
                    return "node " + std::to_string(i) + ": a path is " + path.recovery;
        }
    const OfKind rc = of_kind(cluster, Kind::rc);
    return rc.up + rc.absent == rc.paths ? "" : "some paths of RC are neither up nor absent";
}
} // namespace

// Traffic of all kinds while RC comes and goes.
BOOST_DATA_TEST_CASE(switches_under_traffic,
                     boost::unit_test::data::make({0u, 4u, 128u}) * boost::unit_test::data::make({1u, 2u, 3u}), pool,
                     seed) {
    channel::Config c = config(pool);
    c.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    c.recovery.watch_interval = 10'000'000; // nothing is to fail
    c.reliability = {};
    Cluster cluster(seed == 3 ? "four-path" : "two-rail", 3, c, {.seed = seed});
    Stress stress(cluster, {.seed = seed});
    Switches switches(cluster, seed, 100'000, {Service::rc, Service::shared});
    BOOST_TEST(stress.run());
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(switches.made > 20u);
    switches.over = true;
    BOOST_TEST(of_kind(cluster, Kind::rc).written > 0u);
    cluster.after_progress = {};
    cluster.run_for(100 * kMs);
    BOOST_TEST(at_rest(cluster) == "");
    BOOST_TEST(of_kind(cluster, Kind::rc).failures == 0u);
}

// Likewise while everything fails and comes back.
BOOST_DATA_TEST_CASE(switches_and_faults,
                     boost::unit_test::data::make({0u, 128u}) *
                         boost::unit_test::data::make({1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}),
                     pool, seed) {
    channel::Config c = config(pool);
    c.recovery.packet_numbers = seed % 3 != 0; // else markers decide
    c.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    Cluster cluster("two-rail", 2, c, {.seed = seed});
    Stress stress(cluster, {.seed = seed, .operations = 1500, .slot = 1 << 18, .constant = 1 << 18});
    Faults faults(cluster, seed);
    Switches switches(cluster, seed, 300'000, {Service::rc, Service::shared});
    BOOST_TEST(stress.run(4'000'000'000));
    faults.over = true;
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(faults.begun > 3u);
    BOOST_TEST(switches.made > 3u);
    switches.over = true;
    cluster.after_progress = {};
    BOOST_TEST(cluster.until([&] { return at_rest(cluster).empty(); }, 500 * kMs));
    BOOST_TEST(at_rest(cluster) == "");
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// The server waits for the life that it has been offered. The client's half goes with its adapter, and nobody wants it
// any more then: the server must hear of that.
BOOST_DATA_TEST_CASE(forgotten_offer, boost::unit_test::data::make({1u, 2u, 3u, 4u}), seed) {
    Cluster cluster("two-rail", 2, config(0), {.seed = seed});
    BOOST_TEST(traffic(cluster, seed) == "");
    const unsigned client = cluster.channel(0, 1).connection.server;
    const auto waits = [&](unsigned at) {
        const auto now = statistics(cluster.node(at));
        for (const auto& path : now.channels.at(0).paths)
            if (path.recovery == std::string("half")) return true;
        return false;
    };
    BOOST_TEST((serve(cluster, seed % 2, 1 - seed % 2, Service::rc) == Status::ok));
    BOOST_REQUIRE(cluster.until([&] { return waits(1 - client); }, 10 * kMs));
    for (const char* const device : {":softhca_0", ":softhca_1"})
        cluster.world.fault("adapter-death " + std::to_string(client) + device);
    cluster.run_for(kMs / 10);
    BOOST_TEST((serve(cluster, seed % 2, 1 - seed % 2, Service::shared) == Status::ok));
    cluster.run_for(kMs);
    for (const char* const device : {":softhca_0", ":softhca_1"})
        cluster.world.fault("adapter-revive " + std::to_string(client) + device);
    BOOST_TEST(cluster.until([&] { return at_rest(cluster).empty(); }, 500 * kMs));
    BOOST_TEST(at_rest(cluster) == "");
    BOOST_TEST(of_kind(cluster, Kind::rc).up == 0u);
    BOOST_TEST(traffic(cluster, seed + 10) == "");
}

// RC only over pairs of rails that DC uses: when a late port has a path of its own, what was there in its place is
// spare.
BOOST_DATA_TEST_CASE(routes_of_use, boost::unit_test::data::make({0u, 1u}), who) {
    const std::string port = std::to_string(who) + ":softhca_1:1";
    Cluster cluster("two-rail", 2, config(), {}, {}, {"port down " + port});
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST(of_kind(cluster, Kind::dc).up == 4u);
    cluster.world.fault("port up " + port);
    BOOST_TEST(cluster.until([&] { return of_kind(cluster, Kind::dc).up == 6; }, 100 * kMs));
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    cluster.run_for(100 * kMs);
    BOOST_TEST(of_kind(cluster, Kind::rc).up == 4u);
    BOOST_TEST(of_kind(cluster, Kind::rc).spare == 0u);
    const std::uint64_t written = of_kind(cluster, Kind::rc).written;
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(of_kind(cluster, Kind::rc).written > written);
    // It comes when it is of use.
    cluster.world.fault("port down " + port);
    BOOST_TEST(traffic(cluster, 3) == "");
    cluster.world.fault("port up " + port);
    BOOST_TEST(traffic(cluster, 4) == "");
}

// A peer that does not know such places has DC alone; one of whose kinds are fixed has those.
BOOST_AUTO_TEST_CASE(sides_that_differ) {
    for (const unsigned mixed : {0u, 1u})
        for (const path::Kinds kinds : {path::Kinds::none, path::Kinds::both}) {
            std::vector<channel::Config> configs(2, config());
            configs[mixed].adapt.mode = channel::AdaptConfig::Mode::off;
            configs[mixed].kinds = kinds;
            Cluster cluster("two-rail", configs);
            BOOST_TEST(traffic(cluster, 3) == "");
            BOOST_TEST(of_kind(cluster, Kind::dc).up == 4u);
            if (kinds == path::Kinds::none) {
                BOOST_TEST(of_kind(cluster, Kind::rc).paths == 0u);
                for (unsigned i = 0; i < 2; ++i)
                    BOOST_TEST((serve(cluster, i, 1 - i, Service::rc) == Status::unsupported));
            }
            BOOST_TEST(traffic(cluster, 4) == "");
        }
}

// With paths of its own for reads.
BOOST_AUTO_TEST_CASE(split_reads) {
    channel::Config c = config(0);
    c.paths.split_reads = true;
    Cluster cluster("two-rail", 2, c);
    BOOST_TEST(traffic(cluster, 1) == "");
    const unsigned places = of_kind(cluster, Kind::rc).paths;
    BOOST_TEST(places == 8u);
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 8, 0));
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 0, 8));
    BOOST_TEST(traffic(cluster, 3) == "");
}

// A peer that computes is asked for acknowledgments less and less often: each takes one of its receives.
BOOST_AUTO_TEST_CASE(asks_of_a_peer_that_computes) {
    Cluster cluster("two-rail", 2, config(0));
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 4, 0));
    Channel& to = cluster.channel(0, 1);
    const auto asked = [&] { return statistics(cluster.node(0)).channels[0].acks_sent; };
    cluster.sleep(1, true);
    cluster.world.select(0);
    for (unsigned i = 0; i < 8; ++i) BOOST_TEST((Interface::am_short(to, 5, 0, nullptr, 0) == Status::ok));
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    const std::uint64_t before = asked();
    cluster.run_for(300 * kMs);
    BOOST_TEST_MESSAGE(asked() - before << " times");
    BOOST_TEST(asked() > before);
    BOOST_TEST(asked() - before <= 12u);
    cluster.sleep(1, false);
    BOOST_TEST(settles(cluster, 0, 4));
    BOOST_TEST(again(cluster) == 0u);
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Nothing else may stand for what was written by RC: it is kept until that has been seen.
BOOST_AUTO_TEST_CASE(kept_until_it_is_seen) {
    channel::Config c = config(0);
    c.read_back = channel::ReadBack::always;
    Cluster cluster("two-rail", 2, c);
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::rc) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 4, 0));
    Node::Memory theirs = cluster.node(1).memory(64);
    Channel& to = cluster.channel(0, 1);
    std::uint64_t value = 0;
    const auto put = [&] {
        ++value;
        return cluster.until(
            [&] {
                cluster.world.select(0);
                return Interface::put_short(to, &value, sizeof value, theirs.address(), theirs.keys) == Status::ok;
            },
            20 * kMs);
    };
    cluster.sleep(1, true);
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(put());
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    bool damaged = false;
    (void)cluster.until([&] { return damaged |= to.wiring.unsettled.damaged != 0, false; }, 20 * kMs);
    BOOST_TEST(!damaged);
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(put());
    BOOST_TEST(!to.wiring.unsettled.damaged);
    cluster.sleep(1, false);
    BOOST_TEST(traffic(cluster, 2) == ""); // it flushes
    BOOST_TEST(settles(cluster, 0, 4));
    BOOST_TEST(traffic(cluster, 3) == "");
}
