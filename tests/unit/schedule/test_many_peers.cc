// Messages that go whole to many peers in turn: routes of one peer are never measured at the same time, and a link of
// the fabric is slow on some route to some of them.
#define BOOST_TEST_MODULE schedule_many_peers
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <deque>
#include <random>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

constexpr unsigned kPeers = 24, kRoutes = 4;
constexpr std::uint64_t kSize = 65536;  // bytes of a message
constexpr double kDear = 20000;         // ns of the processor for a descriptor, so that nothing is cut
constexpr Nanos kComputes = 10'000'000; // ns between two rounds: longer than samples of a peer can be compared

std::vector<PathSetup> routes_of_a_port() {
    std::vector<PathSetup> setup = equal_paths(kRoutes);
    for (PathSetup& route : setup) route.rail_rate = 1;
    return setup;
}

// A process and its peers. Routes give their link's rate, less a scatter of 20 %; in each round all of
// them give some part of it, as if our processor had less time.
struct World {
    World() {
        for (unsigned p = 0; p < kPeers; ++p) peers.emplace_back("default", routes_of_a_port(), p, &commons);
    }
    static bool is_slow(unsigned peer, unsigned route) { return peer % 3 == 0 && route == (peer / 3) % kRoutes; }
    // One message to each peer.
    void round() {
        std::uniform_real_distribution<double> scatter(1, 1.2), common(1, 3);
        const double all = common(random);
        for (unsigned p = 0; p < kPeers; ++p) {
            Peer& peer = peers[p];
            const Message message{
                .size = kSize, .kind = MessageKind::put, .now = now, .open = 4, .descriptor_time = kDear};
            BOOST_REQUIRE(peer.scheduler.plan(message, peer.plan) == Outcome::stripes);
            Nanos last = now;
            for (unsigned k = 0; k < peer.plan.count; ++k) {
                const Stripe& s = peer.plan.stripes[k];
                const double part = link_is_slow && is_slow(p, s.path) ? 8 : 1;
                const auto end = now + 2000 + Nanos(double(s.length) * all * scatter(random) * part);
                if (is_slow(p, s.path)) on_slow += s.length, pieces += s.length < kSize;
                last = std::max(last, end);
                peer.scheduler.observe({.path = s.path,
                                        .direction = Direction::write,
                                        .bytes = s.length,
                                        .settled = s.length,
                                        .t_post = now,
                                        .t_done = end,
                                        .whole = s.length < kSize ? kSize : 0});
            }
            now = last + 1000;
        }
        now += kComputes;
    }
    void rounds(unsigned n) {
        on_slow = pieces = 0;
        while (n-- > 0) round();
    }

    Commons commons; // before its users
    std::deque<Peer> peers;
    std::mt19937 random{1};
    Nanos now = 1'000'000;
    bool link_is_slow = true;
    std::uint64_t on_slow = 0, pieces = 0; // since rounds() began: bytes, and parts of messages
};

constexpr std::uint64_t kEach = kPeers / 3 * kSize / kRoutes; // bytes of a round for those routes if all have as much

} // namespace

BOOST_AUTO_TEST_CASE(a_slow_link_is_found_without_comparing_at_once) {
    World world;
    world.rounds(12);
    world.rounds(12);
    BOOST_TEST(world.on_slow < 12 * kEach / 4);
}

BOOST_AUTO_TEST_CASE(a_common_slowdown_is_no_routes) {
    World world;
    world.link_is_slow = false;
    world.rounds(12);
    world.rounds(24);
    BOOST_TEST(world.on_slow > 24 * kEach * 3 / 4);
    BOOST_TEST(world.on_slow < 24 * kEach * 4 / 3);
}

BOOST_AUTO_TEST_CASE(one_slow_route_is_tried_at_a_time) {
    World world;
    world.rounds(20);
    const Nanos from = world.now;
    world.rounds(60);
    const auto intervals = double(world.now - from) / world.peers[0].config.probe_interval;
    BOOST_TEST_INFO(world.pieces << " tries in " << intervals << " intervals");
    BOOST_TEST(double(world.pieces) > intervals / 2);
    BOOST_TEST(double(world.pieces) < 2 * intervals);
}

BOOST_AUTO_TEST_CASE(a_link_that_is_mended_is_used_again_by_all) {
    World world;
    world.rounds(20);
    world.link_is_slow = false;
    world.rounds(300);
    world.rounds(24);
    BOOST_TEST(world.on_slow > 24 * kEach / 2);
}

