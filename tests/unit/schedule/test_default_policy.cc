// The default policy, step by step; spray windows: test_spray. How they fare over time: test_closed_loop.
#define BOOST_TEST_MODULE schedule_default_policy
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;
namespace tt = boost::test_tools;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

} // namespace

BOOST_AUTO_TEST_CASE(small_messages_stay_on_one_lane) {
    Peer peer("default", equal_paths(4), 1);
    Nanos now = 1000;
    for (int i = 0; i < 1000; ++i) {
        BOOST_TEST(peer.scheduler.place(Direction::write, 8) == 1); // the seed's path
        peer.small_done(1, now, now + 2000);
        now += 2500;
    }
}

BOOST_AUTO_TEST_CASE(lane_leaves_a_hot_path_and_stays_away) {
    Peer peer("default", equal_paths(4));
    Nanos now = 1000;
    int on_hot = 0, late = 0;
    for (int i = 0; i < 4000; ++i) { // 0 is hot all the time
        const PathIndex path = peer.scheduler.place(Direction::write, 8);
        peer.small_done(path, now, now + (path == 0 ? 60000 : 2000));
        on_hot += path == 0;
        late += path == 0 && i > 100;
        now += 70000;
    }
    BOOST_TEST(on_hot < 20);
    BOOST_TEST(late == 0);
}

BOOST_AUTO_TEST_CASE(lane_returns_to_a_path_once_hot_when_the_others_get_bad) {
    Peer peer("default", equal_paths(2));
    Nanos now = 1000;
    auto send = [&](PathIndex hot, Nanos hot_latency) {
        const PathIndex path = peer.scheduler.place(Direction::write, 8);
        peer.small_done(path, now, now + (path == hot ? hot_latency : 2000));
        now += 70000;
        return path;
    };
    for (int i = 0; i < 1000; ++i) send(0, 5000000); // 70 ms; what was learned of 0 fades meanwhile
    int wrong = 0;
    for (int i = 0; i < 1000; ++i) wrong += send(1, 60000) == 1;
    BOOST_TEST(wrong < 20);
}

BOOST_AUTO_TEST_CASE(a_stream_that_fills_a_rail_uses_the_others) {
    Peer peer("default", equal_paths(2));
    for (int i = 0; i < 64; ++i) (void)peer.scheduler.place(Direction::write, 8192); // nothing completes
    const double a = double(peer.path(0).of(Direction::write).in_flight);
    const double b = double(peer.path(1).of(Direction::write).in_flight);
    BOOST_TEST(a + b == 64.0 * 8192);
    BOOST_TEST(std::min(a, b) > 0.4 * (a + b));
}

BOOST_AUTO_TEST_CASE(medium_on_idle_paths_ends_together) {
    Peer peer("default", weighted_paths({1, 0.25})); // 8 + 2
    (void)peer.put(102400 + 25600);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    for (unsigned k = 0; k < 2; ++k) {
        const double expect = peer.plan.stripes[k].path == 0 ? 102400 : 25600;
        BOOST_TEST(double(peer.plan.stripes[k].length) == expect, tt::tolerance(0.001));
    }
    Peer costly("default:descriptor_cost=1ms", equal_paths(4));
    (void)costly.put(65536);
    BOOST_TEST(costly.plan.count == 1u);
}

BOOST_AUTO_TEST_CASE(medium_on_busy_paths_goes_whole) {
    Peer peer("default", equal_paths(4));
    (void)peer.put(65536); // all idle: striped
    BOOST_TEST(peer.plan.count == 4u);
    int whole = 0;
    for (int i = 0; i < 16; ++i) {
        (void)peer.put(65536);
        whole += peer.plan.count == 1;
    }
    BOOST_TEST(whole >= 12);
    for (unsigned i = 0; i < 4; ++i) {
        BOOST_TEST(double(peer.path(i).of(Direction::write).in_flight) == 17 * 16384.0, tt::tolerance(0.3));
    }
    // With an equal load on all: whole, unless somebody waits for it.
    Peer loaded("default", equal_paths(4));
    for (int i = 0; i < 8; ++i) (void)loaded.put(65536, TrafficHint::blocking);
    (void)loaded.put(65536, TrafficHint::collective);
    BOOST_TEST(loaded.plan.count == 4u);
    (void)loaded.put(65536);
    BOOST_TEST(loaded.plan.count == 1u);
}

