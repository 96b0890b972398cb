// The data path entries of ibv_context: thin conversions to Engine calls.
#include "verbs/face.h"

namespace softhca::face {

namespace {

constexpr uint32_t bit(ibv_wr_opcode op) { return 1u << op; }
constexpr uint32_t kSends = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr uint32_t kWrites = bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);
constexpr uint32_t kReads = bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) | bit(IBV_WR_ATOMIC_FETCH_AND_ADD);

// 0, or why a request with flag INLINE can't be posted.
int check_inline(const Qp& qp, const ibv_send_wr& wr) {
    if (kReads & bit(wr.opcode)) return EINVAL;
    uint64_t total = 0;
    for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
    return total > qp.caps.max_inline ? EINVAL : 0;
}

int post_one(Qp& qp, uint32_t allowed, const ibv_send_wr& wr) {
    if (raw(wr.opcode) > 31 || !(allowed & 1u << raw(wr.opcode))) [[unlikely]]
        return EINVAL;
    if (static_cast<uint32_t>(wr.num_sge) > qp.caps.max_send_sge) [[unlikely]]
        return EINVAL;
    SendDesc d;
    d.wr_id = wr.wr_id;
    d.opcode = wr.opcode;
    d.flags = wr.send_flags;
    d.imm = wr.imm_data;
    d.sge = wr.sg_list;
    d.sges = static_cast<uint32_t>(wr.num_sge);
    if (wr.send_flags & IBV_SEND_INLINE)
        if (int error = check_inline(qp, wr)) [[unlikely]]
            return error;
    if (qp.kind == QpKind::ud) {
        if (!wr.wr.ud.ah) [[unlikely]]
            return EINVAL;
        d.ah = ah_of(wr.wr.ud.ah);
        d.remote_qpn = wr.wr.ud.remote_qpn;
        d.remote_qkey = wr.wr.ud.remote_qkey;
    } else if (bit(wr.opcode) & (kWrites | bit(IBV_WR_RDMA_READ))) {
        d.remote_addr = wr.wr.rdma.remote_addr;
        d.rkey = wr.wr.rdma.rkey;
    } else if (!(bit(wr.opcode) & kSends)) {
        d.remote_addr = wr.wr.atomic.remote_addr;
        d.compare_add = wr.wr.atomic.compare_add;
        d.swap = wr.wr.atomic.swap;
        d.rkey = wr.wr.atomic.rkey;
    }
    return qp.engine->post_send(qp, d);
}

} // namespace

uint32_t allowed_opcodes(QpKind kind) {
    switch (kind) {
    case QpKind::rc:
    case QpKind::dci:
        return kSends | kWrites | kReads;
    case QpKind::uc:
        return kSends | kWrites;
    case QpKind::ud:
        return kSends;
    default:
        return 0;
    }
}

int post_send(ibv_qp* p, ibv_send_wr* wr, ibv_send_wr** bad) {
    Qp& qp = *qp_of(p);
    int error = EINVAL;
    // RTS, SQD, SQE, ERR take requests (10.3.1). A DCI needs an address that ibv_send_wr has no room for.
    if (qp.rec->state.load(std::memory_order_relaxed) >= IBV_QPS_RTS && qp.kind != QpKind::dci) [[likely]] {
        const uint32_t allowed = allowed_opcodes(qp.kind);
        for (error = 0; wr; wr = wr->next)
            if ((error = post_one(qp, allowed, *wr))) [[unlikely]]
                break;
    }
    if (!error) [[likely]]
        return 0;
    *bad = wr;
    return fail(error);
}

int post_recv(ibv_qp* p, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Qp& qp = *qp_of(p);
    int error = EINVAL;
    const uint32_t state = qp.rec->state.load(std::memory_order_relaxed);
    if (state != IBV_QPS_RESET && !qp.srq) [[likely]] {
        const uint32_t device = qp.rec->device, pd = qp.pd->number;
        for (error = 0; wr; wr = wr->next)
            if ((error = qp.engine->post_recv(qp.rq, *wr, device, pd))) [[unlikely]]
                break;
        // Looked at again behind the post: whoever made it ERR meanwhile may have flushed before these came.
        if (qp.rec->state.load(std::memory_order_seq_cst) == IBV_QPS_ERR) [[unlikely]]
            qp.engine->flush_posted(qp);
    }
    if (!error) [[likely]]
        return 0;
    *bad = wr;
    return fail(error);
}

int post_srq_recv(ibv_srq* p, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Srq& srq = *srq_of(p);
    Engine& engine = *Engine::current();
    for (; wr; wr = wr->next)
        if (int error = engine.post_recv(srq.queue, *wr, srq.queue.rec->device, srq.pd->number)) [[unlikely]] {
            *bad = wr;
            return fail(error);
        }
    return 0;
}

int poll_cq(ibv_cq* p, int entries, ibv_wc* wc) {
    Cq& cq = *cq_of(p);
    return cq.engine->poll_cq(cq, entries, wc);
}

int req_notify_cq(ibv_cq* p, int solicited_only) {
    Cq& cq = *cq_of(p);
    return cq.engine->arm_cq(cq, solicited_only != 0);
}

} // namespace softhca::face
