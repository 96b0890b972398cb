// Accounts, delivery times, what is learned from them, states.
#define BOOST_TEST_MODULE schedule_path_table
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include "schedule/two_paths.h"

using namespace ucx_mp::schedule;
using ucx_mp::schedule::test::Two;
namespace tt = boost::test_tools;

namespace {

constexpr Direction kWrite = Direction::write, kRead = Direction::read;
} // namespace

BOOST_AUTO_TEST_CASE(reads_and_writes_with_paths_of_their_own) {
    PathSetup setup[4];
    for (unsigned i = 0; i < 4; ++i) setup[i].writes = i < 2, setup[i].reads = i >= 2;
    PathTable paths(setup);
    BOOST_TEST(paths.apart());
    BOOST_TEST(paths.usable() == 0xfu);
    BOOST_TEST(paths.usable(kWrite) == 0x3u);
    BOOST_TEST(paths.usable(kRead) == 0xcu);
    for (unsigned seed = 0; seed < 4; ++seed) {
        BOOST_TEST(unsigned{paths.home(seed, kWrite)} == seed % 2);
        BOOST_TEST(unsigned{paths.home(seed, kRead)} == 2 + seed % 2);
    }
    paths.set_state(2, PathState::down);
    BOOST_TEST(paths.usable(kRead) == 0x8u);
    BOOST_TEST(!paths.is_usable(1, kRead));
    paths.set_state(3, PathState::suspect); // none left: reads go where they can
    BOOST_TEST(paths.usable(kRead) == 0x3u);
    BOOST_TEST(paths.usable(kWrite) == 0x3u);
    paths.set_state(2, PathState::up);
    BOOST_TEST(paths.usable(kRead) == 0x4u);
    paths.set_state(0, PathState::down);
    paths.set_state(1, PathState::down);
    BOOST_TEST(paths.usable(kWrite) == 0x4u);
    BOOST_TEST(!PathTable(std::span(setup).first(1)).apart()); // one path carries all
}

// Two rails, each with a path of either kind: while those of one kind are spare, or not there, peers share the other
// two evenly. So do those that have lost one of several.
BOOST_AUTO_TEST_CASE(peers_whose_path_is_not_usable_spread_over_the_others) {
    PathTable paths(std::vector<PathSetup>(4));
    for (const PathMask spare : {0xcu, 0x3u}) {
        paths.set_spare(spare);
        unsigned peers[4] = {};
        for (unsigned seed = 0; seed < 8; ++seed) ++peers[paths.home(seed, kWrite)];
        for (unsigned path = 0; path < 4; ++path) BOOST_TEST(peers[path] == (spare >> path & 1 ? 0u : 4u));
    }
}

// Whatever has been lost of so many: who had one of those is spread, the others stay.
BOOST_AUTO_TEST_CASE(peers_of_lost_paths_spread_over_the_others) {
    for (unsigned n = 2; n <= 8; ++n)
        for (PathMask lost = 1; lost + 1 < PathMask{1} << n; ++lost) {
            PathTable paths{std::vector<PathSetup>(n)};
            for (unsigned path = 0; path < n; ++path)
                if (lost >> path & 1) paths.set_state(static_cast<PathIndex>(path), PathState::down);
            const auto left = n - static_cast<unsigned>(std::popcount(lost));
            unsigned peers[8] = {}; // that have moved
            for (unsigned seed = 0; seed < n * left; ++seed) {
                const PathIndex home = paths.home(seed, kWrite);
                if (lost >> seed % n & 1)
                    ++peers[home];
                else
                    BOOST_TEST(home == seed % n);
            }
            for (unsigned path = 0; path < n; ++path)
                BOOST_TEST(peers[path] == (lost >> path & 1 ? 0u : n - left), n << " paths, lost " << lost);
        }
}

BOOST_FIXTURE_TEST_CASE(delivery_time_does_not_count_our_own_queue, Two) {
    // Three stripes posted together: the second waits for the first, and so on.
    BOOST_TEST(settle(65536, 1000, 66536).ns == 65536.0);
    BOOST_TEST(settle(65536, 1000, 132072).ns == 65536.0);
    BOOST_TEST(settle(65536, 1000, 197608).ns == 65536.0);
    // Idle in between: counted from its post.
    BOOST_TEST(settle(65536, 300000, 400000).ns == 100000.0);
}

