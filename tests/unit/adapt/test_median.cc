// What RC saves, on a processor that others use, too.
#define BOOST_TEST_MODULE unit_adapt_median
#include <boost/test/unit_test.hpp>

#include <random>

#include "uct_mp/adapt/median.h"

using namespace ucx_mp::adapt;

// Two loaded jobs had these; what it really was, is about 100 ns.
BOOST_AUTO_TEST_CASE(a_loaded_host) {
    Median saving;
    BOOST_TEST(!saving.known());
    BOOST_TEST(saving.value() == 0.0);
    for (const double sample : {0., 110., 95., 993., 102., 5202., 98., 3'535'252., 101.}) saving.add(sample);
    BOOST_TEST(saving.known());
    BOOST_TEST(saving.value() == 102.0);
}

BOOST_AUTO_TEST_CASE(the_last_ones_count) {
    Median median;
    median.add(7);
    BOOST_TEST(median.value() == 7.0); // at once
    for (unsigned i = 0; i < 100; ++i) median.add(1000);
    BOOST_TEST(median.value() == 1000.0);
    for (unsigned i = 0; i < Median::kKept / 2; ++i) median.add(10);
    BOOST_TEST(median.value() == 1000.0);
    median.add(10);
    BOOST_TEST(median.value() == 10.0);
}

BOOST_AUTO_TEST_CASE(any_order) {
    std::mt19937_64 random(1);
    for (unsigned run = 0; run < 100; ++run) {
        std::vector<double> samples;
        Median median;
        const std::size_t count = 1 + random() % 30;
        for (std::size_t i = 0; i < count; ++i) {
            samples.push_back(static_cast<double>(random() % 1000) - 500);
            median.add(samples.back());
            std::vector<double> last(
                samples.end() - static_cast<std::ptrdiff_t>(std::min(samples.size(), Median::kKept)), samples.end());
            std::ranges::sort(last);
            BOOST_REQUIRE(median.value() == last[last.size() / 2]);
        }
    }
}

// A peer that has sent a thousand times as much says more; one that took long says no more for that.
BOOST_AUTO_TEST_CASE(by_weight) {
    std::vector<std::pair<double, double>> peers{{3e6, 10}, {100, 1000}, {-50, 900}, {90, 200}};
    BOOST_TEST(weighted_median(peers) == 90.0); // 900 below, 1010 above
    peers = {{5, 1}};
    BOOST_TEST(weighted_median(peers) == 5.0);
    peers = {{1e9, 1}, {200, 1000}};
    BOOST_TEST(weighted_median(peers) == 200.0);
    peers = {{1, 1}, {2, 1}, {3, 1}, {4, 1.5}};
    BOOST_TEST(weighted_median(peers) == 3.0);
}
