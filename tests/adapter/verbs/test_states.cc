// Transitions of queue pairs: every one that the specification does not list is refused, and attributes that are
// missing, too many or out of range (IB 10.3, 11.2.5.2).
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE states
#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

ibv_qp_attr good_rtr(const Adapter& a) {
    ibv_qp_attr r{};
    r.qp_state = IBV_QPS_RTR;
    r.path_mtu = IBV_MTU_1024;
    r.dest_qp_num = 5;
    r.max_dest_rd_atomic = 4;
    r.min_rnr_timer = 1;
    r.ah_attr.dlid = a.port.lid;
    r.ah_attr.port_num = 1;
    return r;
}

ibv_qp_attr good_rts() {
    ibv_qp_attr r{};
    r.qp_state = IBV_QPS_RTS;
    r.timeout = 14;
    r.retry_cnt = r.rnr_retry = 7;
    r.max_rd_atomic = 4;
    return r;
}

int modify(Queue& q, ibv_qp_attr a, int mask) { return ibv_modify_qp(q.qp, &a, mask); }
int move(Queue& q, ibv_qp_state to, int more = 0) {
    ibv_qp_attr a{};
    a.qp_state = to;
    return modify(q, a, IBV_QP_STATE | more);
}

// Brings a fresh RC queue pair to a state by legal steps only.
void bring(Queue& q, ibv_qp_state to) {
    BOOST_REQUIRE_EQUAL(move(q, IBV_QPS_RESET), 0);
    if (to == IBV_QPS_RESET) return;
    if (to == IBV_QPS_ERR) {
        BOOST_REQUIRE_EQUAL(move(q, IBV_QPS_ERR), 0);
        return;
    }
    q.init();
    if (to == IBV_QPS_INIT) return;
    BOOST_REQUIRE_EQUAL(modify(q, good_rtr(q.adapter), kRtr), 0);
    if (to == IBV_QPS_RTR) return;
    BOOST_REQUIRE_EQUAL(modify(q, good_rts(), kRts), 0);
    if (to == IBV_QPS_SQD) BOOST_REQUIRE_EQUAL(move(q, IBV_QPS_SQD), 0);
}

} // namespace

// With the attributes that the target state needs anywhere, so that only the transition itself can be what is wrong.
BOOST_AUTO_TEST_CASE(transitions) {
    Adapter a(0);
    Queue q(a);
    const auto legal = [](ibv_qp_state from, ibv_qp_state to) {
        if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
        if (from == IBV_QPS_RESET) return to == IBV_QPS_INIT;
        if (from == IBV_QPS_INIT) return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
        if (from == IBV_QPS_RTR) return to == IBV_QPS_RTS;
        if (from == IBV_QPS_RTS || from == IBV_QPS_SQD) return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
        return false;
    };
    constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
    for (ibv_qp_state from : states)
        for (ibv_qp_state to : states) {
            bring(q, from);
            ibv_qp_attr attr = to == IBV_QPS_RTR ? good_rtr(a) : good_rts();
            attr.qp_state = to;
            attr.port_num = 1;
            int mask = IBV_QP_STATE;
            if (to == IBV_QPS_INIT && from != IBV_QPS_INIT)
                mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            if (to == IBV_QPS_RTR) mask = kRtr;
            if (to == IBV_QPS_RTS && from != IBV_QPS_RTS && from != IBV_QPS_SQD) mask = kRts;
            const int got = modify(q, attr, mask);
            BOOST_CHECK_MESSAGE(got == (legal(from, to) ? 0 : EINVAL), "state " << from << " to " << to << ": " << got);
            BOOST_CHECK_EQUAL(q.query().qp_state, legal(from, to) ? to : from);
        }
    BOOST_CHECK_EQUAL(move(q, IBV_QPS_SQE), EINVAL); // not a state to ask for
    BOOST_CHECK_EQUAL(move(q, static_cast<ibv_qp_state>(9)), EINVAL);
}

BOOST_AUTO_TEST_CASE(every_required_attribute) {
    Adapter a(0);
    Queue q(a);
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
        bring(q, IBV_QPS_INIT);
        if (bit != IBV_QP_STATE && (kRtr & bit))
            BOOST_CHECK_MESSAGE(modify(q, good_rtr(a), kRtr & ~bit) == EINVAL, "RTR without " << bit);
        bring(q, IBV_QPS_RTR);
        if (bit != IBV_QP_STATE && (kRts & bit))
            BOOST_CHECK_MESSAGE(modify(q, good_rts(), kRts & ~bit) == EINVAL, "RTS without " << bit);
    }
    bring(q, IBV_QPS_INIT);
    BOOST_CHECK_EQUAL(modify(q, good_rtr(a), kRtr | IBV_QP_QKEY), EINVAL);
    BOOST_CHECK_EQUAL(modify(q, good_rtr(a), kRtr | IBV_QP_SQ_PSN), EINVAL);
    BOOST_CHECK_EQUAL(modify(q, good_rtr(a), kRtr | IBV_QP_CAP), EINVAL);
}

