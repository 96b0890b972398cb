// What happens between processes of a session: locks and marks of the dead, cleaning up, events, nodes.
#define BOOST_TEST_MODULE softhca_process
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "core/node.h"
#include "core/notify.h"
#include "session_fixture.h"

using namespace softhca;

namespace {

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

// Another process's channels come and go: what was duplicated of them is given back.
BOOST_AUTO_TEST_CASE(descriptors_of_closed_channels_do_not_pile_up) {
    LocalSession s;
    Board& board = new_board();
    constexpr uint32_t kRounds = 20;
    const pid_t pid = s.child([&](Process&) {
        for (uint32_t round = 1; round <= kRounds; ++round) {
            Channel c;
            if (!open_channel(c)) _exit(1);
            board.value = c.id;
            board.ready = round;
            if (!wait_until([&] { return board.go.load() == round; })) _exit(2);
            close_channel(c);
        }
    });
    const auto open_files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
    const auto before = open_files();
    const uint64_t message = 1;
    for (uint32_t round = 1; round <= kRounds; ++round) {
        BOOST_REQUIRE(wait_until([&] { return board.ready.load() == round; }));
        notify(board.value, &message, sizeof message);
        BOOST_TEST(open_files() <= before + 2); // the one before may still be open
        board.go = round;
    }
    BOOST_TEST(LocalSession::wait_child(pid) == 0);
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
    unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("PMIX_RANK"), unsetenv("PMI_RANK"), unsetenv("SLURM_PROCID"),
        unsetenv(kNodeEnv), unsetenv(kPlaceEnv);
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
    BOOST_TEST(in_child("PMI_RANK", "3") == 1); // MPICH
}

BOOST_AUTO_TEST_CASE(a_rank_has_its_place) {
    LocalSession s;
    const auto of_rank = [&](const char* launcher, const char* number, const char* places, const char* node = "") {
        return LocalSession::wait_child(s.child([&](Process& p) {
            for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) unsetenv(name);
            setenv(launcher, number, 1), setenv(kPlaceEnv, places, 1), setenv(kNodeEnv, node, 1);
            const uint32_t chosen = p.choose_node();
            _exit(chosen == kNone ? 50 : static_cast<int>(chosen));
        }));
    };
    for (const char* launcher : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        BOOST_TEST(of_rank(launcher, "0", "1,0,node1") == 1);
        BOOST_TEST(of_rank(launcher, "1", "1,0,node1") == 0);
        BOOST_TEST(of_rank(launcher, "2", "1,0,node1") == 1);
        BOOST_TEST(of_rank(launcher, "3", "1,0,node1") == 50); // not the number's node: that would be somebody else's
    }
    BOOST_TEST(of_rank("PMIX_RANK", "3", "") == 1);         // as without it
    BOOST_TEST(of_rank("PMIX_RANK", "0", "1,0", "0") == 0); // a process's own word goes before
    BOOST_TEST(of_rank("PMIX_RANK", "0", "1,2") == 50);     // who reads a mistake says so, whichever rank it is
}

BOOST_AUTO_TEST_CASE(places_are_read_or_refused_with_a_line) {
    LocalSession s;
    const FabricImage& image = s.seg().img();
    std::string why;
    BOOST_TEST(read_places(image, "1", why) == std::vector<uint32_t>{1}, boost::test_tools::per_element());
    BOOST_TEST(read_places(image, "1,node0,0", why) == (std::vector<uint32_t>{1, 0, 0}),
               boost::test_tools::per_element());
    BOOST_TEST(why == "");
    const std::string has = std::string("fabric '") + image.name + "' has nodes 0 to 1 (or their names)";
    for (const auto& [text, entry] : {std::pair<std::string, std::string>{"", ""},
                                      {"0,", ""},
                                      {",0", ""},
                                      {"0,,1", ""},
                                      {"0,2", "2"},
                                      {"0, 1", " 1"},
                                      {"-1", "-1"},
                                      {"0;1", "0;1"},
                                      {"1,nowhere", "nowhere"},
                                      {"0,4294967296", "4294967296"},
                                      {"1x", "1x"}}) {
        BOOST_TEST(read_places(image, text, why).empty());
        BOOST_TEST(why == "'" + entry + "' is no node: " + has);
    }
}
