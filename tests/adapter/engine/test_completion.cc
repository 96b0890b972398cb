// Completion queues and receive queues beside producers that are killed in the middle: nothing is lost, nobody sleeps
// on.
#define BOOST_TEST_MODULE softhca_completion
#include <boost/test/unit_test.hpp>

#include <infiniband/verbs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <functional>

#include "core/notify.h"
#include "engine/aftermath.h"
#include "engine/engine.h"
#include "session_fixture.h"

using namespace softhca;

namespace {

constexpr uint32_t kEntries = 16;

// A queue as verbs/cq.cc makes it, with a completion channel.
struct Queue {
    explicit Queue(LocalSession& s) : seg(s.seg()), index(s.process().claim_cq()), rec(seg.cq(index)) {
        BOOST_REQUIRE(open_channel(channel));
        rec.mask = kEntries - 1;
        rec.capacity = kEntries;
        rec.has_channel = 1;
        rec.channel = channel.id;
        rec.user = 77;
        rec.entries = s.process().alloc(kEntries * sizeof(Cqe));
        rec.id = index;
    }
    ~Queue() { close_channel(channel); }
    uint64_t events() {
        uint64_t n = 0, message;
        for (pollfd p{channel.rx, POLLIN, 0}; poll(&p, 1, 0) == 1; ++n)
            if (read(channel.rx, &message, sizeof message) != sizeof message) break;
        return n;
    }
    Cqe& at(uint64_t position) { return seg.at<Cqe>(rec.entries)[position & rec.mask]; }
    Segment& seg;
    uint32_t index;
    CqRec& rec;
    Channel channel;
};

void complete(LocalSession& s, CqRec& cq, uint64_t wr, bool solicited = false) {
    Cqe e{};
    e.kind = CqeKind::send;
    e.wr = wr;
    e.solicited = solicited;
    push_cqe(s.seg(), cq, e);
}

// A process that does `body` and is killed there, and reaped after `meanwhile`.
void die_after(LocalSession& s, const std::function<void(Segment&)>& body,
               const std::function<void()>& meanwhile = {}) {
    auto* done = static_cast<std::atomic<int>*>(
        mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t pid = s.child([&](Process& p) {
        body(p.seg());
        done->store(1);
        pause();
    });
    const uint32_t slot = s.slot_of(pid);
    for (int i = 0; i < 300'000 && !done->load(); ++i) usleep(100);
    BOOST_REQUIRE(done->load() == 1);
    kill(pid, SIGKILL);
    BOOST_REQUIRE(LocalSession::wait_child(pid) == -SIGKILL);
    if (meanwhile) meanwhile();
    BOOST_REQUIRE(reap_process(s.seg(), slot));
}

// The kernel kills this process when it gets hold of another one's channel: in notify(), before the first event to it.
void die_before_the_event() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(3);
}

// A process that completes `wr` and is killed before the event is on its way; reaped after `meanwhile`.
void die_announcing(LocalSession& s, Queue& q, uint64_t wr, const std::function<void()>& meanwhile) {
    const pid_t pid = s.child([&](Process& p) {
        die_before_the_event();
        Cqe e{};
        e.kind = CqeKind::send;
        e.wr = wr;
        push_cqe(p.seg(), p.seg().cq(q.index), e);
        _exit(4);
    });
    const auto has_ended = [&] {
        siginfo_t info{};
        return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
    };
    BOOST_REQUIRE(wait_until(has_ended));
    const uint32_t slot = s.slot_of(pid);
    BOOST_REQUIRE(LocalSession::wait_child(pid) == -SIGSYS);
    meanwhile();
    BOOST_REQUIRE(reap_process(s.seg(), slot));
}

// As Engine::arm_cq().
void arm(Queue& q) {
    q.rec.armed = kArmed;
    (void)announce_waiting(q.seg, q.rec, q.rec.head);
}

// What push_cqe() has done when it has made an entry visible.
void publish(Segment& seg, CqRec& cq, uint64_t wr) {
    Cqe& e = seg.at<Cqe>(cq.entries)[cq.tail & cq.mask];
    e.wr = wr;
    e.seq.store(static_cast<uint32_t>(cq.tail + 1));
}

} // namespace

BOOST_AUTO_TEST_CASE(whoever_takes_the_lock_counts_a_dead_producers_entry) {
    LocalSession s;
    Queue q(s);
    complete(s, q.rec, 1);
    die_after(s, [&](Segment& seg) {
        CqRec& cq = seg.cq(q.index);
        lock_cq(seg, cq);
        publish(seg, cq, 2);
    });
    lock_cq(s.seg(), q.rec); // one who produces nothing: ibv_resize_cq, ibv_destroy_qp
    q.rec.lock.release();
    complete(s, q.rec, 3);
    for (uint64_t i = 0; i < 3; ++i) {
        BOOST_TEST(q.at(i).seq.load() == i + 1);
        BOOST_TEST(q.at(i).wr == i + 1);
    }
}

BOOST_AUTO_TEST_CASE(a_dead_producers_event_is_sent_once) {
    LocalSession s;
    Queue q(s);
    const auto produce = [&](Segment& seg) {
        CqRec& cq = seg.cq(q.index);
        lock_cq(seg, cq);
        publish(seg, cq, 1);
        ++cq.tail;
        cq.lock.release();
    };
    q.rec.armed = kArmed;
    die_after(s, produce);
    BOOST_TEST(q.events() == 0u);
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.events() == 1u);
    q.rec.armed = kArmed; // armed again before the entry is polled: that one has been announced
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.events() == 0u);
    q.rec.armed = kArmedSolicited; // for solicited ones: this is none
    die_after(s, produce);
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.events() == 0u);
    complete(s, q.rec, 3, true);
    BOOST_TEST(q.events() == 1u);
}

