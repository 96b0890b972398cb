// Which protocol is for which size: what must hold whatever the network estimates of itself.
#define BOOST_TEST_MODULE pml_thresholds
#include <boost/test/unit_test.hpp>

#include <random>

#include "pml_glue/core/engine/thresholds.h"

using namespace ucx_mp::glue;

namespace {
constexpr std::size_t kPiece = 8152;
// An adapter of 100 Gbit/s, a processor that copies 25 GB/s.
constexpr Costs kAdapter{.message = 75,
                         .latency = 700,
                         .byte = 0.08,
                         .copy = 0.04,
                         .move = 75,
                         .move_latency = 700,
                         .move_byte = 0.08,
                         .registration = 50};
} // namespace

BOOST_AUTO_TEST_CASE(several_pieces_are_worth_it_while_copies_cost_less_than_the_way_there_and_back) {
    const Thresholds found = thresholds(kAdapter, kPiece, true);
    // 1725 ns of rendezvous, of which 125 would have to be paid for the zero copy, too; 0.04 + 150 / 8152 ns per byte.
    BOOST_TEST(found.other.eager > 27000u);
    BOOST_TEST(found.other.eager < 28000u);
    BOOST_TEST(found.waiting.eager > 20000u);
    BOOST_TEST(found.waiting.eager < 30000u);
    BOOST_TEST(found.other.zero_copy == 3126u); // 125 / 0.04, and one
    BOOST_TEST(found.waiting.zero_copy == SIZE_MAX);
}

BOOST_AUTO_TEST_CASE(without_a_cache_of_registrations_more_is_copied) {
    Costs costs = kAdapter;
    costs.registration = 16000;
    const Thresholds found = thresholds(costs, kPiece, true), cached = thresholds(kAdapter, kPiece, true);
    BOOST_TEST(found.other.eager > cached.other.eager);
    BOOST_TEST(found.waiting.eager > cached.waiting.eager);
    BOOST_TEST(found.other.zero_copy > found.other.eager); // never
}

BOOST_AUTO_TEST_CASE(who_knows_nothing_sends_one_piece) {
    const Thresholds found = thresholds({}, kPiece, true);
    BOOST_TEST(found.other.eager == kPiece);
    BOOST_TEST(found.waiting.eager == kPiece);
    BOOST_TEST(found.other.zero_copy == SIZE_MAX);
}

BOOST_AUTO_TEST_CASE(a_rendezvous_that_copies_is_for_what_the_receiver_must_not_have_to_keep) {
    BOOST_TEST(thresholds(kAdapter, kPiece, false).other.eager == kMostUnasked);
    BOOST_TEST(thresholds({}, kPiece, false).waiting.eager == kMostUnasked);
}

BOOST_AUTO_TEST_CASE(thresholds_are_bounded) {
    std::mt19937 random(1);
    const auto any = [&](double most) { return random() % 4 ? std::ldexp(most, -static_cast<int>(random() % 20)) : 0; };
    for (int i = 0; i < 10000; ++i) {
        const Costs costs{.message = any(1e4),
                          .latency = any(1e6),
                          .byte = any(10),
                          .copy = any(10),
                          .move = any(1e4),
                          .move_latency = any(1e6),
                          .move_byte = any(10),
                          .registration = any(1e7)};
        const std::size_t piece = 100 + random() % 20000;
        const Thresholds found = thresholds(costs, piece, true);
        for (const Sizes& sizes : {found.other, found.waiting}) {
            BOOST_REQUIRE(sizes.eager >= piece);
            BOOST_REQUIRE(sizes.eager <= kMostUnasked);
            BOOST_REQUIRE(sizes.zero_copy > 0);
        }
    }
}
