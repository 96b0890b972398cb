// Plain verbs objects for tests that run under `softhca run`: both ends live in this process, on the node's two
// adapters (or two contexts of one), so that a test reads as one story. Every wait is bounded; a time-out fails the
// test.
#pragma once
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace verbs_test {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Runs `softhca ARGS` against this session (SOFTHCA_BIN and SOFTHCA_SESSION come from the environment).
inline void softhca(const std::string& args) {
    const char* bin = std::getenv("SOFTHCA_BIN");
    // The command itself must not run on the emulated adapter.
    const std::string line = "LD_PRELOAD= " + std::string(bin ? bin : "softhca") + " " + args + " >/dev/null";
    BOOST_REQUIRE_MESSAGE(std::system(line.c_str()) == 0, "failed: softhca " << args);
}

// Names of this process's node in commands.
inline std::string device_name(int device) {
    const char* node = std::getenv("SOFTHCA_NODE");
    return std::string(node ? node : "0") + ":softhca_" + std::to_string(device);
}
inline std::string port_name(int device, int port = 1) { return device_name(device) + ":" + std::to_string(port); }

// Undoes what a test did to the fabric, also when it fails.
struct Restore {
    std::vector<std::string> commands;
    ~Restore() {
        for (const auto& c : commands) softhca(c);
    }
};

// An adapter with everything a test needs of it.
struct Adapter {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    std::vector<char> memory;
    ibv_port_attr port{};

    explicit Adapter(int index, size_t bytes = 1 << 20, int cqe = 4096) : memory(bytes) {
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        BOOST_REQUIRE_GT(n, index);
        context = ibv_open_device(list[index]);
        ibv_free_device_list(list);
        BOOST_REQUIRE(context);
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, cqe, nullptr, nullptr, 0);
        mr = ibv_reg_mr(pd, memory.data(), bytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
        BOOST_REQUIRE(pd && cq && mr);
        BOOST_REQUIRE_EQUAL(ibv_query_port(context, 1, &port), 0);
    }
    ~Adapter() {
        if (mr) ibv_dereg_mr(mr);
        if (cq) BOOST_CHECK_EQUAL(ibv_destroy_cq(cq), 0);
        if (pd) BOOST_CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
        if (context) BOOST_CHECK_EQUAL(ibv_close_device(context), 0);
    }
    Adapter(const Adapter&) = delete;
    template <class T> T& at(size_t offset) { return *reinterpret_cast<T*>(memory.data() + offset); }
    ibv_sge sge(size_t offset, uint32_t length) {
        return {reinterpret_cast<uint64_t>(memory.data()) + offset, length, mr->lkey};
    }
    // Next completion, of status `expected`.
    ibv_wc wait(ibv_wc_status expected = IBV_WC_SUCCESS, double limit = 20) {
        ibv_wc wc{};
        const auto t = Clock::now();
        while (ibv_poll_cq(cq, 1, &wc) == 0) {
            if (seconds_since(t) > limit) BOOST_FAIL("no completion within " << limit << " s");
            if (seconds_since(t) > 0.001) std::this_thread::yield();
        }
        BOOST_CHECK_MESSAGE(wc.status == expected, "completion is " << ibv_wc_status_str(wc.status) << ", expected "
                                                                    << ibv_wc_status_str(expected));
        return wc;
    }
    bool empty(double seconds = 0.02) {
        ibv_wc wc{};
        const auto t = Clock::now();
        do
            if (ibv_poll_cq(cq, 1, &wc)) return false;
        while (seconds_since(t) < seconds);
        return true;
    }
    // The next asynchronous event within `limit` seconds, acknowledged; -1 if none.
    int event(double limit = 20) {
        pollfd p{context->async_fd, POLLIN, 0};
        if (poll(&p, 1, static_cast<int>(limit * 1000)) != 1) return -1;
        ibv_async_event e{};
        if (ibv_get_async_event(context, &e)) return -1;
        ibv_ack_async_event(&e);
        return e.event_type;
    }
    // Waits for one particular event, skipping others.
    bool saw(ibv_event_type type, double limit = 20) {
        const auto t = Clock::now();
        for (int e; (e = event(std::max(0.0, limit - seconds_since(t)))) != -1;)
            if (e == type) return true;
        return false;
    }
};

struct QpOptions {
    ibv_qp_type type = IBV_QPT_RC;
    uint8_t timeout = 10; // 4.096 us * 2^10 = 4.2 ms
    uint8_t retry = 3, rnr_retry = 7, rnr_timer = 1;
    ibv_mtu mtu = IBV_MTU_1024;
    uint32_t send_wr = 128, recv_wr = 128, sges = 4, inline_bytes = 128;
    uint32_t sq_psn = 100, rq_psn = 200; // of the first end; the second one's are the mirror image
    int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    ibv_srq* srq = nullptr;
};

struct Queue {
    Adapter& adapter;
    ibv_qp* qp = nullptr;
    QpOptions o;
    explicit Queue(Adapter& a, const QpOptions& options = {}) : adapter(a), o(options) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = a.cq;
        init.srq = o.srq;
        init.qp_type = o.type;
        init.cap = {o.send_wr, o.srq ? 0 : o.recv_wr, o.sges, o.sges, o.inline_bytes};
        qp = ibv_create_qp(a.pd, &init);
        BOOST_REQUIRE(qp);
    }
    ~Queue() {
        if (qp) BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0);
    }
    Queue(const Queue&) = delete;

    void init(uint8_t port = 1) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = port;
        a.qp_access_flags = static_cast<unsigned>(o.access);
        a.qkey = 0x1111;
        int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        mask |= o.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &a, mask), 0);
    }
    void rtr(uint16_t dlid, uint32_t dest, uint32_t rq_psn, uint8_t port = 1) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        int mask = IBV_QP_STATE;
        if (o.type != IBV_QPT_UD) {
            a.path_mtu = o.mtu;
            a.dest_qp_num = dest;
            a.rq_psn = rq_psn;
            a.ah_attr.dlid = dlid;
            a.ah_attr.port_num = port;
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        }
        if (o.type == IBV_QPT_RC) {
            a.max_dest_rd_atomic = 8;
            a.min_rnr_timer = o.rnr_timer;
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &a, mask), 0);
    }
    void rts(uint32_t sq_psn) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = sq_psn;
        int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if (o.type == IBV_QPT_RC) {
            a.timeout = o.timeout;
            a.retry_cnt = o.retry;
            a.rnr_retry = o.rnr_retry;
            a.max_rd_atomic = 8;
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &a, mask), 0);
    }
    ibv_qp_attr query() {
        ibv_qp_attr a{};
        ibv_qp_init_attr i{};
        BOOST_REQUIRE_EQUAL(
            ibv_query_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_PATH_MIG_STATE, &i), 0);
        return a;
    }
    void to_error() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_ERR;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    }
    void recv(size_t offset, uint32_t length, uint64_t id = 0) {
        ibv_sge s = adapter.sge(offset, length);
        ibv_recv_wr wr{id, nullptr, &s, length ? 1 : 0}, *bad = nullptr;
        BOOST_REQUIRE_EQUAL(ibv_post_recv(qp, &wr, &bad), 0);
    }
    // Posts one request; `fill` completes it. Returns ibv_post_send's result.
    int post(ibv_wr_opcode op, std::vector<ibv_sge> sges, const std::function<void(ibv_send_wr&)>& fill = {},
             unsigned flags = IBV_SEND_SIGNALED) {
        ibv_send_wr wr{}, *bad = nullptr;
        wr.opcode = op;
        wr.sg_list = sges.data();
        wr.num_sge = static_cast<int>(sges.size());
        wr.send_flags = flags;
        if (fill) fill(wr);
        return ibv_post_send(qp, &wr, &bad);
    }
    int rdma(ibv_wr_opcode op, Queue& to, size_t local, size_t remote, uint32_t length,
             unsigned flags = IBV_SEND_SIGNALED) {
        return post(
            op, {adapter.sge(local, length)},
            [&](ibv_send_wr& w) {
                w.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.adapter.memory.data()) + remote;
                w.wr.rdma.rkey = to.adapter.mr->rkey;
            },
            flags);
    }
    int atomic(ibv_wr_opcode op, Queue& to, size_t local, size_t remote, uint64_t compare_add, uint64_t swap = 0) {
        return post(op, {adapter.sge(local, 8)}, [&](ibv_send_wr& w) {
            w.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(to.adapter.memory.data()) + remote;
            w.wr.atomic.rkey = to.adapter.mr->rkey;
            w.wr.atomic.compare_add = compare_add;
            w.wr.atomic.swap = swap;
        });
    }
};

inline void connect(Queue& a, Queue& b) {
    a.init();
    b.init();
    a.rtr(b.adapter.port.lid, b.qp->qp_num, a.o.rq_psn);
    b.rtr(a.adapter.port.lid, a.qp->qp_num, a.o.sq_psn);
    a.rts(a.o.sq_psn);
    b.rts(a.o.rq_psn);
}

// Two adapters of this node with a connected pair of queues between them.
struct Pair {
    Adapter left{0}, right{1};
    Queue a, b;
    explicit Pair(const QpOptions& o = {}) : a(left, o), b(right, o) { connect(a, b); }
};

inline void fill(std::vector<char>& m, size_t offset, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; ++i) m[offset + i] = static_cast<char>(seed + i * 7 + (i >> 8));
}

} // namespace verbs_test