BOOST_AUTO_TEST_CASE(medium_goes_whole_where_descriptors_are_what_is_scarce) {
    const auto stripes = [](std::uint64_t size, TrafficHint hint, bool host_is_busy) {
        Peer peer("default", equal_paths(4)); // idle
        (void)peer.scheduler.plan({size, MessageKind::put, hint, 1000, host_is_busy}, peer.plan);
        return peer.plan.count;
    };
    BOOST_TEST(stripes(65536, TrafficHint::none, false) == 4u);
    BOOST_TEST(stripes(65536, TrafficHint::none, true) == 1u);
    BOOST_TEST(stripes(65536, TrafficHint::blocking, true) == 4u); // somebody waits for it
    BOOST_TEST(stripes(65536, TrafficHint::non_blocking, false) == 1u);
    // Descriptors are cheap: three of 300 ns, and 100 us on four paths.
    BOOST_TEST(stripes(409600, TrafficHint::none, true) == 4u);
    BOOST_TEST(stripes(409600, TrafficHint::non_blocking, false) == 4u);
}

namespace {
std::vector<PathSetup> routes_of_one_rail(unsigned n) { // 2 GB/s
    return std::vector<PathSetup>(n, PathSetup{.nominal_rate = 2, .latency = 2000, .rail = 0, .rail_rate = 2});
}
} // namespace

// All that messages of 16 KiB, one after the other, put on each path; a descriptor takes 8 us of the processor.
BOOST_AUTO_TEST_CASE(routes_of_a_rail_take_turns) {
    Peer peer("default", routes_of_one_rail(4));
    std::map<int, std::uint64_t> bytes;
    Nanos now = 1000;
    for (int i = 0; i < 40; ++i) {
        (void)peer.scheduler.plan({16384, MessageKind::put, TrafficHint::none, now, false, 8000}, peer.plan);
        BOOST_TEST(peer.plan.count == 2u); // a third would save less than it costs
        for (unsigned k = 0; k < peer.plan.count; ++k) {
            bytes[peer.plan.stripes[k].path] += peer.plan.stripes[k].length;
            peer.done(k, now, now + 2000 + 4096 * (k + 1));
        }
        peer.small_done(0, now, now + 1500); // the lane's latency is known better than the others'
        now += 20000;
    }
    for (int i = 0; i < 4; ++i) BOOST_TEST(bytes[i] == 10u * 16384);
}

// Otherwise puts would always have the same two, and gets the others.
BOOST_AUTO_TEST_CASE(puts_and_gets_take_turns_of_their_own) {
    Peer peer("default", routes_of_one_rail(4));
    PathMask of[2] = {};
    for (unsigned i = 0; i < 8; ++i) { // so far apart that neither knows of the other
        const Nanos now = 3'000'000 * (i + 1);
        const auto kind = i % 2 ? MessageKind::get : MessageKind::put;
        const Direction d = direction(kind);
        (void)peer.scheduler.plan({16384, kind, TrafficHint::none, now, false, 8000}, peer.plan);
        BOOST_TEST_REQUIRE(peer.plan.count == 2u);
        for (unsigned k = 0; k < 2; ++k) {
            of[i % 2] |= PathMask{1} << peer.plan.stripes[k].path;
            peer.done(k, now, now + 2000 + 4096 * (k + 1), d);
        }
    }
    BOOST_TEST(of[0] == 0b1111u);
    BOOST_TEST(of[1] == 0b1111u);
}

