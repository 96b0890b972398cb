// What the default policy weighs against what: the edges, worked out by hand.
#define BOOST_TEST_MODULE schedule_default_costs
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

constexpr Direction kWrite = Direction::write;

std::vector<PathSetup> rails(std::initializer_list<double> rates) { // each has a path
    std::vector<PathSetup> setup;
    for (const double rate : rates)
        setup.push_back({.nominal_rate = rate, .latency = 2000, .rail = static_cast<std::uint8_t>(setup.size())});
    return setup;
}

struct Case {
    std::uint64_t bytes;
    double descriptor = 0; // ns
    double open = 0;       // operations under way to all peers
    MessageKind kind = MessageKind::put;
    bool shares_markers = false;
};
unsigned stripes(const Case& c, const std::vector<PathSetup>& setup = rails({1, 1}),
                 const std::string& text = "default") {
    Peer peer(text, setup);
    (void)peer.scheduler.plan({c.bytes, c.kind, TrafficHint::none, 1000, c.open, c.descriptor, c.shares_markers},
                              peer.plan);
    return peer.plan.count;
}

} // namespace

// 16384 bytes end 8192 ns sooner with two stripes. The second one costs its descriptor and a marker, which are three.
// Who reads collects it instead, and pays one and a half. With eleven under way one is the last with probability 1/11.
BOOST_AUTO_TEST_CASE(the_price_of_a_stripe) {
    BOOST_TEST(stripes({16384, 2730}) == 2u);
    BOOST_TEST(stripes({16384, 2731}) == 1u);
    BOOST_TEST(stripes({16384, 5461, 0, MessageKind::get}) == 2u);
    BOOST_TEST(stripes({16384, 5462, 0, MessageKind::get}) == 1u);
    BOOST_TEST(stripes({16384, 8191.9, 0, MessageKind::put, true}) == 2u); // a marker is due there anyway
    BOOST_TEST(stripes({16384, 8193, 0, MessageKind::put, true}) == 1u);
    BOOST_TEST(stripes({16384, 248, 11}) == 2u);
    BOOST_TEST(stripes({16384, 249, 11}) == 1u);
    // It costs what the user says, at least.
    BOOST_TEST(stripes({16384}, rails({1, 1}), "default:descriptor_cost=8191ns") == 2u);
    BOOST_TEST(stripes({16384}, rails({1, 1}), "default:descriptor_cost=8193ns") == 1u);
}

// A fifth of the message for the slower rail: min_stripe, and half of that below the threshold.
BOOST_AUTO_TEST_CASE(the_least_stripe) {
    BOOST_TEST(stripes({20480}, rails({1, 0.25})) == 2u);
    BOOST_TEST(stripes({20416}, rails({1, 0.25})) == 1u);
    BOOST_TEST(stripes({10240}, rails({1, 0.25})) == 2u);
    BOOST_TEST(stripes({10176}, rails({1, 0.25})) == 1u);
    BOOST_TEST(stripes({16384}, rails({1, 0.25})) == 1u); // from here on it is min_stripe
    BOOST_TEST(stripes({16383}, rails({1, 0.25})) == 2u);
}

// Routes of a port share the risk of a collision: with k of n alike it is 1.5 x scatter x bytes / rate / k. Nothing is
// known of them, so the scatter is 0.5; 65536 bytes take 32768 ns. A further route costs half a descriptor.
BOOST_AUTO_TEST_CASE(the_price_of_a_route) {
    const std::vector<PathSetup> four(4, PathSetup{.nominal_rate = 2, .latency = 2000, .rail = 0, .rail_rate = 2});
    const double risk = 1.5 * 0.5 * 32768;
    const double saved[] = {risk / 2, risk / 6, risk / 12}; // by the second, third and fourth
    for (unsigned k = 0; k < 3; ++k) {
        BOOST_TEST(stripes({65536, 2 * saved[k] - 1}, four) == k + 2);
        BOOST_TEST(stripes({65536, 2 * saved[k] + 1}, four) == k + 1);
    }
}

