// Faults as a verbs program sees them: retries, events, exactly-once execution under loss, migration.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE faults
#include "children.h"
#include "fixture.h"

using namespace verbs_test;

BOOST_AUTO_TEST_CASE(port_down_ends_in_retry_exceeded_within_the_qps_own_time) {
    Pair p; // timeout 10, retry 3: 4.2 ms * 4 = 17 ms
    p.b.recv(0, 100);
    softhca("port down " + port_name(1));
    Restore restore{{"port up " + port_name(1)}};
    BOOST_CHECK(p.right.saw(IBV_EVENT_PORT_ERR));
    ibv_port_attr attr{};
    BOOST_REQUIRE_EQUAL(ibv_query_port(p.right.context, 1, &attr), 0);
    BOOST_CHECK_EQUAL(attr.state, IBV_PORT_DOWN);
    const auto t = Clock::now();
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 100)}), 0);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 100)}), 0);
    p.left.wait(IBV_WC_RETRY_EXC_ERR);
    BOOST_CHECK_GT(seconds_since(t), 0.012); // how much longer at most is checked in virtual time
    p.left.wait(IBV_WC_WR_FLUSH_ERR);
    BOOST_CHECK_EQUAL(p.a.query().qp_state, IBV_QPS_ERR);
    BOOST_CHECK_EQUAL(p.b.query().qp_state, IBV_QPS_RTS); // the other end has noticed nothing
    softhca("port up " + port_name(1));
    BOOST_CHECK(p.right.saw(IBV_EVENT_PORT_ACTIVE));
}

BOOST_AUTO_TEST_CASE(short_outage_is_bridged_by_retries) {
    QpOptions o;
    o.timeout = 17; // 0.5 s, and 4 s altogether: more than the command below needs on a busy machine
    o.retry = 7;
    Pair p(o);
    softhca("port down " + port_name(1));
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 5000), 0);
    BOOST_CHECK(p.left.empty());
    softhca("port up " + port_name(1));
    p.left.wait();
}

// The receive that a half received message holds is not lost when its queue pair is reset.
BOOST_AUTO_TEST_CASE(reset_gives_a_held_srq_receive_back) {
    Adapter left(0), right(1);
    ibv_srq_init_attr init{};
    init.attr = {1, 1, 0};
    ibv_srq* srq = ibv_create_srq(right.pd, &init);
    BOOST_REQUIRE(srq);
    ibv_sge s = right.sge(0, 100000);
    ibv_recv_wr wr{1, nullptr, &s, 1}, *bad = nullptr;
    {
        QpOptions o;
        o.retry = 0;
        QpOptions with = o;
        with.srq = srq;
        Queue a(left, o), b(right, with);
        connect(a, b);
        BOOST_REQUIRE_EQUAL(ibv_post_srq_recv(srq, &wr, &bad), 0);
        BOOST_CHECK_EQUAL(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
        softhca("fault drop 100% --at-packet 20 --count 1000 " + port_name(1));
        Restore restore{{"fault clear"}};
        BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 100000)}), 0);
        left.wait(IBV_WC_RETRY_EXC_ERR);
        ibv_qp_attr reset{};
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
        BOOST_CHECK_EQUAL(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
}

BOOST_AUTO_TEST_CASE(loss_costs_time_but_nothing_is_lost_or_done_twice) {
    QpOptions o;
    o.timeout = 8; // 1 ms
    o.retry = 7;
    Pair p(o);
    softhca("fault drop 3 " + port_name(1));
    softhca("fault ack-drop 3 " + port_name(0));
    Restore restore{{"fault drop 0 " + port_name(1), "fault ack-drop 0 " + port_name(0)}};
    p.right.at<uint64_t>(900000) = 0;
    uint32_t psn = p.a.o.sq_psn;
    for (unsigned i = 0; i < 150; ++i) {
        const uint32_t size = 1 + i * 131 % 20000;
        fill(p.left.memory, 0, size, i);
        p.b.recv(300000, 20000, i);
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, size)}), 0);
        BOOST_REQUIRE_EQUAL(p.a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p.b, 700000, 900000, 1), 0);
        const ibv_wc r = p.right.wait();
        BOOST_REQUIRE_EQUAL(r.wr_id, i);
        BOOST_REQUIRE_EQUAL(r.byte_len, size);
        p.left.wait();
        p.left.wait();
        BOOST_REQUIRE(std::memcmp(p.left.memory.data(), p.right.memory.data() + 300000, size) == 0);
        BOOST_REQUIRE_EQUAL(p.left.at<uint64_t>(700000), i);
        fill(p.right.memory, 400000, size, i + 5);
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_READ, p.b, 500000, 400000, size), 0);
        p.left.wait();
        BOOST_REQUIRE(std::memcmp(p.left.memory.data() + 500000, p.right.memory.data() + 400000, size) == 0);
        psn += 2 * ((size + 1023) / 1024) + 1;
    }
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(900000), 150u);
    BOOST_CHECK(p.right.empty());
    BOOST_CHECK_EQUAL(p.a.query().sq_psn, psn);
    BOOST_CHECK_EQUAL(p.b.query().rq_psn, psn);
}

