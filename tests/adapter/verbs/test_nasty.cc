// What the specification allows and programs like to forget: the nasty knobs of `softhca fault`, each seen through
// verbs.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE nasty
#include <sys/resource.h>

#include <atomic>

#include "children.h"
#include "dc_queue_pairs.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

ibv_qp* dc_initiator(const Adapter& a) {
    try {
        return dc_test::create_initiator(a.pd, a.cq, 4);
    } catch (const std::runtime_error&) { return nullptr; }
}

} // namespace

BOOST_AUTO_TEST_CASE(query_that_is_stale_or_refused) {
    Pair p;
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 5000), 0); // five packets
    p.left.wait();
    const uint32_t sq_psn = p.a.o.sq_psn;
    BOOST_CHECK_EQUAL(p.a.query().sq_psn, sq_psn + 5);
    BOOST_CHECK_EQUAL(p.b.query().rq_psn, sq_psn + 5);
    Restore restore{{"fault query truthful " + device_name(0), "fault query truthful " + device_name(1)}};
    softhca("fault query stale " + device_name(0));
    BOOST_CHECK_EQUAL(p.a.query().sq_psn, sq_psn); // as it was set
    softhca("fault query refused " + device_name(1));
    ibv_qp_attr a{};
    ibv_qp_init_attr i{};
    BOOST_CHECK_NE(ibv_query_qp(p.b.qp, &a, IBV_QP_STATE, &i), 0);
}

BOOST_AUTO_TEST_CASE(loopback_needs_the_port_if_told_so) {
    Adapter left(0);
    const auto write = [&](ibv_wc_status expected) {
        Queue a(left);
        a.init();
        a.rtr(left.port.lid, a.qp->qp_num, 5);
        a.rts(5);
        BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, a, 0, 100000, 5000), 0);
        left.wait(expected);
    };
    Restore restore{{"fault loopback-fails off " + port_name(0), "port up " + port_name(0)}};
    softhca("port down " + port_name(0));
    write(IBV_WC_SUCCESS);
    softhca("fault loopback-fails on " + port_name(0));
    write(IBV_WC_RETRY_EXC_ERR);
}

// Accepted and acknowledged, so the sender has its success; the receiver's queue pair fails before the data are placed.
BOOST_AUTO_TEST_CASE(accepted_receive_is_flushed) {
    for (const bool flush : {false, true}) {
        Pair p;
        p.b.recv(0, 1000, 3);
        Restore restore{{"fault place-delay 0 " + device_name(1), "fault flush-accepted off " + device_name(1)}};
        softhca("fault place-delay 2s " + device_name(1));
        if (flush) softhca("fault flush-accepted on " + device_name(1));
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 1000)}), 0);
        p.left.wait();
        p.b.to_error();
        BOOST_CHECK_EQUAL(p.right.wait(flush ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS).wr_id, 3u);
        BOOST_CHECK(p.right.empty());
    }
}

BOOST_AUTO_TEST_CASE(commands_take_their_time) {
    Adapter a(0);
    Restore restore{
        {"fault command-cost create reset " + device_name(0), "fault command-cost reg reset " + device_name(0)}};
    softhca("fault command-cost create 30ms " + device_name(0));
    softhca("fault command-cost reg 50ms " + device_name(0));
    auto t = Clock::now();
    Queue q(a);
    BOOST_CHECK_GE(seconds_since(t), 0.03);
    t = Clock::now();
    ibv_mr* mr = ibv_reg_mr(a.pd, a.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
    BOOST_CHECK_GE(seconds_since(t), 0.05);
    BOOST_CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

BOOST_AUTO_TEST_CASE(damaged_packets_are_repeated_and_delay_delays) {
    QpOptions o;
    o.timeout = 14;
    o.retry = 7;
    Pair p(o);
    Restore restore{{"fault corrupt 0 " + port_name(1), "fault delay 0 " + port_name(1)}};
    softhca("fault corrupt 100% --at-packet 3 --count 2 " + port_name(1));
    fill(p.left.memory, 0, 10000, 4);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 10000), 0);
    p.left.wait();
    BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data(), 10000) == 0);
    softhca("fault delay 10ms " + port_name(1));
    const auto t = Clock::now();
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 8), 0);
    p.left.wait();
    BOOST_CHECK_GE(seconds_since(t), 0.02); // there and back
}

