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
