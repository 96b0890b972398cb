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

// The paper's table 2, in us. There RC comes with a ring, so what it adds to one is half of that.
const Costs kPaper{.rc = 0.05, .ring = 0.1, .miss = 0.01, .credit = 0.3, .make_rc = 0, .make_ring = 10};
const Limits kRings{.rc = 0, .rings = 256, .slots = 16, .cold_every = 1};
const Limits kRc{.rc = 26, .rings = 0};

std::vector<Source> sources(std::initializer_list<double> counts) {
    std::vector<Source> all;
    for (const double count : counts) all.push_back({.id = static_cast<std::uint32_t>(all.size()), .count = count});
    return all;
}

// Every l and m, every sum anew: the first l have rings, the first m of those that take it have RC.
double naive(std::vector<Source> rings, std::vector<Source> rc, const Costs& costs, const Limits& limits) {
    for (std::vector<Source>* all : {&rings, &rc}) {
        std::erase_if(*all, [](const Source& s) { return s.count <= 0; });
        std::ranges::sort(*all, std::greater{}, &Source::count);
    }
    std::erase_if(rc, &Source::refuses_rc);
    double best = 0;
    for (unsigned l = 0; l <= std::min<std::size_t>(limits.rings, rings.size()); ++l)
        for (unsigned m = 0; m <= std::min<std::size_t>(limits.rc, rc.size()); ++m) {
            double x = 0, looked = 0;
            for (unsigned i = 0; i < l; ++i) {
                x += rings[i].count * (costs.ring - costs.credit / limits.slots);
                if (rings[i].now != Service::dc_ring) x -= costs.make_ring;
                looked += rings[i].count * limits.cold_every >= rings[0].count ? 1 : 1.0 / limits.cold_every;
            }
            if (l) x -= rings[0].count * looked / 2 * costs.miss;
            for (unsigned i = 0; i < m; ++i)
                x += rc[i].count * costs.rc - (rc[i].now == Service::rc ? 0 : costs.make_rc);
            best = std::max(best, x);
        }
    return best;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_heavy_source) {
    const Mapping rings = find_map(sources({1000}), kPaper, kRings), rc = find_map(sources({1000}), kPaper, kRc);
    BOOST_TEST(rings.gain + rc.gain == 116.25, tools::tolerance(1e-12));
    BOOST_TEST((rings.choices == std::vector<Choice>{{0, Service::dc_ring}}));
    BOOST_TEST((rc.choices == std::vector<Choice>{{0, Service::rc}}));
}

BOOST_AUTO_TEST_CASE(all_alike) {
    std::vector<Source> all(63);
    for (unsigned i = 0; i < all.size(); ++i) all[i] = {.id = i, .count = 1000};
    const Mapping rings = find_map(all, kPaper, kRings), rc = find_map(all, kPaper, kRc);
    BOOST_TEST(rings.gain + rc.gain == 5473.75, tools::tolerance(1e-12)); // the paper's, 0.0869 us a message
    BOOST_TEST(rc.count(Service::rc) == 26u);
    BOOST_TEST(rings.count(Service::dc_ring) == 63u);
    // Always the same ones, whatever their order.
    std::ranges::reverse(all);
    for (unsigned i = 0; i < all.size(); ++i) BOOST_TEST((rc.of(i) == Service::rc) == (i < 26));
    BOOST_TEST((find_map(all, kPaper, kRc).choices == rc.choices));
}

BOOST_AUTO_TEST_CASE(a_map_has_one_service_for_each) {
    Mapping map;
    for (const std::uint32_t id : {7, 3, 5}) map.set(id, Service::rc);
    map.set(5, Service::dc_ring); // another one
    map.set(4, Service::shared);  // which it has anyway
    BOOST_TEST((map.choices == std::vector<Choice>{{3, Service::rc}, {5, Service::dc_ring}, {7, Service::rc}}));
    map.set(3, Service::shared);
    map.set(9, Service::shared);
    BOOST_TEST((map.choices == std::vector<Choice>{{5, Service::dc_ring}, {7, Service::rc}}));
    for (const std::uint32_t id : {3, 4, 6, 9}) BOOST_TEST(map.of(id) == Service::shared);
    BOOST_TEST(map.of(7) == Service::rc);
    BOOST_TEST(map.count(Service::rc) == 1u);
}

