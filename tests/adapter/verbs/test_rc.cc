// Reliable connections on a healthy fabric: every operation, its errors, and the packet sequence numbers that query_qp
// shows (recovery relies on them).
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE rc
#include <algorithm>

#include "fixture.h"

using namespace verbs_test;

BOOST_AUTO_TEST_CASE(send_receive_of_many_sizes) {
    Pair p;
    uint32_t psn = p.a.o.sq_psn;
    for (uint32_t size : {0u, 1u, 8u, 191u, 192u, 193u, 1023u, 1024u, 1025u, 5000u, 100000u}) {
        fill(p.left.memory, 0, size, size);
        std::fill_n(p.right.memory.begin() + 300000, size + 16, '\x55');
        p.b.recv(300000, size, size);
        BOOST_REQUIRE_EQUAL(
            p.a.post(IBV_WR_SEND_WITH_IMM, {p.left.sge(0, size)}, [](ibv_send_wr& w) { w.imm_data = 77; }), 0);
        const ibv_wc r = p.right.wait();
        BOOST_CHECK_EQUAL(r.wr_id, size);
        BOOST_CHECK_EQUAL(r.byte_len, size);
        BOOST_CHECK_EQUAL(r.imm_data, 77u);
        BOOST_CHECK(r.wc_flags & IBV_WC_WITH_IMM);
        BOOST_CHECK_EQUAL(r.qp_num, p.b.qp->qp_num);
        p.left.wait();
        BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data() + 300000, size) == 0);
        BOOST_CHECK_EQUAL(p.right.memory[300000 + size], '\x55');
        psn += size ? (size + 1023) / 1024 : 1;
        BOOST_CHECK_EQUAL(p.a.query().sq_psn, psn);
        BOOST_CHECK_EQUAL(p.b.query().rq_psn, psn);
    }
}

BOOST_AUTO_TEST_CASE(rdma_and_atomics) {
    Pair p;
    for (uint32_t size : {1u, 7u, 8u, 4096u, 70001u}) {
        fill(p.left.memory, 0, size, 3 * size);
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 200000, size), 0);
        p.left.wait();
        BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data() + 200000, size) == 0);
        fill(p.right.memory, 400000, size, size);
        BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_READ, p.b, 500000, 400000, size), 0);
        BOOST_CHECK_EQUAL(p.left.wait().opcode, IBV_WC_RDMA_READ);
        BOOST_CHECK(std::memcmp(p.left.memory.data() + 500000, p.right.memory.data() + 400000, size) == 0);
    }
    p.right.at<uint64_t>(800000) = 40;
    BOOST_REQUIRE_EQUAL(p.a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p.b, 0, 800000, 2), 0);
    p.left.wait();
    BOOST_CHECK_EQUAL(p.left.at<uint64_t>(0), 40u);
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(800000), 42u);
    BOOST_REQUIRE_EQUAL(p.a.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, p.b, 0, 800000, 41, 7), 0);
    p.left.wait();
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(800000), 42u);
    BOOST_REQUIRE_EQUAL(p.a.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, p.b, 0, 800000, 42, 7), 0);
    p.left.wait();
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(800000), 7u);
    p.b.recv(0, 0, 9);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE_WITH_IMM, p.b, 0, 200000, 3000), 0);
    const ibv_wc r = p.right.wait();
    BOOST_CHECK_EQUAL(r.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    BOOST_CHECK_EQUAL(r.byte_len, 3000u);
    p.left.wait();
}

BOOST_AUTO_TEST_CASE(scatter_gather_and_inline) {
    Pair p;
    fill(p.left.memory, 0, 4096, 1);
    ibv_sge r[3] = {p.right.sge(0, 10), p.right.sge(1000, 100), p.right.sge(2000, 4000)};
    ibv_recv_wr wr{1, nullptr, r, 3}, *bad;
    for (int round = 0; round < 2; ++round) {
        BOOST_REQUIRE_EQUAL(ibv_post_recv(p.b.qp, &wr, &bad), 0);
        std::vector<ibv_sge> s = {p.left.sge(0, 5), p.left.sge(5, 60), p.left.sge(65, round ? 2000u : 40u)};
        const uint32_t total = round ? 2065 : 105;
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, s, {}, IBV_SEND_SIGNALED | (round ? 0u : unsigned(IBV_SEND_INLINE))),
                            0);
        BOOST_CHECK_EQUAL(p.right.wait().byte_len, total);
        p.left.wait();
        std::vector<char> got;
        for (uint32_t i = 0, left = total; i < 3 && left; ++i) {
            const uint32_t n = std::min(left, r[i].length);
            got.insert(got.end(), reinterpret_cast<char*>(r[i].addr), reinterpret_cast<char*>(r[i].addr) + n);
            left -= n;
        }
        BOOST_CHECK(std::memcmp(got.data(), p.left.memory.data(), total) == 0);
    }
    BOOST_CHECK_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 129)}, {}, IBV_SEND_INLINE), EINVAL);
}