BOOST_FIXTURE_TEST_CASE(rate_is_without_latency, Two) {
    settle(65536, 10000, 10000 + 2000 + 65536); // idle: latency 2000 + service
    BOOST_TEST(paths[0].of(kWrite).rate == 1.0, tt::tolerance(1e-9));
    // Posted in the last 2 us of the one before: the pipe was empty for 1 us, not for 2.
    settle(65536, 76536, 76536 + 2000 + 65536);
    BOOST_TEST(paths[0].of(kWrite).rate == 1.0, tt::tolerance(1e-9));
    // A quarter of the rate: one sample moves a quarter of the way.
    settle(65536, 77000, 144072 + 262144);
    BOOST_TEST(paths[0].of(kWrite).rate == 0.75 + 0.25 * 0.25, tt::tolerance(1e-9));
}

BOOST_FIXTURE_TEST_CASE(completions_found_at_the_same_time_are_one_sample, Two) {
    settle(16384, 1000, 3000 + 65536);
    BOOST_TEST(paths[0].of(kWrite).rate == 0.25);
    for (int i = 0; i < 3; ++i) settle(16384, 1000, 3000 + 65536);
    BOOST_TEST(paths[0].of(kWrite).rate == 1.0); // 64 KiB in 65536 ns
}

BOOST_FIXTURE_TEST_CASE(bad_time_stamps_settle_and_teach_nothing, Two) {
    paths.place(0, kWrite, 4 * 65536);
    settle(65536, 1000, 68536);
    const double rate = paths[0].of(kWrite).rate;
    BOOST_TEST(!settle(65536, 1000, 60000).measurable());  // before the previous one
    BOOST_TEST(!settle(65536, 90000, 80000).measurable()); // done before posted
    BOOST_TEST(paths[0].of(kWrite).last_done == 68536u);
    BOOST_TEST(paths[0].of(kWrite).rate == rate);
    (void)settle(65536, 90000, 90000);           // no time at all, as within a node
    BOOST_TEST(paths[0].of(kWrite).rate <= 4.0); // capped
    BOOST_TEST(paths[0].of(kWrite).in_flight == 0u);
    settle(1u << 20, 100000, 102001); // 1 ns of service: capped
    BOOST_TEST(std::isfinite(paths[0].of(kWrite).rate));
    BOOST_TEST(paths[0].of(kWrite).rate <= 4.0);
}

BOOST_FIXTURE_TEST_CASE(a_completion_that_covers_others_teaches_no_rate, Two) {
    paths.place(0, kWrite, 16 * 8192);
    paths.settle({0, kWrite, 8192, 16 * 8192, 1000, 150000});
    BOOST_TEST(paths[0].of(kWrite).in_flight == 0u);
    BOOST_TEST(paths[0].of(kWrite).rate == 0.0);
}

BOOST_FIXTURE_TEST_CASE(latency_from_small_messages, Two) {
    for (int i = 0; i < 64; ++i) settle(8, 10000 * (i + 1), 10000 * (i + 1) + 1500);
    BOOST_TEST(paths[0].base_latency == 1500.0);
    BOOST_TEST(paths[0].latency == 1500.0, tt::tolerance(0.01));
    for (int i = 100; i < 164; ++i) settle(8, 100000 * i, 100000 * i + 50000);
    BOOST_TEST(paths[0].latency == 50000.0, tt::tolerance(0.01));
    BOOST_TEST(paths[0].base_latency < 6000.0);
    BOOST_TEST(paths[0].of(kWrite).rate == 0.0);
}

// A path that nobody knows the rate of is as fast as those that are known, on average.
BOOST_AUTO_TEST_CASE(an_unknown_rate) {
    const PathSetup setup[] = {{.nominal_rate = 2}, {.nominal_rate = 4}, {.nominal_rate = 0}};
    PathTable paths(setup);
    BOOST_TEST(paths.rate(2, kWrite) == 3.0);
    BOOST_TEST(paths.set_nominal_rate(1, 6));
    BOOST_TEST(paths.rate(2, kWrite) == 4.0);
    BOOST_TEST(paths.set_nominal_rate(2, 1));
    BOOST_TEST(paths.rate(2, kWrite) == 1.0);
    PathTable unknown(std::span<const PathSetup>(setup).last(1));
    BOOST_TEST(unknown.rate(0, kWrite) == 1.0);
}

