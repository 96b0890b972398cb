// Memory of the processes of a session: copies and atomics between them, and regions that go while they are copied.
#define BOOST_TEST_MODULE softhca_copies
#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/mman.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "core/guarded_copy.h"
#include "session_fixture.h"

using namespace softhca;

namespace {

iovec piece(void* p, size_t n) { return {p, n}; }

} // namespace

BOOST_AUTO_TEST_CASE(copies_between_processes) {
    LocalSession s;
    Board& board = new_board();
    constexpr size_t kBytes = 300'000;
    const pid_t pid = s.child([&](Process&) {
        std::vector<char> memory(kBytes, 'c');
        board.address = reinterpret_cast<uint64_t>(memory.data());
        board.ready = 1;
        if (!wait_until([&] { return board.go.load() == 1; })) _exit(1);
        for (size_t i = 0; i < kBytes; ++i)
            if (memory[i] != static_cast<char>(i * 7 / 3)) _exit(2);
        std::iota(memory.begin(), memory.end(), 1);
        board.ready = 2;
        if (!wait_until([&] { return board.go.load() == 2; })) _exit(3);
    });
    const uint32_t slot = s.slot_of(pid);
    BOOST_REQUIRE(slot != kNone);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    // Many pieces of odd sizes, more than one system call takes, the last word spread over three of them.
    std::vector<char> source(kBytes);
    for (size_t i = 0; i < kBytes; ++i) source[i] = static_cast<char>(i * 7 / 3);
    std::vector<iovec> pieces;
    size_t at = 0;
    for (size_t i = 0; at < kBytes - 6; ++i) {
        const size_t n = std::min<size_t>(1 + i * 37 % 3000, kBytes - 6 - at);
        pieces.push_back(piece(&source[at], n));
        at += n;
    }
    pieces.push_back(piece(&source[at], 3));
    pieces.push_back(piece(nullptr, 0));
    pieces.push_back(piece(&source[at + 3], 3));
    Process& p = s.process();
    BOOST_TEST((p.write_to(slot, board.address, pieces, kBytes) == CopyResult::ok));
    board.go = 1;
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 2; }));
    std::fill(source.begin(), source.end(), 0);
    BOOST_TEST((p.read_from(slot, board.address, pieces, kBytes) == CopyResult::ok));
    bool same = true;
    for (size_t i = 0; i < kBytes; ++i) same &= source[i] == static_cast<char>(i + 1);
    BOOST_TEST(same);

    const iovec one = piece(source.data(), 64);
    BOOST_TEST((p.write_to(slot, 4096, {&one, 1}, 64) == CopyResult::fault));
    BOOST_TEST((p.read_from(slot, 4096, {&one, 1}, 64) == CopyResult::fault));
    const iovec bad = piece(reinterpret_cast<void*>(4096), 64);
    BOOST_TEST((p.write_to(slot, board.address, {&bad, 1}, 64) == CopyResult::local_fault));
    BOOST_TEST((p.read_from(slot, board.address, {&bad, 1}, 64) == CopyResult::local_fault));
    BOOST_TEST((p.write_to(slot, board.address, {&one, 1}, 65) == CopyResult::fault)); // pieces shorter than length
    board.go = 2;
    BOOST_TEST(LocalSession::wait_child(pid) == 0);
    BOOST_TEST((p.write_to(slot, board.address, {&one, 1}, 64) == CopyResult::dead));
    BOOST_TEST((p.write_to(kMaxProcs - 1, board.address, {&one, 1}, 64) == CopyResult::dead));
}

// Every length, also where source and target overlap, and nothing beside it.
BOOST_AUTO_TEST_CASE(guarded_copies_are_exact) {
    LocalSession s; // puts the handler in place
    constexpr size_t kMost = 1200;
    std::vector<unsigned char> memory(3 * kMost), expected;
    for (size_t n = 0; n <= kMost; n += n < 300 ? 1 : 37)
        for (const ptrdiff_t shift : {-1000, -33, -16, -1, 1, 7, 16, 33, 1000}) {
            for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(i * 31 + i / 256);
            expected = memory;
            std::memmove(expected.data() + kMost + shift, expected.data() + kMost, n);
            BOOST_REQUIRE(softhca_guarded_copy(memory.data() + kMost + shift, memory.data() + kMost, n) == 0u);
            BOOST_REQUIRE_MESSAGE(memory == expected, n << " bytes by " << shift);
        }
    // Up to the last byte before a hole; one more is told with its address.
    auto* pages = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    BOOST_REQUIRE(pages != MAP_FAILED);
    munmap(pages + 4096, 4096);
    const auto hole = reinterpret_cast<uintptr_t>(pages + 4096);
    for (const size_t n : {1u, 3u, 4u, 6u, 8u, 12u, 30u, 200u, 1100u}) {
        BOOST_TEST(softhca_guarded_copy(pages + 4096 - n, memory.data(), n) == 0u);
        BOOST_TEST(softhca_guarded_copy(memory.data(), pages + 4096 - n, n) == 0u);
        const uintptr_t to = softhca_guarded_copy(pages + 4097 - n, memory.data(), n);
        const uintptr_t from = softhca_guarded_copy(memory.data(), pages + 4097 - n, n);
        BOOST_TEST((to >= hole && to < hole + n));
        BOOST_TEST((from >= hole && from < hole + n));
    }
    munmap(pages, 4096);
}