BOOST_AUTO_TEST_CASE(receiver_not_ready_waits_for_the_responders_timer) {
    QpOptions o;
    o.rnr_timer = 19; // 7.68 ms
    Pair p(o);
    const auto t = Clock::now();
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 100)}), 0);
    BOOST_CHECK(p.left.empty(0.002)); // it arrives meanwhile, and is refused
    p.b.recv(0, 100);
    p.right.wait();
    p.left.wait();
    BOOST_CHECK_GT(seconds_since(t), 0.007);
}

BOOST_AUTO_TEST_CASE(receiver_never_ready) {
    QpOptions o;
    o.rnr_retry = 2;
    Pair p(o);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 100)}), 0);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 100)}), 0);
    p.left.wait(IBV_WC_RNR_RETRY_EXC_ERR);
    p.left.wait(IBV_WC_WR_FLUSH_ERR);
    BOOST_CHECK_EQUAL(p.a.query().qp_state, IBV_QPS_ERR);
}

BOOST_AUTO_TEST_CASE(remote_access_error_fails_both_ends) {
    Pair p;
    p.b.recv(0, 100, 5);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_RDMA_WRITE, {p.left.sge(0, 64)},
                                 [&](ibv_send_wr& w) {
                                     w.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(p.right.memory.data());
                                     w.wr.rdma.rkey = p.right.mr->rkey + 1;
                                 }),
                        0);
    p.left.wait(IBV_WC_REM_ACCESS_ERR);
    BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 5u);
    BOOST_CHECK(p.right.saw(IBV_EVENT_QP_ACCESS_ERR));
    BOOST_CHECK_EQUAL(p.b.query().qp_state, IBV_QPS_ERR);
}

BOOST_AUTO_TEST_CASE(message_longer_than_the_receive) {
    Pair p;
    p.b.recv(0, 100, 5);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 101)}), 0);
    p.left.wait(IBV_WC_REM_INV_REQ_ERR);
    p.right.wait(IBV_WC_LOC_LEN_ERR);
    BOOST_CHECK_EQUAL(p.b.query().qp_state, IBV_QPS_ERR);
    ibv_async_event e{};
    pollfd ready{p.right.context->async_fd, POLLIN, 0};
    BOOST_REQUIRE_EQUAL(poll(&ready, 1, 20000), 1);
    BOOST_REQUIRE_EQUAL(ibv_get_async_event(p.right.context, &e), 0);
    BOOST_CHECK_EQUAL(e.event_type, IBV_EVENT_QP_FATAL);
    BOOST_CHECK(e.element.qp == p.b.qp);
    ibv_ack_async_event(&e);
    BOOST_CHECK_EQUAL(p.left.event(0.02), -1); // the sender has its completion
}

// A receive whose memory is not registered any more when the message comes: nothing is written there.
BOOST_AUTO_TEST_CASE(receive_whose_region_is_gone) {
    Pair p;
    std::vector<char> gone(4096, 'x');
    ibv_mr* mr = ibv_reg_mr(p.right.pd, gone.data(), gone.size(), IBV_ACCESS_LOCAL_WRITE);
    BOOST_REQUIRE(mr);
    ibv_sge s{reinterpret_cast<uint64_t>(gone.data()), 4096, mr->lkey};
    ibv_recv_wr wr{6, nullptr, &s, 1}, *bad;
    BOOST_REQUIRE_EQUAL(ibv_post_recv(p.b.qp, &wr, &bad), 0);
    BOOST_REQUIRE_EQUAL(ibv_dereg_mr(mr), 0);
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 3000)}), 0);
    p.left.wait(IBV_WC_REM_OP_ERR);
    BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_LOC_PROT_ERR).wr_id, 6u);
    BOOST_CHECK(std::all_of(gone.begin(), gone.end(), [](char c) { return c == 'x'; }));
}