// A lane lasts for 32 messages, or for the bytes that the slowest path sends in 1 us: with 2 bytes/ns 62 of them are
// one of the 32, in a power of two.
BOOST_AUTO_TEST_CASE(units_of_a_lane) {
    const auto left_after = [](const std::string& text, const std::vector<PathSetup>& setup, std::uint64_t size) {
        Peer peer(text, setup);
        (void)peer.scheduler.place(kWrite, size);
        return peer.scheduler.current(kWrite).lane.left;
    };
    BOOST_TEST(left_after("default", rails({4, 2}), 63) == 31);
    BOOST_TEST(left_after("default", rails({4, 2}), 64) == 30);
    BOOST_TEST(left_after("default", rails({2, 4}), 640) == 21);
    BOOST_TEST(left_after("default", rails({0, 0}), 31) == 31); // 1 byte/ns, if nobody knows
    BOOST_TEST(left_after("default", rails({0, 0}), 32) == 30);
    for (const auto& one_known : {rails({0, 4}), rails({4, 0})}) {
        BOOST_TEST(left_after("default", one_known, 127) == 31);
        BOOST_TEST(left_after("default", one_known, 128) == 30);
    }
    BOOST_TEST(left_after("window_rr:window=32", rails({1, 1}), 1 << 30) == 31);
    Peer peer("default", rails({4, 2}));
    const PathIndex path = peer.scheduler.place(kWrite, 0);
    peer.scheduler.place_rest(path, kWrite, 640);
    BOOST_TEST(peer.scheduler.current(kWrite).lane.left == 21);
}

// It is left for a path that is better by more than 1 us: what waits there, or how long the last messages took beyond
// the least, as far as that is not forgotten (20 ms).
BOOST_AUTO_TEST_CASE(when_a_lane_is_left) {
    for (const auto& [bytes, path] : {std::pair(1000u, 0u), {1001u, 1u}}) {
        Peer peer("default", rails({1, 1}));
        peer.scheduler.place_on(0, kWrite, bytes);
        BOOST_TEST(unsigned{peer.scheduler.place(kWrite, 8)} == path);
    }
    // One of 22 us: an eighth of 20 us more is believed, and a 1024th that it is the route's.
    const double base = 2000 + 20'000.0 / 1024, excess = 4500 - base;
    const double forgotten = 20e6 * (1 - (3000 - base) / excess); // ns until it is 1 us
    for (const int off : {-20'000, 20'000}) {
        Peer peer("default", rails({1, 1}));
        peer.small_done(0, 1'000'000, 1'022'000);
        const Nanos now = 1'022'000 + static_cast<Nanos>(forgotten + off);
        peer.small_done(1, now - 2000, now);
        BOOST_TEST(peer.scheduler.place(kWrite, 8) == (off < 0 ? 1 : 0), off);
    }
}

// Nothing is looked for where the lane gives what its link can.
BOOST_AUTO_TEST_CASE(a_good_lane_is_kept) {
    Peer peer("default", rails({1, 1}));
    for (Nanos now = 100'000'000; now < 101'000'000; now += 10'000) {
        const PathIndex path = peer.scheduler.place(kWrite, 6000);
        BOOST_TEST(path == 0);
        peer.small_done(path, now, now + 2000 + 6000, 6000);
    }
}

// What a message itself takes counts as well: 4096 bytes need 4 us less over the faster link.
BOOST_AUTO_TEST_CASE(a_faster_link_for_longer_messages) {
    for (const std::uint64_t size : {64u, 4096u}) {
        Peer peer("default", rails({0.5, 1}));
        BOOST_TEST(peer.scheduler.place(kWrite, size) == 0);
        peer.small_done(0, 1000, 1000 + 2000 + 2 * size, size);
        peer.scheduler.set_spare(0); // the lane ends
        BOOST_TEST(peer.scheduler.place(kWrite, size) == (size < 4096 ? 0 : 1), size);
    }
}

