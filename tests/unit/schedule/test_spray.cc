// The spray windows, step by step. How they fare over time: test_closed_loop.
#define BOOST_TEST_MODULE schedule_spray
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <map>
#include <utility>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::map<int, std::uint64_t> bytes_by_path(const std::vector<Stripe>& chunks) {
    std::map<int, std::uint64_t> out;
    for (const Stripe& c : chunks) out[c.path] += c.length;
    return out;
}

} // namespace

BOOST_AUTO_TEST_CASE(window_is_two_chunks_and_twice_rate_times_latency) {
    // 1 byte/ns: chunk 64000, latency 2000: window 2 * 64000 + 2 * 2000 = 132000; taken while there is room.
    Peer peer("spray", equal_paths(2));
    Transfer transfer{64 * kMiB};
    const auto chunks = drain(peer, transfer, 1);
    for (const auto& [path, bytes] : bytes_by_path(chunks)) BOOST_TEST(bytes == 3 * 64000u);
    for (const Stripe& c : chunks) BOOST_TEST(c.length == 64000u);
    // A completion makes room for one more, on that path.
    peer.scheduler.observe({1, Direction::write, 64000, 64000, 1, 66001});
    const auto more = drain(peer, transfer, 66001);
    BOOST_TEST_REQUIRE(more.size() == 1u);
    BOOST_TEST(more[0].path == 1);
}

BOOST_AUTO_TEST_CASE(slow_path_gets_small_chunks_and_never_the_tail) {
    Peer peer("spray", weighted_paths({1, 0.02}));
    Transfer transfer{64 * kMiB};
    auto bytes = bytes_by_path(drain(peer, transfer, 1));
    BOOST_TEST(bytes[0] == 3 * 64000u);
    BOOST_TEST(bytes[1] == 3 * 8192u);
    // 64 KiB on idle paths: 64 us on the fast one, 410 us for 8 KiB on the slow one.
    Peer idle("spray", weighted_paths({1, 0.02}));
    Transfer small{65536};
    bytes = bytes_by_path(drain(idle, small, 1));
    BOOST_TEST(bytes[0] == 65536u);
    BOOST_TEST(bytes.count(1) == 0u);
}

BOOST_AUTO_TEST_CASE(tail_waits_for_the_fast_path) {
    // The fast path's window is full and 20000 bytes are left: it will be done with them in 212 us, the slow one with
    // its least piece in 821 us.
    Peer peer("spray", weighted_paths({1, 0.005}));
    Transfer transfer{3 * 64000 + 20000};
    auto bytes = bytes_by_path(drain(peer, transfer, 1));
    BOOST_TEST(bytes[0] == 3 * 64000u);
    BOOST_TEST(bytes.count(1) == 0u);
    peer.scheduler.observe({0, Direction::write, 64000, 64000, 1, 66001});
    bytes = bytes_by_path(drain(peer, transfer, 66001));
    BOOST_TEST(bytes[0] == 20000u);
    BOOST_TEST(transfer.remaining() == 0u);
}

BOOST_AUTO_TEST_CASE(nothing_is_pulled_without_paths_or_bytes) {
    Peer peer("spray", equal_paths(3));
    Transfer transfer{kMiB};
    Stripe chunk;
    BOOST_TEST(peer.scheduler.next(transfer, 1, chunk));
    BOOST_TEST(transfer.offset == chunk.length);
    peer.scheduler.set_state(2, PathState::suspect);
    for (PathIndex i : {0, 1}) peer.scheduler.set_state(i, PathState::down);
    BOOST_TEST(!peer.scheduler.next(transfer, 1, chunk));
    Transfer empty{0};
    BOOST_TEST(!peer.scheduler.next(empty, 1, chunk));
}

BOOST_AUTO_TEST_CASE(never_refuses_while_nothing_is_in_flight) {
    for (std::uint64_t size :
         {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{4097}, kMiB, std::uint64_t{1} << 50}) {
        Peer peer("spray", weighted_paths({1, 0.001, 0.0001, 100}));
        for (PathIndex i : {3, 2, 1}) {
            Transfer transfer{size};
            Stripe chunk;
            BOOST_TEST(peer.scheduler.next(transfer, 1, chunk));
            peer.scheduler.cancel(chunk.path, Direction::write, chunk.length);
            peer.scheduler.set_state(i, PathState::down);
        }
    }
}

