// Modify QP for every service, row by row: which transitions there are, which attributes each needs and which it takes.
// The rows are those of the specification (10.3.1, table 91), and of the mlx5 interface for DC; written here a second
// time, or the test would only compare the adapter with itself. What is in no row is refused, and leaves the queue pair
// as it was.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE tables
#include "dc_queue_pairs.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

enum class Service { rc, uc, ud, dci, dct };
const char* name_of(Service s) {
    static const char* const names[] = {"RC", "UC", "UD", "DCI", "DCT"};
    return names[static_cast<int>(s)];
}

struct Row {
    ibv_qp_state from, to;
    int required, optional;
};

constexpr ibv_qp_state kReset = IBV_QPS_RESET, kInit = IBV_QPS_INIT, kRtr = IBV_QPS_RTR, kRts = IBV_QPS_RTS,
                       kSqd = IBV_QPS_SQD, kSqe = IBV_QPS_SQE, kErr = IBV_QPS_ERR;
constexpr int kPkey = IBV_QP_PKEY_INDEX, kPort = IBV_QP_PORT, kAccess = IBV_QP_ACCESS_FLAGS, kQkey = IBV_QP_QKEY,
              kAv = IBV_QP_AV, kMtu = IBV_QP_PATH_MTU, kDest = IBV_QP_DEST_QPN, kRqPsn = IBV_QP_RQ_PSN,
              kSqPsn = IBV_QP_SQ_PSN, kServes = IBV_QP_MAX_DEST_RD_ATOMIC, kReads = IBV_QP_MAX_QP_RD_ATOMIC,
              kRnr = IBV_QP_MIN_RNR_TIMER, kAlt = IBV_QP_ALT_PATH, kMig = IBV_QP_PATH_MIG_STATE,
              kCur = IBV_QP_CUR_STATE, kTimeout = IBV_QP_TIMEOUT, kRetry = IBV_QP_RETRY_CNT,
              kRnrRetry = IBV_QP_RNR_RETRY, kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kAllBits = (IBV_QP_DEST_QPN << 1) - 1;

std::vector<Row> rows_of(Service s) {
    switch (s) {
    case Service::rc:
        return {
            {kReset, kInit, kPkey | kPort | kAccess, 0},
            {kInit, kInit, 0, kPkey | kPort | kAccess},
            {kInit, kRtr, kAv | kMtu | kDest | kRqPsn | kServes | kRnr, kAlt | kAccess | kPkey},
            {kRtr, kRts, kTimeout | kRetry | kRnrRetry | kReads | kSqPsn, kCur | kAlt | kAccess | kRnr | kMig},
            {kRts, kRts, 0, kCur | kAlt | kAccess | kRnr | kMig},
            {kRts, kSqd, 0, kNotify},
            {kSqd, kRts, 0, kCur | kAlt | kAccess | kRnr | kMig},
            {kSqd, kSqd, 0,
             kPort | kAv | kTimeout | kRetry | kRnrRetry | kReads | kServes | kAlt | kAccess | kPkey | kRnr | kMig}};
    case Service::uc:
        return {{kReset, kInit, kPkey | kPort | kAccess, 0},
                {kInit, kInit, 0, kPkey | kPort | kAccess},
                {kInit, kRtr, kAv | kMtu | kDest | kRqPsn, kAlt | kAccess | kPkey},
                {kRtr, kRts, kSqPsn, kCur | kAlt | kAccess | kMig},
                {kRts, kRts, 0, kCur | kAlt | kAccess | kMig},
                {kRts, kSqd, 0, kNotify},
                {kSqd, kRts, 0, kCur | kAlt | kAccess | kMig},
                {kSqd, kSqd, 0, kAv | kAlt | kAccess | kPkey | kMig},
                {kSqe, kRts, 0, kCur | kAccess}};
    case Service::ud:
        return {{kReset, kInit, kPkey | kPort | kQkey, 0},
                {kInit, kInit, 0, kPkey | kPort | kQkey},
                {kInit, kRtr, 0, kPkey | kQkey},
                {kRtr, kRts, kSqPsn, kCur | kQkey},
                {kRts, kRts, 0, kCur | kQkey},
                {kRts, kSqd, 0, kNotify},
                {kSqd, kRts, 0, kCur | kQkey},
                {kSqd, kSqd, 0, kPkey | kQkey},
                {kSqe, kRts, 0, kCur | kQkey}};
    case Service::dci:
        return {{kReset, kInit, kPkey | kPort, 0},
                {kInit, kInit, 0, kPkey | kPort},
                {kInit, kRtr, kMtu, kPkey | kAv},
                {kRtr, kRts, kTimeout | kRetry | kRnrRetry | kReads | kSqPsn, kRnr},
                {kRts, kRts, 0, kRnr}};
    case Service::dct:
        return {{kReset, kInit, kPkey | kPort | kAccess, 0}, {kInit, kRtr, kRnr | kAv | kMtu, 0}};
    }
    return {};
}

