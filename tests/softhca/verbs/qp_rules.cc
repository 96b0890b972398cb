#include "verbs/qp_rules.h"

namespace softhca::face {
namespace {

// Attributes by one letter each would be unreadable; these are the groups that the table is made of.
constexpr int kPkey = IBV_QP_PKEY_INDEX;
constexpr int kPort = IBV_QP_PORT;
constexpr int kAccess = IBV_QP_ACCESS_FLAGS;
constexpr int kAlt = IBV_QP_ALT_PATH;
constexpr int kMig = IBV_QP_PATH_MIG_STATE;
constexpr int kCur = IBV_QP_CUR_STATE;
constexpr int kRnrTimer = IBV_QP_MIN_RNR_TIMER;
constexpr int kReceiver = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

struct Masks {
    int required, optional;
};
struct Rule {
    ibv_qp_state from, to;
    Masks rc, uc, ud;
};

// Transitions to RESET and ERR are legal from every state, without attributes, and not listed.
constexpr Rule kRules[] = {
    {IBV_QPS_RESET,
     IBV_QPS_INIT,
     {kPkey | kPort | kAccess, 0},
     {kPkey | kPort | kAccess, 0},
     {kPkey | kPort | IBV_QP_QKEY, 0}},
    {IBV_QPS_INIT,
     IBV_QPS_INIT,
     {0, kPkey | kPort | kAccess},
     {0, kPkey | kPort | kAccess},
     {0, kPkey | kPort | IBV_QP_QKEY}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {kReceiver | IBV_QP_MAX_DEST_RD_ATOMIC | kRnrTimer, kAlt | kAccess | kPkey},
     {kReceiver, kAlt | kAccess | kPkey},
     {0, kPkey | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {kRetries | IBV_QP_SQ_PSN, kCur | kAlt | kAccess | kRnrTimer | kMig},
     {IBV_QP_SQ_PSN, kCur | kAlt | kAccess | kMig},
     {IBV_QP_SQ_PSN, kCur | IBV_QP_QKEY}},
    {IBV_QPS_RTS,
     IBV_QPS_RTS,
     {0, kCur | kAlt | kAccess | kRnrTimer | kMig},
     {0, kCur | kAlt | kAccess | kMig},
     {0, kCur | IBV_QP_QKEY}},
    {IBV_QPS_RTS,
     IBV_QPS_SQD,
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD,
     IBV_QPS_RTS,
     {0, kCur | kAlt | kAccess | kRnrTimer | kMig},
     {0, kCur | kAlt | kAccess | kMig},
     {0, kCur | IBV_QP_QKEY}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {0, kPort | IBV_QP_AV | kRetries | IBV_QP_MAX_DEST_RD_ATOMIC | kAlt | kAccess | kPkey | kRnrTimer | kMig},
     {0, IBV_QP_AV | kAlt | kAccess | kPkey | kMig},
     {0, kPkey | IBV_QP_QKEY}},
    // Only unreliable services have SQE; the table of reliable ones has no such row.
    {IBV_QPS_SQE, IBV_QPS_RTS, {-1, 0}, {0, kCur | kAccess}, {0, kCur | IBV_QP_QKEY}},
};

bool matches(Masks m, int mask) { return (mask & m.required) == m.required && !(mask & ~(m.required | m.optional)); }

bool dci_allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return matches({kPkey | kPort, 0}, mask);
    if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) return matches({0, kPkey | kPort}, mask);
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) return matches({IBV_QP_PATH_MTU, kPkey | IBV_QP_AV}, mask);
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) return matches({kRetries | IBV_QP_SQ_PSN, kRnrTimer}, mask);
    if (from == IBV_QPS_RTS && to == IBV_QPS_RTS) return matches({0, kRnrTimer}, mask);
    return false;
}

bool dct_allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return matches({kPkey | kPort | kAccess, 0}, mask);
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) return matches({kRnrTimer | IBV_QP_AV | IBV_QP_PATH_MTU, 0}, mask);
    return false;
}

} // namespace

bool transition_allowed(QpKind kind, ibv_qp_state from, ibv_qp_state to, int mask) {
    mask &= ~IBV_QP_STATE;
    if (kind == QpKind::dct) return dct_allowed(from, to, mask);
    if (to == IBV_QPS_RESET) return mask == 0;
    if (kind == QpKind::dci && to == IBV_QPS_ERR) return mask == 0 && from != IBV_QPS_RESET;
    if (to == IBV_QPS_ERR) return mask == 0;
    if (kind == QpKind::dci) return dci_allowed(from, to, mask);
    for (const Rule& r : kRules) {
        if (r.from != from || r.to != to) continue;
        const Masks m = kind == QpKind::rc ? r.rc : kind == QpKind::uc ? r.uc : r.ud;
        return m.required >= 0 && matches(m, mask);
    }
    return false;
}

} // namespace softhca::face
