// When the progress thread looks, and whether it has a processor of its own.
#define BOOST_TEST_MODULE pace
#include <boost/test/unit_test.hpp>
#include <string>

#include "pml_glue/core/async/pace.h"
#include "pml_glue/core/async/processors.h"

using namespace ucx_mp::glue::async;

BOOST_AUTO_TEST_CASE(a_busy_program_is_looked_at_less_often) {
    Pace pace(kSpare);
    std::uint64_t calls = MP_TURN_CALL - 1;
    BOOST_TEST(!pace.outside(calls)); // nothing is known of it yet
    BOOST_TEST(pace.outside(calls));
    BOOST_TEST(!pace.outside(calls | 1)); // inside
    BOOST_TEST(!pace.outside(calls | 1)); // for long
    for (int i = 0; i < 10; ++i) {
        calls += MP_TURN_CALL - 1;
        BOOST_TEST(!pace.outside(calls)); // outside, but it has been inside since
    }
    BOOST_TEST(pace.wait() == kSpare.latest);
    BOOST_TEST(pace.outside(calls));
    BOOST_TEST(!pace.outside(calls + MP_TURN_CALL));
    BOOST_TEST(pace.wait() == kSpare.soonest); // it may go out again soon
}

BOOST_AUTO_TEST_CASE(a_processor_is_spare) {
    std::string why;
    const auto spare = [&](unsigned online, unsigned allowed, double quota, unsigned ranks, unsigned threads) {
        return is_spare({.online = online, .allowed = allowed, .quota = quota}, ranks, threads, why);
    };
    BOOST_TEST(!spare(2, 2, 0, 2, 1));
    BOOST_TEST(spare(2, 2, 0, 1, 1));
    BOOST_TEST(spare(16, 16, 0, 2, 7));
    BOOST_TEST(!spare(16, 16, 0, 2, 8));
    BOOST_TEST(!spare(16, 1, 0, 16, 1)); // bound to a core each
    BOOST_TEST(spare(16, 2, 0, 4, 1));   // to two cores each
    BOOST_TEST(!spare(16, 2, 0, 8, 2));  // whose second one computes, too
    BOOST_TEST(!spare(16, 16, 2, 2, 1)); // a group that may use two
    BOOST_TEST(why == "2 processors for 2 ranks with 1 thread each");
    BOOST_TEST(processors().allowed >= 1u);
}