// States that a queue pair of the service can be in. A target sends nothing: it is never beyond RTR.
std::vector<ibv_qp_state> states_of(Service s) {
    if (s == Service::dct) return {kReset, kInit, kRtr};
    if (s == Service::dci) return {kReset, kInit, kRtr, kRts, kErr};
    if (s == Service::rc) return {kReset, kInit, kRtr, kRts, kSqd, kErr};
    return {kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr};
}

// A queue pair of the service that comes to any state, always by the same way.
class Subject {
public:
    Subject(Adapter& a, Service s) : adapter_(a), service_(s) {
        if (s == Service::dct) {
            ibv_srq_init_attr init{};
            init.attr = {8, 1, 0};
            srq_ = ibv_create_srq(a.pd, &init);
            BOOST_REQUIRE(srq_);
        }
        if (s == Service::ud) {
            ibv_ah_attr av{};
            av.dlid = a.port.lid;
            av.port_num = 1;
            ah_ = ibv_create_ah(a.pd, &av);
            BOOST_REQUIRE(ah_);
        }
        make();
    }
    ~Subject() {
        drop();
        if (ah_) ibv_destroy_ah(ah_);
        if (srq_) ibv_destroy_srq(srq_);
    }
    Subject(const Subject&) = delete;

    // Everything that any row asks for, with good values.
    int modify(ibv_qp_state from, ibv_qp_state to, int mask) {
        ibv_qp_attr a{};
        a.qp_state = to;
        a.cur_qp_state = from;
        a.port_num = a.alt_port_num = 1;
        a.path_mtu = IBV_MTU_1024;
        a.path_mig_state = IBV_MIG_MIGRATED;
        a.dest_qp_num = qp->qp_num; // itself
        a.max_rd_atomic = a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.timeout = a.alt_timeout = 14;
        a.qkey = 0x1111;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        a.ah_attr.dlid = a.alt_ah_attr.dlid = adapter_.port.lid;
        a.ah_attr.port_num = a.alt_ah_attr.port_num = 1;
        return ibv_modify_qp(qp, &a, mask);
    }
    ibv_qp_state state() {
        ibv_qp_attr a{};
        ibv_qp_init_attr i{};
        BOOST_REQUIRE_EQUAL(ibv_query_qp(qp, &a, IBV_QP_STATE, &i), 0);
        return a.qp_state;
    }
    void bring(ibv_qp_state to) {
        if (service_ == Service::dct) { // there is no way back
            drop();
            make();
        } else {
            BOOST_REQUIRE_EQUAL(modify(kReset, kReset, IBV_QP_STATE), 0);
        }
        ibv_qp_state at = kReset;
        for (const ibv_qp_state next : {kInit, kRtr, kRts}) {
            if (at == to) return;
            for (const Row& r : rows_of(service_))
                if (r.from == at && r.to == next && r.from != r.to)
                    BOOST_REQUIRE_EQUAL(modify(at, next, IBV_QP_STATE | r.required), 0);
            at = next;
        }
        if (to == kSqd || to == kErr) BOOST_REQUIRE_EQUAL(modify(at, to, IBV_QP_STATE), 0);
        if (to == kSqe) break_send_queue();
        BOOST_REQUIRE_EQUAL(state(), to);
    }

    ibv_qp* qp = nullptr;

private:
    void make() {
        if (service_ == Service::dct)
            qp = dc_test::create_target(adapter_.pd, adapter_.cq, srq_, 1);
        else if (service_ == Service::dci)
            qp = dc_test::create_initiator(adapter_.pd, adapter_.cq, 4);
        else {
            ibv_qp_init_attr init{};
            init.send_cq = init.recv_cq = adapter_.cq;
            init.qp_type = service_ == Service::rc ? IBV_QPT_RC : service_ == Service::uc ? IBV_QPT_UC : IBV_QPT_UD;
            init.cap = {4, 4, 1, 1, 0};
            qp = ibv_create_qp(adapter_.pd, &init);
        }
        BOOST_REQUIRE(qp);
    }
    void drop() {
        if (qp) BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0);
        qp = nullptr;
    }
    void break_send_queue() {
        ibv_sge s = adapter_.sge(0, 8);
        s.lkey += 256; // no such region
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = &s;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        if (ah_) wr.wr.ud = {ah_, qp->qp_num, 0x1111};
        BOOST_REQUIRE_EQUAL(ibv_post_send(qp, &wr, &bad), 0);
        adapter_.wait(IBV_WC_LOC_PROT_ERR);
    }

    Adapter& adapter_;
    Service service_;
    ibv_srq* srq_ = nullptr;
    ibv_ah* ah_ = nullptr;
};