// What arrives while nobody looks is copied together (read_stream.h), but nothing over a gap.
BOOST_AUTO_TEST_CASE(reads_that_arrive_while_the_process_stands_still_are_whole) {
    constexpr uint32_t kReads = 8, kBytes = 60000, kAll = kReads * kBytes;
    QpOptions o;
    o.timeout = 12; // 17 ms, longer than it stands still
    o.retry = 7;
    Pair p(o);
    for (unsigned round = 0; round < 20; ++round) {
        softhca("fault drop " + std::string(round % 2 ? "2 " : "0 ") + port_name(1));
        Restore restore{{"fault drop 0 " + port_name(1)}};
        fill(p.right.memory, 0, kAll, round);
        std::memset(p.left.memory.data(), 0, kAll);
        const pid_t other = start(0, [] {
            const pid_t stopped = getppid();
            usleep(300); // the reads are under way
            ::kill(stopped, SIGSTOP);
            usleep(5000);
            ::kill(stopped, SIGCONT);
            return 0;
        });
        for (unsigned i = 0; i < kReads; ++i)
            BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_READ, p.b, i * kBytes, i * kBytes, kBytes), 0);
        for (unsigned i = 0; i < kReads; ++i) p.left.wait();
        BOOST_REQUIRE(std::memcmp(p.left.memory.data(), p.right.memory.data(), kAll) == 0);
        BOOST_CHECK(ended_well(status_of(other, 20000)));
    }
}

BOOST_AUTO_TEST_CASE(executed_but_acknowledgment_lost) {
    QpOptions o;
    o.retry = 1;
    Pair p(o);
    softhca("fault ack-drop 100 " + port_name(0));
    {
        Restore restore{{"fault ack-drop 0 " + port_name(0)}};
        p.right.at<uint64_t>(0) = 10;
        BOOST_REQUIRE_EQUAL(p.a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p.b, 0, 0, 1), 0);
        p.left.wait(IBV_WC_RETRY_EXC_ERR);
    }
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(0), 11u); // once, although tried twice and reported failed
    BOOST_CHECK_EQUAL(p.b.query().rq_psn, p.a.o.sq_psn + 1);
}

BOOST_AUTO_TEST_CASE(a_lost_packet_leaves_a_partial_write) {
    QpOptions o;
    o.retry = 0;
    Pair p(o);
    fill(p.left.memory, 0, 10240, 1);
    std::fill_n(p.right.memory.begin(), 10240, '\0');
    // Ten packets of 1 KiB; the fifth and everything after it gets lost.
    softhca("fault drop 100 " + port_name(1) + " --at-packet 5");
    {
        Restore restore{{"fault drop 0 " + port_name(1)}};
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 10240), 0);
        p.left.wait(IBV_WC_RETRY_EXC_ERR);
    }
    const uint32_t executed = (p.b.query().rq_psn - p.a.o.sq_psn) & 0xffffff;
    BOOST_CHECK_EQUAL(executed, 4u);
    BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data(), executed * 1024) == 0);
    BOOST_CHECK_EQUAL(p.right.memory[executed * 1024 + 1], '\0');
}

BOOST_AUTO_TEST_CASE(data_placed_after_the_acknowledgment) {
    Pair p;
    const std::string device = device_name(1);
    softhca("fault place-delay 300ms " + device);
    Restore restore{{"fault place-delay 0 " + device}};
    volatile uint64_t& placed = p.right.at<uint64_t>(0);
    bool seen = false;
    for (int attempt = 0; attempt < 20 && !seen; ++attempt) { // until we are not late ourselves
        placed = 0;
        p.left.at<uint64_t>(0) = 1;
        const auto t = Clock::now();
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 8), 0);
        p.left.wait();
        const uint64_t now = placed; // acknowledged, not yet visible
        seen = seconds_since(t) < 0.3;
        if (seen) BOOST_CHECK_EQUAL(now, 0u);
        p.left.at<uint64_t>(0) = 99; // the source is ours again
        while (placed == 0 && seconds_since(t) < 20) (void)p.right.empty(0.001);
        BOOST_REQUIRE_EQUAL(placed, 1u);
    }
    BOOST_CHECK(seen);
}

// UC (IB 9.8.2): a lost packet costs its message, nobody is told, and its receive serves the next one.
BOOST_AUTO_TEST_CASE(unreliable_connection_loses_a_message_and_goes_on) {
    QpOptions o;
    o.type = IBV_QPT_UC;
    Pair p(o);
    p.b.recv(0, 8000, 1);
    p.b.recv(8000, 8000, 2);
    Restore restore{{"fault clear"}};
    softhca("fault drop 100% --at-packet 2 --count 1 " + port_name(1));
    for (unsigned i = 0; i < 3; ++i) {
        fill(p.left.memory, 0, 5000, i);
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 5000)}), 0);
        p.left.wait();
        if (i == 0) {
            BOOST_CHECK(p.right.empty());
            continue;
        }
        BOOST_CHECK_EQUAL(p.right.wait().wr_id, i);
        BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data() + 8000 * (i - 1), 5000) == 0);
    }
    BOOST_CHECK_EQUAL(p.b.query().qp_state, IBV_QPS_RTS);
}