BOOST_AUTO_TEST_CASE(a_route_of_the_same_rail_saves_less_than_another_rail) {
    const auto stripes = [](std::vector<PathSetup> setup, double descriptor) {
        Peer peer("default", setup);
        (void)peer.scheduler.plan({16384, MessageKind::put, TrafficHint::none, 1000, false, descriptor}, peer.plan);
        return peer.plan.count;
    };
    std::vector<PathSetup> rails = routes_of_one_rail(4);
    for (std::uint8_t i = 0; i < 4; ++i) rails[i].rail = i, rails[i].nominal_rate = rails[i].rail_rate = 0.5;
    // 2 KiB per us on all together: 2.7 us are saved by the fourth.
    BOOST_TEST(stripes(rails, 2500) == 4u);
    BOOST_TEST(stripes(rails, 3000) == 3u);
    BOOST_TEST(stripes(routes_of_one_rail(4), 2500) == 4u); // only what posting takes counts, but twice
    BOOST_TEST(stripes(routes_of_one_rail(4), 3000) == 3u);
    BOOST_TEST(stripes(routes_of_one_rail(4), 600) == 4u);
    BOOST_TEST(stripes(routes_of_one_rail(8), 1000) < 8u);
}

// Nobody waits for them and the processor is what is scarce.
BOOST_AUTO_TEST_CASE(whole_messages_take_turns) {
    for (const std::uint64_t size : {16384u, 65536u}) {
        Peer peer("default", routes_of_one_rail(4));
        Nanos now = 1000;
        std::map<int, int> messages;
        for (int i = 0; i < 400; ++i) {
            (void)peer.scheduler.plan({size, MessageKind::put, TrafficHint::none, now, true}, peer.plan);
            BOOST_TEST_REQUIRE(peer.plan.count == 1u);
            ++messages[peer.plan.stripes[0].path];
            peer.done(0, now, now + 2000 + size / 2);
            now += 100000;
        }
        BOOST_TEST((messages == std::map<int, int>{{0, 100}, {1, 100}, {2, 100}, {3, 100}}));
    }
}

// Stripes of a message follow each other into the wire, so the last is always late: that is not its route's fault.
BOOST_AUTO_TEST_CASE(no_route_is_always_the_last_of_short_stripes) {
    const auto last_of = [](std::uint64_t size) {
        Peer peer("default", routes_of_one_rail(4));
        Nanos now = 1000;
        std::map<int, int> last;
        for (int i = 0; i < 400; ++i) {
            (void)peer.put(size, TrafficHint::none, now);
            BOOST_TEST_REQUIRE(peer.plan.count == 4u);
            for (unsigned k = 0; k < 4; ++k) {
                BOOST_TEST(peer.plan.stripes[k].length == size / 4);
                peer.done(k, now, now + 2000 + 2048 * (k + 1));
            }
            ++last[peer.plan.stripes[3].path];
            now += 20000;
        }
        return last;
    };
    BOOST_TEST((last_of(16384) == std::map<int, int>{{0, 100}, {1, 100}, {2, 100}, {3, 100}}));
}

BOOST_AUTO_TEST_CASE(longer_stripes_keep_their_order) {
    Peer peer("default", routes_of_one_rail(4));
    Nanos now = 1000;
    for (int i = 0; i < 40; ++i) {
        (void)peer.put(131072, TrafficHint::none, now);
        BOOST_TEST_REQUIRE(peer.plan.count == 4u);
        for (unsigned k = 0; k < 4; ++k) {
            BOOST_TEST(peer.plan.stripes[k].path == k);
            peer.done(k, now, now + 2000 + 65536);
        }
        now += 100000;
    }
}