// What most messages take, though the processor was away for some of them.
BOOST_FIXTURE_TEST_CASE(a_typical_latency, Two) {
    BOOST_TEST(paths[0].typical_latency() == paths[0].latency); // the first guess
    Nanos now = 10'000'000;
    const auto send = [&](Nanos took) { settle(8, now, now + took), now += took + 1'000; };
    send(900);
    BOOST_TEST(paths[0].typical_latency() == 900.0); // no guess is left
    for (int i = 0; i < 100; ++i) send(i % 4 == 3 ? 3'535'252 : 1'500);
    BOOST_TEST(paths[0].typical_latency() == 1'500.0);
    BOOST_TEST(paths[0].latency > 100'000.0);
    for (unsigned i = 0; i < Path::kRecent; ++i) send(7'000);
    BOOST_TEST(paths[0].typical_latency() == 7'000.0);
    BOOST_TEST(paths[0].latencies == 101u + Path::kRecent);
    paths.forget_latencies();
    BOOST_TEST(paths[0].latencies == 0u);
    BOOST_TEST(paths[0].typical_latency() == paths[0].latency);
    send(800);
    BOOST_TEST(paths[0].typical_latency() == 800.0);
    BOOST_TEST(paths[1].typical_latency() == 2'000.0); // the other one has carried nothing
}

BOOST_FIXTURE_TEST_CASE(reads_and_writes_have_their_own_accounts, Two) {
    paths.place(1, kWrite, 1000);
    paths.place(1, kRead, 500);
    settle(1000, 0, 5000, 1, kRead); // more than there is: an account never goes below 0
    BOOST_TEST(paths[1].of(kRead).in_flight == 0u);
    BOOST_TEST(paths[1].of(kWrite).in_flight == 1000u);
    BOOST_TEST(paths[1].of(kWrite).last_done == 0u);
    paths.cancel(1, kWrite, 400);
    BOOST_TEST(paths[1].of(kWrite).in_flight == 600u);
    paths.place(1, kWrite, UINT64_MAX);
    BOOST_TEST(paths[1].of(kWrite).in_flight == UINT64_MAX);
}

BOOST_FIXTURE_TEST_CASE(ready_is_when_what_is_in_flight_will_be_done, Two) {
    paths.advance(1000000);
    BOOST_TEST(paths.ready(0, kWrite, 1) == 2000.0);
    paths.place(0, kWrite, 100000);
    BOOST_TEST(paths.ready(0, kWrite, 1) == 102000.0);
    paths.advance(1060000);
    BOOST_TEST(paths.ready(0, kWrite, 1) == 42000.0);
    paths.advance(2000000); // overdue: anything may come, but not before its latency
    BOOST_TEST(paths.ready(0, kWrite, 1) == 2000.0);
}

BOOST_FIXTURE_TEST_CASE(only_up_is_usable_and_down_voids_the_accounts, Two) {
    paths.place(0, kWrite, 1000);
    for (PathState s : {PathState::suspect, PathState::probing, PathState::recovering, PathState::down}) {
        paths.set_state(0, s);
        BOOST_TEST(paths.usable() == 2u);
        BOOST_TEST(paths[0].of(kWrite).in_flight == (s == PathState::down ? 0u : 1000u));
    }
    BOOST_TEST(!paths.set_state(2, PathState::up));
    BOOST_TEST(!paths.set_weight(2, 1));
}

BOOST_FIXTURE_TEST_CASE(a_returned_path_grows_a_suspected_one_is_back_at_once, Two) {
    paths.set_state(0, PathState::suspect);
    paths.set_state(0, PathState::up);
    BOOST_TEST(paths[0].ramp == 1.0);
    paths.set_state(0, PathState::down);
    paths.set_state(0, PathState::up);
    BOOST_TEST(paths[0].ramp == PathTable::kReentryRamp);
    BOOST_TEST(paths.rate(0, kWrite) == 1.0 / 16);
    for (int i = 0; i < 13; ++i) settle(8, 1000, 3000);
    BOOST_TEST(paths[0].ramp == 1.0);
}

BOOST_AUTO_TEST_CASE(values_are_sanitised) {
    const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
    const std::vector<PathSetup> setup = {
        {nan, nan, nan}, {-1, -1, -1}, {inf, inf, inf}, {1e300, 1e300, 1e300}, {2, 4, 1}};
    PathTable paths(setup);
    for (PathIndex i : {0, 1, 2}) {
        BOOST_TEST(paths[i].weight == 0.0);
        BOOST_TEST(paths[i].nominal_rate == 0.0);
        BOOST_TEST(paths[i].base_latency == 0.0);
        BOOST_TEST(std::isfinite(paths.rate(i, kWrite)));
    }
    BOOST_TEST(paths[3].weight == 1e12);
    BOOST_TEST(paths.total_weight() == paths[3].weight + 2);
    PathTable many(std::vector<PathSetup>(100));
    BOOST_TEST(many.size() == kMaxPaths);
    BOOST_TEST(many.usable() == ~PathMask{0});
    PathTable none(std::span<const PathSetup>{});
    BOOST_TEST(none.size() == 0u);
}

BOOST_AUTO_TEST_CASE(spare_paths_carry_nothing_while_there_are_others) {
    PathTable paths(std::vector<PathSetup>(3));
    paths.set_spare(0b001);
    BOOST_TEST(paths.is_spare(0));
    for (const Direction d : {Direction::write, Direction::read}) BOOST_TEST(paths.usable(d) == 0b110u);
    BOOST_TEST(paths.usable() == 0b111u);
    paths.set_state(1, PathState::down);
    BOOST_TEST(paths.usable(kWrite) == 0b100u);
    paths.set_state(2, PathState::down);
    BOOST_TEST(paths.usable(kWrite) == 0b001u);
    paths.set_state(1, PathState::up);
    BOOST_TEST(paths.usable(kWrite) == 0b010u);
    paths.set_spare(0);
    BOOST_TEST(paths.usable(kWrite) == 0b011u);
}

// RC takes over from DC, and gives back.
BOOST_AUTO_TEST_CASE(what_a_path_has_shown_of_its_route_is_inherited) {
    PathTable paths(std::vector<PathSetup>(4, PathSetup{.nominal_rate = 1, .state = PathState::down}));
    for (PathIndex i = 0; i < 4; ++i) BOOST_TEST(paths.set_state(i, PathState::up)); // with a small share
    paths.set_spare(0b1100);
    for (Nanos post = 1000; post < 10'000'000; post += 200'000) { // path 1 has a quarter of path 0's rate
        for (PathIndex i = 0; i < 2; ++i) paths.place(i, kWrite, 32768);
        paths.settle({0, kWrite, 32768, 32768, post, post + 2000 + 32768});
        paths.settle({1, kWrite, 32768, 32768, post, post + 2000 + 4 * 32768});
    }
    paths.place(1, kWrite, 8192);
    BOOST_TEST(paths[1].of(kWrite).relative < 0.6);
    for (const auto& [to, from] : {std::pair<PathIndex, PathIndex>{2, 0}, {3, 1}}) {
        paths.inherit(to, from);
        BOOST_TEST(paths[to].of(kWrite).rate == paths[from].of(kWrite).rate);
        BOOST_TEST(paths[to].of(kWrite).relative == paths[from].of(kWrite).relative);
        BOOST_TEST(paths[to].ramp == 1.0);
        BOOST_TEST(paths[to].of(kWrite).in_flight == 0u);
        BOOST_TEST(paths[to].latencies == 0u); // its own
        BOOST_TEST(paths[to].of(kRead).rate == 0.0);
    }
    paths.settle({3, kWrite, 32768, 32768, 20'000'000, 20'000'000 + 2000 + 32768});
    const double newer = paths[3].of(kWrite).rate;
    paths.inherit(3, 1); // older
    BOOST_TEST(paths[3].of(kWrite).rate == newer);
    paths.inherit(1, 3);
    BOOST_TEST(paths[1].of(kWrite).rate == newer);
    paths.inherit(9, 1), paths.inherit(1, 9); // there is none
}

BOOST_AUTO_TEST_CASE(paths_of_a_rail_have_no_more_than_the_rail) {
    std::vector<PathSetup> setup(5, PathSetup{.nominal_rate = 1, .rail = 1, .rail_rate = 1});
    setup[4].rail = 0;
    PathTable paths(setup);
    double rate[kMaxPaths];
    paths.rates(paths.usable(), kWrite, rate);
    for (unsigned i = 0; i < 4; ++i) BOOST_TEST(rate[i] == 0.25);
    BOOST_TEST(rate[4] == 1.0);
    paths.settle({0, kWrite, 65536, 65536, 1000, 1000 + 131072}); // below: nothing to scale
    paths.set_state(2, PathState::down);
    paths.set_state(3, PathState::down);
    paths.rates(0b00011, kWrite, rate);
    BOOST_TEST(rate[0] + rate[1] == 1.0, tt::tolerance(1e-12));
    BOOST_TEST(rate[0] < 0.6 * rate[1]);
    // Without a known rate of the rail nothing is scaled.
    PathTable unknown(std::vector<PathSetup>(4, PathSetup{.nominal_rate = 1}));
    unknown.rates(unknown.usable(), kWrite, rate);
    BOOST_TEST(rate[3] == 1.0);
}

// Collisions that hit each path in turn leave all alike; a route that is slow each time is told, with little scatter.
BOOST_AUTO_TEST_CASE(paths_are_compared_with_those_measured_with_them) {
    Two collisions, hot;
    for (unsigned i = 0; i < 100; ++i) {
        const Nanos post = 1000000 + i * 100000;
        for (PathIndex path : {0, 1}) {
            const Nanos fast = post + 2000 + 8192, slow = post + 2000 + 4 * 8192;
            collisions.settle(8192, post, (i + path) % 2 ? fast : slow, path);
            hot.settle(8192, post, path ? fast : slow, path);
        }
    }
    for (PathIndex path : {0, 1})
        BOOST_TEST(collisions.paths[path].of(kWrite).relative > 0.5); // in step with completions: the worst case
    BOOST_TEST(hot.paths[1].of(kWrite).relative == 1.0);
    BOOST_TEST(hot.paths[0].of(kWrite).relative < 0.3);
    BOOST_TEST(hot.paths.scatter(kWrite) < 0.2);
    BOOST_TEST(collisions.paths.scatter(kWrite) > 0.4);

    // A short message in front of a stripe, on the path that always has them, does not keep it from being compared.
    Two told;
    for (unsigned i = 0; i < 100; ++i) {
        const Nanos post = 1000000 + i * 100000;
        told.paths.settle({0, kWrite, 8192, 8192 + 64, post, post + 2000 + 4 * 8192});
        told.paths.settle({1, kWrite, 8192, 8192, post, post + 2000 + 8192});
    }
    BOOST_TEST(told.paths[0].of(kWrite).relative < 0.3);

    // What was measured long before, when it was alone on the rail, is no measure of another path now.
    Two apart;
    apart.settle(65536, 1000, 1000 + 2000 + 65536, 0);
    for (unsigned i = 1; i < 100; ++i) apart.settle(65536, i * 100000000, i * 100000000 + 2000 + 4 * 65536, 1);
    BOOST_TEST(apart.paths[1].of(kWrite).relative == 1.0);
}

// Stripes of short messages are shorter than what teaches a rate otherwise; their latency says nothing of small ones.
BOOST_AUTO_TEST_CASE(stripes_of_short_messages_teach_rates) {
    Two two;
    two.paths.settle({.path = 0,
                      .direction = kWrite,
                      .bytes = 2048,
                      .settled = 2048,
                      .t_post = 1000,
                      .t_done = 7096,
                      .whole = 8192});
    BOOST_TEST(two.paths[0].of(kWrite).rate == 0.5, tt::tolerance(1e-9));
    BOOST_TEST(two.paths[0].latencies == 0u);
    two.settle(2048, 10000, 16096);
    BOOST_TEST(two.paths[0].latencies == 1u);
    BOOST_TEST(two.paths[0].of(kWrite).rate == 0.5, tt::tolerance(1e-9));
}