BOOST_AUTO_TEST_CASE(ports_exchange_their_lids) {
    Adapter left(0), right(0);
    const std::string other = "1:softhca_0:1"; // of another node, in the same subnet
    softhca("fault lid-swap " + port_name(0) + " " + other);
    Restore restore{{"fault lid-swap " + port_name(0) + " " + other}};
    BOOST_CHECK(left.saw(IBV_EVENT_LID_CHANGE));
    BOOST_CHECK(right.saw(IBV_EVENT_LID_CHANGE)); // every context of the device
    ibv_port_attr now{};
    BOOST_REQUIRE_EQUAL(ibv_query_port(left.context, 1, &now), 0);
    BOOST_CHECK_NE(now.lid, left.port.lid);
    right.port = left.port = now;
    Queue a(left), b(right);
    connect(a, b);
    BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 5000), 0);
    left.wait();
}

// Made, and of no use: destroying it is all that can be done.
BOOST_AUTO_TEST_CASE(queue_pairs_that_stay_in_reset) {
    Adapter left(0);
    Restore restore{{"fault queue-pairs granted " + port_name(0)}};
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = left.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    ibv_qp* const qp = ibv_create_qp(left.pd, &init);
    BOOST_REQUIRE(qp);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    softhca("fault queue-pairs refused " + port_name(0));
    BOOST_CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask), ENOMEM);
    BOOST_CHECK_EQUAL(qp->state, IBV_QPS_RESET);
    softhca("fault queue-pairs granted " + port_name(0));
    BOOST_CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask), 0);
    BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

// A completion queue for a single thread: who polls it while another thread destroys a queue pair of it is ended. What
// takes no time is hardly ever seen, neither here nor by rdma-core: so the command takes some.
BOOST_AUTO_TEST_CASE(two_threads_use_what_is_for_one) {
    const auto run = [](bool single) {
        rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL); // Boost's
        Adapter left(0);
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 64;
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attr.flags = single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0;
        ibv_cq* const cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(left.context, &attr));
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        ibv_qp* qps[20];
        for (ibv_qp*& qp : qps) qp = ibv_create_qp(left.pd, &init);
        std::atomic<bool> done{false};
        std::thread other([&] {
            for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
            done = true;
        });
        while (!done) {
            ibv_wc wc;
            (void)ibv_poll_cq(cq, 1, &wc);
        }
        other.join();
        return ibv_destroy_cq(cq);
    };
    softhca("fault command-cost create 2ms " + device_name(0));
    Restore restore{{"fault command-cost create reset " + device_name(0)}};
    BOOST_CHECK(ended_well(status_of(start(0, [&] { return run(false); }), 20000)));
    const int status = status_of(start(0, [&] { return run(true); }), 20000);
    BOOST_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

namespace {

// What one end finds at the other, after its write there has been acknowledged and while it is late.
struct LateWrites {
    Adapter left{0}, right{1};
    std::vector<std::unique_ptr<Queue>> a, b;
    explicit LateWrites(unsigned pairs) {
        for (unsigned i = 0; i < pairs; ++i) {
            a.push_back(std::make_unique<Queue>(left));
            b.push_back(std::make_unique<Queue>(right));
            connect(*a[i], *b[i]);
            b[i]->recv(600000 + 1024 * i, 1024, i);
        }
    }
    // Writes `value` over pair `i`; true when it has been acknowledged.
    void write(unsigned i, uint64_t value) {
        left.at<uint64_t>(8192) = value;
        BOOST_REQUIRE_EQUAL(a[i]->rdma(IBV_WR_RDMA_WRITE, *b[i], 8192, 0, 8), 0);
        left.wait();
    }
    uint64_t read(unsigned i) {
        left.at<uint64_t>(16384) = ~0ull;
        BOOST_REQUIRE_EQUAL(a[i]->rdma(IBV_WR_RDMA_READ, *b[i], 16384, 0, 8), 0);
        left.wait();
        return left.at<uint64_t>(16384);
    }
    uint64_t add(unsigned i) {
        BOOST_REQUIRE_EQUAL(a[i]->atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, *b[i], 24576, 0, 1), 0);
        left.wait();
        return left.at<uint64_t>(24576);
    }
};