// Of ports that are alike, a message that goes whole takes that of the lane.
BOOST_AUTO_TEST_CASE(whole_messages_take_the_rail_of_the_lane) {
    for (unsigned seed = 0; seed < 2; ++seed) {
        Peer peer("default:descriptor_cost=1ms", rails({1, 1}), seed);
        (void)peer.put(65536);
        BOOST_TEST(peer.plan.count == 1u);
        BOOST_TEST(peer.plan.stripes[0].path == seed);
    }
}

// Within a node a port gives what its messages show, whatever its link does: stripes save less than they cost.
BOOST_AUTO_TEST_CASE(a_port_is_as_fast_as_its_fastest_route) {
    std::vector<PathSetup> setup = rails({1, 1});
    for (PathSetup& path : setup) path.rail_rate = 1;
    Peer peer("default", setup);
    Nanos now = 1000;
    for (int i = 0; i < 20; ++i, now += 10'000) {
        (void)peer.put(262144, TrafficHint::none, now);
        for (unsigned k = 0; k < peer.plan.count; ++k) peer.done(k, now, now + 300);
    }
    (void)peer.scheduler.plan({262144, MessageKind::put, TrafficHint::none, now, 0, 500}, peer.plan);
    BOOST_TEST(peer.plan.count == 1u);
}

// A slow rail that is in use anyway is not tried.
BOOST_AUTO_TEST_CASE(only_tries_are_remembered) {
    Commons commons;
    Peer peer("default", rails({1, 1}), 0, &commons);
    Nanos now = 1000;
    for (int i = 0; i < 8; ++i) {
        BOOST_REQUIRE(peer.put(262144, TrafficHint::none, now) == Outcome::stripes);
        BOOST_TEST(peer.plan.count == 2u);
        Nanos end = now;
        for (unsigned k = 0; k < peer.plan.count; ++k) {
            const Stripe& stripe = peer.plan.stripes[k];
            const Nanos done = now + 2000 + stripe.length * (stripe.path == 1 ? 4 : 1);
            peer.done(k, now, done);
            end = std::max(end, done);
        }
        now = end + 10'000;
    }
    BOOST_TEST(peer.path(1).of(kWrite).relative < 0.5);
    BOOST_TEST(commons.tried_at == 0u);
}

// A lane without an alternative lasts until a path comes or goes, and one in seven of its operations is measured.
BOOST_AUTO_TEST_CASE(where_there_is_no_choice) {
    Peer peer("default", rails({1, 1}));
    (void)peer.scheduler.place(kWrite, 8);
    BOOST_TEST(!peer.scheduler.current(kWrite).is_fixed());
    BOOST_TEST(peer.scheduler.current(kWrite).teaches());
    BOOST_TEST(peer.scheduler.current(kWrite).teaches());
    peer.scheduler.set_state(0, PathState::down);
    BOOST_TEST(peer.scheduler.place(kWrite, 8) == 1);
    Scheduler::Current& only = peer.scheduler.current(kWrite);
    BOOST_TEST(only.is_fixed());
    std::string taught;
    for (unsigned i = 0; i < 15; ++i) taught += only.teaches() ? 'x' : '.';
    BOOST_TEST(taught == "x......x......x");
    peer.scheduler.set_state(0, PathState::up);
    (void)peer.scheduler.place(kWrite, 8);
    BOOST_TEST(!peer.scheduler.current(kWrite).is_fixed());
}

// A message that took more than twice the least latency, and the slack, ends it. The least one has risen to 2002 ns.
BOOST_AUTO_TEST_CASE(a_late_message_ends_the_lane) {
    for (const auto& [slack, left] : {std::pair(44, 31), {43, 0}}) {
        Peer peer("default:lane_slack=" + std::to_string(slack), rails({1, 1}));
        BOOST_TEST(peer.scheduler.place(kWrite, 0) == 0);
        peer.small_done(0, 10'000, 14'048);
        BOOST_TEST(peer.scheduler.current(kWrite).lane.left == left);
    }
}
