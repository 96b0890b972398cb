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

// A lane whose link turns out to be slow is compared with another path, although it never has a queue.
BOOST_AUTO_TEST_CASE(lane_leaves_a_slow_link_for_one_that_was_not_tried) {
    Peer peer("default", equal_paths(2));
    Nanos now = 100'000'000;
    int late_on_slow = 0;
    for (int i = 0; i < 2000; ++i) { // one message at a time, path 0 has a quarter of its link's rate
        const PathIndex path = peer.scheduler.place(Direction::write, 6000);
        const Nanos takes = path == 0 ? 26000 : 8000;
        peer.small_done(path, now, now + takes, 6000);
        now += takes + 1000;
        late_on_slow += path == 0 && i > 1000;
    }
    BOOST_TEST(late_on_slow == 0);
}

// All paths are slow alike: nothing is gained by moving, so the lane looks around rarely.
BOOST_AUTO_TEST_CASE(lane_stays_where_all_links_are_slow) {
    Peer peer("default", equal_paths(2));
    Nanos now = 100'000'000;
    int moves = 0;
    PathIndex before = 0;
    for (int i = 0; i < 2000; ++i) {
        const PathIndex path = peer.scheduler.place(Direction::write, 6000);
        moves += path != before;
        before = path;
        peer.small_done(path, now, now + 26000, 6000);
        now += 27000;
    }
    BOOST_TEST(moves <= 6); // 54 ms
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

// Two ports, of which the second has two routes: it takes no more for that.
namespace {
std::vector<PathSetup> a_port_with_two_routes() {
    std::vector<PathSetup> setup = equal_paths(3);
    setup[1].rail = setup[2].rail = 1;
    for (PathSetup& path : setup) path.rail_rate = 1;
    return setup;
}
double under_way(const Peer& peer, unsigned path) { return double(peer.path(path).of(Direction::write).in_flight); }
} // namespace

BOOST_AUTO_TEST_CASE(ports_get_the_same_however_many_routes_they_have) {
    for (const std::uint64_t size : {65536u, 1048576u}) {
        Peer peer("default", a_port_with_two_routes());
        for (unsigned n = 1; n <= 16; ++n) {
            BOOST_REQUIRE(peer.put(size) == Outcome::stripes);
            const double all = double(n) * double(size) / 2;
            BOOST_TEST_INFO(n << " of " << size);
            BOOST_TEST(std::abs(under_way(peer, 0) - all) < 4096 + 0.01 * all);
        }
    }
    Peer peer("default", a_port_with_two_routes()); // messages that go whole as well
    for (int i = 0; i < 64; ++i) (void)peer.scheduler.place(Direction::write, 8192);
    BOOST_TEST(std::abs(under_way(peer, 0) - 32 * 8192) <= 2 * 8192);
}

// A lane has no more under way than its link sends within lane_slack, 1 us, and one message.
BOOST_AUTO_TEST_CASE(no_rail_idles_beside_messages_that_go_whole) {
    for (const std::uint64_t size : {1024u, 2048u, 4096u, 8192u}) {
        std::vector<PathSetup> setup = equal_paths(2);
        setup[1].rail = 1;
        Peer peer("default", setup);
        for (int n = 1; n <= 16; ++n) {
            (void)peer.scheduler.place(Direction::write, size);
            BOOST_TEST_INFO(n << " of " << size);
            BOOST_TEST(std::abs(under_way(peer, 0) - under_way(peer, 1)) <= 1024 + double(size));
        }
    }
    Peer fast("default", equal_paths(2, 25)); // there so many bytes are nothing
    BOOST_TEST(fast.places(16, 1024) == "0000000000000000");
}

// Few short messages ask for a completion. What a lane has left behind has long arrived, whoever says so.
BOOST_AUTO_TEST_CASE(what_nobody_asks_about_keeps_no_rail_away) {
    std::vector<PathSetup> setup = equal_paths(2);
    setup[1].rail = 1;
    Peer peer("default", setup);
    for (int window = 1; window <= 100; ++window) { // 100 us apart, each takes 8 us or less
        const Nanos now = Nanos(window) * 100'000;
        const std::string places = peer.places(16, 1024);
        const auto on_first = std::count(places.begin(), places.end(), '0');
        BOOST_TEST_INFO("window " << window << ": " << places);
        BOOST_TEST(std::abs(on_first - 8) <= 2);
        const auto last = PathIndex(places.back() - '0');
        const auto settled = static_cast<std::uint64_t>(under_way(peer, last)); // by the last one's completion
        peer.scheduler.observe({last, Direction::write, 1024, settled, now + 7000, now + 10000});
    }
}

// One route of a port has a quarter of the others' rate: what waits on it counts as long as it takes, and no longer.
BOOST_AUTO_TEST_CASE(a_slow_route_counts_as_long_as_it_takes) {
    std::vector<PathSetup> setup = weighted_paths({1, 1, 0.25});
    setup[1].rail = setup[2].rail = 1;
    for (PathSetup& path : setup) path.rail_rate = 1, path.latency = 2000;
    Peer peer("default", setup);
    peer.scheduler.place_on(0, Direction::write, 40'000);
    peer.scheduler.place_on(2, Direction::write, 10'000); // 40 us there, 10 us of the port
    BOOST_TEST(peer.places(4, 2048) == "1111");
}

// All routes have the same port, and others use the fabric behind it.
BOOST_AUTO_TEST_CASE(a_window_uses_the_routes_of_a_port) {
    std::vector<PathSetup> setup = equal_paths(4);
    for (PathSetup& path : setup) path.rail_rate = 1;
    Peer peer("default", setup);
    for (int n = 0; n < 64; ++n) (void)peer.scheduler.place(Direction::write, 4096);
    for (unsigned i = 0; i < 4; ++i) BOOST_TEST(std::abs(under_way(peer, i) - 16 * 4096) <= 2 * 4096);
}

// The size of a message may be known only behind place().
BOOST_AUTO_TEST_CASE(bytes_that_are_told_later_count_for_the_lane) {
    std::vector<PathSetup> setup = equal_paths(2);
    setup[1].rail = 1;
    Peer peer("default", setup);
    for (int n = 0; n < 16; ++n) {
        const PathIndex path = peer.scheduler.place(Direction::write, 0);
        peer.scheduler.place_rest(path, Direction::write, 8192);
    }
    BOOST_TEST(under_way(peer, 0) == under_way(peer, 1));
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

// Messages of a window that nobody waits for one by one: however many there are, all paths end at about the same time.
BOOST_AUTO_TEST_CASE(a_window_ends_on_all_paths_together) {
    for (const double second : {1.0, 0.25})
        for (const std::uint64_t size : {65536u, 262144u, 1048576u}) {
            std::vector<PathSetup> setup = weighted_paths({1, second});
            setup[1].rail = 1;
            Peer peer("default", setup);
            for (unsigned n = 1; n <= 8; ++n) {
                BOOST_REQUIRE(peer.put(size) == Outcome::stripes);
                const double all = double(n) * double(size) / (1 + second);
                for (unsigned i = 0; i < 2; ++i) {
                    const double ends = double(peer.path(i).of(Direction::write).in_flight) / (i ? second : 1);
                    BOOST_TEST_INFO(n << " of " << size << ", second rail " << second);
                    BOOST_TEST(std::abs(ends - all) < 4096 + 0.01 * all);
                }
            }
        }
}

namespace {
struct Case {
    std::uint64_t bytes;
    double descriptor = 0; // ns
    double open = 0;       // operations under way to all peers
    TrafficHint hint = TrafficHint::none;
    MessageKind kind = MessageKind::put;
};
unsigned stripes(Peer& peer, const Case& c, Nanos now = 1000) {
    (void)peer.scheduler.plan({c.bytes, c.kind, c.hint, now, c.open, c.descriptor}, peer.plan);
    return peer.plan.count;
}
std::vector<PathSetup> two_rails() {
    std::vector<PathSetup> setup = equal_paths(2);
    setup[1].rail = 1;
    return setup;
}
} // namespace

// A stripe is worth the time that it saves, times the probability that this message is the last one.
BOOST_AUTO_TEST_CASE(a_further_stripe_must_save_what_it_costs) {
    const auto alone = [](const Case& c) {
        Peer peer("default", two_rails());
        return stripes(peer, c);
    };
    BOOST_TEST(alone({16384, 1000}) == 2u); // saves 8.2 us for three descriptors
    BOOST_TEST(alone({16384, 4000}) == 1u);
    BOOST_TEST(alone({65536, 4000}) == 2u);
    // Who reads has no marker to pay for.
    BOOST_TEST(alone({16384, 4000, 0, TrafficHint::none, MessageKind::get}) == 2u);
    // Many others are under way, to whatever peers: this is hardly the last.
    BOOST_TEST(alone({65536, 1000, 51}) == 1u);
    BOOST_TEST(alone({4194304, 1000, 51}) == 2u);
    BOOST_TEST(alone({65536, 1000, 51, TrafficHint::blocking}) == 2u); // somebody waits for it
    BOOST_TEST(alone({8192}) == 2u);                                   // half of the threshold
    BOOST_TEST(alone({8000}) == 1u);
}

// A write over another rail than the messages' needs a marker there, so it moves only if that saves more.
BOOST_AUTO_TEST_CASE(whole_messages_keep_to_the_rail_of_messages_where_markers_are_dear) {
    const auto used = [](double descriptor, bool shared) {
        Peer peer("default", two_rails());
        PathMask paths = 0;
        for (int i = 0; i < 6; ++i) {
            (void)peer.scheduler.plan({32768, MessageKind::put, TrafficHint::none, 1000, 6, descriptor, shared},
                                      peer.plan);
            for (unsigned k = 0; k < peer.plan.count; ++k) paths |= PathMask{1} << peer.plan.stripes[k].path;
        }
        return std::popcount(paths);
    };
    BOOST_TEST(used(100, false) == 2);
    BOOST_TEST(used(100000, false) == 1);
    BOOST_TEST(used(100000, true) == 2); // there is a marker anyway
}

// Within a node messages take less time than their link would need: stripes save nothing there.
BOOST_AUTO_TEST_CASE(nothing_is_cut_where_messages_are_faster_than_the_link) {
    Peer peer("default", two_rails());
    Nanos now = 1000;
    for (int i = 0; i < 20; ++i) {
        (void)peer.put(262144, TrafficHint::none, now);
        for (unsigned k = 0; k < peer.plan.count; ++k) peer.done(k, now, now + 300);
        now += 10000;
    }
    BOOST_TEST(stripes(peer, {262144, 500}, now) == 1u);
}

BOOST_AUTO_TEST_CASE(deep_in_a_window_messages_go_whole_where_they_end_first) {
    Peer peer("default", two_rails());
    unsigned whole = 0;
    for (int i = 0; i < 64; ++i) whole += stripes(peer, {32768, 1000}) == 1;
    BOOST_TEST(whole > 48u);
    const double a = double(peer.path(0).of(Direction::write).in_flight);
    BOOST_TEST(std::abs(2 * a - 64 * 32768) <= 4 * 32768);                       // a marker costs something, too
    BOOST_TEST(stripes(peer, {131072, 1000, 0, TrafficHint::collective}) == 2u); // somebody waits for it
}

// Small rest of a slow rail: better none.
BOOST_AUTO_TEST_CASE(whole_messages_avoid_a_rail_that_takes_longer) {
    std::vector<PathSetup> setup = two_rails();
    setup[1].nominal_rate = 0.25;
    for (unsigned seed = 0; seed < 2; ++seed) {
        Peer unequal("default", setup, seed);
        BOOST_TEST(stripes(unequal, {16384, 4000}) == 1u);
        BOOST_TEST(unequal.plan.stripes[0].path == 0u);
    }
}

namespace {
std::vector<PathSetup> routes_of_one_rail(unsigned n) { // 2 GB/s
    return std::vector<PathSetup>(n, PathSetup{.nominal_rate = 2, .latency = 2000, .rail = 0, .rail_rate = 2});
}
// All stripes of the last plan complete; the one on `slow` takes `times` as long. Returns when.
Nanos complete(Peer& peer, Nanos now, PathIndex slow, double times, double rate) {
    Nanos last = now;
    for (unsigned k = 0; k < peer.plan.count; ++k) {
        const double takes =
            double(peer.plan.stripes[k].length) / rate * (peer.plan.stripes[k].path == slow ? times : 1);
        const Nanos done = now + 2000 + Nanos(takes);
        peer.done(k, now, done);
        last = std::max(last, done);
    }
    return last;
}
} // namespace

// Routes of one port give no more than the port: a further one only shares the risk of a collision.
BOOST_AUTO_TEST_CASE(a_further_route_is_worth_what_collisions_cost) {
    Peer peer("default", routes_of_one_rail(4));
    BOOST_TEST(stripes(peer, {65536, 200}) == 4u); // nothing is known: rates may differ
    BOOST_TEST(stripes(peer, {65536, 20000}) == 1u);
    Peer even("default", routes_of_one_rail(4));
    Nanos now = 1000;
    for (int i = 0; i < 100; ++i) {
        (void)stripes(even, {65536, 200, 0, TrafficHint::blocking}, now);
        now = complete(even, now, kNoPath, 1, 2) + 10000;
    }
    BOOST_TEST(stripes(even, {65536, 6000}, now) == 1u); // they do not
    now = complete(even, now, kNoPath, 1, 2) + 10000;
    // Whole messages take turns.
    PathMask used = 0;
    for (int i = 0; i < 4; ++i) {
        (void)stripes(even, {16384, 8000}, now);
        used |= PathMask{1} << even.plan.stripes[0].path;
        now = complete(even, now, kNoPath, 1, 2) + 10000;
    }
    BOOST_TEST(used == 0b1111u);
}

// A rail at a quarter of its rate is believed after a few messages, and has a fifth of them then.
BOOST_AUTO_TEST_CASE(a_slow_rail_gets_what_it_can_carry) {
    Peer peer("default", two_rails());
    Nanos now = 1000;
    for (int i = 0; i < 8; ++i) {
        BOOST_REQUIRE(peer.put(262144, TrafficHint::none, now) == Outcome::stripes);
        now = complete(peer, now, 1, 4, 1) + 10000;
    }
    (void)peer.put(262144, TrafficHint::none, now);
    BOOST_TEST_REQUIRE(peer.plan.count == 2u);
    for (unsigned k = 0; k < 2; ++k)
        if (peer.plan.stripes[k].path == 1) BOOST_TEST(double(peer.plan.stripes[k].length) < 0.3 * 262144);
}

// Where all paths are as good as their links large messages are cut at once, else their pieces find their paths.
BOOST_AUTO_TEST_CASE(large_is_pulled_where_a_path_is_slow) {
    Peer peer("default", two_rails());
    Nanos now = 1000;
    unsigned cut = 0;
    while (cut < 8 && peer.put(kMiB, TrafficHint::none, now) == Outcome::stripes) {
        now = complete(peer, now, 1, 8, 1) + 10000;
        ++cut;
    }
    BOOST_TEST(cut >= 1u);
    BOOST_TEST(cut <= 3u);
    BOOST_TEST((peer.put(kMiB, TrafficHint::none, now) == Outcome::pull));
    BOOST_TEST(peer.path(0).of(Direction::write).in_flight == 0u);
    peer.scheduler.set_state(1, PathState::down);
    BOOST_TEST((peer.put(kMiB) == Outcome::stripes));
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

// Peers begin at the paths in turns, in the order in which they are sent something.
BOOST_AUTO_TEST_CASE(peers_share_the_paths_by_the_order_of_their_first_messages) {
    const PolicyConfig config = policy("default"), binding = policy("binding");
    Commons all;
    Scheduler a(config, equal_paths(2), 0, &all), b(config, equal_paths(2), 2, &all),
        c(config, equal_paths(2), 4, &all);
    const auto first = [](Scheduler& s) { return unsigned{s.place(Direction::write, 8)}; };
    BOOST_TEST(first(c) == 0u);
    BOOST_TEST(first(a) == 1u);
    BOOST_TEST(first(b) == 0u);
    BOOST_TEST(first(a) == 1u);
    Scheduler other(binding, equal_paths(2), 1, &all); // the papers' policies are what they are
    BOOST_TEST(first(other) == 1u);
    BOOST_TEST(all.turns == 3u);
}

// A port of ours that is slow to one peer is slow to the next one, a peer's port is not.
BOOST_AUTO_TEST_CASE(what_our_port_gives_is_known_to_new_peers) {
    const auto share_of_slow = [](unsigned peers_where_it_is_slow) {
        Commons commons;
        Nanos now = 1000;
        for (unsigned n = 0; n < 8; ++n) {
            Peer peer("default", two_rails(), 0, &commons);
            for (int i = 0; i < 2; ++i) {
                (void)peer.put(262144, TrafficHint::none, now);
                now = complete(peer, now, n % 8 < peers_where_it_is_slow ? 1 : kNoPath, 4, 1) + 10000;
            }
        }
        Peer last("default", two_rails(), 0, &commons);
        (void)last.put(262144, TrafficHint::none, now);
        double slow = 0;
        for (unsigned k = 0; k < last.plan.count; ++k)
            if (last.plan.stripes[k].path == 1) slow += double(last.plan.stripes[k].length) / 262144;
        return slow;
    };
    BOOST_TEST(share_of_slow(8) < 0.3);
    BOOST_TEST(share_of_slow(1) > 0.45);
}
