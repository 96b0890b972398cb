// Automatic path migration: REARM -> ARMED by traffic, MIGRATED on failure and on request, at both ends, and re-arming.
// Needs adapters with two ports (fabric dual-port) or LMC paths; here: both ends on the adapters' two LMC paths or
// ports.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE apm
#include "fixture.h"

using namespace verbs_test;

namespace {

// Loads an alternate path for `q`: our port `port`, to `dlid`.
void load(Queue& q, uint8_t port, uint16_t dlid, uint8_t timeout = 0) {
    ibv_qp_attr a{};
    a.alt_ah_attr.dlid = dlid;
    a.alt_ah_attr.port_num = port;
    a.alt_port_num = port;
    a.alt_timeout = timeout ? timeout : q.o.timeout;
    a.path_mig_state = IBV_MIG_REARM;
    BOOST_REQUIRE_EQUAL(ibv_modify_qp(q.qp, &a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), 0);
}

void exchange(Pair& p) {
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 3000), 0);
    p.left.wait();
    BOOST_REQUIRE_EQUAL(p.b.rdma(IBV_WR_RDMA_WRITE, p.a, 0, 0, 3000), 0);
    p.right.wait();
}

// How many events of `type` the adapter has now.
int count(Adapter& a, ibv_event_type type) {
    int n = 0;
    for (int e; (e = a.event(0.05)) != -1;) n += e == type;
    return n;
}

} // namespace

// A peer that sends from a port that is on neither path of ours: told once, not for every packet.
BOOST_AUTO_TEST_CASE(migration_to_an_unknown_path_is_told_once) {
    Adapter left(0), right(1);
    Queue a(left), b(right);
    a.init(2);
    b.init();
    a.rtr(right.port.lid, b.qp->qp_num, a.o.rq_psn, 2);
    b.rtr(left.port.lid, a.qp->qp_num, a.o.sq_psn);
    a.rts(a.o.sq_psn);
    b.rts(a.o.rq_psn);
    load(b, 2, left.port.lid);
    for (int i = 0; i < 5; ++i) {
        BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        left.wait();
    }
    BOOST_CHECK_EQUAL(count(right, IBV_EVENT_PATH_MIG_ERR), 1);
}

// After a migration, at both ends, the alternate path's own time counts.
BOOST_AUTO_TEST_CASE(the_alternate_path_has_its_own_timeout) {
    constexpr uint8_t kSlow = 13; // 33.6 ms; the primary path: 4.2 ms
    Pair p;
    ibv_port_attr l2{}, r2{};
    BOOST_REQUIRE_EQUAL(ibv_query_port(p.left.context, 2, &l2), 0);
    BOOST_REQUIRE_EQUAL(ibv_query_port(p.right.context, 2, &r2), 0);
    load(p.a, 2, r2.lid, kSlow);
    load(p.b, 2, l2.lid, kSlow);
    exchange(p);
    exchange(p);
    BOOST_CHECK_EQUAL(p.b.query().timeout, p.b.o.timeout);
    Restore restore{{"port up " + port_name(1, 1), "port up " + port_name(1, 2)}};
    softhca("port down " + port_name(1, 1));
    exchange(p);
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_MIGRATED);
    BOOST_CHECK_EQUAL(p.a.query().timeout, kSlow);
    BOOST_CHECK_EQUAL(p.b.query().timeout, kSlow);
    softhca("port down " + port_name(1, 2));
    const auto t = Clock::now();
    BOOST_REQUIRE_EQUAL(p.b.rdma(IBV_WR_RDMA_WRITE, p.a, 0, 0, 3000), 0);
    p.right.wait(IBV_WC_RETRY_EXC_ERR);
    BOOST_CHECK_GT(seconds_since(t), 4 * 0.0335); // the first try and three more
}

BOOST_AUTO_TEST_CASE(migrates_on_failure_and_on_request) {
    Pair p;
    ibv_port_attr l2{}, r2{};
    BOOST_REQUIRE_EQUAL(ibv_query_port(p.left.context, 2, &l2), 0);
    BOOST_REQUIRE_EQUAL(ibv_query_port(p.right.context, 2, &r2), 0);
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_MIGRATED);
    load(p.a, 2, r2.lid);
    exchange(p);
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_REARM); // one side alone does not arm
    load(p.b, 2, l2.lid);
    exchange(p);
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_ARMED);
    BOOST_CHECK_EQUAL(p.b.query().path_mig_state, IBV_MIG_ARMED);

    softhca("port down " + port_name(1, 1));
    exchange(p); // nothing but a delay
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_MIGRATED);
    BOOST_CHECK_EQUAL(p.b.query().path_mig_state, IBV_MIG_MIGRATED);
    BOOST_CHECK(p.left.saw(IBV_EVENT_PATH_MIG));
    BOOST_CHECK(p.right.saw(IBV_EVENT_PATH_MIG));
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    BOOST_REQUIRE_EQUAL(ibv_query_qp(p.a.qp, &now, IBV_QP_AV | IBV_QP_PORT, &init), 0);
    BOOST_CHECK_EQUAL(now.ah_attr.dlid, r2.lid);
    BOOST_CHECK_EQUAL(now.port_num, 2);

    softhca("port up " + port_name(1, 1)); // back, on request
    load(p.a, 1, p.right.port.lid);
    load(p.b, 1, p.left.port.lid);
    exchange(p);
    BOOST_CHECK_EQUAL(p.a.query().path_mig_state, IBV_MIG_ARMED);
    ibv_qp_attr a{};
    a.path_mig_state = IBV_MIG_MIGRATED;
    BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.a.qp, &a, IBV_QP_PATH_MIG_STATE), 0);
    BOOST_CHECK(p.left.saw(IBV_EVENT_PATH_MIG));
    exchange(p);
    BOOST_CHECK(p.right.saw(IBV_EVENT_PATH_MIG));
    BOOST_CHECK_EQUAL(p.b.query().path_mig_state, IBV_MIG_MIGRATED);
}