BOOST_AUTO_TEST_CASE(large_is_pulled_unless_there_is_one_path) {
    Peer peer("default", equal_paths(2));
    BOOST_TEST(int(peer.put(kMiB)) == int(Outcome::pull));
    BOOST_TEST(peer.path(0).of(Direction::write).in_flight == 0u);
    peer.scheduler.set_state(1, PathState::down);
    BOOST_TEST(int(peer.put(kMiB)) == int(Outcome::stripes));
    BOOST_TEST(peer.plan.count == 1u);
}

BOOST_AUTO_TEST_CASE(a_rate_from_long_ago_is_tried_again) {
    for (const char* name : {"default", "spray", "load_balanced"}) {
        Peer peer(name, equal_paths(2));
        // Path 1 once was very slow: 1/100.
        for (int i = 0; i < 40; ++i) {
            const Nanos t = 10000000 * Nanos(i + 1);
            peer.scheduler.observe({1, Direction::write, 65536, 65536, t, t + 6553600});
            peer.scheduler.observe({0, Direction::write, 65536, 65536, t, t + 67536});
        }
        Nanos now = 500000000;
        int tried = 0;
        for (int i = 0; i < 100; ++i) { // 100 ms, both are fast now
            std::vector<Stripe> stripes;
            if (peer.put(65536, TrafficHint::none, now) == Outcome::pull) {
                Transfer transfer{65536};
                stripes = drain(peer, transfer, now);
                BOOST_TEST(transfer.remaining() == 0u);
            } else {
                stripes.assign(peer.plan.stripes, peer.plan.stripes + peer.plan.count);
            }
            for (const Stripe& s : stripes) {
                tried += s.path == 1;
                peer.scheduler.observe({s.path, Direction::write, s.length, s.length, now, now + 2000 + s.length});
            }
            now += 1000000;
        }
        BOOST_TEST_INFO(name << " tried " << tried << ", rate " << peer.path(1).of(Direction::write).rate);
        BOOST_TEST(tried >= 3);
    }
}

// Half of the threshold and more: cut where that costs little.
BOOST_AUTO_TEST_CASE(short_messages_are_cut_where_stripes_are_cheap) {
    Peer peer("default", equal_paths(4)); // 1 GB/s: 8 KiB take 8.2 us
    const auto stripes = [&](std::uint64_t size, double descriptor, bool busy = false,
                             MessageKind kind = MessageKind::put) {
        (void)peer.scheduler.plan({size, kind, TrafficHint::none, 1000, busy, descriptor}, peer.plan);
        BOOST_TEST(wrong_with(peer.plan, size, peer.scheduler.paths(), direction(kind)) == "");
        const unsigned count = peer.plan.count;
        for (unsigned k = 0; k < count; ++k)
            peer.scheduler.cancel(peer.plan.stripes[k].path, direction(kind), peer.plan.stripes[k].length);
        return count;
    };
    BOOST_TEST(stripes(8192, 0) == 4u);
    BOOST_TEST(stripes(8192, 0, false, MessageKind::get) == 4u);
    BOOST_TEST(stripes(8191, 0) == 1u);
    BOOST_TEST(stripes(8192, 0, true) == 1u);
    BOOST_TEST(stripes(8192, 0, false, MessageKind::am) == 1u);
    BOOST_TEST(stripes(8192, 4000) == 1u); // three more of them: 12 us
    BOOST_TEST(stripes(16384, 4000) > 1u);
    // Of the papers' policies only the threshold counts; it is half of this one's that counts here.
    Peer even("even", equal_paths(4)), late("default:stripe_threshold=64K", equal_paths(4));
    BOOST_TEST((even.put(8192) == Outcome::stripes && even.plan.count == 1));
    BOOST_TEST((late.put(30000) == Outcome::stripes && late.plan.count == 1));
    BOOST_TEST((late.put(32768) == Outcome::stripes && late.plan.count > 1));
    // How fast the links are nobody knows.
    Peer unknown("default", std::vector<PathSetup>(4));
    BOOST_TEST((unknown.put(8192) == Outcome::stripes && unknown.plan.count == 1));
}

