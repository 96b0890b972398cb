// The segment's layout, shared locks, index pools and the heap: what does not need a second process.
#define BOOST_TEST_MODULE softhca_segment
#include <boost/test/unit_test.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "session_fixture.h"

using namespace softhca;

BOOST_AUTO_TEST_CASE(tables_do_not_overlap_and_states_follow_the_image) {
    LocalSession s;
    Segment& seg = s.seg();
    const FabricImage& image = seg.img();
    struct Range {
        Off at;
        uint64_t bytes;
    };
    std::vector<Range> ranges = {
        {0, sizeof(Segment)},
        {seg.image, image.bytes},
        {seg.links, image.links * sizeof(LinkState)},
        {seg.ports, image.ports * sizeof(PortState)},
        {seg.devices, image.devices * sizeof(DeviceState)},
        {seg.procs, kMaxProcs * sizeof(ProcSlot)},
        {seg.atomic_locks, kAtomicLocks * sizeof(SharedLock)},
        {seg.qps, uint64_t{kMaxQps} * sizeof(QpRec)},
        {seg.qp_owner, kMaxQps / kBlock * 4},
        {seg.mrs, uint64_t{kMaxMrs} * sizeof(MrRec)},
        {seg.mr_owner, kMaxMrs / kBlock * 4},
        {seg.cqs, uint64_t{kMaxCqs} * sizeof(CqRec)},
        {seg.cq_owner, kMaxCqs / kBlock * 4},
        {seg.rqs, uint64_t{kMaxQps} * sizeof(RecvQueue)},
        {seg.srqs, uint64_t{kMaxSrqs} * sizeof(RecvQueue)},
        {seg.srq_owner, kMaxSrqs / kBlock * 4},
        {seg.contexts, kMaxContexts * sizeof(ContextRec)},
        {seg.heap_owner, seg.heap_pages * 4},
        {seg.heap, seg.heap_pages * kHeapPage},
    };
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.at < b.at; });
    for (size_t i = 1; i < ranges.size(); ++i) BOOST_TEST(ranges[i - 1].at + ranges[i - 1].bytes <= ranges[i].at);
    BOOST_TEST(ranges.back().at + ranges.back().bytes <= kSegmentBytes);
    BOOST_TEST(seg.heap % kHeapPage == 0u);
    BOOST_TEST(seg.magic == kSegmentMagic);
    BOOST_TEST(seg.fabric.modelled.load() == !image.ideal);
    for (uint32_t i = 0; i < image.ports; ++i) {
        BOOST_TEST(seg.port(i).up.load() == image.port(i).cabled);
        BOOST_TEST(seg.port(i).lid.load() == image.port(i).lid);
    }
    for (uint32_t i = 0; i < image.devices; ++i) BOOST_TEST(seg.device(i).command_ns[0].load() == kNone);
}

BOOST_AUTO_TEST_CASE(a_new_segment_is_sparse) {
    const int fd = create_segment_file("test");
    BOOST_REQUIRE(fd >= 0);
    void* memory = map_segment_file(fd, false);
    BOOST_REQUIRE(memory);
    const FabricBlock fabric = small_fabric();
    format_segment(memory, fabric.image(), "test", false);
    Process* p = Process::attach_local(static_cast<Segment*>(memory));
    BOOST_REQUIRE(p);
    for (int i = 0; i < 10; ++i) BOOST_TEST(p->claim_qp() != kNone);
    struct stat st;
    BOOST_REQUIRE(fstat(fd, &st) == 0);
    BOOST_TEST(st.st_blocks * 512 < 2 << 20);
    p->detach();
    unmap_segment(memory);
    close(fd);
}

