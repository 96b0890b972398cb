// What a path's table learns of each completion, number by number.
#define BOOST_TEST_MODULE schedule_path_lessons
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "schedule/two_paths.h"

using namespace ucx_mp::schedule;
using ucx_mp::schedule::test::Two;
namespace tt = boost::test_tools;

namespace {
constexpr Direction kWrite = Direction::write, kRead = Direction::read;
} // namespace

// An eighth of a sample; the least one at once, a longer one by a 1024th, so that a longer route is believed some day.
BOOST_FIXTURE_TEST_CASE(one_latency, Two) {
    settle(8, 1000, 1000 + 2800);
    BOOST_TEST(paths[0].latency == 2100.0);
    BOOST_TEST(paths[0].base_latency == 2000 + 800.0 / 1024);
    settle(8, 10'000, 10'000 + 500);
    BOOST_TEST(paths[0].latency == 1900.0);
    BOOST_TEST(paths[0].base_latency == 500.0);
    BOOST_TEST(paths[0].latency_at == 10'500u);
    settle(8, 20'000, 20'000); // no time at all: nothing to learn
    BOOST_TEST(paths[0].latency == 1900.0);
    BOOST_TEST(paths[0].latencies == 2u);
    BOOST_TEST(paths[0].latency_at == 10'500u);
    BOOST_TEST(paths[0].of(kWrite).busy_from == 20'000u);
}

// A quarter of each one's time per byte, from post to completion. The first guess is the link's.
BOOST_FIXTURE_TEST_CASE(time_per_byte, Two) {
    settle(8192, 1000, 1000 + 3 * 8192);
    BOOST_TEST(paths[0].of(kWrite).spent == 1.5);
    settle(8192, 100'000, 100'000);
    BOOST_TEST(paths[0].of(kWrite).spent == 1.125);
    for (Nanos now = 200'000; now < 300'000; now += 1000) settle(8192, now, now);
    BOOST_TEST(paths[0].of(kWrite).spent == 1e-6); // not 0: it divides
    PathTable fast(std::vector<PathSetup>(1, PathSetup{.nominal_rate = 4}));
    fast.settle({0, kWrite, 8192, 8192, 1000, 1000 + 8192});
    BOOST_TEST(fast[0].of(kWrite).spent == 0.25 + 0.25 * 0.75);
    PathTable unknown(std::vector<PathSetup>(2));
    unknown.settle({0, kWrite, 8192, 8192, 1000, 9192});
    BOOST_TEST(unknown[0].of(kWrite).spent == 0.0);
}

// No more than four times the link's rate: the gap between two completions was too short.
BOOST_FIXTURE_TEST_CASE(a_rate_has_a_bound, Two) {
    settle(1 << 20, 100'000, 102'001);
    BOOST_TEST(paths[0].of(kWrite).rate == 4.0);
    settle(1 << 20, 200'000, 202'001);
    BOOST_TEST(paths[0].of(kWrite).rate == 4.0);
    settle(65536, 300'000, 302'000 + 65536); // a quarter of the way
    BOOST_TEST(paths[0].of(kWrite).rate == 3.25, tt::tolerance(1e-3));
}

// A sixteenth of a stripe may come before it.
BOOST_FIXTURE_TEST_CASE(what_is_beside_a_stripe, Two) {
    paths.settle({0, kWrite, 8192, 8192 + 512, 1000, 1000 + 2000 + 8704});
    BOOST_TEST(paths[0].of(kWrite).rate == 1.0, tt::tolerance(1e-9));
    BOOST_TEST(paths[0].of(kWrite).sample_bytes == 8704.0);
    paths.settle({1, kWrite, 8192, 8192 + 513, 1000, 1000 + 2000 + 8704});
    BOOST_TEST(paths[1].of(kWrite).rate == 0.0);
    // So it is with what was settled quietly, once.
    PathTable quiet{setup};
    quiet.settle_quietly(0, kWrite, 513);
    quiet.settle({0, kWrite, 8192, 8192, 1000, 1000 + 2000 + 8192});
    BOOST_TEST(quiet[0].of(kWrite).rate == 0.0);
    quiet.settle({0, kWrite, 8192, 8192, 100'000, 100'000 + 2000 + 8192});
    BOOST_TEST(quiet[0].of(kWrite).rate == 1.0, tt::tolerance(1e-9));
}

// Up by a quarter, down by a 64th, and no more than 10 ms count.
BOOST_FIXTURE_TEST_CASE(how_late_completions_are_found, Two) {
    Nanos now = 1'000'000;
    const auto found = [&](Nanos late) {
        settle(8, now, now + 1000);
        paths.advance(now + 1000 + late);
        const PathIndex path = paths.take_settled(kWrite);
        now += 100'000'000;
        return path;
    };
    BOOST_TEST(paths.take_settled(kWrite) == kNoPath);
    BOOST_TEST(found(800) == 0u);
    BOOST_TEST(paths.late() == 200.0);
    BOOST_TEST(paths.take_settled(kWrite) == kNoPath); // one has asked
    BOOST_TEST(paths.late() == 200.0);
    BOOST_TEST(found(0) == 0u);
    BOOST_TEST(paths.late() == 200 - 200 / 64.0);
    (void)found(90'000'000);
    BOOST_TEST(paths.late() == 196.875 + (1e7 - 196.875) / 4);
    settle(8, now, now + 1000);
    paths.forget_settled(kWrite);
    BOOST_TEST(paths.take_settled(kWrite) == kNoPath);
}

// A path with a quarter of its link's rate beside one that has it all. Of x = ln(1/4) is believed x - t^2 / x, where t
// is two standard errors. The other one counts if it is no older than eight times the sample's service.
BOOST_AUTO_TEST_CASE(one_sample_beside_another) {
    constexpr Nanos kFirst = 1'000'000, kService = 32768;
    for (const auto& [age, compared] : {std::pair(Nanos{0}, true), {8 * kService, true}, {8 * kService + 1, false}}) {
        Two two;
        two.settle(8192, kFirst - 2000 - 8192, kFirst, 0);
        BOOST_TEST(two.paths[0].of(kWrite).pace == 0.0, tt::tolerance(1e-9));
        two.settle(8192, kFirst + age - 2000 - kService, kFirst + age, 1);
        const Account& slow = two.paths[1].of(kWrite);
        const double x = std::log(0.25), variance = 0.25 * 31 / 32;
        BOOST_TEST(slow.pace == x, tt::tolerance(1e-9));
        BOOST_TEST(slow.standing.known() == compared);
        BOOST_TEST(slow.relative == (compared ? std::exp(x - 4 * variance / x) : 1), tt::tolerance(1e-9));
        BOOST_TEST(two.paths[0].of(kWrite).relative == 1.0);
    }
}

// Two routes of a port at the same time have half of it each: neither is slow.
BOOST_AUTO_TEST_CASE(routes_that_were_in_use_share_the_port) {
    for (const bool in_use : {false, true}) {
        PathTable paths(std::vector<PathSetup>(2, PathSetup{.nominal_rate = 1, .rail_rate = 1}));
        if (in_use) paths.place(1, kWrite, 8192);
        paths.settle({0, kWrite, 8192, 8192, 1'000'000, 1'000'000 + 2000 + 16384});
        BOOST_TEST(paths[0].of(kWrite).pace == (in_use ? 0 : std::log(0.5)), tt::tolerance(1e-9));
        // Another one that completed meanwhile counts as well.
        paths.settle({1, kWrite, 8192, 8192, 1'000'000, 1'000'000 + 2000 + 16384});
        BOOST_TEST(paths[1].of(kWrite).pace == 0.0, tt::tolerance(1e-9));
    }
}

// Two rails: the largest rate named for each counts, and nothing is scaled where a rail has one path.
BOOST_AUTO_TEST_CASE(rates_of_rails) {
    PathSetup setup[] = {{.nominal_rate = 2, .rail = 0, .rail_rate = 1}, {.nominal_rate = 2, .rail = 1}};
    PathTable paths(setup);
    double rate[kMaxPaths];
    paths.rates(0b11, kWrite, rate);
    BOOST_TEST(rate[0] == 2.0);
    paths.set_rail(1, 0); // it has migrated
    paths.rates(0b11, kWrite, rate);
    BOOST_TEST(rate[0] == 0.5);
    BOOST_TEST(rate[1] == 0.5);
    paths.set_rail_rate(0, 3);
    paths.set_rail_rate(0, 1); // not less
    BOOST_TEST(paths.rail_rate(0) == 3.0);
    paths.rates(0b11, kWrite, rate);
    BOOST_TEST(rate[1] == 1.5);
    paths.rates(0b10, kWrite, rate); // it alone is within
    BOOST_TEST(rate[0] == 2.0);
    paths.set_rail(1, 1);
    paths.rates(0b11, kWrite, rate);
    BOOST_TEST(rate[0] == 2.0);
}

BOOST_FIXTURE_TEST_CASE(a_weight_that_is_set_is_in_the_total, Two) {
    BOOST_TEST(paths.total_weight() == 2.0);
    BOOST_TEST(paths.set_weight(1, 5));
    BOOST_TEST(paths[1].weight == 5.0);
    BOOST_TEST(paths.total_weight() == 6.0);
    BOOST_TEST(paths.set_weight(1, -5));
    BOOST_TEST(paths.total_weight() == 1.0);
    BOOST_TEST(!paths.set_nominal_rate(2, 1));
    BOOST_TEST(paths.set_nominal_rate(0, 0.9e-6)); // less than a KB/s: a mistake
    BOOST_TEST(paths[0].nominal_rate == 0.0);
}

// What other peers have shown of our ports, where this peer's own paths have shown nothing.
BOOST_AUTO_TEST_CASE(ports_that_other_peers_know) {
    Commons commons;
    for (int i = 0; i < 16; ++i) {
        commons.port[0][0].learn(0, 1, commons.scatter[0]);
        commons.port[1][0].learn(-2, 1, commons.scatter[0]);
    }
    const PathSetup setup[] = {
        {.nominal_rate = 1, .rail = 0}, {.nominal_rate = 1, .rail = 1}, {.nominal_rate = 1, .rail = 2}};
    PathTable paths(setup, &commons);
    paths.begin();
    BOOST_TEST(paths[0].of(kWrite).relative == 1.0);
    const double t2 = 4 * commons.scatter[0].variance / 16;
    BOOST_TEST(paths[1].of(kWrite).relative == std::exp(-2 + t2 / 2), tt::tolerance(1e-6));
    BOOST_TEST(paths[2].of(kWrite).relative == 1.0); // nobody knows it
    BOOST_TEST(paths[1].of(kRead).relative == 1.0);
}

// A quarter of the time of a delivery is service, however long the latency; a millionth of a rate is a thousandth.
BOOST_AUTO_TEST_CASE(least_service_and_least_rate) {
    PathTable paths(std::vector<PathSetup>(2, PathSetup{.nominal_rate = 20, .latency = 2000}));
    paths.settle({0, kWrite, 8192, 8192, 1000, 1000 + 2400});
    BOOST_TEST(paths[0].of(kWrite).rate == 8192 / 600.0);
    Two two;
    for (Nanos now = 20'000'000'000; now < 200'000'000'000; now += 20'000'000'000) {
        two.settle(8192, now - 8'192'000'000, now, 1);
        two.settle(8192, now - 10'192, now, 0);
    }
    BOOST_TEST(two.paths[1].of(kWrite).relative == 1e-3);
}

// All that a path has shown of its route goes to another one of the same route.
BOOST_AUTO_TEST_CASE(each_number_is_inherited) {
    PathTable paths(std::vector<PathSetup>(3, PathSetup{.nominal_rate = 1, .latency = 2000}));
    paths.settle({0, kWrite, 8192, 8192, 1'000'000, 1'000'000 + 2000 + 8192});
    paths.settle({1, kWrite, 8192, 8192, 1'000'000, 1'000'000 + 2000 + 32768});
    const Account &known = paths[1].of(kWrite), &account = paths[2].of(kWrite);
    BOOST_TEST(known.relative < 1.0);
    paths.inherit(2, 1);
    BOOST_TEST(account.sampled_at == known.sampled_at);
    BOOST_TEST(account.rate == known.rate);
    BOOST_TEST(account.rate_before == known.rate);
    BOOST_TEST(account.spent == known.spent);
    BOOST_TEST(account.relative == known.relative);
    BOOST_TEST(account.standing.mean() == known.standing.mean());
    BOOST_TEST(account.standing.known());
    BOOST_TEST(account.last_done == 0u); // that was on the other one
}

// What was owed is forgotten at each change, what was learned only when it is down.
BOOST_FIXTURE_TEST_CASE(what_a_state_ends, Two) {
    settle(8, 1000, 1000 + 2800);
    settle(8192, 10'000, 20'192);
    for (const PathState state : {PathState::suspect, PathState::up}) {
        paths[0].carry = 5;
        paths.set_state(0, state);
        BOOST_TEST(paths[0].carry == 0.0);
        BOOST_TEST(paths[0].latency == 2100.0);
        BOOST_TEST(paths[0].of(kWrite).last_done == 20'192u);
    }
    paths.set_state(0, PathState::down);
    BOOST_TEST(paths[0].latency == paths[0].base_latency);
    BOOST_TEST(paths[0].of(kWrite).last_done == 0u);
    paths.set_state(0, PathState::recovering);
    paths.place(0, kRead, 100); // a ping
    paths.set_state(0, PathState::up);
    BOOST_TEST(paths[0].of(kRead).in_flight == 0u);
}

// There are so many rails; further ones share them.
BOOST_AUTO_TEST_CASE(rails_beyond_the_last) {
    PathTable paths(std::vector<PathSetup>(1, PathSetup{.rail = kMaxRails + 1, .rail_rate = 3}));
    BOOST_TEST(paths[0].rail == 1u);
    BOOST_TEST(paths.rail_rate(1) == 3.0);
    paths.set_rail_rate(kMaxRails + 2, 4);
    BOOST_TEST(paths.rail_rate(2) == 4.0);
    paths.set_rail(0, kMaxRails + 2);
    BOOST_TEST(paths[0].rail == 2u);
}

// A path that was alone lately is compared with the samples to other peers, but not while it is known beside its own.
BOOST_AUTO_TEST_CASE(alone_after_it_was_beside_others) {
    for (const auto& [later, alone] : {std::pair(Nanos{5'000'000}, false), {Nanos{50'000'000}, true}}) {
        Commons commons;
        const std::vector<PathSetup> setup(2, PathSetup{.nominal_rate = 1, .latency = 2000});
        PathTable peer(setup, &commons), other(setup, &commons);
        const auto sample = [](PathTable& paths, PathIndex path, Nanos done) {
            paths.settle({path, kWrite, 32768, 32768, done - 2000 - 32768, done});
        };
        constexpr Nanos kFirst = 1'000'000;
        for (const PathIndex path : {0, 1}) sample(peer, path, kFirst);
        BOOST_TEST(peer[1].of(kWrite).standing.known());
        BOOST_TEST(!peer[1].of(kWrite).standing.alone());
        sample(other, 0, kFirst + later);
        sample(peer, 1, kFirst + later + 1000);
        BOOST_TEST(peer[1].of(kWrite).standing.alone() == alone);
    }
}