// A stripe over another adapter has a marker behind it if it is written, and takes both processors' time. Longer
// messages may go over some of the paths only.
BOOST_AUTO_TEST_CASE(over_several_adapters_messages_are_cut_where_markers_are_cheap) {
    auto setup = equal_paths(2); // 1 GB/s
    setup[1].rail = 1;
    Peer peer("default", setup), four("default", equal_paths(4));
    const auto stripes = [](Peer& to, std::uint64_t size, double descriptor, MessageKind kind = MessageKind::put) {
        (void)to.scheduler.plan({size, kind, TrafficHint::none, 1000, false, descriptor}, to.plan);
        const unsigned count = to.plan.count;
        for (unsigned k = 0; k < count; ++k)
            to.scheduler.cancel(to.plan.stripes[k].path, direction(kind), to.plan.stripes[k].length);
        return count;
    };
    BOOST_TEST(stripes(peer, 8192, 1000) == 2u);
    BOOST_TEST(stripes(peer, 8192, 2000) == 1u); // five of them: 10 us of 8.2
    BOOST_TEST(stripes(peer, 8192, 2000, MessageKind::get) == 2u);
    BOOST_TEST(stripes(peer, 16384, 2000) == 2u);
    BOOST_TEST(stripes(peer, 16384, 4000) == 1u);
    BOOST_TEST(stripes(peer, 32768, 4000) == 2u);
    BOOST_TEST(stripes(four, 16384, 4000) > 1u);
    // Who waits for it, and writes that share their markers, have it cut sooner.
    (void)peer.scheduler.plan({16384, MessageKind::put, TrafficHint::blocking, 1000, false, 4000}, peer.plan);
    BOOST_TEST(peer.plan.count == 2u);
    (void)peer.scheduler.plan({8192, MessageKind::put, TrafficHint::none, 9000000, false, 2000, true}, peer.plan);
    BOOST_TEST(peer.plan.count == 2u);
    // Usable rails count: with one of them everything is as over one adapter.
    auto setup_of_three = equal_paths(3);
    setup_of_three[2].rail = 1;
    Peer three("default", setup_of_three);
    three.scheduler.set_state(2, PathState::down);
    BOOST_TEST(stripes(three, 8192, 4000) == 2u);
    three.scheduler.set_state(2, PathState::up);
    BOOST_TEST(stripes(three, 8192, 4000) == 1u);
    three.scheduler.set_spare(PathMask{1} << 2);
    BOOST_TEST(stripes(three, 8192, 4000) == 2u);
    // Whole, but not on a rail that takes longer for it: the lane of every second peer.
    setup[1].nominal_rate = 0.25;
    for (unsigned seed = 0; seed < 2; ++seed) {
        Peer unequal("default", setup, seed);
        BOOST_TEST(unequal.places(1) == std::to_string(seed)); // its lane
        BOOST_TEST(stripes(unequal, 16384, 4000) == 1u);
        BOOST_TEST(unequal.plan.stripes[0].path == 0u);
    }
}

// Peers begin at the paths in turns, in the order in which they are sent something.
BOOST_AUTO_TEST_CASE(peers_share_the_paths_by_the_order_of_their_first_messages) {
    const PolicyConfig config = policy("default"), binding = policy("binding");
    Neighbours all;
    Scheduler a(config, equal_paths(2), 0, &all), b(config, equal_paths(2), 2, &all),
        c(config, equal_paths(2), 4, &all);
    const auto first = [](Scheduler& s) { return unsigned{s.place(Direction::write, 8)}; };
    BOOST_TEST(first(c) == 0u);
    BOOST_TEST(first(a) == 1u);
    BOOST_TEST(first(b) == 0u);
    BOOST_TEST(first(a) == 1u);
    Scheduler other(binding, equal_paths(2), 1, &all); // the papers' policies are what they are
    BOOST_TEST(first(other) == 1u);
    BOOST_TEST(all.turn() == 3u);
}