BOOST_AUTO_TEST_CASE(tsc_clock_follows_monotonic) {
    const TscScale scale = calibrate_tsc();
    for (int i = 0; i < 5; ++i) {
        const Nanos before = monotonic_now(), mid = scaled_now(scale), after = monotonic_now();
        BOOST_TEST(mid + 100'000 >= before);
        BOOST_TEST(mid <= after + 100'000);
        usleep(10'000);
    }
}

BOOST_AUTO_TEST_CASE(locks_exclude_threads) {
    LocalSession s;
    SharedLock& lock = s.seg().qp(5).lock;
    uint64_t counter = 0;
    std::atomic<int> wrong{0};
    const auto work = [&] {
        for (int i = 0; i < 20000; ++i) {
            wrong += lock.acquire() != Taken::cleanly;
            counter = counter + 1;
            lock.release();
        }
    };
    std::thread a(work), b(work), c(work);
    a.join(), b.join(), c.join();
    BOOST_TEST(wrong.load() == 0);
    BOOST_TEST(counter == 60000u);
    BOOST_TEST(lock.word.load() == 0u);
}

BOOST_AUTO_TEST_CASE(lock_of_an_old_generation_is_taken_over_and_of_a_live_one_is_not) {
    LocalSession s;
    SharedLock lock;
    const uint32_t slot = s.process().slot();
    const uint32_t generation = s.seg().proc(slot).generation.load();
    lock.word = lock_word(slot, generation + 7); // never was, or long ago
    BOOST_TEST(!lock.try_acquire());
    BOOST_TEST((lock.acquire() == Taken::from_dead));
    BOOST_TEST(lock.word.load() == g_lock_word);
    Taken how;
    BOOST_TEST(!lock.acquire_within(30, how)); // held by this very process
    lock.release();
    BOOST_TEST(lock.acquire_within(30, how));
    BOOST_TEST((how == Taken::cleanly));
    lock.release();
}

BOOST_AUTO_TEST_CASE(indices_are_reused_late_and_numbers_differ) {
    LocalSession s;
    Process& p = s.process();
    std::vector<uint32_t> claimed;
    std::set<uint32_t> seen;
    for (int i = 0; i < 3000; ++i) {
        const uint32_t qp = p.claim_qp();
        BOOST_REQUIRE(qp >= 2);
        BOOST_REQUIRE(qp < kMaxQps);
        BOOST_REQUIRE(seen.insert(qp).second);
        claimed.push_back(qp);
    }
    for (uint32_t qp : claimed) p.free_qp(qp);
    // First in, first out: the first index freed is the first to come back.
    BOOST_TEST(s.seg().qp_blocks.load() >= 3000 / kBlock);
    uint32_t next = p.claim_qp();
    while (!seen.count(next)) next = p.claim_qp();
    BOOST_TEST(next == claimed[0]);
    const uint32_t first = p.next_qpn(next), second = p.next_qpn(next);
    BOOST_TEST(first != second);
    BOOST_TEST((first & (kMaxQps - 1)) == next);
    BOOST_TEST((second & (kMaxQps - 1)) == next);
    BOOST_TEST(second <= 0xffffffu);

    // One that is claimed and freed all the time comes back only after many others.
    const uint32_t mr = p.claim_mr();
    BOOST_TEST(mr != 0u);
    p.free_mr(mr);
    int rounds = 0;
    for (uint32_t again = 0; again != mr; ++rounds) {
        again = p.claim_mr();
        p.free_mr(again);
        BOOST_REQUIRE(rounds < 100000);
    }
    BOOST_TEST(rounds >= 1000);
    BOOST_TEST(p.next_mr_key(mr) != p.next_mr_key(mr));
    BOOST_TEST(p.next_mr_key(mr) >> 8 == mr);
    BOOST_TEST(p.claim_cq() != 0u);
    BOOST_TEST(p.claim_srq() != 0u);
}

BOOST_AUTO_TEST_CASE(index_table_ends_with_kNone_and_goes_on_after_a_free) {
    LocalSession s;
    Process& p = s.process();
    uint32_t last = 0, count = 0;
    for (uint32_t i; (i = p.claim_srq()) != kNone; ++count) last = i;
    BOOST_TEST(count == kMaxSrqs - 2); // without 0 and the last one
    BOOST_TEST(p.claim_srq() == kNone);
    p.free_srq(last);
    BOOST_TEST(p.claim_srq() == last);
}

BOOST_AUTO_TEST_CASE(heap_memory_is_zeroed_aligned_and_disjoint) {
    LocalSession s;
    Process& p = s.process();
    struct Piece {
        Off at;
        uint64_t bytes;
    };
    std::vector<Piece> pieces;
    uint32_t random = 1;
    for (int i = 0; i < 2000; ++i) {
        random = random * 1664525 + 1013904223;
        const uint64_t bytes = (random >> 8) % (i % 50 == 0 ? 400'000 : i % 7 == 0 ? 40'000 : 700) + 1;
        const Off at = p.alloc(bytes);
        BOOST_REQUIRE(at != 0u);
        BOOST_REQUIRE(at % 64 == 0u);
        char* c = s.seg().at<char>(at);
        BOOST_REQUIRE(std::all_of(c, c + bytes, [](char x) { return x == 0; }));
        std::memset(c, 0xee, bytes);
        pieces.push_back({at, bytes});
        if (i % 3 == 0) {
            const size_t victim = random % pieces.size();
            p.free(pieces[victim].at, pieces[victim].bytes);
            pieces.erase(pieces.begin() + static_cast<long>(victim));
        }
    }
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.at < b.at; });
    for (size_t i = 1; i < pieces.size(); ++i) BOOST_REQUIRE(pieces[i - 1].at + pieces[i - 1].bytes <= pieces[i].at);
}

BOOST_AUTO_TEST_CASE(large_blocks_give_their_memory_back) {
    LocalSession s;
    Process& p = s.process();
    const uint64_t bytes = 8 << 20;
    const Off at = p.alloc(bytes);
    BOOST_REQUIRE(at != 0u);
    std::memset(s.seg().at<char>(at), 1, bytes);
    p.free(at, bytes);
    unsigned char resident[bytes / 4096];
    BOOST_REQUIRE(mincore(s.seg().at<char>(at), bytes, resident) == 0);
    BOOST_TEST(std::count_if(resident, resident + sizeof resident, [](unsigned char c) { return c & 1; }) == 0);
    BOOST_TEST(p.alloc(bytes) == at); // lowest first
    BOOST_TEST(p.alloc(kSegmentBytes) == 0u);
    BOOST_TEST(p.alloc(UINT64_MAX) == 0u);
}

BOOST_AUTO_TEST_CASE(detach_returns_everything) {
    LocalSession s;
    Segment& seg = s.seg();
    const uint32_t owner = s.process().slot() + 1;
    (void)s.process().claim_qp();
    (void)s.process().claim_cq();
    const Off at = s.process().alloc(100'000);
    seg.at<char>(at)[5] = 1;
    s.leave();
    for (uint32_t b = 0; b < seg.qp_blocks.load(); ++b)
        BOOST_TEST(seg.at<std::atomic<uint32_t>>(seg.qp_owner)[b] != owner);
    for (uint64_t b = 0; b < seg.heap_top.load(); ++b)
        BOOST_TEST(seg.at<std::atomic<uint32_t>>(seg.heap_owner)[b] == 0u);
    BOOST_TEST(seg.at<char>(at)[5] == 0);
    BOOST_TEST((seg.proc(owner - 1).state.load() == ProcState::free));
    BOOST_TEST(!Process::current());
}
