// What deliveries teach where several routes share a port, and where only slow paths are left in use.
#define BOOST_TEST_MODULE schedule_shared_port
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

constexpr Direction kWrite = Direction::write;

// Port 0 has one route, port 1 has two: paths 1 and 2. Links and ports of 1 byte/ns.
std::vector<PathSetup> one_route_and_two() {
    std::vector<PathSetup> setup = equal_paths(3);
    setup[1].rail = setup[2].rail = 1;
    for (PathSetup& path : setup) path.rail_rate = 1;
    return setup;
}

// Parts of messages that were posted at one moment, in the order of their ends.
struct Part {
    PathIndex path;
    std::uint64_t bytes;
    double ns; // from post to completion, without the latency
};

void deliver(PathTable& paths, Nanos post, std::vector<Part> parts) {
    paths.advance(post);
    for (const Part& part : parts) paths.place(part.path, kWrite, part.bytes);
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.ns < b.ns; });
    for (const Part& part : parts)
        (void)paths.settle({.path = part.path,
                            .direction = kWrite,
                            .bytes = part.bytes,
                            .settled = part.bytes,
                            .t_post = post,
                            .t_done = post + 2000 + static_cast<Nanos>(part.ns),
                            .whole = 32768});
}

double relative(const PathTable& paths, PathIndex i) { return paths[i].of(kWrite).relative; }

} // namespace

// Both routes of a port at half its rate: it gives half, not half for each of them.
BOOST_AUTO_TEST_CASE(a_slow_port_with_two_routes_is_counted_once) {
    constexpr std::uint64_t size = 98304;
    Peer peer("default", one_route_and_two());
    Nanos now = 1000;
    double on_fast = 0;
    for (int i = 0; i < 16; ++i, now += 1'000'000) {
        BOOST_REQUIRE(peer.put(size, TrafficHint::none, now) == Outcome::stripes);
        double bytes[3] = {}, last = 0;
        for (unsigned k = 0; k < peer.plan.count; ++k)
            bytes[peer.plan.stripes[k].path] += double(peer.plan.stripes[k].length);
        // The routes take turns: the one with fewer bytes ends when the other has sent as many.
        const double less = std::min(bytes[1], bytes[2]), rest = std::max(bytes[1], bytes[2]) - less;
        for (const bool first : {true, false}) // completions come in the order of time
            for (unsigned k = 0; k < peer.plan.count; ++k) {
                const Stripe& s = peer.plan.stripes[k];
                const double ns = s.path == 0 ? bytes[0] : (2 * less + (bytes[s.path] > less ? rest : 0)) / 0.5;
                if (first == (s.path == 0 || bytes[s.path] <= less)) peer.done(k, now, now + 2000 + Nanos(ns));
                last = std::max(last, ns);
            }
        on_fast = bytes[0] / double(size);
        now += Nanos(last);
    }
    BOOST_TEST(on_fast > 0.62); // two thirds
    BOOST_TEST(on_fast < 0.72);
}

// In the end of a burst only slow paths are left. Each is as fast as the other, and as slow as before.
BOOST_AUTO_TEST_CASE(slow_paths_are_no_faster_when_nobody_else_is_in_use) {
    Commons commons;
    std::vector<PathSetup> setup = equal_paths(3);
    for (unsigned i = 0; i < 3; ++i) setup[i].rail = std::uint8_t(i);
    PathTable paths(setup, &commons);
    Nanos now = 1'000'000;
    for (int i = 0; i < 8; ++i, now += 1'000'000)
        deliver(paths, now, {{0, 8000, 8000}, {1, 8000, 64000}, {2, 8000, 64000}});
    for (int i = 0; i < 64; ++i, now += 100'000) deliver(paths, now + 10'000'000, {{1, 8000, 64000}, {2, 8000, 64000}});
    for (PathIndex i = 1; i < 3; ++i) BOOST_TEST(relative(paths, i) < 0.25);
    // They are believed again when they are as fast as a path that was never slow.
    for (int i = 0; i < 64; ++i, now += 100'000)
        deliver(paths, now + 20'000'000, {{0, 8000, 8000}, {1, 8000, 8000}, {2, 8000, 8000}});
    for (PathIndex i = 1; i < 3; ++i) BOOST_TEST(relative(paths, i) == 1);
}
