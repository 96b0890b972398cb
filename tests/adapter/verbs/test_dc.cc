// Dynamically connected transport: initiators, targets, access keys, several targets, errors.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE dc
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dc_queue_pairs.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr uint64_t kKey = 0x1234abcd;

struct Target {
    Adapter& adapter;
    ibv_srq* srq;
    ibv_qp* qp;
    explicit Target(Adapter& a) : adapter(a) {
        ibv_srq_init_attr s{};
        s.attr.max_wr = 64;
        s.attr.max_sge = 1;
        srq = ibv_create_srq(a.pd, &s);
        BOOST_REQUIRE(srq);
        qp = dc_test::create_target(a.pd, a.cq, srq, kKey);
        dc_test::open_target(qp);
    }
    ~Target() {
        BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0);
        BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
    }
    void recv(size_t offset, uint32_t length, uint64_t id) {
        ibv_sge s = adapter.sge(offset, length);
        ibv_recv_wr wr{id, nullptr, &s, 1}, *bad;
        BOOST_REQUIRE_EQUAL(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
};

struct Initiator {
    using Op = dc_test::Op;
    Adapter& adapter;
    ibv_qp* qp;
    explicit Initiator(Adapter& a, uint8_t retry = 3) : adapter(a), qp(dc_test::create_initiator(a.pd, a.cq, 64)) {
        dc_test::open_initiator(qp, 10, retry);
    }
    ~Initiator() { BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0); }
    ibv_ah* address(const Adapter& to) { return dc_test::address_of(adapter.pd, to.port.lid); }
    int go(Op op, ibv_ah* ah, uint32_t dct, uint64_t key, Adapter& to, size_t local, size_t remote, uint32_t length) {
        const uint64_t va = reinterpret_cast<uint64_t>(to.memory.data()) + remote;
        return dc_test::post(qp, op, {ah, dct, key, to.mr->rkey, va}, adapter.sge(local, length), length);
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(one_initiator_alternates_between_targets) {
    Adapter left(0), right(1);
    Initiator i(left);
    Target t1(right), t2(left);
    ibv_ah *to1 = i.address(right), *to2 = i.address(left);
    for (unsigned n = 0; n < 40; ++n) {
        Target& t = n % 3 ? t1 : t2;
        const uint32_t size = 1 + n * 977;
        fill(left.memory, 0, size, n);
        BOOST_REQUIRE_EQUAL(
            i.go(Initiator::Op::write, n % 3 ? to1 : to2, t.qp->qp_num, kKey, t.adapter, 0, 400000, size), 0);
        BOOST_CHECK_EQUAL(left.wait().wr_id, size);
        BOOST_CHECK(std::memcmp(left.memory.data(), t.adapter.memory.data() + 400000, size) == 0);
        if (n % 3) {
            t.recv(600000, 100000, n);
            BOOST_REQUIRE_EQUAL(i.go(Initiator::Op::send, to1, t.qp->qp_num, kKey, right, 0, 0, size), 0);
            left.wait();
            const ibv_wc r = right.wait();
            BOOST_CHECK_EQUAL(r.wr_id, n);
            BOOST_CHECK_EQUAL(r.qp_num, t.qp->qp_num);
            BOOST_CHECK(std::memcmp(left.memory.data(), right.memory.data() + 600000, size) == 0);
        }
        BOOST_REQUIRE_EQUAL(
            i.go(Initiator::Op::read, n % 3 ? to1 : to2, t.qp->qp_num, kKey, t.adapter, 200000, 400000, size), 0);
        left.wait();
        BOOST_CHECK(std::memcmp(left.memory.data(), left.memory.data() + 200000, size) == 0);
    }
    ibv_destroy_ah(to1);
    ibv_destroy_ah(to2);
}

BOOST_AUTO_TEST_CASE(wrong_key_is_refused_and_reported) {
    Adapter left(0), right(1);
    Initiator i(left);
    Target t(right);
    ibv_ah* to = i.address(right);
    BOOST_REQUIRE_EQUAL(i.go(Initiator::Op::write, to, t.qp->qp_num, kKey + 1, right, 0, 0, 64), 0);
    left.wait(IBV_WC_REM_ACCESS_ERR);
    BOOST_CHECK(right.saw(IBV_EVENT_QP_ACCESS_ERR));
    // The target serves others on.
    Initiator j(left);
    BOOST_REQUIRE_EQUAL(j.go(Initiator::Op::write, to, t.qp->qp_num, kKey, right, 0, 0, 64), 0);
    left.wait();
    ibv_destroy_ah(to);
}

// Requests to the target that an initiator is connected to are executed at once: nothing else is, by mistake.
BOOST_AUTO_TEST_CASE(a_connection_is_no_pass_for_others) {
    Adapter left(0), right(1);
    Initiator i(left), j(left);
    ibv_ah* to = i.address(right);
    Target other(right);
    const auto write = [&](Initiator& by, const Target& at, uint64_t key) {
        fill(left.memory, 0, 64, static_cast<unsigned>(key));
        BOOST_REQUIRE_EQUAL(by.go(Initiator::Op::write, to, at.qp->qp_num, key, right, 0, 0, 64), 0);
    };
    uint32_t gone;
    {
        Target t(right);
        gone = t.qp->qp_num;
        for (unsigned n = 0; n < 4; ++n) {
            write(i, t, kKey);
            left.wait();
            BOOST_CHECK(std::memcmp(left.memory.data(), right.memory.data(), 64) == 0);
            write(j, t, kKey);
            left.wait();
        }
        write(i, t, kKey + 1);
        left.wait(IBV_WC_REM_ACCESS_ERR);
        BOOST_CHECK(right.saw(IBV_EVENT_QP_ACCESS_ERR));
        write(j, other, kKey);
        left.wait();
        write(j, t, kKey);
        left.wait();
    }
    BOOST_REQUIRE_EQUAL(j.go(Initiator::Op::write, to, gone, kKey, right, 0, 0, 64), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
    ibv_destroy_ah(to);
}

BOOST_AUTO_TEST_CASE(no_such_target) {
    Adapter left(0), right(1);
    Initiator i(left);
    uint32_t gone;
    {
        Target t(right);
        gone = t.qp->qp_num;
    }
    ibv_ah* to = i.address(right);
    BOOST_REQUIRE_EQUAL(i.go(Initiator::Op::write, to, gone, kKey, right, 0, 0, 64), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
    ibv_destroy_ah(to);
}

BOOST_AUTO_TEST_CASE(remote_access_error_keeps_the_target_alive) {
    Adapter left(0), right(1);
    Target t(right);
    ibv_ah* to;
    {
        Initiator i(left);
        to = i.address(right);
        BOOST_REQUIRE_EQUAL(i.go(Initiator::Op::write, to, t.qp->qp_num, kKey, right, 0, (1 << 20) - 8, 64), 0);
        left.wait(IBV_WC_REM_ACCESS_ERR);
    }
    Initiator j(left);
    BOOST_REQUIRE_EQUAL(j.go(Initiator::Op::write, to, t.qp->qp_num, kKey, right, 0, 0, 64), 0);
    left.wait();
    ibv_destroy_ah(to);
}

namespace {

// The fabric loses what comes to this node's second adapter from the 20th packet on, until the end of the scope.
struct BreakOff {
    BreakOff() {
        const char* node = std::getenv("SOFTHCA_NODE");
        softhca(std::string("fault drop 100% --at-packet 20 --count 100000000 ") + (node ? node : "0") +
                ":softhca_1:1");
    }
    ~BreakOff() { softhca("fault clear"); }
};

// A send of 100 packets that ends after some twenty.
void break_off(Adapter& left, Initiator& i, ibv_ah* to, uint32_t dct) {
    BOOST_REQUIRE_EQUAL(i.go(Initiator::Op::send, to, dct, kKey, left, 0, 0, 100 * 1024), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
}

// Another initiator's message comes into the only receive, number 7, that there is.
void receive_is_there(Adapter& left, Adapter& right, Target& t) {
    Initiator other(left);
    ibv_ah* to = other.address(right);
    fill(left.memory, 0, 5000, 3);
    BOOST_REQUIRE_EQUAL(other.go(Initiator::Op::send, to, t.qp->qp_num, kKey, right, 0, 0, 5000), 0);
    BOOST_CHECK_EQUAL(right.wait().wr_id, 7u);
    left.wait();
    BOOST_CHECK(std::memcmp(left.memory.data(), right.memory.data() + 300000, 5000) == 0);
    ibv_destroy_ah(to);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_message_that_breaks_off_gives_its_receive_back) {
    Adapter left(0), right(1);
    Target t(right);
    t.recv(300000, 200000, 7);
    {
        Initiator i(left, 0);
        ibv_ah* to = i.address(right);
        {
            BreakOff fault;
            break_off(left, i, to, t.qp->qp_num);
        }
        ibv_destroy_ah(to);
    }
    receive_is_there(left, right, t);
}

BOOST_AUTO_TEST_CASE(so_does_one_whose_initiator_is_killed) {
    Adapter left(0), right(1);
    Target t(right);
    t.recv(300000, 200000, 7);
    int told[2];
    BOOST_REQUIRE_EQUAL(pipe(told), 0);
    pid_t child;
    {
        BreakOff fault;
        child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            Adapter mine(0);
            Initiator i(mine, 0);
            break_off(mine, i, i.address(right), t.qp->qp_num);
            if (write(told[1], "x", 1) == 1) pause();
            std::_Exit(1);
        }
        BOOST_REQUIRE_GT(child, 0);
        pollfd p{told[0], POLLIN, 0};
        BOOST_CHECK_EQUAL(poll(&p, 1, 20000), 1);
        ::kill(child, SIGKILL);
        int status = 0;
        BOOST_CHECK_EQUAL(waitpid(child, &status, 0), child);
        BOOST_CHECK(WIFSIGNALED(status));
    }
    receive_is_there(left, right, t); // waits (receiver not ready) until the session has buried the child
    close(told[0]);
    close(told[1]);
}

// Late placement (place-delay-qp): each initiator has an order of its own at a target. Its own read pushes what it
// wrote, another's does not; with place-delay alone the adapter has one order for all.
BOOST_AUTO_TEST_CASE(late_data_in_order_per_initiator_only) {
    Adapter left(0), right(1);
    Target target(right);
    constexpr unsigned kInitiators = 6;
    std::vector<std::unique_ptr<Initiator>> initiators;
    for (unsigned i = 0; i < kInitiators; ++i) initiators.push_back(std::make_unique<Initiator>(left));
    ibv_ah* const to = initiators[0]->address(right);
    const auto go = [&](unsigned i, Initiator::Op op, size_t local) {
        BOOST_REQUIRE_EQUAL(initiators[i]->go(op, to, target.qp->qp_num, kKey, right, local, 0, 8), 0);
        left.wait();
        return left.at<uint64_t>(local);
    };
    Restore restore{{"fault place-delay-qp 0 " + device_name(1), "fault place-delay 0 " + device_name(1)}};
    for (const bool each : {true, false}) {
        softhca("fault place-delay 0 " + device_name(1));
        softhca(std::string("fault ") + (each ? "place-delay-qp" : "place-delay") + " 1s " + device_name(1));
        unsigned overtaken = 0;
        for (unsigned i = 0; i < kInitiators; ++i) {
            left.at<uint64_t>(0) = 77;
            right.at<uint64_t>(0) = 0;
            go(i, Initiator::Op::write, 0);
            overtaken += go((i + 1) % kInitiators, Initiator::Op::read, 1024) != 77;
            BOOST_CHECK_EQUAL(go(i, Initiator::Op::read, 1024), 77u);
        }
        if (each)
            BOOST_CHECK_GE(overtaken, 2u);
        else
            BOOST_CHECK_EQUAL(overtaken, 0u);
        softhca("fault place-delay-qp 0 " + device_name(1));
    }
    BOOST_CHECK_EQUAL(ibv_destroy_ah(to), 0);
}
