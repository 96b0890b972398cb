// Reads first: how much of a write is posted while the paths are read from, too.
#define BOOST_TEST_MODULE schedule_both_ways
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {
constexpr std::uint64_t kMiB = 1 << 20;
// chunk_time of two paths of 1 byte/ns, in whole alignments
constexpr std::uint64_t kBusy = 2 * 64000;

void place(Peer& peer, Direction d, std::uint64_t bytes) { // on both paths alike
    for (PathIndex i : {0, 1}) peer.scheduler.place_on(i, d, bytes / 2);
}
} // namespace

BOOST_AUTO_TEST_CASE(writes_alone_wait_for_nothing) {
    Peer peer("default", equal_paths(2));
    for (int i = 0; i < 10; ++i) {
        BOOST_TEST(peer.scheduler.write_ahead(kMiB, 1000) == kMiB);
        place(peer, Direction::write, kMiB);
    }
}

BOOST_AUTO_TEST_CASE(a_write_goes_as_far_as_reads_are_ahead) {
    Peer peer("default", equal_paths(2));
    place(peer, Direction::read, kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, 1000) == kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(2 * kMiB, 1000) == kMiB);
    place(peer, Direction::write, kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, 1000) == 0u);
    BOOST_TEST(peer.scheduler.write_ahead(2048, 1000) == 2048u); // too small to be in anybody's way
    for (std::uint64_t size : {4096, 8192, 16384})
        BOOST_TEST(peer.scheduler.write_ahead(size, 1000) == 0u); // as a whole
    place(peer, Direction::read, 8192);
    // Neither is long enough for two parts.
    for (std::uint64_t size : {16384, 16512, 32640}) BOOST_TEST(peer.scheduler.write_ahead(size, 1000) == 0u);
    place(peer, Direction::read, kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(16384, 1000) == 16384u);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, 1000) == kMiB);
}

BOOST_AUTO_TEST_CASE(paths_are_kept_busy_between_reads) {
    Peer peer("default", equal_paths(2));
    const Nanos done = 3'000'000;
    for (PathIndex i : {0, 1}) {
        peer.scheduler.place_on(i, Direction::read, kMiB);
        peer.scheduler.observe({i, Direction::read, kMiB, kMiB, done - kMiB - 2000, done});
    }
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, done) == kBusy);
    place(peer, Direction::write, kBusy / 2);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, done) == kBusy / 2);
    BOOST_TEST(peer.scheduler.write_ahead(kBusy / 2 + 16384, done) ==
               kBusy / 2 + 16384); // what is left is not worth a stripe
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, done + 1'900'000) == kBusy / 2);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, done + 2'100'000) == kMiB); // no reads any more, it seems
}

BOOST_AUTO_TEST_CASE(reads_with_paths_of_their_own_need_no_lead) {
    std::vector<PathSetup> setup = equal_paths(4);
    setup[0].reads = setup[1].reads = setup[2].writes = setup[3].writes = false;
    Peer peer("default", setup);
    for (PathIndex i : {2, 3}) peer.scheduler.place_on(i, Direction::read, kMiB);
    place(peer, Direction::write, 4 * kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(kMiB, 1000) == kMiB);
}

// Reads count while as much is under way as teaches a rate, and for 2 ms after the last one that did.
BOOST_AUTO_TEST_CASE(whether_paths_are_read_from) {
    PathTable paths(equal_paths(2));
    BOOST_TEST(!both_ways(paths, Direction::write));
    paths.place(1, Direction::read, 4095);
    BOOST_TEST(!both_ways(paths, Direction::write));
    paths.place(1, Direction::read, 1);
    BOOST_TEST(both_ways(paths, Direction::write));
    BOOST_TEST(!both_ways(paths, Direction::read)); // nobody writes
    paths.settle({1, Direction::read, 4096, 4096, 1000, 10'000});
    paths.advance(2'009'999);
    BOOST_TEST(both_ways(paths, Direction::write));
    paths.advance(2'010'000);
    BOOST_TEST(!both_ways(paths, Direction::write));
}

BOOST_AUTO_TEST_CASE(very_large_writes_do_not_wait) {
    Peer peer("default", equal_paths(2));
    place(peer, Direction::read, kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(4 * kMiB, 1000) == kMiB);
    BOOST_TEST(peer.scheduler.write_ahead(4 * kMiB + 1, 1000) == 4 * kMiB + 1);
}

// Two alignments at a time, and both parts are worth a stripe of 16 KiB.
BOOST_AUTO_TEST_CASE(parts_of_a_write) {
    const auto ahead = [](std::uint64_t reads, std::uint64_t size) {
        Peer peer("default:chunk_time=1,min_chunk=64", equal_paths(2));
        place(peer, Direction::read, reads);
        return peer.scheduler.write_ahead(size, 1000);
    };
    BOOST_TEST(ahead(16384, kMiB) == 16384u);
    BOOST_TEST(ahead(16384 + 126, kMiB) == 16384u);
    BOOST_TEST(ahead(16384 + 128, kMiB) == 16384u + 128);
    BOOST_TEST(ahead(16384 - 2, kMiB) == 0u);
    BOOST_TEST(ahead(16384, 32768) == 32768u); // no more than a stripe is left
    BOOST_TEST(ahead(16384, 32769) == 16384u);
    BOOST_TEST(ahead(16384, 32767) == 0u); // too short for two: as a whole
    BOOST_TEST(ahead(32766, 32767) == 0u);
    BOOST_TEST(ahead(32768, 32767) == 32767u);
}
