// Whole messages: binding, round robins; EPC; load-balanced fragmentation.
#define BOOST_TEST_MODULE schedule_multiplexing
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;
namespace tt = boost::test_tools;

BOOST_AUTO_TEST_CASE(binding_stays_moves_when_it_must_and_comes_home) {
    Peer peer("binding", equal_paths(4), 6); // seed 6: path 2
    BOOST_TEST(peer.places(5) == "22222");
    (void)peer.put(1 << 20);
    BOOST_TEST(peer.plan.count == 1u);
    BOOST_TEST(peer.plan.stripes[0].path == 2);
    peer.scheduler.set_state(2, PathState::down);
    BOOST_TEST(peer.places(3) == "000");
    peer.scheduler.set_state(0, PathState::suspect);
    BOOST_TEST(peer.places(3) == "333");
    peer.scheduler.set_state(2, PathState::up);
    BOOST_TEST(peer.places(3) == "222");
}

BOOST_AUTO_TEST_CASE(round_robin_and_windows) {
    Peer rr("round_robin", equal_paths(3)), window("window_rr:window=3", equal_paths(3));
    BOOST_TEST(rr.places(7) == "0120120");
    BOOST_TEST(window.places(10, 1 << 20) == "0001112220"); // W messages, whatever their size
    rr.scheduler.set_state(2, PathState::down);
    BOOST_TEST(rr.places(5) == "10101");
    Peer seeded("round_robin", equal_paths(3), 2);
    BOOST_TEST(seeded.places(4) == "2012");
}

BOOST_AUTO_TEST_CASE(round_robin_ramps_a_returned_path_up) {
    Peer peer("round_robin", equal_paths(2));
    peer.scheduler.set_state(1, PathState::down);
    peer.scheduler.set_state(1, PathState::up);
    const std::string places = peer.places(64); // 1/16 of the turns
    BOOST_TEST(std::count(places.begin(), places.end(), '1') >= 3);
    BOOST_TEST(std::count(places.begin(), places.end(), '1') <= 5);
    for (int i = 0; i < 20; ++i) peer.small_done(1, 1000, 2000);
    const std::string later = peer.places(64);
    BOOST_TEST(std::count(later.begin(), later.end(), '1') == 32);
}

BOOST_AUTO_TEST_CASE(weighted_round_robin_spreads_evenly) {
    Peer peer("weighted_rr", weighted_paths({4, 1}));
    BOOST_TEST(peer.places(10) == "0010000100");
    Peer zero("weighted_rr", weighted_paths({0, 1, 0}));
    BOOST_TEST(zero.places(4) == "1111");
    zero.scheduler.set_state(1, PathState::down);
    BOOST_TEST(zero.places(4) == "0202"); // nothing but weights of 0
}

BOOST_AUTO_TEST_CASE(directions_have_their_own_lanes) {
    Peer peer("window_rr:window=2", equal_paths(4));
    BOOST_TEST(peer.scheduler.place(Direction::write, 8) == 0);
    BOOST_TEST(peer.scheduler.place(Direction::read, 8) == 1);
    BOOST_TEST(peer.scheduler.place(Direction::write, 8) == 0);
    BOOST_TEST(peer.scheduler.place(Direction::read, 8) == 1);
    BOOST_TEST(peer.path(1).of(Direction::read).in_flight == 16u);
}

BOOST_AUTO_TEST_CASE(epc_goes_by_hint) { // dissertation 6.2
    Peer peer("epc", equal_paths(4));
    for (TrafficHint striped : {TrafficHint::blocking, TrafficHint::collective, TrafficHint::none}) {
        (void)peer.put(65536, striped);
        BOOST_TEST(peer.plan.count == 4u);
        for (unsigned k = 0; k < 4; ++k) BOOST_TEST(peer.plan.stripes[k].length == 16384u);
    }
    for (PathIndex expect : {0, 1, 2, 3, 0}) {
        (void)peer.put(65536, TrafficHint::non_blocking);
        BOOST_TEST(peer.plan.count == 1u);
        BOOST_TEST(peer.plan.stripes[0].path == expect);
    }
    (void)peer.put(8192, TrafficHint::blocking); // below 16 KiB: whole
    BOOST_TEST(peer.plan.count == 1u);
}

BOOST_AUTO_TEST_CASE(load_balanced_fills_to_a_level) { // dissertation 5.2.3
    std::vector<PathSetup> setup = equal_paths(2);
    for (PathSetup& s : setup) s.latency = 0;
    Peer peer("load_balanced", setup);
    // 300000 bytes on path 0 (round robin: the first small one), then 500032 in two parts that end together.
    BOOST_TEST(peer.scheduler.place(Direction::write, 300032) == 0);
    (void)peer.put(500032);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    BOOST_TEST(double(peer.path(0).of(Direction::write).in_flight) == 400032.0, tt::tolerance(0.0002));
    BOOST_TEST(double(peer.path(1).of(Direction::write).in_flight) == 400032.0, tt::tolerance(0.0002));
    // Reads don't see the load of writes.
    BOOST_TEST(peer.scheduler.place(Direction::write, 1 << 20) == 1);
    (void)peer.scheduler.plan({1 << 20, MessageKind::get}, peer.plan);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    BOOST_TEST(peer.plan.stripes[0].length == 1u << 19);
    // A path with more to do than the others will have after the message gets nothing.
    (void)peer.put(65536);
    BOOST_TEST(peer.plan.count == 1u);
    BOOST_TEST(peer.plan.stripes[0].path == 0);
}

BOOST_AUTO_TEST_CASE(load_balanced_knows_rates) {
    std::vector<PathSetup> setup = weighted_paths({1, 0.25});
    for (PathSetup& s : setup) s.latency = 0;
    Peer peer("load_balanced", setup);
    (void)peer.put(5 * 65536);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    for (unsigned k = 0; k < 2; ++k) {
        BOOST_TEST(peer.plan.stripes[k].length == (peer.plan.stripes[k].path == 0 ? 4u : 1u) * 65536);
    }
}
