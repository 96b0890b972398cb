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
    constexpr unsigned kSources = 1u << 10; // the rest by proportion
    Counts counts;
    for (unsigned slice = 1; slice <= 8 * 3600; ++slice) {
        std::vector<Counts::Entry> entries(kSources);
        for (unsigned i = 0; i < kSources; ++i) entries[i] = {i, 1};
        counts.add(Nanos{slice} * 125'000'000, std::move(entries));
    }
    BOOST_TEST_MESSAGE("1024 active sources for an hour: " << counts.bytes() << " bytes");
    BOOST_TEST(counts.bytes() * 64 < 87'000'000u);
    // Few of many: as if there were no others.
    Counts few;
    for (unsigned slice = 1; slice <= 8 * 3600; ++slice) few.add(Nanos{slice} * 125'000'000, {{1, 5}, {60'000, 7}});
    BOOST_TEST(few.bytes() < 10'000u);
    BOOST_TEST(total(few.since(0)) == 12.0 * 8 * 3600);
}