// Beside a busiest source of n1, a source is worth a ring if n > n1 / 16 + 123.
BOOST_AUTO_TEST_CASE(a_light_one_beside_a_busy_one) {
    for (const double n1 : {2000.0, 16000.0, 100000.0}) {
        const double edge = n1 * 0.005 / 0.08125 + 10 / 0.08125;
        BOOST_TEST(find_map(sources({n1, edge - 1}), kPaper, kRings).choices.size() == 1u);
        BOOST_TEST(find_map(sources({n1, edge + 1}), kPaper, kRings).choices.size() == 2u);
    }
}

BOOST_AUTO_TEST_CASE(nobody_or_nothing) {
    for (const Limits& limits : {kRings, kRc}) {
        BOOST_TEST(find_map({}, kPaper, limits).choices.empty());
        BOOST_TEST(find_map(sources({0, 0}), kPaper, limits).choices.empty());
        BOOST_TEST(find_map(sources({1e9}), {}, limits).choices.empty()); // nothing is known to save anything
    }
}

// What exists is not charged again. Without that a map that has been made would not be found again.
BOOST_AUTO_TEST_CASE(what_exists_costs_nothing) {
    std::vector<Source> one = sources({120});
    BOOST_TEST(find_map(one, kPaper, kRings).choices.empty());
    one[0].now = Service::dc_ring;
    BOOST_TEST(find_map(one, kPaper, kRings).of(0) == Service::dc_ring);
}

// Contexts that thrash can make RC the slower one: no source gets it then.
BOOST_AUTO_TEST_CASE(rc_may_be_slower) {
    Costs costs = kPaper;
    costs.rc = -0.05;
    BOOST_TEST(find_map(sources({5000, 4000, 3000}), costs, kRc).choices.empty());
}

BOOST_AUTO_TEST_CASE(cold_rings_cost_less) {
    const std::vector<Source> all = sources({100000, 1500, 1500, 1500});
    BOOST_TEST(find_map(all, kPaper, kRings).choices.size() == 1u);
    BOOST_TEST(find_map(all, kPaper, Limits{}).choices.size() == 4u);
}

// A ring with an eighth of the busiest one's messages is looked at each time, one with less each 8th time.
BOOST_AUTO_TEST_CASE(an_eighth_is_not_cold) {
    Limits limits = kRings;
    limits.cold_every = 8;
    const double ring = kPaper.ring - kPaper.credit / 16;
    Mapping map;
    for (const std::uint32_t id : {0, 1}) map.set(id, Service::dc_ring);
    for (const auto& [count, looked] : {std::pair(1001.0, 2.0), {1000.0, 2.0}, {999.0, 1.125}}) {
        const std::vector<Source> both = sources({8000, count});
        const double expected = (8000 + count) * ring - 8000 * looked / 2 * kPaper.miss;
        BOOST_TEST(value(map, both, kPaper, limits) == expected, tools::tolerance(1e-12));
        BOOST_TEST(find_map(both, kPaper, limits).gain == expected - 20, tools::tolerance(1e-12));
    }
}

// Who polls nobody's messages loses nothing.
BOOST_AUTO_TEST_CASE(silence_costs_nothing) {
    Mapping map;
    map.set(3, Service::dc_ring);
    BOOST_TEST(value(map, {}, kPaper, kRings) == 0.0);
    BOOST_TEST(value(map, std::vector<Source>{{.id = 3}}, kPaper, kRings) == 0.0);
}