// A receive may be longer than its region: what is looked at is where a message comes to lie. (perftest rounds its
// receives for an SRQ up to the MTU.)
BOOST_AUTO_TEST_CASE(receive_that_is_longer_than_its_region) {
    for (const bool in_two : {false, true})
        for (const uint32_t bytes : {8u, 100u, 1000u, 2048u, 2049u, 3000u}) {
            Pair p;
            std::vector<char> memory(4096, 'x');
            ibv_mr* mr = ibv_reg_mr(p.right.pd, memory.data(), 2048, IBV_ACCESS_LOCAL_WRITE);
            BOOST_REQUIRE(mr);
            const uint64_t at = reinterpret_cast<uint64_t>(memory.data());
            ibv_sge s[] = {{at, in_two ? 50u : 4096u, mr->lkey}, {at + 50, 4046, mr->lkey}};
            ibv_recv_wr wr{6, nullptr, s, in_two ? 2 : 1}, *bad;
            BOOST_REQUIRE_EQUAL(ibv_post_recv(p.b.qp, &wr, &bad), 0);
            BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, bytes)}), 0);
            const bool fits = bytes <= 2048;
            p.left.wait(fits ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
            BOOST_CHECK_EQUAL(p.right.wait(fits ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR).wr_id, 6u);
            if (fits) BOOST_CHECK(std::memcmp(memory.data(), p.left.memory.data(), bytes) == 0);
            const auto behind = memory.begin() + (fits ? bytes : 2048);
            BOOST_CHECK(std::all_of(behind, memory.end(), [](char c) { return c == 'x'; }));
            BOOST_CHECK_EQUAL(ibv_dereg_mr(mr), 0);
        }
}

BOOST_AUTO_TEST_CASE(local_protection_error) {
    Pair p;
    ibv_sge s = p.left.sge(0, 64);
    s.lkey += 256;
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {s}), 0);
    p.left.wait(IBV_WC_LOC_PROT_ERR);
}

BOOST_AUTO_TEST_CASE(flush_completes_everything_in_order) {
    Pair p;
    for (uint64_t i = 0; i < 4; ++i) p.b.recv(0, 10, i);
    p.b.to_error();
    for (uint64_t i = 0; i < 4; ++i) BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_WR_FLUSH_ERR).wr_id, i);
    p.b.recv(0, 10, 8);
    BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 8u);
    BOOST_REQUIRE_EQUAL(p.b.post(IBV_WR_SEND, {p.right.sge(0, 1)}), 0);
    p.right.wait(IBV_WC_WR_FLUSH_ERR);
}

BOOST_AUTO_TEST_CASE(last_wqe_reached_with_a_shared_receive_queue) {
    Adapter left(0), right(1);
    ibv_srq_init_attr init{};
    init.attr.max_wr = 16;
    init.attr.max_sge = 1;
    ibv_srq* srq = ibv_create_srq(right.pd, &init);
    BOOST_REQUIRE(srq);
    {
        QpOptions o;
        Queue a(left, o);
        o.srq = srq;
        Queue b(right, o);
        connect(a, b);
        ibv_sge s = right.sge(0, 64);
        ibv_recv_wr wr{3, nullptr, &s, 1}, *bad;
        for (int i = 0; i < 4; ++i) BOOST_REQUIRE_EQUAL(ibv_post_srq_recv(srq, &wr, &bad), 0);
        ibv_srq_attr limit{};
        limit.srq_limit = 3;
        BOOST_REQUIRE_EQUAL(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
        for (int i = 0; i < 2; ++i) {
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 64)}), 0);
            BOOST_CHECK_EQUAL(right.wait().wr_id, 3u);
            left.wait();
        }
        BOOST_CHECK(right.saw(IBV_EVENT_SRQ_LIMIT_REACHED));
        b.to_error();
        BOOST_CHECK(right.saw(IBV_EVENT_QP_LAST_WQE_REACHED));
    }
    BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
}