BOOST_AUTO_TEST_CASE(copies_to_oneself) {
    LocalSession s;
    for (size_t n : {1u, 4u, 7u, 8u, 9u, 100u}) {
        std::vector<char> from(n), to(n, 0);
        std::iota(from.begin(), from.end(), 1);
        const std::vector<iovec> pieces = {piece(from.data(), n / 2), piece(from.data() + n / 2, n - n / 2)};
        BOOST_TEST((s.process().write_to(s.process().slot(), reinterpret_cast<uint64_t>(to.data()), pieces, n) ==
                    CopyResult::ok));
        BOOST_TEST((from == to));
        std::fill(from.begin(), from.end(), 0);
        BOOST_TEST((s.process().read_from(s.process().slot(), reinterpret_cast<uint64_t>(to.data()), pieces, n) ==
                    CopyResult::ok));
        BOOST_TEST((from == to));
    }
}

BOOST_AUTO_TEST_CASE(the_last_word_arrives_last) {
    LocalSession s;
    Board& board = new_board();
    const pid_t pid = s.child([&](Process&) {
        alignas(64) static uint64_t memory[512];
        board.address = reinterpret_cast<uint64_t>(memory);
        board.ready = 1;
        // A reader that polls the last word sees a complete message.
        for (uint64_t round = 1; round <= 2000; ++round) {
            auto& last = *reinterpret_cast<std::atomic<uint64_t>*>(&memory[511]);
            while (last.load(std::memory_order_acquire) != round) sched_yield();
            for (int i = 0; i < 511; ++i)
                if (memory[i] != round) _exit(1);
            board.go = static_cast<uint32_t>(round);
        }
    });
    const uint32_t slot = s.slot_of(pid);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    for (uint64_t round = 1; round <= 2000; ++round) {
        std::vector<uint64_t> message(512, round);
        const iovec one = piece(message.data(), 4096);
        BOOST_REQUIRE((s.process().write_to(slot, board.address, {&one, 1}, 4096) == CopyResult::ok));
        while (board.go.load() != round && kill(pid, 0) == 0) {
            if (waitpid(pid, nullptr, WNOHANG) == pid && board.go.load() != round) BOOST_FAIL("torn message");
            sched_yield();
        }
        if (round == 2000) break;
    }
    int status = 0;
    waitpid(pid, &status, 0);
    BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(atomics_of_all_processes_add_up) {
    LocalSession s;
    alignas(8) static uint64_t word;
    word = 0;
    constexpr int kRounds = 3000;
    const uint32_t home = s.process().slot();
    std::vector<pid_t> children;
    for (int c = 0; c < 2; ++c)
        children.push_back(s.child([&](Process& p) {
            for (int i = 0; i < kRounds; ++i) {
                uint64_t old;
                if (p.atomic_at(home, reinterpret_cast<uint64_t>(&word), false, 1, 0, &old) != CopyResult::ok) _exit(1);
            }
            // A compare-and-swap loop, the other operation.
            for (int i = 0; i < kRounds / 10; ++i)
                for (uint64_t expect = 0;;) {
                    uint64_t old;
                    if (p.atomic_at(home, reinterpret_cast<uint64_t>(&word), true, expect, expect + 1, &old) !=
                        CopyResult::ok)
                        _exit(2);
                    if (old == expect) break;
                    expect = old;
                }
        }));
    for (int i = 0; i < kRounds; ++i) {
        uint64_t old;
        BOOST_REQUIRE(
            (s.process().atomic_at(home, reinterpret_cast<uint64_t>(&word), false, 1, 0, &old) == CopyResult::ok));
    }
    for (pid_t pid : children) BOOST_TEST(LocalSession::wait_child(pid) == 0);
    BOOST_TEST(word == 3u * kRounds + 2 * (kRounds / 10));
    uint64_t old;
    BOOST_TEST(
        (s.process().atomic_at(home, reinterpret_cast<uint64_t>(&word) + 4, false, 1, 0, &old) == CopyResult::fault));
}

BOOST_AUTO_TEST_CASE(deregistration_waits_for_a_copy_but_not_for_the_dead) {
    LocalSession s;
    Board& board = new_board();
    Process& p = s.process();
    const uint32_t index = p.claim_mr(), key = p.next_mr_key(index);
    s.seg().mr(index).key = key;
    std::atomic<uint32_t>* cell = nullptr;
    BOOST_TEST(!p.mark_mr(key + 1, cell));
    BOOST_TEST(!p.mark_mr(0, cell));
    BOOST_TEST(p.mark_mr(key, cell) == &s.seg().mr(index));
    Process::clear_mr(cell);
    const pid_t pid = s.child([&](Process& q) {
        std::atomic<uint32_t>* c = nullptr;
        if (!q.mark_mr(key, c)) _exit(1);
        board.ready = 1;
        usleep(50'000);
        board.ready = 2;
        Process::clear_mr(c);
        if (!q.mark_mr(key, c))
            board.ready = 3; // taken down meanwhile
        else
            _exit(2);
        pause();
    });
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    s.seg().mr(index).key = 0;
    p.wait_mr_unused(index);
    BOOST_TEST(board.ready.load() >= 2u);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 3; }));
    kill_child(pid);
    // Marked by a process that is dead by now.
    s.seg().proc(s.slot_of(getpid()) + 1).hazard[3] = index + 1;
    const Nanos start = monotonic_now();
    p.wait_mr_unused(index);
    BOOST_TEST(monotonic_now() - start < 500'000'000u);
}
