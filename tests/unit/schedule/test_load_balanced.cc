// Load-balanced fragmentation, by numbers worked out by hand (dissertation 5.2.2, 5.2.3).
#define BOOST_TEST_MODULE schedule_load_balanced
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

std::vector<PathSetup> paths(std::initializer_list<std::pair<double, double>> rate_and_latency) {
    std::vector<PathSetup> setup;
    for (const auto& [rate, latency] : rate_and_latency) setup.push_back({.nominal_rate = rate, .latency = latency});
    return setup;
}

// Path and length of each stripe.
using Parts = std::vector<std::pair<unsigned, std::uint64_t>>;
Parts parts(const Plan& plan) {
    Parts out;
    for (unsigned k = 0; k < plan.count; ++k) out.emplace_back(plan.stripes[k].path, plan.stripes[k].length);
    return out;
}

} // namespace

// All end after (32768 + 8192) / 2 ns.
BOOST_AUTO_TEST_CASE(who_is_ready_later_gets_less) {
    Peer peer("load_balanced", paths({{1, 0}, {1, 8192}}));
    (void)peer.put(32768);
    BOOST_TEST((parts(peer.plan) == Parts{{0, 20480}, {1, 12288}}));
}

BOOST_AUTO_TEST_CASE(the_faster_one_first) {
    Peer peer("load_balanced", paths({{0.5, 0}, {1, 0}}));
    (void)peer.put(49152);
    BOOST_TEST((parts(peer.plan) == Parts{{1, 32768}, {0, 16384}}));
}

// A fifth of 20480 bytes is the least stripe, a fifth of 20416 is less.
BOOST_AUTO_TEST_CASE(who_would_get_less_than_the_minimum_is_left_out) {
    for (const auto& [size, count] : {std::pair(20480u, 2u), {20416u, 1u}}) {
        Peer peer("load_balanced", paths({{1, 0}, {0.25, 0}}));
        (void)peer.put(size);
        BOOST_TEST(peer.plan.count == count, size);
    }
}

// 16384 bytes are read over path 0. As one load with them it gets (32768 - 16384) / 2, else as much as the other.
BOOST_AUTO_TEST_CASE(one_account_or_two) {
    for (const bool joint : {false, true}) {
        Peer peer(joint ? "load_balanced:accounts=1" : "load_balanced", paths({{1, 0}, {1, 0}}));
        peer.scheduler.place_on(0, Direction::read, 16384);
        (void)peer.put(32768);
        BOOST_TEST((parts(peer.plan) == (joint ? Parts{{1, 24576}, {0, 8192}} : Parts{{0, 16384}, {1, 16384}})));
        // Likewise what is written counts for a read.
        Peer reader(joint ? "load_balanced:accounts=1" : "load_balanced", paths({{1, 0}, {1, 0}}));
        reader.scheduler.place_on(0, Direction::write, 16384);
        (void)reader.scheduler.plan({32768, MessageKind::get}, reader.plan);
        BOOST_TEST((parts(reader.plan) == (joint ? Parts{{1, 24576}, {0, 8192}} : Parts{{0, 16384}, {1, 16384}})));
    }
}

// A path that is too slow for the message is tried when its rate is older than probe_interval, with as much as teaches
// a rate and one alignment, if that is no more than half of what the others have.
BOOST_AUTO_TEST_CASE(a_stale_path_gets_a_piece) {
    const auto plan = [](std::uint64_t size, Nanos age = 1'000'001, std::uint64_t under_way = 0) {
        Peer peer("load_balanced:min_stripe=1K,stripe_threshold=1K,probe_interval=1ms", paths({{1, 0}, {0.001, 0}}));
        constexpr Nanos kDone = 10'000'000;
        peer.scheduler.observe({1, Direction::write, 8192, 8192, kDone - 8'192'000, kDone});
        peer.scheduler.observe({0, Direction::write, 8192, 8192, kDone + age - 8192, kDone + age});
        if (under_way) peer.scheduler.place_on(1, Direction::write, under_way);
        (void)peer.put(size, TrafficHint::none, kDone + age);
        return parts(peer.plan);
    };
    BOOST_TEST((plan(16384) == Parts{{0, 16384 - 4160}, {1, 4160}}));
    BOOST_TEST((plan(8320) == Parts{{0, 4160}, {1, 4160}}));
    BOOST_TEST((plan(8319) == Parts{{0, 8319}}));
    BOOST_TEST((plan(16384, 1'000'000) == Parts{{0, 16384}}));
    BOOST_TEST((plan(16384, 1'000'001, 1) == Parts{{0, 16384}})); // it will be measured anyway
}
