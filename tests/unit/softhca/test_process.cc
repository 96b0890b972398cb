// What happens between processes of a session: copies, atomics, locks and marks of the dead, events, cleaning up.
#define BOOST_TEST_MODULE softhca_process
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "core/guarded_copy.h"
#include "core/notify.h"
#include "session_fixture.h"

using namespace softhca;

namespace {

// Memory that parent and children share besides the session: where a child says what it has.
struct Board {
    std::atomic<uint64_t> address{0}, value{0};
    std::atomic<uint32_t> ready{0}, go{0};
};

Board& new_board() {
    void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *new (p) Board;
}

bool wait_until(const std::function<bool()>& condition, int milliseconds = 30'000) {
    for (int i = 0; i < milliseconds * 10; ++i, usleep(100))
        if (condition()) return true;
    return condition();
}

// Kills a child and waits until it is gone, but not reaped in the session.
void kill_child(pid_t pid) {
    kill(pid, SIGKILL);
    BOOST_TEST(LocalSession::wait_child(pid) == -SIGKILL);
}

iovec piece(void* p, size_t n) { return {p, n}; }

bool all_free(Segment& seg, uint32_t slot) {
    const uint32_t owner = slot + 1;
    const auto none = [&](Off at, uint64_t n) {
        for (uint64_t i = 0; i < n; ++i)
            if (seg.at<std::atomic<uint32_t>>(at)[i].load() == owner) return false;
        return true;
    };
    return none(seg.qp_owner, seg.qp_blocks) && none(seg.mr_owner, seg.mr_blocks) &&
           none(seg.cq_owner, seg.cq_blocks) && none(seg.srq_owner, seg.srq_blocks) &&
           none(seg.heap_owner, seg.heap_top) && seg.proc(slot).state.load() == ProcState::free;
}

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

BOOST_AUTO_TEST_CASE(a_lock_of_a_killed_process_is_taken_over_at_once) {
    LocalSession s;
    Board& board = new_board();
    SharedLock& lock = s.seg().qp(77).lock;
    const pid_t pid = s.child([&](Process& p) {
        (void)p.seg().qp(77).lock.acquire();
        board.ready = 1;
        pause();
    });
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    BOOST_TEST(!lock.try_acquire());
    Taken how;
    BOOST_TEST(!lock.acquire_within(20, how)); // alive: no
    kill(pid, SIGKILL);                        // and not waited for: a zombie is dead enough
    const Nanos start = monotonic_now();
    BOOST_TEST((lock.acquire() == Taken::from_dead));
    BOOST_TEST(monotonic_now() - start < 500'000'000u);
    lock.release();
    BOOST_TEST((lock.acquire() == Taken::cleanly));
    lock.release();
    LocalSession::wait_child(pid);
}

BOOST_AUTO_TEST_CASE(a_lock_outlives_the_reuse_of_its_owners_slot) {
    LocalSession s;
    Board& board = new_board();
    const auto holder = [&](Process& p) {
        (void)p.seg().qp(78).lock.acquire();
        board.ready = 1;
        pause();
    };
    const pid_t pid = s.child(holder);
    const uint32_t slot = s.slot_of(pid);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    kill_child(pid);
    BOOST_TEST(reap_process(s.seg(), slot));
    const pid_t next = s.child([](Process&) { pause(); });
    BOOST_TEST(s.slot_of(next) == slot); // same slot, alive, but not the owner
    BOOST_TEST((s.seg().qp(78).lock.acquire() == Taken::from_dead));
    s.seg().qp(78).lock.release();
    kill_child(next);
}

BOOST_AUTO_TEST_CASE(a_zombie_a_wrong_start_time_and_a_stopped_process) {
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    const uint64_t start = process_start_time(pid);
    BOOST_TEST(start != 0u);
    BOOST_TEST(process_alive(pid, start));
    BOOST_TEST(!process_alive(pid, start + 1)); // a reused pid
    const uint64_t own = process_start_time(getpid());
    BOOST_TEST(process_alive(getpid(), own));
    BOOST_TEST(!process_alive(getpid(), own - 1)); // reused by ourselves
    kill(pid, SIGSTOP);
    usleep(1000);
    BOOST_TEST(process_alive(pid, start));
    kill(pid, SIGKILL);
    BOOST_TEST(wait_until([&] { return !process_alive(pid, start); })); // not waited for yet
    waitpid(pid, nullptr, 0);
    BOOST_TEST(!process_alive(pid, start));
    BOOST_TEST(!process_alive(0, 0));
}

// Known from the memory of the session alone, before anybody reaps, and before the number is free.
BOOST_AUTO_TEST_CASE(a_process_is_deserted_by_death_and_exec_but_not_by_its_main_thread) {
    LocalSession s;
    const pid_t killed = s.child([](Process&) { pause(); });
    const uint32_t slot = s.slot_of(killed);
    BOOST_TEST(!slot_deserted(s.seg(), slot));
    kill_child(killed);
    BOOST_TEST(slot_deserted(s.seg(), slot));

    const pid_t other = s.child([](Process&) {
        usleep(20'000);
        execlp("sleep", "sleep", "60", nullptr);
    });
    const uint32_t exec_slot = s.slot_of(other);
    BOOST_TEST(wait_until([&] { return slot_deserted(s.seg(), exec_slot); }));
    BOOST_TEST(slot_alive(s.seg(), exec_slot)); // by its number
    kill_child(other);

    const pid_t headless = s.child([](Process&) {
        std::thread([] { pause(); }).detach();
        syscall(SYS_exit, 0); // this thread only
    });
    const uint32_t headless_slot = s.slot_of(headless);
    usleep(50'000);
    BOOST_TEST(!slot_deserted(s.seg(), headless_slot));
    kill_child(headless);
    BOOST_TEST(slot_deserted(s.seg(), headless_slot));
}

BOOST_AUTO_TEST_CASE(reaping_returns_everything_and_is_idempotent) {
    LocalSession s;
    Board& board = new_board();
    const pid_t pid = s.child([&](Process& p) {
        Segment& seg = p.seg();
        for (int i = 0; i < 100; ++i) {
            const uint32_t index = p.claim_qp();
            QpRec& qp = seg.qp(index);
            qp.kind = QpKind::rc;
            qp.device = 1;
            qp.state = 3;
            qp.qpn = p.next_qpn(index);
            seg.device(1).qps.fetch_add(1);
        }
        const uint32_t mr = p.claim_mr(), cq = p.claim_cq(), srq = p.claim_srq();
        seg.mr(mr).device = 1;
        seg.mr(mr).key = p.next_mr_key(mr);
        seg.device(1).mrs.fetch_add(1);
        seg.cq(cq).id = 1;
        seg.cq(cq).entries = p.alloc(70'000);
        seg.srq(srq).id = 1;
        (void)seg.cq(cq).lock.acquire(); // killed inside of a section of its own, and of somebody else's
        (void)seg.qp(500'000).lock.acquire();
        std::memset(seg.at<char>(seg.cq(cq).entries), 5, 70'000);
        seg.context(9).used = p.slot() + 1;
        board.value = seg.cq(cq).entries;
        board.address = mr;
        board.ready = 1;
        pause();
    });
    const uint32_t slot = s.slot_of(pid);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    BOOST_TEST(s.seg().device(1).qps.load() == 100u);
    BOOST_TEST(reap_process(s.seg(), slot)); // alive: nothing happens
    BOOST_TEST(s.seg().device(1).qps.load() == 100u);
    BOOST_TEST(s.seg().live_procs.load() == 2u);
    const uint32_t generation = s.seg().proc(slot).generation.load();
    const uint32_t fabric = s.seg().fabric.generation.load();
    kill_child(pid);
    BOOST_TEST(reap_process(s.seg(), slot));
    BOOST_TEST(s.seg().fabric.generation.load() != fabric); // the others look at what it has left them
    BOOST_TEST(all_free(s.seg(), slot));
    BOOST_TEST(s.seg().proc(slot).generation.load() == generation + 1);
    BOOST_TEST(s.seg().device(1).qps.load() == 0u);
    BOOST_TEST(s.seg().device(1).mrs.load() == 0u);
    BOOST_TEST(s.seg().mr(static_cast<uint32_t>(board.address.load())).key.load() == 0u);
    BOOST_TEST(s.seg().context(9).used.load() == 0u);
    BOOST_TEST(s.seg().at<char>(board.value)[100] == 0);
    BOOST_TEST(s.seg().live_procs.load() == 1u);
    BOOST_TEST((s.seg().qp(500'000).lock.acquire() == Taken::from_dead));
    s.seg().qp(500'000).lock.release();
    BOOST_TEST(reap_process(s.seg(), slot));
    BOOST_TEST(s.seg().proc(slot).generation.load() == generation + 1);
}

BOOST_AUTO_TEST_CASE(a_killed_reaper_is_continued_by_the_next) {
    LocalSession s;
    Board& board = new_board();
    const pid_t victim = s.child([&](Process& p) {
        for (int i = 0; i < 20000; ++i) {
            const uint32_t index = p.claim_qp();
            p.seg().qp(index).kind = QpKind::rc;
            p.seg().qp(index).qpn = p.next_qpn(index);
        }
        for (int i = 0; i < 500; ++i) (void)p.alloc(60'000);
        board.ready = 1;
        pause();
    });
    const uint32_t slot = s.slot_of(victim);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    kill_child(victim);
    for (int delay = 0; delay < 3000 && s.seg().proc(slot).state.load() != ProcState::free; delay += 300) {
        const pid_t reaper = s.child([&](Process& p) { reap_process(p.seg(), slot); });
        usleep(static_cast<useconds_t>(300 + delay));
        kill(reaper, SIGKILL);
        LocalSession::wait_child(reaper);
    }
    BOOST_TEST(reap_process(s.seg(), slot));
    BOOST_TEST(all_free(s.seg(), slot));
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

BOOST_AUTO_TEST_CASE(events_reach_other_processes) {
    LocalSession s;
    Board& board = new_board();
    const pid_t pid = s.child([&](Process& p) {
        Channel c;
        if (!open_channel(c)) _exit(1);
        ContextRec& row = p.seg().context(0);
        row.device = 2;
        row.async_channel = c.id;
        row.used = p.slot() + 1;
        board.value = c.id;
        board.ready = 1;
        AsyncMessage m{};
        if (read(c.rx, &m, sizeof m) != sizeof m || m.type != 10 || m.port != 1) _exit(2);
        if (read(c.rx, &m, sizeof m) != sizeof m || m.type != 11 || m.port != 0) _exit(3);
        if (read(c.rx, &m, sizeof m) != sizeof m || m.type != 12 || m.element != 0xabcdef) _exit(4);
        board.ready = 2;
        if (!wait_until([&] { return board.go.load() == 1; })) _exit(5);
        // Thousands of small messages wait without loss.
        for (uint32_t i = 0; i < 4000; ++i)
            if (read(c.rx, &m, sizeof m) != sizeof m || m.type != i) _exit(6);
        close_channel(c);
        board.ready = 3;
        pause();
    });
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    raise_port_event(s.seg(), 3, 10); // another device's port
    raise_port_event(s.seg(), 2, 10);
    raise_device_event(s.seg(), 2, 11);
    raise_object_event(s.seg(), board.value, 12, 0xabcdef);
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 2; }));
    for (uint32_t i = 0; i < 4000; ++i) raise_object_event(s.seg(), board.value, i, 0);
    board.go = 1;
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 3; }));
    for (int i = 0; i < 3; ++i) raise_object_event(s.seg(), board.value, 13, 0); // closed: no signal, no error
    kill_child(pid);
    raise_object_event(s.seg(), board.value, 13, 0);
}

BOOST_AUTO_TEST_CASE(a_descriptor_that_is_another_file_by_now_gets_nothing) {
    LocalSession s;
    Board& board = new_board();
    const pid_t pid = s.child([&](Process&) {
        Channel c;
        if (!open_channel(c)) _exit(1);
        board.value = c.id;
        const int rx = c.rx, tx = c.tx;
        close_channel(c);
        int other[2];
        if (pipe(other) != 0 || other[0] != rx || other[1] != tx) _exit(2); // the numbers are used again
        fcntl(other[0], F_SETFL, O_NONBLOCK);
        board.ready = 1;
        if (!wait_until([&] { return board.go.load() == 1; })) _exit(3);
        char byte;
        _exit(read(other[0], &byte, 1) < 0 ? 0 : 4);
    });
    BOOST_REQUIRE(wait_until([&] { return board.ready.load() == 1; }));
    const uint64_t message = 1;
    notify(board.value, &message, sizeof message);
    board.go = 1;
    BOOST_TEST(LocalSession::wait_child(pid) == 0);
}

BOOST_AUTO_TEST_CASE(a_full_or_reused_channel_blocks_nobody) {
    LocalSession s;
    Channel c;
    BOOST_REQUIRE(open_channel(c));
    const uint64_t id = c.id, message = 1;
    for (int i = 0; i < 100'000; ++i) notify(id, &message, sizeof message);
    close_channel(c);
    notify(id, &message, sizeof message);
    Channel next; // most likely the same descriptors
    BOOST_REQUIRE(open_channel(next));
    BOOST_TEST(next.id != id);
    notify(id, &message, sizeof message);
    pollfd p{next.rx, POLLIN, 0};
    BOOST_TEST(poll(&p, 1, 0) == 0);
    notify(next.id, &message, sizeof message);
    BOOST_TEST(poll(&p, 1, 0) == 1);
    close_channel(next);
}

BOOST_AUTO_TEST_CASE(a_forked_child_is_a_process_of_its_own) {
    LocalSession s;
    const uint32_t epoch = Process::fork_epoch();
    QpRec& qp = s.seg().qp(s.process().claim_qp());
    qp.state = 3;
    const pid_t pid = s.child([&](Process& p) {
        if (Process::fork_epoch() != epoch + 1) _exit(1);
        if (p.slot() == s.process().slot()) _exit(2);
        qp.state = 5; // the parent's object, by an old pointer: goes nowhere
    });
    BOOST_TEST(LocalSession::wait_child(pid) == 0);
    BOOST_TEST(qp.state.load() == 3u);
    BOOST_TEST(Process::fork_epoch() == epoch);
}

BOOST_AUTO_TEST_CASE(nodes_are_given_out_and_named) {
    unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("PMIX_RANK"), unsetenv("SLURM_PROCID"), unsetenv(kNodeEnv);
    LocalSession s;
    BOOST_TEST(s.process().choose_node() == 0u);
    const auto in_child = [&](const char* name, const char* value) {
        return LocalSession::wait_child(s.child([&](Process& p) {
            if (name) setenv(name, value, 1);
            const uint32_t node = p.choose_node();
            _exit(node == kNone ? 50 : static_cast<int>(node));
        }));
    };
    BOOST_TEST(in_child(nullptr, nullptr) == 1);
    BOOST_TEST(in_child(kNodeEnv, "0") == 0);
    BOOST_TEST(in_child(kNodeEnv, "node1") == 1);
    BOOST_TEST(in_child(kNodeEnv, "2") == 50);
    BOOST_TEST(in_child(kNodeEnv, "nowhere") == 50);
    BOOST_TEST(in_child("PMIX_RANK", "5") == 1);
}
