// Counts by source and time: nothing is lost when slices become coarser, and memory stays small.
#define BOOST_TEST_MODULE unit_adapt_counts
#include <boost/test/unit_test.hpp>

#include "uct_mp/adapt/counts.h"

using namespace ucx_mp;
using namespace ucx_mp::adapt;

namespace {
double total(const std::vector<Source>& sources) {
    double sum = 0;
    for (const Source& source : sources) sum += source.count;
    return sum;
}
} // namespace

BOOST_AUTO_TEST_CASE(windows_that_match_slices) {
    Counts counts;
    counts.restart(100);
    counts.add(200, {{3, 10}, {7, 1}});
    counts.add(300, {});
    counts.add(400, {{3, 5}, {5, 2}});
    BOOST_TEST(total(counts.since(0)) == 18.0);
    BOOST_TEST(total(counts.since(100)) == 18.0);
    BOOST_TEST(total(counts.since(200)) == 7.0);
    BOOST_TEST(total(counts.since(300)) == 7.0);
    BOOST_TEST(total(counts.since(400)) == 0.0);
    const std::vector<Source> all = counts.since(100);
    BOOST_REQUIRE(all.size() == 3u);
    BOOST_TEST(all[0].id == 3u);
    BOOST_TEST(all[0].count == 15.0);
    BOOST_TEST(all[1].id == 5u);
    BOOST_TEST(all[2].id == 7u);
}

// Two slices of 100 that have become one begin where the first did: more than half of it lies before 120.
BOOST_AUTO_TEST_CASE(a_merged_slice_begins_with_its_first) {
    Counts counts;
    for (unsigned i = 1; i <= Counts::kLevel + 1; ++i) counts.add(Nanos{i} * 100, {{1, 1}});
    BOOST_TEST(counts.slices() == Counts::kLevel);
    BOOST_TEST(total(counts.since(80)) == 9.0);
    BOOST_TEST(total(counts.since(120)) == 7.0);
    BOOST_TEST(total(counts.since(0)) == 9.0);
}

// The two oldest of nine become one of twice the length; so do the two oldest of nine such ones.
BOOST_AUTO_TEST_CASE(at_most_eight_of_each_length) {
    Counts counts;
    const std::size_t expected[] = {1,  2,  3,  4,  5,  6,  7,  8,  8,  9,  9,  10, 10, 11,
                                    11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 15, 16, 16};
    for (unsigned i = 0; i < std::size(expected); ++i) {
        counts.add((i + 1) * Nanos{100}, {{1, 1}});
        BOOST_TEST(counts.slices() == expected[i], i);
    }
}

// What two slices know of different sources is in the one that they become.
BOOST_AUTO_TEST_CASE(merged_sources) {
    using Entries = std::vector<Counts::Entry>;
    const std::pair<Entries, Entries> pairs[] = {{{{2, 1}}, {{1, 10}, {2, 20}, {3, 30}}},
                                                 {{{1, 10}, {2, 1}, {3, 30}}, {{2, 20}}},
                                                 {{{1, 10}, {3, 30}}, {{2, 21}}},
                                                 {{}, {{1, 10}, {2, 21}, {3, 30}}},
                                                 {{{1, 10}, {2, 21}, {3, 30}}, {}}};
    for (const auto& [first, second] : pairs) {
        Counts counts;
        counts.add(100, first);
        counts.add(200, second);
        for (unsigned i = 2; i < Counts::kLevel + 1; ++i) counts.add((i + 1) * Nanos{100}, {});
        const std::vector<Source> all = counts.since(0);
        BOOST_REQUIRE(all.size() == 3u);
        const double expected[] = {10, 21, 30};
        for (unsigned i = 0; i < 3; ++i) {
            BOOST_TEST(all[i].id == i + 1);
            BOOST_TEST(all[i].count == expected[i]);
        }
    }
}

// A slice counts if more than half of it lies behind the beginning, also one without length.
BOOST_AUTO_TEST_CASE(half_of_a_slice) {
    Counts counts;
    counts.restart(1000);
    counts.add(1100, {{1, 1}});
    BOOST_TEST(total(counts.since(1049)) == 1.0);
    BOOST_TEST(total(counts.since(1050)) == 0.0);
    BOOST_TEST(total(counts.since(1051)) == 0.0);
    counts.add(1100, {{2, 7}});
    BOOST_TEST(total(counts.since(1100)) == 7.0);
    BOOST_TEST(total(counts.since(1101)) == 0.0);
}

