// HSAM (dissertation 7.4) and BSS (8.3), by numbers worked out by hand.
#define BOOST_TEST_MODULE schedule_adaptive
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;
namespace tt = boost::test_tools;

namespace {
constexpr Nanos kUs = 1000;
constexpr std::uint64_t kMiB = 1 << 20;
// 7.4 exactly: completions carry the adapter's time, t_i from the post.
} // namespace

BOOST_AUTO_TEST_CASE(formula_7_4) {
    Peer peer("adaptive:alpha=0.5", equal_paths(2));
    (void)peer.put(kMiB);
    BOOST_TEST(peer.plan.stripes[0].length == kMiB / 2);
    peer.done(0, 10 * kUs, 110 * kUs); // t = 100 us
    BOOST_TEST(peer.weight(0) == 1.0); // not before all stripes are in
    peer.done(1, 10 * kUs, 310 * kUs); // t = 300 us: shares 3/4 and 1/4 of W = 2
    BOOST_TEST(peer.weight(0) == 0.5 * 1 + 0.5 * 2 * 0.75, tt::tolerance(1e-12)); // 1.25
    BOOST_TEST(peer.weight(1) == 0.5 * 1 + 0.5 * 2 * 0.25, tt::tolerance(1e-12)); // 0.75

    (void)peer.put(kMiB);
    BOOST_TEST(peer.plan.stripes[0].length == 655360u); // 0.625 MiB
    peer.done(0, 400 * kUs, 650 * kUs);                 // 1.25 / 250
    peer.done(1, 400 * kUs, 475 * kUs);                 // 0.75 / 75: shares 1/3 and 2/3
    BOOST_TEST(peer.weight(0) == 0.625 + 1.0 / 3, tt::tolerance(1e-12));
    BOOST_TEST(peer.weight(1) == 0.375 + 2.0 / 3, tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(alpha_bounds) {
    Peer never("adaptive:alpha=0", equal_paths(2)), at_once("adaptive:alpha=1", equal_paths(2));
    for (Peer* peer : {&never, &at_once}) {
        (void)peer->put(kMiB);
        peer->done(0, 0, 100 * kUs);
        peer->done(1, 0, 400 * kUs);
    }
    BOOST_TEST(never.weight(0) == 1.0);
    BOOST_TEST(at_once.weight(0) == 1.6, tt::tolerance(1e-12)); // 7.3
    BOOST_TEST(at_once.weight(1) == 0.4, tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(all_found_at_the_same_time_changes_nothing) { // 7.1.2, case 3
    Peer peer("adaptive", weighted_paths({3, 1}));
    (void)peer.put(kMiB);
    peer.done(0, 10 * kUs, 5000 * kUs);
    peer.done(1, 10 * kUs, 5000 * kUs);
    BOOST_TEST(peer.weight(0) == 3.0, tt::tolerance(1e-12));
    BOOST_TEST(peer.weight(1) == 1.0, tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(overlapping_messages_measure_service_not_queueing) {
    Peer peer("adaptive:alpha=1", equal_paths(2));
    (void)peer.put(kMiB); // two messages posted at once; rates 1 and 1/4 bytes/ns
    (void)peer.put(kMiB);
    peer.done(0, 0, 524288);
    peer.done(0, 0, 2 * 524288); // queued behind: same service time
    peer.done(1, 0, 4 * 524288);
    BOOST_TEST(peer.weight(0) == 1.6, tt::tolerance(1e-9));
    (void)peer.put(kMiB);
    peer.scheduler.observe({1, Direction::write, 524288, 524288, 0, 8 * 524288}); // 2nd message's late stripe
    peer.done(0, 8 * 524288, 8 * 524288 + peer.plan.stripes[0].length);
    BOOST_TEST(peer.weight(0) == 1.6, tt::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(converges_to_the_rates_and_keeps_the_sum) {
    Peer peer("adaptive", equal_paths(4));
    const double rate[4] = {1, 1, 0.25, 0.5};
    Nanos now = 0;
    for (int i = 0; i < 30; ++i) {
        (void)peer.put(4 * kMiB);
        Nanos end = now;
        for (unsigned k = 0; k < peer.plan.count; ++k) {
            const Stripe& s = peer.plan.stripes[k];
            const Nanos done = now + Nanos(double(s.length) / rate[s.path]);
            peer.done(k, now, done);
            end = std::max(end, done);
        }
        now = end + 1;
        BOOST_TEST(peer.weight_sum() == 4.0, tt::tolerance(1e-9));
    }
    for (unsigned i = 0; i < 4; ++i) BOOST_TEST(peer.weight(i) == 4 * rate[i] / 2.75, tt::tolerance(0.001));
}

BOOST_AUTO_TEST_CASE(path_lost_and_back_keeps_the_sum) {
    Peer peer("adaptive", weighted_paths({2, 1, 1}));
    peer.scheduler.set_state(0, PathState::down);
    BOOST_TEST(peer.weight(1) == 2.0);
    BOOST_TEST(peer.weight_sum() == 4.0);
    peer.scheduler.set_state(0, PathState::up);
    BOOST_TEST(peer.weight_sum() == 4.0, tt::tolerance(1e-12));
    BOOST_TEST(peer.weight(0) == 4.0 / 3 / 16, tt::tolerance(1e-12)); // 1/16 of a fair share
    BOOST_TEST(peer.weight(1) == peer.weight(2));
    for (PathIndex i : {0, 1, 2}) peer.scheduler.set_state(i, PathState::down);
    for (PathIndex i : {2, 1, 0}) peer.scheduler.set_state(i, PathState::up);
    BOOST_TEST(peer.weight_sum() == 4.0, tt::tolerance(1e-12));
}

// Whatever their unit: weights need not be about 1, and may all be 0.
BOOST_AUTO_TEST_CASE(small_weights) {
    Peer peer("adaptive", weighted_paths({0.25, 0.125}));
    peer.scheduler.set_state(1, PathState::down);
    BOOST_TEST(peer.weight(0) == 0.375);
    Peer none("adaptive", weighted_paths({0, 0}));
    (void)none.put(kMiB);
    for (unsigned k = 0; k < 2; ++k) none.done(k, 10 * kUs, 110 * kUs);
    BOOST_TEST(none.weight(0) == 0.0);
    BOOST_TEST(none.weight(1) == 0.0);
}

BOOST_AUTO_TEST_CASE(a_path_lost_in_a_round_does_not_block_learning) {
    Peer peer("adaptive:alpha=1", equal_paths(3));
    (void)peer.put(kMiB);
    peer.done(0, 0, 100 * kUs);
    peer.scheduler.set_state(2, PathState::down);
    peer.done(1, 0, 300 * kUs);
    BOOST_TEST(peer.weight(0) > 2 * peer.weight(1));
    BOOST_TEST(peer.weight_sum() == 3.0, tt::tolerance(1e-12));
}

// A round whose last completion never comes is given up after 256 plans.
BOOST_AUTO_TEST_CASE(a_completion_that_never_comes_does_not_end_learning) {
    const std::vector<PathSetup> setup = equal_paths(4);
    PathTable paths(setup, nullptr);
    Plan first, later;
    first.count = later.count = 2;
    for (unsigned k = 0; k < 2; ++k) {
        first.stripes[k] = {.offset = 0, .length = kMiB, .path = PathIndex(k)};
        later.stripes[k] = {.offset = 0, .length = kMiB, .path = PathIndex(2 + k)};
    }
    WeightRound round;
    const auto done = [&](PathIndex path, double ns) {
        return round.observe(paths, {path, Direction::write, kMiB, kMiB, 0, Nanos(ns)}, {double(kMiB), ns}, 1);
    };
    round.open(first);
    BOOST_TEST(!done(0, 1000)); // that of path 1 never comes
    for (unsigned i = 0; i < 255; ++i) round.open(later);
    BOOST_TEST(!done(2, 1000));
    BOOST_TEST(!done(3, 3000));
    round.open(later);
    BOOST_TEST(!done(2, 1000));
    BOOST_TEST(done(3, 3000));
    BOOST_TEST(paths[2].weight == 1.5, tt::tolerance(1e-12));
    BOOST_TEST(paths[3].weight == 0.5, tt::tolerance(1e-12));
}

// However slow a path is, it keeps 1/32 of a fair share, and so comes back.
BOOST_AUTO_TEST_CASE(weights_have_a_floor) {
    Peer peer("adaptive:alpha=1", equal_paths(2));
    (void)peer.put(kMiB);
    peer.done(0, 10 * kUs, 11 * kUs);
    peer.done(1, 10 * kUs, 1'000'010 * kUs);
    const double floor = 1.0 / 32, fast = 2; // before they are scaled to a sum of 2
    BOOST_TEST(peer.weight(1) == 2 * floor / (fast + floor), tt::tolerance(1e-5));
    BOOST_TEST(peer.weight_sum() == 2.0, tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(formula_8_3_and_sorting) {
    Peer peer("bss:n_paths=4,n_batch=2,alpha=0.75,explore=0", equal_paths(4));
    (void)peer.put(kMiB);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    BOOST_TEST(peer.plan.stripes[0].path == 0);
    BOOST_TEST(peer.plan.stripes[1].path == 1);
    peer.done(0, 10 * kUs, 110 * kUs); // t = 100, 400: shares 0.8, 0.2 of W_batch = 2
    peer.done(1, 10 * kUs, 410 * kUs);
    BOOST_TEST(peer.weight(0) == 0.25 * 1 + 0.75 * 2 * 0.8, tt::tolerance(1e-12)); // 1.45
    BOOST_TEST(peer.weight(1) == 0.25 * 1 + 0.75 * 2 * 0.2, tt::tolerance(1e-12)); // 0.55
    BOOST_TEST(peer.weight(2) == 1.0);                                             // not in the batch, not touched
    // Sorted: 0 (1.45), 2 (1), 3 (1), 1 (0.55).
    (void)peer.put(kMiB);
    BOOST_TEST(peer.plan.stripes[0].path == 0);
    BOOST_TEST(peer.plan.stripes[1].path == 2);
    BOOST_TEST(double(peer.plan.stripes[0].length) == kMiB * 1.45 / 2.45, tt::tolerance(0.001));
    // W_batch = 2.45: w0/t0 = 1.45/290 = 0.005, w2/t2 = 1/50 = 0.02 (cuts are rounded to 64 bytes).
    peer.done(0, 1000 * kUs, 1290 * kUs);
    peer.done(1, 1000 * kUs, 1050 * kUs);
    BOOST_TEST(peer.weight(0) == 0.25 * 1.45 + 0.75 * 2.45 * 0.2, tt::tolerance(0.001));
    BOOST_TEST(peer.weight(2) == 0.25 * 1.00 + 0.75 * 2.45 * 0.8, tt::tolerance(0.001));
    // Sorted: 2 (1.72), 3 (1), 0 (0.73), 1 (0.55).
    (void)peer.put(kMiB);
    BOOST_TEST(peer.plan.stripes[0].path == 2);
    BOOST_TEST(peer.plan.stripes[1].path == 3);
    BOOST_TEST(peer.weight_sum() == 4.0, tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(batches_keep_the_sum_of_weights) {
    Peer peer("bss:n_paths=12,n_batch=3", equal_paths(12));
    Nanos now = 1;
    for (int i = 0; i < 200; ++i) {
        (void)peer.put(kMiB + std::uint64_t(i) * 4097);
        for (unsigned k = 0; k < peer.plan.count; ++k)
            peer.done(k, now, now + 100 * kUs * (1 + peer.plan.stripes[k].path));
        BOOST_TEST(peer.plan.count <= 3u);
        now += 10000 * kUs;
    }
    BOOST_TEST(peer.weight_sum() == 12.0, tt::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(hsam_is_bss_with_all_paths_in_the_batch) {
    Peer hsam("adaptive:alpha=0.6", equal_paths(4)), bss("bss:n_paths=4,n_batch=4,alpha=0.6,explore=0", equal_paths(4));
    Nanos now = 1;
    for (int i = 0; i < 20; ++i) {
        for (Peer* peer : {&hsam, &bss}) {
            (void)peer->put(kMiB);
            for (unsigned k = 0; k < 4; ++k) {
                const Stripe& s = peer->plan.stripes[k];
                peer->done(k, now, now + s.length * (1 + (s.path * 7 + unsigned(i)) % 5));
            }
        }
        now += 100000 * kUs;
        for (unsigned k = 0; k < 4; ++k) BOOST_TEST(hsam.weight(k) == bss.weight(k), tt::tolerance(0.002));
    }
}

BOOST_AUTO_TEST_CASE(bss_explores_what_it_left) {
    Peer peer("bss:n_batch=2", equal_paths(6));
    PathMask used = 0;
    Nanos now = 1;
    for (int i = 0; i < 32 * 6; ++i) {
        (void)peer.put(kMiB);
        for (unsigned k = 0; k < peer.plan.count; ++k) {
            used |= PathMask{1} << peer.plan.stripes[k].path;
            peer.done(k, now, now + peer.plan.stripes[k].length);
        }
        now += 2000 * kUs;
    }
    BOOST_TEST(used == 0b111111u);
}

// With each message the second of the batch is another one, in turn. However small its weight, it has a stripe that
// teaches a rate: a tenth more than 4 KiB, rounded.
BOOST_AUTO_TEST_CASE(bss_may_explore_with_each_message) {
    Peer peer("bss:n_batch=2,explore=1", equal_paths(4));
    for (const PathIndex second : {2, 3, 2, 3}) {
        (void)peer.put(kMiB);
        BOOST_REQUIRE(peer.plan.count == 2u);
        BOOST_TEST(peer.plan.stripes[0].path == 0);
        BOOST_TEST(peer.plan.stripes[1].path == second);
    }
    Peer light("bss:n_batch=2,explore=1", weighted_paths({1, 1, 0.001}));
    (void)light.put(16384);
    BOOST_REQUIRE(light.plan.count == 2u);
    BOOST_TEST(light.plan.stripes[1].path == 2);
    BOOST_TEST(light.plan.stripes[1].length == 4480u);
    Peer half("bss:n_batch=2,explore=1,stripe_threshold=8K", weighted_paths({1, 1, 0.001}));
    (void)half.put(8192); // no more than half, or the best one had too little
    BOOST_REQUIRE(half.plan.count == 2u);
    BOOST_TEST(half.plan.stripes[0].length == 4096u);
    Peer never("bss:n_batch=2,explore=0", equal_paths(4));
    for (unsigned i = 0; i < 64; ++i) {
        (void)never.put(kMiB);
        BOOST_TEST(never.plan.stripes[1].path == 1);
    }
}

BOOST_AUTO_TEST_CASE(n_paths_limits_bss_unless_all_of_them_are_down) {
    Peer peer("bss:n_paths=2,n_batch=2,explore=1", equal_paths(4));
    for (int i = 0; i < 8; ++i) {
        (void)peer.put(kMiB);
        for (unsigned k = 0; k < peer.plan.count; ++k) BOOST_TEST(peer.plan.stripes[k].path < 2);
    }
    peer.scheduler.set_state(0, PathState::down);
    peer.scheduler.set_state(1, PathState::down);
    BOOST_TEST(int(peer.put(kMiB)) == int(Outcome::stripes));
    BOOST_TEST(wrong_with(peer.plan, kMiB, peer.scheduler.paths()) == "");
}
