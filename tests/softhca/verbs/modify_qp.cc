// ibv_modify_qp and ibv_query_qp: what firmware and kernel refuse is refused here, the rest is the engine's.
#include "verbs/face.h"
#include "verbs/qp_rules.h"

namespace softhca::face {
namespace {

bool port_ok(const Context& c, uint32_t number) { return c.port(number) != kNone; }

bool path_ok(const Context& c, const ibv_ah_attr& av, uint8_t default_port) {
    ibv_ah_attr a = av;
    if (a.port_num == 0) a.port_num = default_port; // as drivers do, which take the port from elsewhere
    return check_address(c, a, Destination::unicast) == 0;
}

// Values of the attributes that `mask` names.
bool values_ok(const Context& c, const Qp& qp, const ibv_qp_attr& a, int mask) {
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    const uint8_t port = has(IBV_QP_PORT) ? a.port_num : qp.attr.port_num;
    if (has(IBV_QP_PORT) && !port_ok(c, a.port_num)) return false;
    if (has(IBV_QP_PKEY_INDEX) && a.pkey_index >= kPkeys) return false;
    if (has(IBV_QP_PATH_MTU)) {
        if (raw(a.path_mtu) < IBV_MTU_256 || raw(a.path_mtu) > IBV_MTU_4096 || !port_ok(c, port)) return false;
        if (raw(a.path_mtu) > c.seg().img().port(c.port(port)).mtu) return false;
    }
    // The address of DC targets comes with each request; what is given here is not looked at (but for its port).
    const bool dc = qp.kind == QpKind::dci || qp.kind == QpKind::dct;
    if (has(IBV_QP_AV) && dc && a.ah_attr.port_num && !port_ok(c, a.ah_attr.port_num)) return false;
    if (has(IBV_QP_AV) && !dc && !path_ok(c, a.ah_attr, port)) return false;
    if (has(IBV_QP_ALT_PATH)) {
        if (!c.image().limits.has_apm || !port_ok(c, a.alt_port_num) || a.alt_pkey_index >= kPkeys ||
            a.alt_timeout > 31 || !path_ok(c, a.alt_ah_attr, a.alt_port_num))
            return false;
    }
    // ARMED is the adapter's to set: both sides reach it from REARM (IB 17.2.8.1).
    if (has(IBV_QP_PATH_MIG_STATE) && raw(a.path_mig_state) != IBV_MIG_MIGRATED &&
        raw(a.path_mig_state) != IBV_MIG_REARM)
        return false;
    if (has(IBV_QP_PATH_MIG_STATE) && a.path_mig_state == IBV_MIG_REARM && !c.image().limits.has_apm) return false;
    if (has(IBV_QP_TIMEOUT) && a.timeout > 31) return false;
    if (has(IBV_QP_RETRY_CNT) && a.retry_cnt > 7) return false;
    if (has(IBV_QP_RNR_RETRY) && a.rnr_retry > 7) return false;
    if (has(IBV_QP_MIN_RNR_TIMER) && a.min_rnr_timer > 31) return false;
    if (has(IBV_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > kMaxRdAtomic) return false;
    if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && a.max_dest_rd_atomic > kMaxRdAtomic) return false;
    if (has(IBV_QP_DEST_QPN) && a.dest_qp_num > 0xffffff) return false;
    return true;
}

int modify(Context& c, Qp& qp, const ibv_qp_attr& a, int mask) {
    const auto from = static_cast<ibv_qp_state>(qp.rec->state.load());
    if ((mask & IBV_QP_CUR_STATE) && raw(a.cur_qp_state) != from) return EINVAL;
    if ((mask & IBV_QP_STATE) && raw(a.qp_state) > IBV_QPS_ERR) return EINVAL;
    const ibv_qp_state to = mask & IBV_QP_STATE ? a.qp_state : from;
    if ((mask & IBV_QP_ALT_PATH) && c.state().lack(Lack::apm)) return EINVAL;
    if (!transition_allowed(qp.kind, from, to, mask)) return EINVAL;
    if (!values_ok(c, qp, a, mask)) return EINVAL;
    if (to == IBV_QPS_INIT && from == IBV_QPS_RESET &&
        c.seg().port(c.port(a.port_num)).init_refused.load(std::memory_order_relaxed))
        return ENOMEM;
    return qp.engine->apply_modify(qp, a, mask, from, to);
}

} // namespace
} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API int ibv_modify_qp(ibv_qp* p, ibv_qp_attr* attr, int mask) {
    Qp& qp = *qp_of(p);
    Context& c = *context_of(p->context);
    if (int error = command(c, modify_cmd)) return error;
    const int error = modify(c, qp, *attr, mask);
    if (error) return fail(error);
    if (mask & IBV_QP_STATE) p->state = attr->qp_state;
    return 0;
}

VERBS_API int ibv_query_qp(ibv_qp* p, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
    Qp& qp = *qp_of(p);
    Context& c = *context_of(p->context);
    if (int error = command(c, query_cmd)) return error;
    switch (static_cast<QueryMode>(c.state().query_mode.load(std::memory_order_relaxed))) {
    case QueryMode::refused:
        return fail(EIO);
    case QueryMode::stale: // what was set last, not what has become of it
        *attr = qp.attr;
        attr->cur_qp_state = attr->qp_state;
        break;
    case QueryMode::truthful:
        qp.engine->fill_query(qp, *attr);
        p->state = attr->qp_state;
        break;
    }
    attr->cap = qp.init_attr.cap;
    if (init) *init = qp.init_attr;
    return 0;
}

VERBS_API int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t flags) {
    return flags == 0; // data is placed in ascending order, the last word last
}

VERBS_API int ibv_set_ece(ibv_qp*, ibv_ece*) { return fail(EOPNOTSUPP); }
VERBS_API int ibv_query_ece(ibv_qp*, ibv_ece*) { return fail(EOPNOTSUPP); }
VERBS_API int ibv_attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return fail(EOPNOTSUPP); }
VERBS_API int ibv_detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return fail(EOPNOTSUPP); }
