// FIND_MAP: the paper's figures and constants, our mends, and a naive search over all (l, m).
#define BOOST_TEST_MODULE unit_adapt_map
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

#include "uct_mp/adapt/map.h"

using namespace ucx_mp::adapt;
namespace tools = boost::test_tools;
BOOST_TEST_DONT_PRINT_LOG_VALUE(Service)

namespace {

// Of the paper's table 2, in us.
const Costs kPaper{.rc = 0.15, .ring = 0.1, .miss = 0.01, .credit = 0.3, .make_rc = 10, .make_ring = 10};
const Limits kPaperLimits{.rc = 26, .rings = 256, .slots = 16, .cold_every = 1};

std::vector<Source> sources(std::initializer_list<double> counts) {
    std::vector<Source> all;
    for (const double count : counts) all.push_back({.id = static_cast<std::uint32_t>(all.size()), .count = count});
    return all;
}

// As the paper writes it: every l and m, every sum anew.
double naive(std::vector<Source> all, const Costs& costs, const Limits& limits) {
    std::erase_if(all, [](const Source& s) { return s.count <= 0; });
    std::ranges::sort(all, std::greater{}, &Source::count);
    double best = 0;
    for (unsigned l = 0; l <= std::min<std::size_t>(limits.rings, all.size()); ++l) {
        std::vector<bool> takes;
        for (unsigned i = 0; i < l; ++i) takes.push_back(!all[i].refuses_rc);
        for (unsigned m = 0; m <= std::min<std::ptrdiff_t>(limits.rc, std::ranges::count(takes, true)); ++m) {
            double x = 0, looked = 0;
            unsigned given = 0;
            for (unsigned i = 0; i < l; ++i) {
                const bool rc = takes[i] && given < m;
                given += rc;
                x += all[i].count * (rc ? costs.rc : costs.ring) - all[i].count * costs.credit / limits.slots;
                if (const Service wanted = rc ? Service::rc : Service::dc_ring; all[i].now != wanted)
                    x -= rc ? costs.make_rc : costs.make_ring;
                looked += all[i].count * limits.cold_every >= all[0].count ? 1 : 1.0 / limits.cold_every;
            }
            if (l) x -= all[0].count * looked / 2 * costs.miss;
            best = std::max(best, x);
        }
    }
    return best;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_heavy_source) {
    const Mapping map = find_map(sources({1000}), kPaper, kPaperLimits);
    BOOST_TEST(map.gain == 116.25, tools::tolerance(1e-12));
    BOOST_TEST((map.choices == std::vector<Choice>{{0, Service::rc}}));
}

BOOST_AUTO_TEST_CASE(one_source_pays_from_80_messages_on) {
    BOOST_TEST(find_map(sources({79}), kPaper, kPaperLimits).choices.empty());
    BOOST_TEST(find_map(sources({79}), kPaper, kPaperLimits).gain == 0.0);
    BOOST_TEST(find_map(sources({81}), kPaper, kPaperLimits).choices.size() == 1u);
}

BOOST_AUTO_TEST_CASE(all_alike) {
    std::vector<Source> all(63);
    for (unsigned i = 0; i < all.size(); ++i) all[i] = {.id = i, .count = 1000};
    const Mapping map = find_map(all, kPaper, kPaperLimits);
    BOOST_TEST(map.gain == 5473.75, tools::tolerance(1e-12));
    BOOST_TEST(map.count(Service::rc) == 26u);
    BOOST_TEST(map.count(Service::dc_ring) == 37u);
    BOOST_TEST(map.gain / 63000 == 0.0869, tools::tolerance(1e-3));
}

// Beside a busiest source of n1, a source is worth a DC ring if n > n1 / 16 + 123.
BOOST_AUTO_TEST_CASE(a_light_one_beside_a_busy_one) {
    const Limits limits{.rc = 1, .rings = 256, .slots = 16, .cold_every = 1};
    for (const double n1 : {2000.0, 16000.0, 100000.0}) {
        const double edge = n1 * 0.005 / 0.08125 + 10 / 0.08125;
        BOOST_TEST(find_map(sources({n1, edge - 1}), kPaper, limits).choices.size() == 1u);
        const Mapping map = find_map(sources({n1, edge + 1}), kPaper, limits);
        BOOST_TEST(map.of(0) == Service::rc);
        BOOST_TEST(map.of(1) == Service::dc_ring);
    }
}

BOOST_AUTO_TEST_CASE(nobody_or_nothing) {
    BOOST_TEST(find_map({}, kPaper, kPaperLimits).choices.empty());
    BOOST_TEST(find_map(sources({0, 0}), kPaper, kPaperLimits).choices.empty());
    BOOST_TEST(find_map(sources({1e9}), {}, kPaperLimits).choices.empty()); // nothing is known to save anything
}

// What exists is not charged again. Without that a map that has been made would not be found again.
BOOST_AUTO_TEST_CASE(what_exists_costs_nothing) {
    std::vector<Source> one = sources({79});
    one[0].now = Service::rc;
    BOOST_TEST(find_map(one, kPaper, kPaperLimits).of(0) == Service::rc);
    one[0].now = Service::dc_ring;
    BOOST_TEST(find_map(one, kPaper, kPaperLimits).of(0) == Service::dc_ring); // RC would have to be made
    one[0].count = 1000;
    BOOST_TEST(find_map(one, kPaper, kPaperLimits).of(0) == Service::rc);
}

// Contexts that thrash can make RC the slower one: no source gets it then.
BOOST_AUTO_TEST_CASE(rc_may_be_slower) {
    Costs costs = kPaper;
    costs.rc = 0.05;
    const Mapping map = find_map(sources({5000, 4000, 3000}), costs, kPaperLimits);
    BOOST_TEST(map.count(Service::rc) == 0u);
    BOOST_TEST(map.count(Service::dc_ring) == 3u);
}

BOOST_AUTO_TEST_CASE(who_refuses_gets_a_ring) {
    std::vector<Source> all = sources({5000, 4000, 3000});
    all[0].refuses_rc = true;
    const Mapping map = find_map(all, kPaper, {.rc = 1, .rings = 256, .slots = 16, .cold_every = 1});
    BOOST_TEST(map.of(0) == Service::dc_ring);
    BOOST_TEST(map.of(1) == Service::rc);
    BOOST_TEST(map.of(2) == Service::dc_ring);
}

BOOST_AUTO_TEST_CASE(cold_rings_cost_less) {
    const std::vector<Source> all = sources({100000, 1500, 1500, 1500});
    BOOST_TEST(find_map(all, kPaper, kPaperLimits).choices.size() == 1u);
    BOOST_TEST(find_map(all, kPaper, Limits{}).choices.size() == 4u);
}

// Without rings RC is a path like others.
BOOST_AUTO_TEST_CASE(rc_without_rings) {
    const Limits limits{.rc = 2, .rings = 0};
    std::vector<Source> all = sources({5000, 60, 4000, 3000});
    Mapping map = find_map(all, kPaper, limits);
    BOOST_TEST((map.choices == std::vector<Choice>{{0, Service::rc}, {2, Service::rc}}));
    BOOST_TEST(map.gain == 9000 * 0.15 - 20, tools::tolerance(1e-12));
    BOOST_TEST(value(map, all, kPaper, limits) == 9000 * 0.15, tools::tolerance(1e-12));
    all[0].refuses_rc = true;
    map = find_map(all, kPaper, limits);
    BOOST_TEST((map.choices == std::vector<Choice>{{2, Service::rc}, {3, Service::rc}}));
}

BOOST_AUTO_TEST_CASE(value_is_the_gain_without_what_was_made) {
    const std::vector<Source> all = sources({5000, 4000, 700, 30});
    const Mapping map = find_map(all, kPaper, kPaperLimits);
    BOOST_TEST(map.choices.size() == 3u);
    BOOST_TEST(value(map, all, kPaper, kPaperLimits) == map.gain + 30, tools::tolerance(1e-12));
    // Other counts: nobody with a ring sends, yet each is polled.
    const std::vector<Source> others = {{.id = 9, .count = 1000}};
    BOOST_TEST(value(map, others, kPaper, kPaperLimits) == -1000 * 1.5 * 0.01, tools::tolerance(1e-12));
    BOOST_TEST(value(Mapping{}, all, kPaper, kPaperLimits) == 0.0);
}

BOOST_AUTO_TEST_CASE(as_good_as_every_pair_tried) {
    std::mt19937_64 random(7);
    const auto uniform = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
    for (unsigned round = 0; round < 2000; ++round) {
        std::vector<Source> all(random() % 12);
        for (unsigned i = 0; i < all.size(); ++i)
            all[i] = {.id = i,
                      .count = std::floor(std::pow(10.0, uniform(4))),
                      .now = static_cast<Service>(random() % 3),
                      .refuses_rc = random() % 5 == 0};
        const Costs costs{.rc = uniform(0.3),
                          .ring = uniform(0.3),
                          .miss = uniform(0.02),
                          .credit = uniform(0.5),
                          .make_rc = uniform(100),
                          .make_ring = uniform(50)};
        const Limits limits{.rc = static_cast<unsigned>(random() % 6),
                            .rings = 1 + static_cast<unsigned>(random() % 12),
                            .slots = 16,
                            .cold_every = random() % 2 ? 1u : 8u};
        const Mapping map = find_map(all, costs, limits);
        BOOST_TEST(map.gain == naive(all, costs, limits), tools::tolerance(1e-9));
        BOOST_TEST(map.count(Service::rc) <= limits.rc);
        BOOST_TEST(map.choices.size() <= limits.rings);
        double made = 0; // the gain belongs to this map
        for (const Choice& choice : map.choices)
            if (choice.service != all[choice.id].now)
                made += choice.service == Service::rc ? costs.make_rc : costs.make_ring;
        BOOST_TEST(value(map, all, costs, limits) - made == map.gain, tools::tolerance(1e-9));
    }
}
