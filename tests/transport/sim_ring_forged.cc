// Somebody who has got hold of a ring's keys writes over messages that have arrived there, and that nobody has looked
// at yet. Their writes have succeeded, so no path fails.
#define BOOST_TEST_MODULE transport_ring_forged
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <random>
#include <set>

#include "numbered.h"
#include "ring_nodes.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using Call = Numbered::Call;

namespace {
// Writes over one of the messages that have arrived in the ring of `at` and were not looked at yet. False: there is
// none.
bool overwrite(channel::Channel& at, std::mt19937_64& random) {
    channel::RingIn* const ring = at.rings ? at.rings->in.get() : nullptr;
    if (!ring || ring->state != channel::RingIn::State::open) return false;
    const std::uint32_t first = static_cast<std::uint32_t>(random() % 4);
    for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t sequence = at.expected + (first + i) % 4;
        std::byte* message;
        std::uint32_t length;
        if (link::look_into_ring(ring->memory, ring->shape, ring->key, sequence, 16, message, length) !=
            link::RingEntry::message)
            continue;
        const std::uint64_t anything = random();
        std::memcpy(ring->memory + ring->shape.end_of(sequence) - link::kRingTail, &anything, sizeof anything);
        return true;
    }
    return false;
}

// Programs look all the time; here they do when something happens, and time stands still where nothing does.
void look(Cluster& cluster) {
    for (unsigned i = 0; i < 15; ++i) {
        cluster.world.at(cluster.world.now() + 10 * kMs, [] {});
        cluster.run_for(10 * kMs);
        cluster.settle_all();
    }
}
} // namespace

// Each message comes once, whole and in order, and no path fails for it; after an attack there is another ring, with
// another key. Over RC and over DC; while ports flap, too.
BOOST_DATA_TEST_CASE(overwritten,
                     boost::unit_test::data::make({false, true}) * boost::unit_test::data::make({false, true}) *
                         boost::unit_test::data::make({1u, 2u, 3u}),
                     by_rc, flapping, seed) {
    constexpr unsigned kRounds = 4, kMessages = 200, kAttacks = 3;
    Cluster cluster("two-rail", 2, config({16, 256}), {.seed = seed});
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    std::mt19937_64 random(seed);
    Numbered numbered(cluster);
    const auto post = [&] { return numbered.post(1, 0, 8 + random() % 200, Call::am_short); };
    BOOST_REQUIRE(cluster.until(post));
    BOOST_REQUIRE(cluster.until([&] { return numbered.all_there(); }));
    BOOST_TEST((serve(cluster, 0, 1, by_rc ? Service::rc : Service::dc_ring) == Status::ok));
    unsigned attacks = 0;
    std::set<std::uint64_t> keys;
    for (unsigned round = 0; round < kRounds; ++round) {
        BOOST_REQUIRE(settles(cluster, 1, 60'000 * kMs)); // each comes later than the one before
        channel::Channel& receiver = cluster.channel(0, 1);
        BOOST_TEST(keys.insert(receiver.rings->in->key).second);
        if (flapping) {
            const std::string port = std::to_string(random() % 2) + ":softhca_" + std::to_string(random() % 2) + ":1";
            const Nanos down = cluster.world.now() + static_cast<Nanos>(random() % 200'000);
            cluster.world.at(down, [&cluster, port] { cluster.world.fault("port down " + port); });
            cluster.world.at(down + 1'000 + static_cast<Nanos>(random() % 500'000),
                             [&cluster, port] { cluster.world.fault("port up " + port); });
        }
        unsigned done = 0;
        for (unsigned i = 0; i < kMessages; ++i) {
            BOOST_REQUIRE(cluster.until(post, 1'000 * kMs));
            cluster.run_for(static_cast<Nanos>(random() % 2'000));
            if (random() % 16 || done == kAttacks) continue;
            cluster.sleep(0, true);
            for (unsigned k = 0; k < 8; ++k) (void)post();
            cluster.run_for(20'000);
            done += overwrite(receiver, random);
            cluster.sleep(0, false);
            look(cluster);
        }
        attacks += done;
        BOOST_REQUIRE(cluster.until([&] { return numbered.all_there(); }, 1'000 * kMs));
        BOOST_TEST(!numbered.wrong);
    }
    BOOST_TEST(attacks >= kRounds);
    BOOST_TEST(of_rings(cluster.node(1)).again >= attacks);
    if (!flapping) {
        BOOST_TEST(statistics(cluster.node(0)).rings.foreign >= kRounds);
        for (const auto& channel : statistics(cluster.node(1)).channels)
            for (const auto& path : channel.paths) BOOST_TEST(path.failures == 0u);
    }
    BOOST_TEST(traffic(cluster, seed) == "");
}

// A source that computes does not answer; a receiver that computes has not looked. Nothing goes again by mistake where
// all is acknowledged in time, and nothing comes twice where it is not.
BOOST_DATA_TEST_CASE(taken_back_without_harm, boost::unit_test::data::make({false, true}), busy) {
    Cluster cluster("two-rail", 2, config({16, 256}));
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    Numbered numbered(cluster);
    const auto post = [&] { return numbered.post(1, 0, 8, Call::am_short); };
    BOOST_REQUIRE(cluster.until(post));
    BOOST_REQUIRE(cluster.until([&] { return numbered.all_there(); }));
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    cluster.sleep(0, busy);
    const std::uint64_t before = of_rings(cluster.node(1)).messages;
    for (unsigned i = 0; i < 8; ++i) BOOST_REQUIRE(cluster.until(post));
    BOOST_TEST(of_rings(cluster.node(1)).messages > before);
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok)); // takes the ring back
    cluster.run_for(50 * kMs);
    cluster.sleep(0, false);
    BOOST_TEST(cluster.until([&] { return numbered.all_there(); }, 1'000 * kMs));
    BOOST_TEST(!numbered.wrong);
    if (!busy) BOOST_TEST(of_rings(cluster.node(1)).again == 0u);
    BOOST_TEST(traffic(cluster, 1) == "");
}