BOOST_AUTO_TEST_CASE(illegal_transitions_are_refused) {
    Adapter left(0);
    Queue q(left);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    BOOST_CHECK_EQUAL(ibv_modify_qp(q.qp, &a, IBV_QP_STATE), EINVAL); // RESET -> RTR
    a.qp_state = IBV_QPS_RTS;
    BOOST_CHECK_EQUAL(ibv_modify_qp(q.qp, &a, IBV_QP_STATE), EINVAL);
    a.qp_state = IBV_QPS_INIT;
    BOOST_CHECK_EQUAL(ibv_modify_qp(q.qp, &a, IBV_QP_STATE), EINVAL); // port, pkey and access flags are missing
    q.init();
    a.qp_state = IBV_QPS_RTS;
    BOOST_CHECK_EQUAL(ibv_modify_qp(q.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL); // INIT -> RTS
    BOOST_CHECK_EQUAL(q.post(IBV_WR_SEND, {left.sge(0, 1)}), EINVAL);
}

BOOST_AUTO_TEST_CASE(sleeping_receiver_is_woken) {
    Adapter left(0), right(1);
    ibv_comp_channel* channel = ibv_create_comp_channel(right.context);
    ibv_cq* cq = ibv_create_cq(right.context, 64, &right, channel, 0);
    BOOST_REQUIRE(channel && cq);
    std::swap(right.cq, cq);
    {
        Queue a(left), b(right);
        connect(a, b);
        for (int solicited = 0; solicited < 2; ++solicited) {
            BOOST_REQUIRE_EQUAL(ibv_req_notify_cq(right.cq, solicited), 0);
            for (uint64_t i = 0; i < 3; ++i) b.recv(0, 64, i);
            pollfd f{channel->fd, POLLIN, 0};
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 64)}), 0);
            BOOST_CHECK_EQUAL(poll(&f, 1, solicited ? 30 : 20000), solicited ? 0 : 1);
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 64)}, {}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
            BOOST_REQUIRE_EQUAL(poll(&f, 1, 20000), 1);
            ibv_cq* which = nullptr;
            void* context = nullptr;
            BOOST_REQUIRE_EQUAL(ibv_get_cq_event(channel, &which, &context), 0);
            BOOST_CHECK(which == right.cq && context == &right);
            ibv_ack_cq_events(which, 1);
            // A completion that came while the CQ was not armed fires at once when it is.
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 64)}), 0);
            for (int i = 0; i < 3; ++i) left.wait();
            BOOST_REQUIRE_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
            BOOST_REQUIRE_EQUAL(poll(&f, 1, 20000), 1);
            BOOST_REQUIRE_EQUAL(ibv_get_cq_event(channel, &which, &context), 0);
            ibv_ack_cq_events(which, 1);
            for (int i = 0; i < 3; ++i) right.wait();
        }
    }
    std::swap(right.cq, cq);
    BOOST_CHECK_EQUAL(ibv_destroy_cq(cq), 0);
    BOOST_CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
}

// The adapter's own thread leaves a program alone that polls. It must notice soon that nobody polls any more, though
// the retry timer of what was acknowledged is all that it waits for.
BOOST_AUTO_TEST_CASE(what_is_posted_goes_out_when_polling_has_stopped) {
    Adapter left(0), right(1);
    QpOptions patient;
    patient.timeout = 16; // 0.27 s
    Queue a(left, patient), b(right, patient);
    connect(a, b);
    std::vector<double> took;
    for (char i = 1; i <= 50; ++i) {
        BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        left.wait();
        const auto polling = Clock::now();
        ibv_wc wc;
        while (seconds_since(polling) < 0.001) BOOST_REQUIRE_EQUAL(ibv_poll_cq(left.cq, 1, &wc), 0);
        left.memory[0] = i;
        const auto posted = Clock::now();
        BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        while (static_cast<volatile char&>(right.memory[0]) != i && seconds_since(posted) < 5) {}
        took.push_back(seconds_since(posted));
        left.wait();
    }
    std::ranges::nth_element(took, took.begin() + 25);
    BOOST_TEST(took[25] < 0.005); // it looks after 0.2 ms; asleep until the timer it would after 10
}

BOOST_AUTO_TEST_CASE(connection_to_oneself) {
    Adapter left(0);
    Queue a(left);
    a.init();
    a.rtr(left.port.lid, a.qp->qp_num, 5);
    a.rts(5);
    fill(left.memory, 0, 5000, 9);
    BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, a, 0, 100000, 5000), 0);
    left.wait();
    BOOST_CHECK(std::memcmp(left.memory.data(), left.memory.data() + 100000, 5000) == 0);
}