BOOST_AUTO_TEST_CASE(rc_for_the_heaviest_that_take_it) {
    const Limits limits{.rc = 2, .rings = 0};
    const Costs costs{.rc = 0.15, .make_rc = 10};
    std::vector<Source> all = sources({5000, 60, 4000, 3000});
    Mapping map = find_map(all, costs, limits);
    BOOST_TEST((map.choices == std::vector<Choice>{{0, Service::rc}, {2, Service::rc}}));
    BOOST_TEST(map.gain == 9000 * 0.15 - 20, tools::tolerance(1e-12));
    BOOST_TEST(value(map, all, costs, limits) == 9000 * 0.15, tools::tolerance(1e-12));
    all[0].refuses_rc = true;
    map = find_map(all, costs, limits);
    BOOST_TEST((map.choices == std::vector<Choice>{{2, Service::rc}, {3, Service::rc}}));
}

BOOST_AUTO_TEST_CASE(value_is_the_gain_without_what_was_made) {
    const std::vector<Source> all = sources({5000, 4000, 700, 30});
    const Mapping map = find_map(all, kPaper, kRings);
    BOOST_TEST(map.choices.size() == 3u);
    BOOST_TEST(value(map, all, kPaper, kRings) == map.gain + 30, tools::tolerance(1e-12));
    // Other counts: nobody with a ring sends, yet each is polled.
    const std::vector<Source> others = {{.id = 9, .count = 1000}};
    BOOST_TEST(value(map, others, kPaper, kRings) == -1000 * 1.5 * 0.01, tools::tolerance(1e-12));
    BOOST_TEST(value(Mapping{}, all, kPaper, kRings) == 0.0);
    // Nor are cold ones looked at each time, or paths of RC at all.
    Limits cold = kRings;
    cold.cold_every = 8;
    BOOST_TEST(value(map, others, kPaper, cold) == -1000 * 1.5 / 8 * 0.01, tools::tolerance(1e-12));
    BOOST_TEST(value(find_map(all, kPaper, kRc), others, kPaper, kRc) == 0.0);
}

// Rings are the receiver's choice, RC the sender's. Whatever the costs, no pair of maps is better than the best of
// each.
BOOST_AUTO_TEST_CASE(apart_is_as_good_as_together) {
    std::mt19937_64 random(7);
    const auto uniform = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
    const auto draw = [&](Service has) {
        std::vector<Source> all(random() % 12);
        for (unsigned i = 0; i < all.size(); ++i)
            all[i] = {.id = i,
                      .count = std::floor(std::pow(10.0, uniform(4))),
                      .now = random() % 3 ? Service::shared : has,
                      .refuses_rc = random() % 5 == 0};
        return all;
    };
    for (unsigned round = 0; round < 2000; ++round) {
        const std::vector<Source> from = draw(Service::dc_ring), to = draw(Service::rc);
        const Costs costs{.rc = uniform(0.3) - 0.05,
                          .ring = uniform(0.3),
                          .miss = uniform(0.02),
                          .credit = uniform(0.5),
                          .make_rc = uniform(100),
                          .make_ring = uniform(50)};
        const Limits limits{.rc = static_cast<unsigned>(random() % 6),
                            .rings = 1 + static_cast<unsigned>(random() % 12),
                            .slots = 16,
                            .cold_every = random() % 2 ? 1u : 8u};
        Limits no_rings = limits;
        no_rings.rings = 0;
        const Mapping rings = find_map(from, costs, limits), rc = find_map(to, costs, no_rings);
        BOOST_TEST(rings.gain + rc.gain == naive(from, to, costs, limits), tools::tolerance(1e-9));
        BOOST_TEST(rc.choices.size() <= limits.rc);
        BOOST_TEST(rings.choices.size() <= limits.rings);
        // The gain belongs to this map.
        double made = 0;
        for (const Choice& choice : rings.choices) made += from[choice.id].now == choice.service ? 0 : costs.make_ring;
        BOOST_TEST(value(rings, from, costs, limits) - made == rings.gain, tools::tolerance(1e-9));
    }
}