BOOST_AUTO_TEST_CASE(unsignaled_messages_in_flight_stop_nothing) {
    // A few small messages whose completion nobody will report before more are sent.
    Peer peer("default", weighted_paths({1, 0.02, 0.5}));
    for (PathIndex i : {0, 1, 2}) {
        for (PathIndex j : {0, 1, 2}) peer.scheduler.set_state(j, i == j ? PathState::up : PathState::suspect);
        BOOST_TEST(peer.scheduler.place(Direction::write, 64) == i);
    }
    for (PathIndex j : {0, 1, 2}) peer.scheduler.set_state(j, PathState::up);
    for (std::uint64_t size : {100, 5000, 9000, 70000}) {
        Transfer transfer{size};
        const auto chunks = drain(peer, transfer, 1);
        BOOST_TEST(transfer.remaining() == 0u);
        for (const Stripe& c : chunks) peer.scheduler.cancel(c.path, Direction::write, c.length);
    }
}

BOOST_AUTO_TEST_CASE(finding_completions_late_opens_the_window) {
    Peer peer("spray", equal_paths(2));
    Transfer transfer{1 << 30};
    Nanos now = 1;
    auto chunks = drain(peer, transfer, now);
    const auto bytes = [&] { return bytes_by_path(chunks)[0] + bytes_by_path(chunks)[1]; };
    const std::size_t first = chunks.size(), first_bytes = bytes();
    for (int i = 0; i < 20; ++i) { // polled every 2 ms only: everything is done by then
        Nanos done[2] = {now + 2000, now + 2000};
        for (const Stripe& c : chunks) {
            done[c.path] += c.length;
            peer.scheduler.observe({c.path, Direction::write, c.length, c.length, now, done[c.path]});
        }
        now += 2000000;
        chunks = drain(peer, transfer, now);
    }
    BOOST_TEST(bytes() > 10 * first_bytes);
    BOOST_TEST(chunks.size() <= 2 * first); // larger ones, not more
}

// As the channel does it: each completion asks for the next chunk before the others are found, which wait as well.
BOOST_AUTO_TEST_CASE(completions_found_together_late_open_the_window) {
    for (const Nanos away : {0u, 1000000u}) {
        Peer peer("spray", equal_paths(2));
        Transfer transfer{1 << 30};
        Nanos now = 1;
        std::deque<std::pair<Nanos, Stripe>> under_way[2];
        Nanos busy[2] = {1, 1};
        const auto post = [&](const std::vector<Stripe>& chunks) {
            for (const Stripe& c : chunks) {
                busy[c.path] = std::max(busy[c.path], now) + c.length * (c.path ? 4 : 1); // one is slower than it looks
                under_way[c.path].emplace_back(now, c);
                under_way[c.path].back().second.offset = busy[c.path]; // when it will be done
            }
        };
        post(drain(peer, transfer, now));
        for (int i = 0; i < 400; ++i) {
            now =
                std::max(now + away, std::min(under_way[0].front().second.offset, under_way[1].front().second.offset));
            for (auto& queue : under_way) {
                while (!queue.empty() && queue.front().second.offset <= now) {
                    const auto [posted, c] = queue.front();
                    queue.pop_front();
                    peer.scheduler.observe({c.path, Direction::write, c.length, c.length, posted, c.offset});
                    post(drain(peer, transfer, now));
                }
            }
        }
        const double scale[2] = {peer.path(0).of(Direction::write).window_scale,
                                 peer.path(1).of(Direction::write).window_scale};
        const double in_flight[2] = {static_cast<double>(peer.path(0).of(Direction::write).in_flight),
                                     static_cast<double>(peer.path(1).of(Direction::write).in_flight)};
        BOOST_TEST_MESSAGE("away " << away << ": scales " << scale[0] << ", " << scale[1] << ", in flight "
                                   << in_flight[0] << ", " << in_flight[1]);
        if (away) {
            BOOST_TEST(in_flight[0] > 1e6); // what a path does in 1 ms is more than its window of 130 us
            BOOST_TEST(in_flight[1] > 1e6 / 4);
        } else {
            BOOST_TEST((scale[0] < 1.1 && scale[1] < 1.1)); // slower than believed is not dry
            BOOST_TEST((in_flight[0] <= 3 * 64000 && in_flight[1] <= 3 * 64000));
        }
    }
}

