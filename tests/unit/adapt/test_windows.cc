// When another map is taken: time windows over patterns that last, change and return.
#define BOOST_TEST_MODULE unit_adapt_windows
#include <boost/test/unit_test.hpp>

#include <functional>

#include "uct_mp/adapt/windows.h"

using namespace ucx_mp;
using namespace ucx_mp::adapt;
using Why = Windows::Why;
BOOST_TEST_DONT_PRINT_LOG_VALUE(Service)

namespace {

constexpr Nanos kSecond = 1'000'000'000;

// The paper's table 2, ns; no faster than every second.
Tuning paper() {
    Tuning tuning;
    tuning.costs = {.rc = 150, .make_rc = 10'000};
    tuning.limits.rings = 0;
    tuning.min_interval = tuning.interval;
    return tuning;
}

// Feeds slices, and takes over what is found.
struct Driver {
    explicit Driver(const Tuning& tuning) : windows(tuning, 0) {}
    using Rates = std::function<std::vector<Counts::Entry>(Nanos)>; // messages in a slice that ends then
    // Until the next look.
    Windows::Verdict look(const Rates& rates) {
        for (;;) {
            const Nanos end = windows.slice_end();
            if (!windows.end_slice(end, rates(end))) continue;
            Windows::Verdict verdict = windows.look(present, refusing);
            if (verdict.why != Why::nothing) present = verdict.map;
            return verdict;
        }
    }
    Windows windows;
    Mapping present;
    std::vector<std::uint32_t> refusing;
};

std::vector<Counts::Entry> from(std::initializer_list<std::uint32_t> ids, float count) {
    std::vector<Counts::Entry> entries;
    for (const std::uint32_t id : ids) entries.push_back({id, count});
    return entries;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_pattern_that_lasts) {
    Driver driver(paper());
    const auto steady = [](Nanos) { return from({1, 2, 3}, 10'000); };
    BOOST_TEST(driver.windows.least_gain() == 0.0);
    BOOST_TEST((driver.look(steady).why == Why::first));
    BOOST_TEST(driver.present.count(Service::rc) == 3u);
    BOOST_TEST(driver.windows.least_gain() == 25.0);
    for (unsigned i = 0; i < 50; ++i) BOOST_TEST((driver.look(steady).why == Why::nothing));
    BOOST_TEST(driver.windows.begin() == 0u);
}

// The first look takes its map, though it is empty. From then on a look without a better one changes nothing, and comes
// later.
BOOST_AUTO_TEST_CASE(only_one_look_is_the_first) {
    Tuning tuning = paper();
    tuning.min_interval = tuning.interval / 16;
    Driver driver(tuning);
    const auto few = [](Nanos) { return from({1, 2, 3}, 1); };
    BOOST_TEST((driver.look(few).why == Why::first));
    BOOST_TEST(driver.present.choices.empty());
    const Nanos interval = driver.windows.interval();
    BOOST_TEST((driver.look(few).why == Why::nothing));
    BOOST_TEST(driver.windows.interval() == 2 * interval);
}

// What another map saves is told per message: 8 slices of 1000 from a source, 150 ns each, less 10 us for RC.
BOOST_AUTO_TEST_CASE(a_gain_is_per_message) {
    Driver driver(paper());
    BOOST_TEST((driver.look([](Nanos) { return from({1}, 1); }).why == Why::first));
    const Windows::Verdict verdict = driver.look([](Nanos) { return from({1}, 1000); });
    BOOST_TEST(verdict.extended_gain == 150 - 10'000 / 8008.0, boost::test_tools::tolerance(1e-9));
}

// What a peer has already is not charged again: 16 slices of 1000 from each, 10 us for the second one's RC.
BOOST_AUTO_TEST_CASE(only_new_services_are_charged) {
    Driver driver(paper());
    driver.present.set(1, Service::rc);
    const Windows::Verdict verdict = driver.look([](Nanos) { return from({1, 2}, 1000); });
    BOOST_TEST(verdict.extended_gain == (8000 * 150 - 10'000) / 16'000.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(verdict.shrunk_gain == (2000 * 150 - 10'000) / 4000.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST((verdict.why == Why::extended));
    // Where nothing is charged both windows save the same: the long one's map is taken.
    Tuning tuning = paper();
    tuning.costs.make_rc = 0;
    Driver same(tuning);
    same.present.set(1, Service::rc);
    BOOST_TEST((same.look([](Nanos) { return from({1, 2}, 1000); }).why == Why::extended));
    BOOST_TEST(same.windows.begin() == 0u);
}

// As much as is asked for is not enough.
BOOST_AUTO_TEST_CASE(the_threshold_itself) {
    for (const double least : {24.0, 25.0}) {
        Tuning tuning = paper();
        tuning.costs = {.rc = 50}; // for one half of the messages
        tuning.least_gain = least;
        Driver driver(tuning);
        driver.present.set(1, Service::rc);
        const Windows::Verdict verdict = driver.look([](Nanos) { return from({1, 2}, 1000); });
        BOOST_TEST(verdict.extended_gain == 25.0);
        BOOST_TEST((verdict.why == Why::extended) == (least < 25));
    }
}

// Half of the window at the look before: one second of two, then one and a half of three.
BOOST_AUTO_TEST_CASE(the_short_window_grows_with_the_long_one) {
    Tuning tuning = paper();
    tuning.least_gain = 1000; // never
    Driver driver(tuning);
    const auto others = [](Nanos end) { return end <= kSecond ? from({1}, 1000) : from({2}, 1000); };
    BOOST_TEST((driver.look(others).why == Why::first));
    const double short_of[] = {4000, 8000, 12'000}, all[] = {8000, 16'000, 24'000};
    for (unsigned i = 0; i < 3; ++i) {
        const Windows::Verdict verdict = driver.look(others);
        BOOST_TEST((verdict.why == Why::nothing));
        BOOST_TEST(verdict.shrunk_gain == 150 - 10'000 / short_of[i], boost::test_tools::tolerance(1e-9));
        BOOST_TEST(verdict.extended_gain == (150 * all[i] - 10'000) / (8000 + all[i]),
                   boost::test_tools::tolerance(1e-9));
    }
}

// Whoever looks early, or late, has eight slices until the next look. Who does not look is told again.
BOOST_AUTO_TEST_CASE(eight_slices_until_the_next_look) {
    Windows windows(paper(), 0);
    const auto slices = [&] {
        for (unsigned n = 1;; ++n)
            if (windows.end_slice(windows.slice_end(), from({1}, 1))) return n;
    };
    BOOST_TEST(slices() == 8u);
    BOOST_TEST(slices() == 8u);
    for (unsigned i = 0; i < 3; ++i) (void)windows.end_slice(windows.slice_end(), from({1}, 1));
    (void)windows.look({}, {});
    BOOST_TEST(slices() == 8u);
}

// It is the shortest at first, is doubled up to the longest, and that is the bound of both.
BOOST_AUTO_TEST_CASE(bounds_of_the_interval) {
    Tuning tuning = paper();
    tuning.interval = 1600;
    for (const Nanos shortest : {500u, 1600u, 5000u}) {
        tuning.min_interval = shortest;
        Driver driver(tuning);
        Nanos expected = std::min<Nanos>(shortest, 1600);
        BOOST_TEST(driver.windows.interval() == expected);
        BOOST_TEST(driver.windows.slice_end() == expected / 8);
        const auto steady = [](Nanos) { return from({1}, 10'000); };
        BOOST_TEST((driver.look(steady).why == Why::first));
        for (unsigned i = 0; i < 3; ++i) {
            (void)driver.look(steady);
            expected = std::min<Nanos>(2 * expected, 1600);
            BOOST_TEST(driver.windows.interval() == expected);
        }
    }
}

// The short window sees it first, and the old pattern is forgotten.
BOOST_AUTO_TEST_CASE(a_pattern_that_changes) {
    Tuning tuning = paper();
    tuning.limits.rc = 2;
    Driver driver(tuning);
    const auto before = [](Nanos) { return from({1, 2}, 10'000); };
    const auto after = [](Nanos) { return from({3, 4}, 10'000); };
    for (unsigned i = 0; i < 20; ++i) (void)driver.look(before);
    unsigned looks = 0;
    while (driver.present.of(3) != Service::rc && looks < 40) {
        const Windows::Verdict verdict = driver.look(after);
        ++looks;
        if (verdict.why != Why::nothing) BOOST_TEST((verdict.why == Why::shrunk));
    }
    BOOST_TEST_MESSAGE("looks until the new pattern is served: " << looks);
    BOOST_TEST(looks <= 20u);
    BOOST_TEST(driver.present.of(1) == Service::shared);
    BOOST_TEST(driver.windows.begin() > 0u);
    BOOST_TEST(driver.windows.counts().bytes() < 10'000u);
}

// Each change is seen by the short window, whose length halves. It has two slices at least.
BOOST_AUTO_TEST_CASE(the_short_window_has_two_slices) {
    Tuning tuning = paper();
    tuning.limits.rc = 1;
    Driver driver(tuning);
    // In the n-th second: 2n in the first six slices, 2n + 1 in the last two.
    const auto rates = [](Nanos end) {
        const auto n = static_cast<std::uint32_t>((end - 1) / kSecond),
                   slice = static_cast<std::uint32_t>((end - 1) % kSecond / (kSecond / 8));
        return slice < 6 ? from({2 * n}, 10'000) : from({2 * n + 1}, 15'000);
    };
    BOOST_TEST((driver.look(rates).why == Why::first));
    const Nanos lengths[] = {kSecond / 2, kSecond / 4, kSecond / 4, kSecond / 4};
    for (std::uint32_t n = 1; n <= 4; ++n) {
        BOOST_TEST((driver.look(rates).why == Why::shrunk));
        BOOST_TEST(driver.present.of(2 * n + 1) == Service::rc);
        BOOST_TEST(driver.windows.begin() == (n + 1) * kSecond - lengths[n - 1]);
    }
}

// What was before is forgotten, and the next look comes sooner.
BOOST_AUTO_TEST_CASE(a_change_is_followed_up) {
    Tuning tuning = paper();
    tuning.min_interval = kSecond / 64;
    tuning.limits.rc = 1;
    Driver driver(tuning);
    for (unsigned i = 0; i < 20; ++i) (void)driver.look([](Nanos) { return from({1}, 10'000); });
    BOOST_TEST(driver.windows.interval() == kSecond);
    const std::size_t before = driver.windows.counts().slices();
    Windows::Verdict verdict;
    for (unsigned i = 0; i < 40 && verdict.why != Why::shrunk; ++i) {
        BOOST_TEST(driver.windows.interval() == kSecond);
        verdict = driver.look([](Nanos) { return from({2}, 10'000); });
    }
    BOOST_TEST((verdict.why == Why::shrunk));
    BOOST_TEST(driver.windows.interval() == kSecond / 2);
    BOOST_TEST(driver.windows.counts().slices() < before);
    for (unsigned i = 0; i < 3; ++i) (void)driver.look([](Nanos) { return from({2}, 10'000); });
    BOOST_TEST(driver.windows.interval() == kSecond);
}

// The first windows in which nothing comes do not count.
BOOST_AUTO_TEST_CASE(silence_first) {
    Driver driver(paper());
    for (unsigned i = 0; i < 5; ++i) BOOST_TEST((driver.look([](Nanos) { return from({}, 0); }).why == Why::nothing));
    BOOST_TEST(driver.windows.counts().slices() == 0u);
    BOOST_TEST(driver.windows.begin() == 5 * kSecond);
    BOOST_TEST((driver.look([](Nanos) { return from({1}, 10'000); }).why == Why::first));
    BOOST_TEST(driver.present.of(1) == Service::rc);
}

BOOST_AUTO_TEST_CASE(who_refuses_is_left_out) {
    Driver driver(paper());
    driver.refusing = {2};
    (void)driver.look([](Nanos) { return from({1, 2}, 10'000); });
    BOOST_TEST(driver.present.of(1) == Service::rc);
    BOOST_TEST(driver.present.of(2) == Service::shared);
}

// A gain of less than the threshold changes nothing.
BOOST_AUTO_TEST_CASE(small_gains) {
    Tuning tuning = paper();
    tuning.limits.rc = 1;
    Driver driver(tuning);
    (void)driver.look([](Nanos) { return std::vector<Counts::Entry>{{1, 11'000}, {2, 10'000}}; });
    BOOST_TEST(driver.present.of(1) == Service::rc);
    BOOST_TEST(driver.present.of(2) == Service::shared);
    for (unsigned i = 0; i < 50; ++i) // RC for the other one would save 150 ns of some messages: 9 ns of each
        BOOST_TEST((driver.look([](Nanos) {
                              return std::vector<Counts::Entry>{{1, 10'000}, {2, 11'300}};
                          })
                        .why == Why::nothing));
    BOOST_TEST(driver.present.of(1) == Service::rc);
}

// Phases of some 100 ms: a fixed interval of a second sees them all as one.
BOOST_AUTO_TEST_CASE(the_interval_follows_the_pattern) {
    Tuning tuning = paper();
    tuning.min_interval = kSecond / 64;
    tuning.limits.rc = 2;
    Driver driver(tuning);
    const auto phases = [](Nanos end) {
        return (end - 1) / (kSecond / 4) % 2 ? from({3, 4}, 1000) : from({1, 2}, 1000);
    };
    unsigned right = 0, looks = 0;
    while (driver.windows.counts().end() < 10 * kSecond) {
        (void)driver.look(phases);
        ++looks;
        right += driver.present.of(phases(driver.windows.counts().end())[0].id) == Service::rc;
    }
    BOOST_TEST_MESSAGE("right after " << right << " of " << looks << " looks");
    BOOST_TEST(right > looks / 2);
    const auto steady = [](Nanos) { return from({1, 2}, 1000); };
    for (unsigned i = 0; i < 20; ++i) (void)driver.look(steady);
    BOOST_TEST(driver.windows.interval() == kSecond);
}

// Nothing is worth its price at first. Later it is, though a message saves less than what a change must save.
BOOST_AUTO_TEST_CASE(the_first_map_comes_late) {
    Tuning tuning = paper();
    tuning.costs.rc = 15;
    Driver driver(tuning);
    const auto few = [](Nanos) { return from({1}, 5); };
    (void)driver.look(few);
    BOOST_TEST(driver.present.choices.empty());
    unsigned looks = 0;
    while (driver.present.choices.empty() && looks < 100) (void)driver.look(few), ++looks;
    BOOST_TEST(driver.present.of(1) == Service::rc);
    BOOST_TEST(looks > 5u);
    BOOST_TEST(driver.windows.least_gain() == 25.0);
}

// No gain is asked for. What differs by rounding only is no gain, so nothing goes to and fro.
BOOST_AUTO_TEST_CASE(rounding_saves_nothing) {
    for (const unsigned rings : {0u, 64u}) {
        Tuning tuning = paper();
        tuning.limits.rings = rings;
        tuning.limits.rc = 7;
        tuning.least_gain = 0;
        tuning.costs = {.rc = 150.1, .ring = 99.7, .miss = 9.9, .credit = 301.3, .make_rc = 1e4, .make_ring = 1e4};
        Driver driver(tuning);
        const auto steady = [](Nanos) {
            std::vector<Counts::Entry> entries;
            for (std::uint32_t i = 0; i < 40; ++i) entries.push_back({i, 10'000.0f + static_cast<float>(i) * 37.3f});
            return entries;
        };
        (void)driver.look(steady);
        BOOST_TEST(driver.present.choices.size() == (rings ? 40u : 7u));
        unsigned changes = 0;
        for (unsigned i = 0; i < 100; ++i) changes += driver.look(steady).why != Why::nothing;
        BOOST_TEST(changes == 0u);
    }
}

// Some had RC before anybody looked: then another map is taken only if it saves enough.
BOOST_AUTO_TEST_CASE(not_the_first_map) {
    Tuning tuning = paper();
    tuning.limits.rc = 1;
    Driver driver(tuning);
    driver.present.set(1, Service::rc);
    const auto rates = [](Nanos) {
        std::vector<Counts::Entry> entries = from({1}, 10'000);
        entries.push_back({2, 10'500}); // saves more, but no 25 ns a message
        return entries;
    };
    for (unsigned i = 0; i < 5; ++i) BOOST_TEST((driver.look(rates).why == Why::nothing));
    BOOST_TEST(driver.present.of(1) == Service::rc);
}
