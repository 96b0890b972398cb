// Dynamically connected transport: initiators, targets, access keys, several targets, errors.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE dc
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = a.cq;
        init.srq = srq;
        init.pd = a.pd;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        mlx5dv_qp_init_attr dv{};
        dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
        dv.dc_init_attr.dct_access_key = kKey;
        qp = mlx5dv_create_qp(a.context, &init, &dv);
        BOOST_REQUIRE(qp);
        ibv_qp_attr q{};
        q.qp_state = IBV_QPS_INIT;
        q.port_num = 1;
        q.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        BOOST_REQUIRE_EQUAL(
            ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
        q = {};
        q.qp_state = IBV_QPS_RTR;
        q.path_mtu = IBV_MTU_1024;
        q.min_rnr_timer = 1;
        q.ah_attr.port_num = 1;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU), 0);
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
    Adapter& adapter;
    ibv_qp* qp;
    ibv_qp_ex* ex;
    mlx5dv_qp_ex* dv;
    explicit Initiator(Adapter& a, uint8_t retry = 3) : adapter(a) {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = a.cq;
        init.pd = a.pd;
        init.cap.max_send_wr = 64;
        init.cap.max_send_sge = 2;
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        mlx5dv_qp_init_attr d{};
        d.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        d.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        qp = mlx5dv_create_qp(a.context, &init, &d);
        BOOST_REQUIRE(qp);
        ex = ibv_qp_to_qp_ex(qp);
        dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
        ibv_qp_attr q{};
        q.qp_state = IBV_QPS_INIT;
        q.port_num = 1;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
        q = {};
        q.qp_state = IBV_QPS_RTR;
        q.path_mtu = IBV_MTU_1024;
        q.ah_attr.port_num = 1;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV), 0);
        q = {};
        q.qp_state = IBV_QPS_RTS;
        q.timeout = 10;
        q.retry_cnt = retry;
        q.rnr_retry = 7;
        q.max_rd_atomic = 4;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &q,
                                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                            0);
    }
    ~Initiator() { BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0); }
    ibv_ah* address(const Adapter& to) {
        ibv_ah_attr a{};
        a.dlid = to.port.lid;
        a.port_num = 1;
        ibv_ah* ah = ibv_create_ah(adapter.pd, &a);
        BOOST_REQUIRE(ah);
        return ah;
    }
    enum class Op { send, write, read };
    int go(Op op, ibv_ah* ah, uint32_t dct, uint64_t key, Adapter& to, size_t local, size_t remote, uint32_t length) {
        ibv_wr_start(ex);
        ex->wr_id = length;
        ex->wr_flags = IBV_SEND_SIGNALED;
        const uint64_t va = reinterpret_cast<uint64_t>(to.memory.data()) + remote;
        if (op == Op::send) ibv_wr_send(ex);
        else if (op == Op::write) ibv_wr_rdma_write(ex, to.mr->rkey, va);
        else ibv_wr_rdma_read(ex, to.mr->rkey, va);
        mlx5dv_wr_set_dc_addr(dv, ah, dct, key);
        const ibv_sge s = adapter.sge(local, length);
        ibv_wr_set_sge(ex, s.lkey, s.addr, s.length);
        return ibv_wr_complete(ex);
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
        softhca(std::string("fault drop 100% --at-packet 20 --count 100000000 ") + (node ? node : "0") + ":softhca_1:1");
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
