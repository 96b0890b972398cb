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