// SQD (IB 10.3.1.5): what has begun is finished, what is posted waits; the event for those who ask for it.
BOOST_AUTO_TEST_CASE(send_queue_drains) {
    QpOptions o;
    o.timeout = 17; // 0.5 s: the outage is bridged
    o.retry = 7;
    for (const bool notify : {true, false}) {
        Pair p(o);
        Restore restore{{"port up " + port_name(1)}};
        softhca("port down " + port_name(1));
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 5000), 0);
        BOOST_CHECK(p.left.empty()); // under way
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_SQD;
        a.en_sqd_async_notify = notify;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
        BOOST_CHECK_EQUAL(p.a.query().sq_draining, 1);
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 100), 0);
        softhca("port up " + port_name(1));
        p.left.wait();
        BOOST_CHECK_EQUAL(p.left.saw(IBV_EVENT_SQ_DRAINED, notify ? 20 : 0.1), notify);
        BOOST_CHECK_EQUAL(p.a.query().sq_draining, 0);
        BOOST_CHECK(p.left.empty());
        a.qp_state = IBV_QPS_RTS;
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE), 0);
        p.left.wait();
    }
}

// The nasty delay ends where an adapter's would: a region that is deregistered is not written to any more.
BOOST_AUTO_TEST_CASE(late_data_are_not_written_to_a_region_that_is_gone) {
    Pair p;
    const std::string device = device_name(1);
    softhca("fault place-delay 2s " + device);
    Restore restore{{"fault place-delay 0 " + device}};
    std::vector<char> gone(4096, 'x');
    ibv_mr* mr = ibv_reg_mr(p.right.pd, gone.data(), gone.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    BOOST_REQUIRE(mr);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_RDMA_WRITE, {p.left.sge(0, 4096)},
                                 [&](ibv_send_wr& w) {
                                     w.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(gone.data());
                                     w.wr.rdma.rkey = mr->rkey;
                                 }),
                        0);
    p.left.wait();
    BOOST_REQUIRE_EQUAL(ibv_dereg_mr(mr), 0);
    const std::vector<char> before = gone;
    BOOST_CHECK(p.left.empty(2.3));
    BOOST_CHECK(gone == before);
}

BOOST_AUTO_TEST_CASE(adapter_death) {
    Adapter left(0);
    auto right = std::make_unique<Adapter>(1);
    Queue a(left);
    auto b = std::make_unique<Queue>(*right);
    connect(a, *b);
    b->recv(0, 10, 4);
    softhca("fault adapter-death " + device_name(1));
    Restore restore{{"fault adapter-revive " + device_name(1)}};
    BOOST_CHECK(right->saw(IBV_EVENT_DEVICE_FATAL));
    BOOST_CHECK_EQUAL(right->wait(IBV_WC_WR_FLUSH_ERR).wr_id, 4u);
    BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 10)}), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
}

// After adapter_death: the adapter has been exchanged, a new context works.
BOOST_AUTO_TEST_CASE(adapter_revived) {
    Pair p;
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 5000), 0);
    p.left.wait();
}

// What was opened and made before it died never works again, and nobody reaches it: neither its queue pairs nor its
// memory.
BOOST_AUTO_TEST_CASE(adapter_exchanged) {
    Adapter left(0), before(1);
    Queue a(left), b(before);
    connect(a, b);
    b.recv(0, 10, 4);
    softhca("fault adapter-death " + device_name(1));
    softhca("fault adapter-revive " + device_name(1));
    BOOST_CHECK(before.saw(IBV_EVENT_DEVICE_FATAL));
    BOOST_CHECK_EQUAL(before.event(0.05), -1); // that its port is up is not for it to hear
    ibv_port_attr port{};
    BOOST_CHECK(ibv_query_port(before.context, 1, &port) != 0);
    BOOST_CHECK(!ibv_alloc_pd(before.context));
    BOOST_CHECK_EQUAL(before.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 4u);
    BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 10)}), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
    Adapter after(1);
    Queue c(left), d(after);
    connect(c, d);
    BOOST_REQUIRE_EQUAL(c.rdma(IBV_WR_RDMA_WRITE, d, 0, 0, 5000), 0);
    left.wait();
    BOOST_REQUIRE_EQUAL(c.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 5000), 0); // to the memory of before
    left.wait(IBV_WC_REM_ACCESS_ERR);
}

// A subnet manager that finds a port again asks its clients to register anew.
BOOST_AUTO_TEST_CASE(reroute_after_a_port_came_back) {
    Pair p;
    softhca("port down " + port_name(1));
    BOOST_CHECK(p.right.saw(IBV_EVENT_PORT_ERR));
    softhca("port up " + port_name(1));
    BOOST_CHECK(p.right.saw(IBV_EVENT_PORT_ACTIVE));
    softhca("reroute");
    BOOST_CHECK(p.right.saw(IBV_EVENT_CLIENT_REREGISTER));
    BOOST_CHECK_EQUAL(p.left.event(0.05), -1); // it has not been away
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 5000), 0);
    p.left.wait();
}