constexpr uint64_t kWritten = 0x0102030405060708;

} // namespace

// Reads and atomics push what was written before them; a message comes behind it, whatever queue pair of the adapter it
// takes.
BOOST_AUTO_TEST_CASE(late_data_keep_their_order_within_the_adapter) {
    LateWrites w(2);
    Restore restore{{"fault place-delay 0 " + device_name(1)}};
    softhca("fault place-delay 1s " + device_name(1));
    for (const unsigned reader : {0u, 1u}) {
        w.right.at<uint64_t>(0) = 0;
        w.write(0, kWritten);
        BOOST_CHECK_EQUAL(w.read(reader), kWritten);
        w.right.at<uint64_t>(0) = 0;
        w.write(0, kWritten);
        BOOST_CHECK_EQUAL(w.add(reader), kWritten);
        BOOST_CHECK_EQUAL(w.right.at<uint64_t>(0), kWritten + 1);
    }
    for (const bool back : {false, true}) { // also behind what is late still when the knob is turned back
        w.right.at<uint64_t>(0) = 0;
        w.write(0, kWritten);
        if (back) softhca("fault place-delay 0 " + device_name(1));
        BOOST_REQUIRE_EQUAL(w.a[back]->post(IBV_WR_SEND, {w.left.sge(0, 16)}), 0);
        w.left.wait();
        w.right.wait();
        BOOST_CHECK_EQUAL(w.right.at<uint64_t>(0), kWritten);
    }
}

// Every queue pair has an order of its own: what comes over one overtakes what was acknowledged over another.
BOOST_AUTO_TEST_CASE(late_data_in_order_per_queue_pair_only) {
    constexpr unsigned kPairs = 6;
    LateWrites w(kPairs);
    Restore restore{{"fault place-delay-qp 0 " + device_name(1)}};
    softhca("fault place-delay-qp 1s " + device_name(1));
    unsigned late = 0, overtaken_by_read = 0, overtaken_by_message = 0;
    for (unsigned i = 0; i < kPairs; ++i) {
        w.right.at<uint64_t>(0) = 0;
        w.write(i, kWritten);
        if (w.right.at<volatile uint64_t>(0) == kWritten) continue; // its share is nothing
        ++late;
        overtaken_by_read += w.read((i + 1) % kPairs) != kWritten; // that one pushes its own writes only
        BOOST_CHECK_EQUAL(w.read(i), kWritten);
        w.right.at<uint64_t>(0) = 0;
        w.write(i, kWritten);
        BOOST_CHECK_EQUAL(w.add(i), kWritten);
    }
    BOOST_CHECK_GE(late, 2u);
    BOOST_CHECK_GE(overtaken_by_read, 1u);
    // All write, each to a place of its own, and are acknowledged; then all send. Behind each message its own write is
    // seen.
    for (unsigned i = 0; i < kPairs; ++i) {
        w.right.at<uint64_t>(8 * i) = 0;
        w.left.at<uint64_t>(8192) = kWritten;
        BOOST_REQUIRE_EQUAL(w.a[i]->rdma(IBV_WR_RDMA_WRITE, *w.b[i], 8192, 8 * i, 8), 0);
        w.left.wait();
    }
    for (unsigned i = 0; i < kPairs; ++i) {
        BOOST_REQUIRE_EQUAL(w.a[i]->post(IBV_WR_SEND, {w.left.sge(0, 16)}), 0);
        w.left.wait();
    }
    for (unsigned i = 0; i < kPairs; ++i) {
        const uint64_t who = w.right.wait().wr_id;
        BOOST_CHECK_EQUAL(w.right.at<volatile uint64_t>(8 * who), kWritten);
        for (unsigned other = 0; other < kPairs; ++other)
            overtaken_by_message += w.right.at<volatile uint64_t>(8 * other) != kWritten;
    }
    BOOST_CHECK_GE(overtaken_by_message, 1u);
}