struct Kind {
    std::uint64_t bytes = 8192;
    MessageKind kind = MessageKind::put;
    double descriptor = 0; // ns
};

// Of how many stripes a message is that takes so long.
unsigned stripes_of(Peer& peer, Nanos& now, Nanos takes, Kind m = {}) {
    (void)peer.scheduler.plan({m.bytes, m.kind, TrafficHint::none, now, false, m.descriptor}, peer.plan);
    for (unsigned k = 0; k < peer.plan.count; ++k) {
        const Stripe& s = peer.plan.stripes[k];
        peer.scheduler.observe({.path = s.path,
                                .direction = direction(m.kind),
                                .bytes = s.length,
                                .settled = s.length,
                                .t_post = now,
                                .t_done = now + 2000 + takes,
                                .whole = peer.plan.count > 1 ? m.bytes : 0});
    }
    now += 2000000;
    return peer.plan.count;
}

// What all wait for is the peer's own link: a message has a part of it, whatever it is cut into.
BOOST_AUTO_TEST_CASE(short_messages_to_a_crowded_peer_go_whole) {
    Nanos now = 1000;
    Peer peer("default", equal_paths(4));
    const auto send = [&](Nanos takes) { return stripes_of(peer, now, takes); };
    for (int i = 0; i < 4; ++i) BOOST_TEST(send(2048) == 4u);
    for (int i = 0; i < 10; ++i) (void)send(80000); // a tenth of a link
    BOOST_TEST(send(80000) == 1u);
    for (int i = 0; i < 20; ++i) (void)send(8192); // whole, as fast as a link
    BOOST_TEST(send(8192) > 1u);
}

// Whole ones of all who send may meet at one of the peer's adapters. Reads are as over a single adapter.
BOOST_AUTO_TEST_CASE(over_several_adapters_they_are_read_whole_and_written_in_stripes) {
    std::vector<PathSetup> setup = equal_paths(2);
    setup[1].rail = 1;
    Peer adapters("default", setup), read("default", setup);
    Nanos now = 1000;
    for (int i = 0; i < 20; ++i) BOOST_TEST(stripes_of(adapters, now, 80000) == 2u);
    for (int i = 0; i < 10; ++i) (void)stripes_of(read, now, 80000, {.kind = MessageKind::get});
    BOOST_TEST(stripes_of(read, now, 80000, {.kind = MessageKind::get}) == 1u);
}

// Of those of several chunks it matters only where further stripes cost the processor a good part of their time.
BOOST_AUTO_TEST_CASE(medium_messages_to_a_crowded_peer_go_whole_where_stripes_are_dear) {
    struct {
        Kind message;
        Nanos takes;
        bool whole;
    } const cases[] = {
        {{32768, MessageKind::put, 4000}, 480000, true},  // a fifteenth of a link
        {{32768, MessageKind::put, 500}, 480000, false},  // cheap stripes
        {{32768, MessageKind::put, 4000}, 160000, false}, // a fifth: neighbours on one port
        {{32768, MessageKind::get, 4000}, 160000, true},  // whoever reads is the one that waits
        {{32768, MessageKind::get, 4000}, 80000, false},
    };
    for (const auto& c : cases) {
        Peer peer("default", equal_paths(4));
        Nanos now = 1000;
        BOOST_TEST(stripes_of(peer, now, 16384, c.message) > 1u);
        for (int i = 0; i < 20; ++i) (void)stripes_of(peer, now, c.takes, c.message);
        BOOST_TEST((stripes_of(peer, now, c.takes, c.message) == 1u) == c.whole);
        for (int i = 0; i < 40; ++i) (void)stripes_of(peer, now, c.message.bytes, c.message); // as fast as a link
        BOOST_TEST(stripes_of(peer, now, c.message.bytes, c.message) > 1u);
    }
}