// A try is measured beside the route that carries the rest. That fades, and then the link is found once more.
BOOST_AUTO_TEST_CASE(a_link_that_was_mended_is_found_again) {
    World world;
    world.rounds(20);
    world.link_is_slow = false;
    world.rounds(300);
    world.link_is_slow = true;
    world.rounds(40);
    world.rounds(24);
    BOOST_TEST(world.on_slow < 24 * kEach / 2);
}

// Peers take turns, also if the first one would always be in time.
BOOST_AUTO_TEST_CASE(each_peer_tries_in_its_turn) {
    Commons commons;
    const double interval = 25e6;
    std::array<unsigned, 3> tries{};
    for (Nanos now = 1; now < 3'000'000'000; now += 30'000'000)
        for (unsigned peer = 0; peer < tries.size(); ++peer)
            if (commons.may_try(now, interval, peer)) {
                ++tries[peer];
                commons.tried_at = now;
                commons.tried_by = peer;
            }
    BOOST_TEST(tries[0] > 10u);
    BOOST_TEST(tries[1] > 10u);
    BOOST_TEST(tries[2] > 10u);
}

// What completes on a path that is not used any more is a sample, too.
BOOST_AUTO_TEST_CASE(a_path_that_is_not_usable_completes) {
    Commons commons;
    Peer peer("default", routes_of_a_port(), 0, &commons);
    Nanos now = 1'000'000;
    for (int i = 0; i < 8; ++i, now += 100'000) {
        const Message message{.size = kSize, .kind = MessageKind::put, .now = now, .open = 4, .descriptor_time = kDear};
        BOOST_REQUIRE(peer.scheduler.plan(message, peer.plan) == Outcome::stripes);
        BOOST_REQUIRE(peer.plan.count == 1u);
        if (i == 0) BOOST_REQUIRE(peer.scheduler.set_state(peer.plan.stripes[0].path, PathState::suspect));
        peer.done(0, now, now + 2000 + kSize);
    }
    for (unsigned i = 0; i < kRoutes; ++i) BOOST_TEST(std::isfinite(peer.path(i).of(Direction::write).relative));
    double beside = 0;
    (void)commons.pace[unsigned(Direction::write)].learn(-1, now, 1e9, beside);
    BOOST_TEST(std::isfinite(beside));
}

// Else all messages of a program's first round meet on the same part of the fabric.
BOOST_AUTO_TEST_CASE(peers_begin_at_different_routes) {
    World world;
    std::array<unsigned, kRoutes> first{};
    for (Peer& peer : world.peers) {
        const Message message{
            .size = kSize, .kind = MessageKind::put, .now = 1000, .open = 4, .descriptor_time = kDear};
        BOOST_REQUIRE(peer.scheduler.plan(message, peer.plan) == Outcome::stripes);
        BOOST_REQUIRE(peer.plan.count == 1u);
        ++first[peer.plan.stripes[0].path];
    }
    for (const unsigned messages : first) BOOST_TEST(messages == kPeers / kRoutes);
}

// What other peers have shown of our port may be theirs: each new peer finds out, whoever has tried lately.
BOOST_AUTO_TEST_CASE(new_peers_try_what_others_found_slow) {
    std::vector<PathSetup> rails = equal_paths(2);
    rails[1].rail = 1;
    Commons commons;
    Nanos now = 1'000'000;
    std::deque<Peer> peers;
    for (unsigned p = 0; p < 6; ++p) {
        Peer& peer = peers.emplace_back("default", rails, p, &commons);
        for (int i = 0; i < 4; ++i) {
            BOOST_REQUIRE(peer.put(262144, TrafficHint::none, now) == Outcome::stripes);
            Nanos last = now;
            for (unsigned k = 0; k < peer.plan.count; ++k) {
                const Stripe& s = peer.plan.stripes[k];
                const Nanos end = now + 2000 + s.length * (s.path == 1 ? 100 : 1);
                peer.done(k, now, end);
                last = std::max(last, end);
            }
            now = last + 1000;
        }
    }
    now += 100'000'000; // all that was measured is long ago
    const auto tries = [&](Peer& peer) {
        commons.tried_at = now;
        BOOST_REQUIRE(peer.put(262144, TrafficHint::none, now) == Outcome::stripes);
        return peer.plan.count > 1;
    };
    Peer last("default", rails, 6, &commons);
    BOOST_TEST(tries(last));
    BOOST_TEST(!tries(peers[0]));
}