constexpr Service kServices[] = {Service::rc, Service::uc, Service::ud, Service::dci, Service::dct};

} // namespace

BOOST_AUTO_TEST_CASE(every_row_with_and_without_every_attribute) {
    Adapter a(0);
    const bool apm = [&] { // what the adapter has not, it refuses
        ibv_device_attr d{};
        BOOST_REQUIRE_EQUAL(ibv_query_device(a.context, &d), 0);
        return (d.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) != 0;
    }();
    for (const Service s : kServices) {
        Subject q(a, s);
        for (const Row& r : rows_of(s)) {
            const auto attempt = [&](int mask) {
                q.bring(r.from);
                const int got = q.modify(r.from, r.to, IBV_QP_STATE | mask);
                const ibv_qp_state is = q.state();
                BOOST_CHECK_MESSAGE(is == (got == 0 ? r.to : r.from), name_of(s) << " " << r.from << " to " << r.to
                                                                                 << " with " << mask << " gave " << got
                                                                                 << " and state " << is);
                return got;
            };
            const auto text = [&](int bit) {
                return std::string(name_of(s)) + " " + std::to_string(r.from) + " to " + std::to_string(r.to) +
                       ", attribute " + std::to_string(bit);
            };
            BOOST_CHECK_MESSAGE(attempt(r.required) == 0, text(0));
            BOOST_CHECK_MESSAGE(attempt(r.required | (apm ? r.optional : r.optional & ~kAlt)) == 0, text(r.optional));
            for (int bit = IBV_QP_CUR_STATE; bit <= kAllBits; bit <<= 1) {
                if (bit & r.required)
                    BOOST_CHECK_MESSAGE(attempt(r.required & ~bit) == EINVAL, "without " << text(bit));
                else if (!(bit & r.optional))
                    BOOST_CHECK_MESSAGE(attempt(r.required | bit) == EINVAL, "with " << text(bit));
                else if (bit != kAlt || apm)
                    BOOST_CHECK_MESSAGE(attempt(r.required | bit) == 0, "with optional " << text(bit));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(what_is_in_no_row_is_refused) {
    Adapter a(0);
    for (const Service s : kServices) {
        Subject q(a, s);
        const auto rows = rows_of(s);
        const auto listed = [&](ibv_qp_state from, ibv_qp_state to) {
            return std::any_of(rows.begin(), rows.end(), [&](const Row& r) { return r.from == from && r.to == to; });
        };
        for (const ibv_qp_state from : states_of(s))
            for (const ibv_qp_state to : {kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr}) {
                if (listed(from, to)) continue;
                // With nothing, and with what leads to `to` from anywhere: the transition itself is what is wrong.
                std::vector<int> masks{0};
                for (const Row& r : rows)
                    if (r.to == to) masks.push_back(r.required);
                // RESET and ERR are legal from anywhere; but a target knows neither, and an initiator has nothing to
                // fail in RESET.
                const bool end = to == kReset || (to == kErr && !(s == Service::dci && from == kReset));
                for (const int mask : masks) {
                    q.bring(from);
                    const int wanted = end && s != Service::dct ? 0 : EINVAL;
                    const int got = q.modify(from, to, IBV_QP_STATE | mask);
                    BOOST_CHECK_MESSAGE(got == wanted,
                                        name_of(s) << " " << from << " to " << to << " with " << mask << ": " << got);
                    BOOST_CHECK_EQUAL(q.state(), wanted == 0 ? to : from);
                    if (end && s != Service::dct) { // attributes have no place there
                        q.bring(from);
                        BOOST_CHECK_EQUAL(q.modify(from, to, IBV_QP_STATE | kAccess), EINVAL);
                    }
                }
            }
    }
}

// 10.3.1: an error of an unreliable service's own request stops its send queue only; what is behind is flushed,
// receives still come, and the program may go on. A reliable one's stops everything.
BOOST_AUTO_TEST_CASE(local_errors_stop_the_send_queue) {
    struct Case {
        ibv_qp_type type;
        bool too_long; // else a key that is none
        ibv_wc_status status;
    };
    for (const Case& c : {Case{IBV_QPT_UC, false, IBV_WC_LOC_PROT_ERR}, Case{IBV_QPT_UD, false, IBV_WC_LOC_PROT_ERR},
                          Case{IBV_QPT_UD, true, IBV_WC_LOC_LEN_ERR}, Case{IBV_QPT_RC, false, IBV_WC_LOC_PROT_ERR}}) {
        QpOptions o;
        o.type = c.type;
        Pair p(o);
        const bool ud = c.type == IBV_QPT_UD, sqe = c.type != IBV_QPT_RC;
        const auto address = [](Adapter& from, Adapter& to) {
            ibv_ah_attr av{};
            av.dlid = to.port.lid;
            av.port_num = 1;
            ibv_ah* ah = ibv_create_ah(from.pd, &av);
            BOOST_REQUIRE(ah);
            return ah;
        };
        ibv_ah* right = address(p.left, p.right);
        const auto send = [&](const ibv_sge& data, uint64_t id) {
            return p.a.post(IBV_WR_SEND, {data}, [&](ibv_send_wr& w) {
                w.wr_id = id;
                if (ud) w.wr.ud = {right, p.b.qp->qp_num, 0x1111};
            });
        };
        for (int i = 0; i < 2; ++i) p.b.recv(100000, 4096, 60);
        ibv_sge wrong = p.left.sge(0, c.too_long ? 8000u : 100u);
        if (!c.too_long) wrong.lkey += 256;
        BOOST_REQUIRE_EQUAL(send(p.left.sge(0, 100), 1), 0);
        BOOST_REQUIRE_EQUAL(send(wrong, 2), 0);
        BOOST_REQUIRE_EQUAL(send(p.left.sge(0, 100), 3), 0);
        BOOST_CHECK_EQUAL(p.left.wait().wr_id, 1u); // what was before it is not touched
        BOOST_CHECK_EQUAL(p.left.wait(c.status).wr_id, 2u);
        BOOST_CHECK_EQUAL(p.left.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 3u);
        BOOST_CHECK_EQUAL(p.right.wait().wr_id, 60u); // the first, and nothing else
        BOOST_CHECK(p.right.empty());
        BOOST_CHECK_EQUAL(p.a.query().qp_state, sqe ? kSqe : kErr);
        // A request that is posted now is flushed.
        BOOST_REQUIRE_EQUAL(send(p.left.sge(0, 100), 4), 0);
        BOOST_CHECK_EQUAL(p.left.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 4u);
        ibv_qp_attr again{};
        again.qp_state = kRts;
        again.cur_qp_state = kSqe;
        const int result = ibv_modify_qp(p.a.qp, &again, IBV_QP_STATE | IBV_QP_CUR_STATE);
        if (sqe) {
            // It sends again when it has been told to.
            BOOST_REQUIRE_EQUAL(result, 0);
            BOOST_CHECK_EQUAL(p.a.query().qp_state, kRts);
            BOOST_REQUIRE_EQUAL(send(p.left.sge(0, 100), 5), 0);
            BOOST_CHECK_EQUAL(p.left.wait().wr_id, 5u);
            BOOST_CHECK_EQUAL(p.right.wait().wr_id, 60u);
        } else {
            BOOST_CHECK_EQUAL(result, EINVAL);
            BOOST_CHECK_EQUAL(p.a.query().qp_state, kErr);
        }
        ibv_destroy_ah(right);
    }
}

BOOST_AUTO_TEST_CASE(a_stopped_send_queue_still_receives) {
    for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
        QpOptions o;
        o.type = type;
        Pair p(o);
        ibv_ah_attr av{};
        av.dlid = p.left.port.lid;
        av.port_num = 1;
        ibv_ah* left = ibv_create_ah(p.right.pd, &av);
        ibv_sge wrong = p.left.sge(0, 100);
        wrong.lkey += 256;
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {wrong},
                                     [&](ibv_send_wr& w) {
                                         if (type == IBV_QPT_UD) w.wr.ud = {left, p.b.qp->qp_num, 0x1111};
                                     }),
                            0);
        p.left.wait(IBV_WC_LOC_PROT_ERR);
        BOOST_REQUIRE_EQUAL(p.a.query().qp_state, kSqe);
        p.a.recv(100000, 4096, 50);
        BOOST_REQUIRE_EQUAL(p.b.post(IBV_WR_SEND, {p.right.sge(0, 100)},
                                     [&](ibv_send_wr& w) {
                                         if (type == IBV_QPT_UD) w.wr.ud = {left, p.a.qp->qp_num, 0x1111};
                                     }),
                            0);
        BOOST_CHECK_EQUAL(p.left.wait().wr_id, 50u);
        p.right.wait();
        ibv_destroy_ah(left);
    }
}
