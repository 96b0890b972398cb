// Water-filling over paths of which several are routes of the same rail.
#define BOOST_TEST_MODULE schedule_routes
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

std::vector<PathSetup> routes(unsigned rails, unsigned each) { // 2 GB/s a rail, rail by rail
    std::vector<PathSetup> setup;
    for (unsigned i = 0; i < rails * each; ++i)
        setup.push_back(
            {.nominal_rate = 2, .latency = 2000, .rail = static_cast<std::uint8_t>(i / each), .rail_rate = 2});
    return setup;
}

std::vector<int> chosen(const PathTable& paths, double bytes, double cost) {
    Level level;
    fill(paths, paths.usable(), Direction::write, bytes, {.cost = cost, .compared = true, .routes = true}, level);
    return {level.path, level.path + level.count};
}

} // namespace

// A route has an eighth of its rail here: of 65.5 us by one, a sixth saves 2.2 us, a seventh 1.6, an eighth 1.2. Only
// half of the cost counts, but for each two routes of the rail once.
BOOST_AUTO_TEST_CASE(only_a_further_route_of_a_rail_costs_more) {
    const PathTable paths(routes(2, 8));
    BOOST_TEST((chosen(paths, 16384, 1000) == std::vector<int>{0, 1, 2, 3, 4, 5, 8})); // of the other rail, whatever
    BOOST_TEST((chosen(paths, 16384, 600) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 8}));
    // Free processors: not less than a descriptor costs anyway.
    BOOST_TEST((chosen(paths, 16384, 300) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 8}));
    // Where each route is on a rail of its own, none costs more.
    BOOST_TEST(chosen(PathTable(routes(8, 1)), 16384, 100).size() == 8u);
}

BOOST_AUTO_TEST_CASE(an_idle_route_is_as_soon_as_the_soonest_idle_one) {
    std::vector<PathSetup> setup = routes(1, 3);
    setup[0].latency = 1000, setup[1].latency = 5000, setup[2].latency = 3000;
    PathTable paths(setup);
    paths.place(0, Direction::write, 65536);
    Level level;
    fill(paths, paths.usable(), Direction::write, 1 << 20, {.routes = true}, level);
    BOOST_TEST_REQUIRE(level.count == 3u);
    for (unsigned k : {0, 1}) {
        BOOST_TEST(level.path[k] != 0);
        BOOST_TEST(level.ready[k] == 3000.0);
    }
}