BOOST_AUTO_TEST_CASE(attribute_ranges) {
    Adapter a(0);
    Queue q(a);
    const auto refused = [&](ibv_qp_state in, const ibv_qp_attr& good, int mask, auto spoil) {
        bring(q, in);
        ibv_qp_attr bad = good;
        spoil(bad);
        return modify(q, bad, mask) == EINVAL;
    };
    const auto rtr = [&](auto spoil) { return refused(IBV_QPS_INIT, good_rtr(a), kRtr, spoil); };
    const auto rts = [&](auto spoil) { return refused(IBV_QPS_RTR, good_rts(), kRts, spoil); };
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.path_mtu = static_cast<ibv_mtu>(0); }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.path_mtu = static_cast<ibv_mtu>(6); }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.ah_attr.dlid = 0; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.ah_attr.dlid = 0xc001; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.ah_attr.sl = 16; }));
    BOOST_CHECK(rtr([&](ibv_qp_attr& x) { x.ah_attr.src_path_bits = static_cast<uint8_t>(1u << a.port.lmc); }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.ah_attr.port_num = 9; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.ah_attr.is_global = 1, x.ah_attr.grh.sgid_index = 200; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.max_dest_rd_atomic = 17; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.min_rnr_timer = 32; }));
    BOOST_CHECK(rtr([](ibv_qp_attr& x) { x.dest_qp_num = 1 << 24; }));
    BOOST_CHECK(rts([](ibv_qp_attr& x) { x.timeout = 32; }));
    BOOST_CHECK(rts([](ibv_qp_attr& x) { x.retry_cnt = 8; }));
    BOOST_CHECK(rts([](ibv_qp_attr& x) { x.rnr_retry = 8; }));
    BOOST_CHECK(rts([](ibv_qp_attr& x) { x.max_rd_atomic = 17; }));
    bring(q, IBV_QPS_RTS);
    ibv_qp_attr x{};
    x.cur_qp_state = IBV_QPS_SQD;
    x.qp_state = IBV_QPS_RTS;
    BOOST_CHECK_EQUAL(modify(q, x, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    x.cur_qp_state = IBV_QPS_RTS;
    BOOST_CHECK_EQUAL(modify(q, x, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    BOOST_CHECK_EQUAL(modify(q, x, IBV_QP_ACCESS_FLAGS), 0); // IBV_QP_STATE may be absent
    x.path_mig_state = IBV_MIG_ARMED;
    BOOST_CHECK_EQUAL(modify(q, x, IBV_QP_PATH_MIG_STATE), EINVAL);
}

BOOST_AUTO_TEST_CASE(posting_by_state) {
    Adapter a(0);
    Queue q(a);
    for (ibv_qp_state s : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        bring(q, s);
        ibv_recv_wr wr{}, *bad = nullptr;
        BOOST_CHECK_EQUAL(ibv_post_recv(q.qp, &wr, &bad), s == IBV_QPS_RESET ? EINVAL : 0);
        if (s != IBV_QPS_RTS) BOOST_CHECK_EQUAL(q.post(IBV_WR_SEND, {a.sge(0, 8)}), EINVAL);
    }
    BOOST_CHECK_EQUAL(move(q, IBV_QPS_RESET), 0);
    BOOST_CHECK(a.empty()); // receives are forgotten, not flushed
    bring(q, IBV_QPS_ERR);
    BOOST_CHECK_EQUAL(q.post(IBV_WR_SEND, {a.sge(0, 8)}), 0);
    a.wait(IBV_WC_WR_FLUSH_ERR);
    q.recv(0, 8, 55);
    BOOST_CHECK_EQUAL(a.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 55u);
}

BOOST_AUTO_TEST_CASE(query_returns_what_was_set) {
    Adapter a(0);
    Queue q(a);
    bring(q, IBV_QPS_RTS);
    ibv_qp_attr x{};
    ibv_qp_init_attr init{};
    BOOST_REQUIRE_EQUAL(ibv_query_qp(q.qp, &x, ~0, &init), 0);
    BOOST_CHECK(x.qp_state == IBV_QPS_RTS && x.cur_qp_state == IBV_QPS_RTS && x.path_mtu == IBV_MTU_1024);
    BOOST_CHECK(x.dest_qp_num == 5 && x.port_num == 1 && x.ah_attr.dlid == a.port.lid && x.ah_attr.port_num == 1);
    BOOST_CHECK(x.timeout == 14 && x.retry_cnt == 7 && x.rnr_retry == 7 && x.min_rnr_timer == 1);
    BOOST_CHECK(x.max_rd_atomic == 4 && x.max_dest_rd_atomic == 4 && x.path_mig_state == IBV_MIG_MIGRATED);
    BOOST_CHECK(x.cap.max_send_wr >= q.o.send_wr && x.cap.max_inline_data >= q.o.inline_bytes);
    BOOST_CHECK(x.qp_access_flags == static_cast<unsigned>(q.o.access));
    BOOST_CHECK(init.send_cq == a.cq && init.recv_cq == a.cq && init.qp_type == IBV_QPT_RC && init.srq == nullptr);
}