// What was acknowledged is not lost with its queue pair: it is there when the reset is over.
BOOST_AUTO_TEST_CASE(late_data_survive_their_queue_pair) {
    LateWrites w(1);
    Restore restore{{"fault place-delay 0 " + device_name(1)}};
    softhca("fault place-delay 2s " + device_name(1));
    w.write(0, kWritten);
    w.b[0].reset();
    BOOST_CHECK_EQUAL(w.right.at<volatile uint64_t>(0), kWritten);
}

BOOST_AUTO_TEST_CASE(reads_that_overtake_writes) {
    LateWrites w(1);
    Restore restore{{"fault place-delay 0 " + device_name(1), "fault lacks read-push off " + device_name(1)}};
    softhca("fault place-delay 1s " + device_name(1));
    softhca("fault lacks read-push on " + device_name(1));
    w.write(0, kWritten);
    BOOST_CHECK_EQUAL(w.read(0), 0u);
}

BOOST_AUTO_TEST_CASE(last_word_first) {
    LateWrites w(1);
    Restore restore{{"fault lacks write-order off " + device_name(1)}};
    softhca("fault lacks write-order on " + device_name(1));
    bool seen = false;
    for (int attempt = 0; attempt < 200 && !seen; ++attempt) { // until we are not late ourselves
        std::memset(w.right.memory.data(), 0, 4096);
        fill(w.left.memory, 8192, 4096, 1);
        BOOST_REQUIRE_EQUAL(w.a[0]->rdma(IBV_WR_RDMA_WRITE, *w.b[0], 8192, 0, 4096), 0);
        w.left.wait();
        const bool last = w.right.at<volatile char>(4095) == w.left.memory[8192 + 4095];
        seen = last && w.right.at<volatile char>(1000) != w.left.memory[8192 + 1000];
        BOOST_CHECK(last);
    }
    BOOST_CHECK(seen);
}

BOOST_AUTO_TEST_CASE(what_an_adapter_lacks) {
    Adapter a(0);
    const auto lacks = [](const char* what, bool on) {
        softhca(std::string("fault lacks ") + what + (on ? " on " : " off ") + device_name(0));
    };
    Restore restore{{"fault lacks dc off " + device_name(0), "fault lacks timestamps off " + device_name(0),
                     "fault lacks resize off " + device_name(0), "fault lacks srq off " + device_name(0)}};
    for (const bool on : {true, false}) {
        lacks("resize", on);
        BOOST_CHECK_EQUAL(ibv_resize_cq(a.cq, 8192) == 0, !on);
        lacks("srq", on);
        ibv_srq_init_attr attr{};
        attr.attr = {16, 1, 0};
        ibv_srq* srq = ibv_create_srq(a.pd, &attr);
        BOOST_CHECK_EQUAL(srq != nullptr, !on);
        if (srq) BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
        lacks("dc", on);
        ibv_qp* dci = dc_initiator(a);
        BOOST_CHECK_EQUAL(dci != nullptr, !on);
        if (dci) BOOST_CHECK_EQUAL(ibv_destroy_qp(dci), 0);
        lacks("timestamps", on);
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        BOOST_CHECK_EQUAL(ibv_query_rt_values_ex(a.context, &values) == 0, !on);
    }
}