// What ends with the time that is asked for lies before.
BOOST_AUTO_TEST_CASE(forgotten_slices) {
    for (const auto& [before, left] : {std::pair(99u, 3u), {100u, 2u}, {101u, 2u}, {199u, 2u}, {200u, 1u}}) {
        Counts counts;
        for (unsigned i = 1; i <= 3; ++i) counts.add(Nanos{i} * 100, {{1, 1}});
        counts.forget(before);
        BOOST_TEST(counts.slices() == left, before);
    }
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_what_was_before) {
    Counts counts;
    counts.add(100, {{1, 1}});
    const std::size_t one = counts.bytes();
    counts.restart(500);
    BOOST_TEST(counts.end() == 500u);
    BOOST_TEST(counts.slices() == 0u);
    BOOST_TEST(counts.since(0).empty());
    BOOST_TEST(counts.bytes() == sizeof counts);
    counts.add(600, {{1, 1}});
    BOOST_TEST(counts.bytes() == one);
    BOOST_TEST(counts.bytes() >= sizeof counts + sizeof(Counts::Entry));
}

// The last slice stays, whatever is not asked for any more.
BOOST_AUTO_TEST_CASE(one_slice_is_not_forgotten) {
    for (unsigned slices = 1; slices < 4; ++slices) {
        Counts counts;
        for (unsigned i = 1; i <= slices; ++i) counts.add(Nanos{i} * 100, {{1, 1}});
        counts.forget(1'000'000);
        BOOST_TEST(counts.slices() == 1u);
        BOOST_TEST(total(counts.since(0)) == 1.0);
    }
}

// Whatever has been merged, everything is there, and a window is right to about an eighth of its length.
BOOST_AUTO_TEST_CASE(old_slices_become_coarser) {
    Counts counts;
    for (unsigned i = 1; i <= 10'000; ++i) counts.add(Nanos{i} * 1000, {{i % 3, 1}});
    BOOST_TEST(total(counts.since(0)) == 10'000.0);
    BOOST_TEST(counts.slices() <= Counts::kLevel * 12);
    for (const Nanos length : {3u, 8u, 20u, 100u, 777u, 4000u, 9000u}) {
        const double known = total(counts.since((10'000 - length) * 1000));
        const double error = known / static_cast<double>(length) - 1;
        BOOST_TEST(error < 0.15);
        BOOST_TEST(error > -0.15);
    }
}

BOOST_AUTO_TEST_CASE(what_nobody_asks_for_is_forgotten) {
    Counts counts;
    for (unsigned i = 1; i <= 1000; ++i) counts.add(Nanos{i} * 1000, {{i, 1}});
    const std::size_t before = counts.bytes();
    const double wanted = total(counts.since(990'000));
    counts.forget(990'000);
    BOOST_TEST(total(counts.since(990'000)) == wanted);
    BOOST_TEST(counts.bytes() < before / 10);
}

// Above 2^16 processes that all send all the time the paper's table has 87 MB; ours must have less after an hour.
BOOST_AUTO_TEST_CASE(memory) {
    constexpr unsigned kSources = 1u << 7; // the rest by proportion
    Counts counts;
    for (unsigned slice = 1; slice <= 8 * 3600; ++slice) {
        std::vector<Counts::Entry> entries(kSources);
        for (unsigned i = 0; i < kSources; ++i) entries[i] = {i, 1};
        counts.add(Nanos{slice} * 125'000'000, std::move(entries));
    }
    BOOST_TEST_MESSAGE("128 active sources for an hour: " << counts.bytes() << " bytes");
    BOOST_TEST(counts.bytes() * 512 < 87'000'000u);
    // Few of many: as if there were no others.
    Counts few;
    for (unsigned slice = 1; slice <= 8 * 3600; ++slice) few.add(Nanos{slice} * 125'000'000, {{1, 5}, {60'000, 7}});
    BOOST_TEST(few.bytes() < 10'000u);
    BOOST_TEST(total(few.since(0)) == 12.0 * 8 * 3600);
}