BOOST_AUTO_TEST_CASE(an_event_that_its_sender_did_not_live_to_send_is_sent) {
    for (unsigned arms_again = 0; arms_again < 3; ++arms_again) {
        LocalSession s;
        Queue q(s);
        arm(q);
        die_announcing(s, q, 1, [&] {
            BOOST_TEST(q.at(0).wr == 1u);
            BOOST_TEST(q.rec.armed == kNotArmed);
            for (unsigned i = 0; i < arms_again; ++i) arm(q); // without a poll: it has seen no event
        });
        for (int i = 0; i < 2; ++i) {
            finish_work_of_the_dead(s.seg());
            BOOST_TEST(q.events() == (i == 0 ? 1u : 0u));
        }
        complete(s, q.rec, 2);
        BOOST_TEST(q.events() == (arms_again ? 1u : 0u));
    }
}

// One that is killed, and another one that has sent the event before and is not back yet.
BOOST_AUTO_TEST_CASE(senders_overtake_each_other) {
    LocalSession s;
    Queue q(s);
    arm(q);
    std::atomic<uint32_t>& cell =
        Process::take_cell(s.seg().proc(s.process().slot()).announcing, q.index + 1); // a living one's
    complete(s, q.rec, 1);
    BOOST_TEST(q.events() == 1u);
    q.rec.head = 1;
    arm(q);
    die_announcing(s, q, 2, [] {});
    cell = 0;
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.events() == 1u);
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.events() == 0u);
}

// Killed before it has taken the arming: the entry is announced, once.
BOOST_AUTO_TEST_CASE(an_event_that_nobody_has_begun_to_send_is_sent_once) {
    LocalSession s;
    Queue q(s);
    arm(q);
    die_after(s, [&](Segment& seg) {
        CqRec& cq = seg.cq(q.index);
        lock_cq(seg, cq);
        publish(seg, cq, 1);
        ++cq.tail;
        cq.lock.release();
        (void)Process::take_cell(seg.proc(Process::current()->slot()).announcing, q.index + 1);
    });
    for (int i = 0; i < 2; ++i) {
        finish_work_of_the_dead(s.seg());
        BOOST_TEST(q.events() == (i == 0 ? 1u : 0u));
        BOOST_TEST(q.rec.armed == kNotArmed);
    }
}

BOOST_AUTO_TEST_CASE(receives_of_a_queue_pair_failed_by_half_are_flushed_once) {
    LocalSession s;
    Queue q(s);
    const uint32_t index = s.process().claim_qp();
    QpRec& qp = s.seg().qp(index);
    RecvQueue& rq = s.seg().rq(index);
    rq.mask = 7;
    rq.ring = s.process().alloc(8 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 4; ++i) s.seg().at<uint32_t>(rq.ring)[i] = i;
    rq.tail = 4;
    rq.owner_cookie = 5;
    qp.kind = QpKind::rc;
    qp.recv_cq = q.index;
    qp.recv_queue = index;
    qp.state = IBV_QPS_RTS;
    qp.qpn = s.process().next_qpn(index);
    die_after(s, [&](Segment& seg) { // took one for a message, failed the queue pair, no more
        QpRec& target = seg.qp(index);
        (void)target.lock.acquire();
        seg.rq(index).seen_tail = 4;
        seg.rq(index).head = 1;
        target.responder.recv_entry = 0;
        target.responder.in_recv = 1;
        target.state = IBV_QPS_ERR;
    });
    finish_work_of_the_dead(s.seg());
    finish_work_of_the_dead(s.seg());
    BOOST_TEST(q.rec.tail == 4u);
    for (uint64_t i = 0; i < 4; ++i) {
        BOOST_TEST(q.at(i).wr == i);
        BOOST_TEST(q.at(i).status == IBV_WC_WR_FLUSH_ERR);
    }
    BOOST_TEST(qp.responder.in_recv == 0);
}

// A thread that fires an event loses its processor in the middle of it, between two completions (here it sleeps). Who
// arms a queue meanwhile finds what was due before: a program that has been woken by the first completion trusts that
// the second, which came with it, is there.
BOOST_AUTO_TEST_CASE(arming_waits_for_what_is_due) {
    LocalSession s;
    Engine engine(s.process(), false);
    Queue q(s);
    Cq cq;
    cq.rec = &q.rec;
    cq.index = q.index;
    cq.entries = &q.at(0);
    cq.mask = kEntries - 1;
    cq.engine = &engine;
    struct Late {
        LocalSession& s;
        CqRec& cq;
        std::atomic<bool> begun{false};
    } late{s, q.rec};
    {
        const std::lock_guard guard(engine.mutex);
        engine.scheduler().at(
            engine.now(),
            [](void* self, uint64_t, Nanos) {
                auto& late = *static_cast<Late*>(self);
                late.begun = true;
                usleep(20'000);
                complete(late.s, late.cq, 5);
            },
            &late);
        engine.kick();
    }
    BOOST_REQUIRE(wait_until([&] { return late.begun.load(); }));
    BOOST_TEST(engine.arm_cq(cq, false) == 0);
    BOOST_TEST(q.at(0).wr == 5u);
    BOOST_TEST(q.events() == 1u);
}