namespace {
// A chunk of path 0, done at `done`, is found at `found`, and asks for more.
std::vector<Stripe> found(Peer& peer, Transfer& transfer, Nanos done, Nanos found) {
    peer.scheduler.observe({0, Direction::write, 64000, 64000, 1, done});
    return drain(peer, transfer, found);
}
} // namespace

BOOST_AUTO_TEST_CASE(windows_cover_the_time_until_completions_are_found) {
    Peer peer("spray", equal_paths(2));
    Transfer transfer{1 << 30};
    (void)drain(peer, transfer, 1);
    BOOST_TEST(peer.scheduler.paths().late() == 0);
    (void)found(peer, transfer, 66001, 66001);
    BOOST_TEST(peer.scheduler.paths().late() == 0);
    // A quarter of 400 us is believed at once. So windows have 332000 bytes, the other path's, too.
    auto more = found(peer, transfer, 132001, 532001);
    BOOST_TEST(peer.scheduler.paths().late() == 100000.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(bytes_by_path(more)[1] == 3 * 64000u);
    // Believed as long as every 16th or so is late, and forgotten when none is.
    for (unsigned i = 0; i < 32; ++i)
        (void)found(peer, transfer, 600000 + i * 64000, 600000 + i * 64000 + i % 16 / 15 * 400000);
    BOOST_TEST(peer.scheduler.paths().late() > 50000);
    for (unsigned i = 0; i < 500; ++i) (void)found(peer, transfer, 4000000 + i * 64000, 4000000 + i * 64000);
    BOOST_TEST(peer.scheduler.paths().late() < 100);
    // Stopped for ten seconds: it counts as 10 ms.
    (void)found(peer, transfer, 40000000, 10040000000);
    BOOST_TEST(peer.scheduler.paths().late() < 2.6e6);
}

BOOST_AUTO_TEST_CASE(a_completion_that_asked_for_nothing_is_not_late) {
    Peer peer("spray", equal_paths(2));
    Transfer transfer{64000};
    (void)drain(peer, transfer, 1);
    peer.scheduler.observe({0, Direction::write, 64000, 64000, 1, 66001}); // nothing waits
    // The next message comes 10 ms later, and takes chunks because it is there.
    Transfer next{kMiB};
    BOOST_TEST((peer.put(kMiB, TrafficHint::none, 10066001) == Outcome::pull));
    BOOST_TEST(!drain(peer, next, 10066001).empty());
    BOOST_TEST(peer.scheduler.paths().late() == 0);
}

BOOST_AUTO_TEST_CASE(the_end_of_a_transfer_is_cut_small_only_if_none_is_behind_it) {
    // With nothing behind it both paths end at the same time: (40000 + 16000) / 2 for the idle one.
    const auto first_piece = [](std::uint64_t behind) {
        Peer peer("spray", equal_paths(2));
        peer.scheduler.place_on(1, Direction::write, 16000);
        Transfer transfer{40000};
        transfer.behind = behind;
        return drain(peer, transfer, 1).at(0).length;
    };
    BOOST_TEST(first_piece(0) < 30000u);
    BOOST_TEST(first_piece(4 * kMiB) == 40000u);
}

// window_chunks chunks and twice rate x latency, as often as the scale says, and twice rate x late. Chunks grow with
// both, within their bounds.
BOOST_AUTO_TEST_CASE(windows_and_chunks_by_numbers) {
    const auto tolerance = boost::test_tools::tolerance(1e-12);
    const PolicyConfig config = policy("spray");
    const SprayWindows windows(config);
    BOOST_TEST(windows.chunk(0.5) == 32000.0);
    BOOST_TEST(windows.chunk(0.1) == 8192.0);
    BOOST_TEST(windows.chunk(20) == double(kMiB));
    PathTable paths(equal_paths(2, 2));
    const Path& path = paths[0];
    const Direction d = Direction::write;
    BOOST_TEST(windows.window(paths, path, d, 2) == 2 * 128000 + 2 * 2 * 2000.0, tolerance);
    BOOST_TEST(windows.chunk(paths, path, d, 2) == 128000.0, tolerance);
    paths[0].of(d).window_scale = 3;
    BOOST_TEST(windows.window(paths, path, d, 2) == 3 * (2 * 128000 + 2 * 2 * 2000.0), tolerance);
    BOOST_TEST(windows.chunk(paths, path, d, 2) == 1.5 * 128000.0, tolerance);
    paths[0].of(d).window_scale = 1.5;
    BOOST_TEST(windows.chunk(paths, path, d, 2) == 128000.0, tolerance);
    paths.settle({0, d, 8, 8, 1000, 3000});
    paths.advance(3000 + 4'000'000);
    (void)paths.take_settled(d);
    BOOST_TEST(paths.late() == 1e6);
    BOOST_TEST(windows.window(paths, path, d, 2) == 1.5 * (2 * 128000 + 2 * 2 * 2000.0) + 2 * 2 * 1e6, tolerance);
    BOOST_TEST(windows.chunk(paths, path, d, 2) == 2 * 2 * 1e6 / 8, tolerance);
    BOOST_TEST(windows.chunk(paths, path, d, 8) == double(kMiB));
}

// Found dry in the middle of a transfer a window grows by half, up to 16 times; each other chunk takes 0.002 off.
BOOST_AUTO_TEST_CASE(scales_by_numbers) {
    Peer peer("spray", equal_paths(2));
    Transfer transfer{1 << 30};
    Nanos now = 1;
    (void)drain(peer, transfer, now);
    const auto scale = [&] { return peer.path(0).of(Direction::write).window_scale; };
    const auto ask = [&] {
        Stripe chunk;
        BOOST_REQUIRE(peer.scheduler.next(transfer, now, chunk));
        BOOST_TEST(chunk.path == 0);
    };
    const auto all_done = [&] {
        const std::uint64_t bytes = peer.path(0).of(Direction::write).in_flight;
        now += 2000 + bytes;
        peer.scheduler.observe({0, Direction::write, bytes, bytes, now - 2000 - bytes, now});
    };
    BOOST_TEST(scale() == 1.0);
    all_done();
    ask();
    BOOST_TEST(scale() == 1.5);
    ask(); // something is under way
    BOOST_TEST(scale() == 1.5 * 0.998);
    for (int i = 0; i < 6; ++i) all_done(), ask();
    BOOST_TEST(scale() == 16.0);
}

// A path that nobody has measured for probe_interval has the least chunk of a transfer's beginning, if that has four.
BOOST_AUTO_TEST_CASE(a_stale_path_is_tried_at_the_beginning) {
    const auto first = [](std::uint64_t size, std::uint64_t offset = 0, Nanos age = 1'000'001) {
        Peer peer("spray:probe_interval=1ms", weighted_paths({1, 0.001}));
        peer.scheduler.observe({0, Direction::write, 8192, 8192, 1'000'000, 1'010'192});
        peer.scheduler.observe({1, Direction::write, 8192, 8192, 1'000'000, 1'000'000 + 8'194'000});
        const Nanos now = 9'194'000 + age;
        peer.scheduler.observe({0, Direction::write, 8192, 8192, now - 10'192, now});
        Transfer transfer{size};
        transfer.offset = offset;
        return drain(peer, transfer, now).at(0);
    };
    const Stripe tried = first(32768);
    BOOST_TEST(tried.path == 1);
    BOOST_TEST(tried.length == 8192u);
    BOOST_TEST(tried.offset == 0u);
    BOOST_TEST(first(32767).path == 0);
    BOOST_TEST(first(1 << 20, 64).path == 0);
    BOOST_TEST(first(32768, 0, 1'000'000).path == 0);
}

// A rest of less than half the least chunk goes with the piece before it.
BOOST_AUTO_TEST_CASE(no_crumbs) {
    const auto lengths = [](std::uint64_t size) {
        Peer peer("spray", equal_paths(1));
        Transfer transfer{size};
        std::vector<std::uint64_t> out;
        for (const Stripe& chunk : drain(peer, transfer, 1)) out.push_back(chunk.length);
        return out;
    };
    using Lengths = std::vector<std::uint64_t>;
    BOOST_TEST(lengths(64000 + 4095) == Lengths({64000 + 4095}), boost::test_tools::per_element());
    BOOST_TEST(lengths(64000 + 4096) == Lengths({64000, 4096}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(chunks_are_whole_alignments) {
    Peer peer("spray:chunk_time=50us", equal_paths(2));
    Transfer transfer{kMiB};
    BOOST_TEST(drain(peer, transfer, 1).at(0).length == 49984u); // 781.25 of them
}
