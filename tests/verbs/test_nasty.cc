// What the specification allows and programs like to forget: the nasty knobs of `softhca fault`, each seen through verbs.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE nasty
#include "fixture.h"

using namespace verbs_test;

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
    Restore restore{{"fault command-cost create reset " + device_name(0), "fault command-cost reg reset " + device_name(0)}};
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
