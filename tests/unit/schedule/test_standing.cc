// What is believed of a path: clear losses soon, noise never.
#define BOOST_TEST_MODULE schedule_standing
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>

#include "uct_mp/schedule/standing.h"

using namespace ucx_mp::schedule;

namespace {

constexpr std::uint64_t kStep = 100000; // ns between samples

// Two paths: the first at the link's rate, the second at `part` of it; each sample is off by a factor of e^noise or
// less.
struct Pair {
    explicit Pair(double loss, double jitter, unsigned seed) : part(loss), noise(jitter), random(seed) {}
    // What is believed of the second after n samples of each.
    double after(unsigned n) {
        std::uniform_real_distribution<double> off(-noise, noise);
        for (; n > 0; --n) {
            const double a = off(random), b = std::log(part) + off(random), best = std::max(a, b);
            now += kStep;
            first.learn(a - best, now, scatter);
            second.learn(b - best, now, scatter);
        }
        return std::exp(second.behind(first.mean(), scatter));
    }
    double part, noise;
    std::mt19937 random;
    Standing first, second;
    Scatter scatter;
    std::uint64_t now = 1;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_clear_loss_is_believed_after_a_few_samples) {
    for (unsigned seed = 1; seed <= 50; ++seed)
        for (const double part : {0.25, 0.0625}) {
            Pair pair(part, 0.2, seed);
            BOOST_TEST(pair.after(3) < 0.7);
            const double known = pair.after(40);
            BOOST_TEST(known < 1.5 * part);
            BOOST_TEST(known > 0.8 * part); // and no more than that
        }
}

BOOST_AUTO_TEST_CASE(scatter_is_not_believed) {
    for (unsigned seed = 1; seed <= 50; ++seed) {
        Pair pair(1, 0.2, seed);
        for (int i = 0; i < 200; ++i) BOOST_REQUIRE(pair.after(1) > 0.85);
    }
}

BOOST_AUTO_TEST_CASE(what_was_long_ago_counts_less) {
    Pair pair(0.25, 0.05, 1);
    BOOST_TEST(pair.after(100) < 0.3);
    Pair late = pair;
    late.now += 1'000'000'000, late.part = pair.part = 1;
    BOOST_TEST(late.after(2) > 0.8);
    BOOST_TEST(pair.after(2) < 0.5);
}

// Samples to many peers: their mean takes off what slows down all of them, but only while it is recent.
BOOST_AUTO_TEST_CASE(pace_is_the_mean_of_recent_samples) {
    Pace pace;
    double beside = 0;
    BOOST_TEST(!pace.learn(-1, 1000, 500, beside)); // nothing to compare it with
    BOOST_REQUIRE(pace.learn(-2, 1400, 500, beside));
    BOOST_TEST(beside == -1);
    BOOST_REQUIRE(pace.learn(-3, 1900, 500, beside));
    BOOST_TEST(beside == -1.5);
    BOOST_TEST(!pace.learn(0, 2500, 500, beside)); // too long after the last one: a new beginning
    BOOST_REQUIRE(pace.learn(-1, 2600, 500, beside));
    BOOST_TEST(beside == -1);
    for (int i = 0; i < 100; ++i) (void)pace.learn(-5, 2600, 500, beside);
    BOOST_TEST(beside > -0.1); // what was before has gone
}

// A scatter that many peers share is learned by all of them: each counts less.
BOOST_AUTO_TEST_CASE(shared_scatter_moves_slower) {
    Standing one, many;
    Scatter of_one, of_many;
    for (std::uint64_t i = 1; i <= 8; ++i) {
        one.learn(i % 2 ? 2 : -2, i, of_one, 1);
        many.learn(i % 2 ? 2 : -2, i, of_many, 100);
    }
    BOOST_TEST(of_one.variance > 0.8);
    BOOST_TEST(of_many.variance < 0.35);
    BOOST_TEST(of_many.variance > 0.25);
}

BOOST_AUTO_TEST_CASE(first_samples_say_nothing_of_a_shared_scatter) {
    Scatter scatter;
    for (int i = 0; i < 1000; ++i) {
        Standing path;
        path.learn(-1, 1000, scatter, 1);
    }
    BOOST_TEST(scatter.variance == Scatter{}.variance);
}

// Beside other paths the best is 0, beside all peers' samples it may be anything: the two do not mix.
BOOST_AUTO_TEST_CASE(samples_beside_other_paths_end_what_was_learned_without) {
    Standing path;
    Scatter scatter;
    for (std::uint64_t i = 1; i <= 8; ++i) path.learn(2, i, scatter, 4);
    BOOST_TEST(path.alone());
    path.learn(-1, 9, scatter);
    BOOST_TEST(!path.alone());
    BOOST_TEST(path.mean() == -1);
}

// Two means, of which each was measured at its own time, differ by more than noise if they do so by twice as much.
BOOST_AUTO_TEST_CASE(alone_a_gap_counts_less) {
    const auto behind = [](unsigned peers) {
        Standing path;
        Scatter scatter;
        path.learn(-1.3, 1, scatter, peers);
        return path.behind(0, Scatter{.variance = 0.25});
    };
    BOOST_TEST(behind(0) < -0.5);
    BOOST_TEST(behind(1) == 0);
}

// Without time between them the first 16 samples count alike; from then on each is a sixteenth.
BOOST_AUTO_TEST_CASE(a_mean_of_sixteen_samples) {
    Standing path;
    Pace pace;
    Scatter scatter;
    double beside = 0;
    BOOST_TEST(!path.known());
    for (int i = 0; i < 15; ++i) path.learn(-3, 1, scatter), (void)pace.learn(-3, 1, 0, beside);
    path.learn(-19, 1, scatter), (void)pace.learn(-19, 1, 0, beside);
    BOOST_TEST(path.known());
    BOOST_TEST(path.mean() == -4);
    (void)pace.learn(-4, 1, 0, beside);
    BOOST_TEST(beside == 0);
    path.learn(-20, 1, scatter), (void)pace.learn(-20, 1, 0, beside);
    BOOST_TEST(path.mean() == -5);
    (void)pace.learn(-5, 1, 0, beside);
    BOOST_TEST(beside == 0);
}

// Of eight samples a half is left after four half-lives of 20 ms. A path has rested after one.
BOOST_AUTO_TEST_CASE(samples_fade) {
    constexpr std::uint64_t kHalf = 20'000'000, kNow = 1000;
    Standing path;
    Scatter scatter;
    for (int i = 0; i < 8; ++i) path.learn(0, kNow, scatter);
    BOOST_TEST(path.counts(kNow));
    BOOST_TEST(path.counts(0)); // a clock that went back
    BOOST_TEST(path.counts(kNow + 4 * kHalf));
    BOOST_TEST(!path.counts(kNow + 4 * kHalf + kHalf / 100));
    BOOST_TEST(!path.rested(0));
    BOOST_TEST(!path.rested(kNow + kHalf));
    BOOST_TEST(path.rested(kNow + kHalf + 1));
    path.learn(-5, kNow + 2 * kHalf, scatter); // two are left: this is the third
    BOOST_TEST(path.mean() == -5.0 / 3, boost::test_tools::tolerance(1e-6));
}

// A thirty-second of (y - mean before) (y - mean after), of many peers so much less.
BOOST_AUTO_TEST_CASE(the_scatter_is_the_mean_product_of_both_deviations) {
    const auto tolerance = boost::test_tools::tolerance(1e-9);
    Standing path, alone;
    Scatter scatter, shared;
    path.learn(-2, 1, scatter);
    double expected = 0.25 * 31 / 32; // the first one is its own mean
    BOOST_TEST(scatter.variance == expected, tolerance);
    path.learn(-5, 1, scatter); // the mean goes from -2 to -3.5
    expected += (3 * 1.5 - expected) / 32;
    BOOST_TEST(scatter.variance == expected, tolerance);
    alone.learn(-2, 1, shared, 4);
    alone.learn(-5, 1, shared, 4);
    BOOST_TEST(shared.variance == 0.25 + (3 * 1.5 - 0.25) / 128, tolerance);
}

// x - t^2 / x, where t is two standard errors; alone their squares count twice.
BOOST_AUTO_TEST_CASE(how_much_is_believed) {
    const auto behind = [](double mean, double best, unsigned samples, unsigned peers = 0) {
        Standing path;
        Scatter scatter;
        for (unsigned i = 0; i < samples; ++i) path.learn(mean, 1, scatter, peers);
        return path.behind(best, Scatter{.variance = 0.25});
    };
    const auto tolerance = boost::test_tools::tolerance(1e-9);
    BOOST_TEST(behind(-2, 0, 4) == -2 + 0.25 / 2, tolerance);
    BOOST_TEST(behind(-1, 1, 4) == -2 + 0.25 / 2, tolerance);
    BOOST_TEST(behind(-2, 0, 1) == -2 + 1.0 / 2, tolerance);
    BOOST_TEST(behind(-2, 0, 4, 1) == -2 + 0.5 / 2, tolerance);
    BOOST_TEST(behind(-0.49, 0, 4) == 0.0);
    BOOST_TEST(behind(-0.51, 0, 4) < 0.0);
    BOOST_TEST(behind(0.2, 0, 4) == 0.0);
}

// Two standard deviations below the best.
BOOST_AUTO_TEST_CASE(as_good_as_the_best_but_for_noise) {
    const Scatter scatter{.variance = 0.25};
    BOOST_TEST(Standing::level(-0.99, 0, scatter));
    BOOST_TEST(!Standing::level(-1, 0, scatter));
    BOOST_TEST(Standing::level(-2.5, -2, scatter));
    BOOST_TEST(!Standing::level(1, 2.5, scatter));
}

// What is beside others begins anew, so does what is not: nothing of the other kind is left.
BOOST_AUTO_TEST_CASE(samples_of_another_kind_begin_anew) {
    Standing path;
    Scatter scatter;
    for (int i = 0; i < 8; ++i) path.learn(-1, 1, scatter);
    path.learn(-3, 2, scatter, 1);
    BOOST_TEST(path.alone());
    BOOST_TEST(path.mean() == -3);
    path.learn(-5, 3, scatter, 1);
    BOOST_TEST(path.mean() == -4, boost::test_tools::tolerance(1e-6));
}
