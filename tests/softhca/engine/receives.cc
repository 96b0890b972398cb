#include "engine/receives.h"

#include <algorithm>

#include "engine/engine.h"
#include "engine/responder.h"

namespace softhca {

bool take_receive(Segment& seg, RecvQueue& q, Responder& ctx) {
    if (ctx.in_recv) {
        // Its sender was killed between the two steps below.
        if (!q.is_srq && q.head.load(std::memory_order_relaxed) == ctx.recv_head) [[unlikely]]
            q.head.store(ctx.recv_head + 1);
        return true;
    }
    if (q.is_srq) (void)q.lock.acquire();
    const uint64_t head = q.head.load(std::memory_order_relaxed);
    if (head == q.seen_tail) q.seen_tail = q.tail.load(std::memory_order_acquire);
    const bool ok = head != q.seen_tail;
    bool limit_event = false;
    if (ok) {
        ctx.recv_entry = seg.at<uint32_t>(q.ring)[head & q.mask];
        ctx.recv_head = head;
        if (!q.is_srq) { // held before the queue moves: nobody who is killed here takes it along
            std::atomic_signal_fence(std::memory_order_seq_cst);
            ctx.in_recv = 1;
        }
        q.head.store(head + 1, std::memory_order_release);
        if (const uint32_t limit = q.limit.load(std::memory_order_relaxed); limit) [[unlikely]]
            limit_event = q.tail.load(std::memory_order_relaxed) - head - 1 < limit && q.limit.exchange(0) != 0;
    }
    if (q.is_srq) q.lock.release();
    if (limit_event) raise_object_event(seg, q.async_channel, IBV_EVENT_SRQ_LIMIT_REACHED, q.user);
    return ok;
}

CopyResult scatter_to_receive(Process& p, RecvQueue& q, uint64_t entry, uint64_t at, const LocalData& data,
                              uint64_t from, uint64_t length) {
    RecvWqe* w = recv_entry(p.seg(), q, entry);
    for (uint32_t i = 0; i < w->sges && length; ++i) {
        const RecvSge& s = w->sge()[i];
        if (at >= s.length) {
            at -= s.length;
            continue;
        }
        const uint64_t take = std::min<uint64_t>(length, s.length - at);
        iovec v[kMaxSge];
        const unsigned n = data.pieces(from, take, v);
        // What the key covers was checked when the receive was posted; the region may have gone since.
        std::atomic<uint32_t>* cell;
        if (!p.mark_mr(s.lkey, cell)) return CopyResult::fault;
        const CopyResult result = p.write_to(q.owner, s.addr + at, {v, n}, take);
        Process::clear_mr(cell);
        if (result != CopyResult::ok) return result;
        from += take;
        length -= take;
        at = 0;
    }
    return length == 0 ? CopyResult::ok : CopyResult::fault;
}

void fill_receive(Cqe& e, const QpRec& target, const RecvQueue& q, uint64_t entry, const Request& r) {
    e.qpn = target.qpn.load(std::memory_order_relaxed);
    e.status = IBV_WC_SUCCESS;
    const bool imm = r.opcode == IBV_WR_SEND_WITH_IMM || r.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    e.opcode = r.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    e.kind = CqeKind::recv;
    e.wc_flags = static_cast<uint8_t>((imm ? IBV_WC_WITH_IMM : 0) | (r.with_grh ? IBV_WC_GRH : 0));
    e.imm = r.imm;
    e.in_payload = 0;
    e.solicited = (r.flags & IBV_SEND_SOLICITED) != 0;
    e.vendor_err = 0;
    e.wr = entry;
    e.queue = q.owner_cookie;
    e.time = r.when;
    e.src_qp = r.src_qpn;
    e.slid = r.slid;
    e.pkey_index = 0;
    e.sl = r.sl;
    e.path_bits = r.path_bits;
}

void flush_receives(Segment& seg, QpRec& rec) {
    RecvQueue& q = recv_queue_of(seg, rec);
    Responder& ctx = rec.responder;
    // The message in progress holds a receive of its own: its packets may have been acknowledged already. The others
    // are held as well until they are flushed, so that who is killed here leaves them to the next one.
    while ((ctx.in_recv || !rec.is_srq) && take_receive(seg, q, ctx)) {
        ctx.in_recv = 1;
        Cqe e{};
        e.qpn = rec.qpn;
        e.status = IBV_WC_WR_FLUSH_ERR;
        e.opcode = IBV_WC_RECV;
        e.kind = CqeKind::recv;
        e.wr = ctx.recv_entry;
        e.queue = q.owner_cookie;
        push_cqe(seg, seg.cq(rec.recv_cq), e, &ctx.in_recv);
    }
    ctx.in_message = 0;
    if (rec.is_srq) raise_object_event(seg, rec.async_channel, IBV_EVENT_QP_LAST_WQE_REACHED, rec.user);
}

} // namespace softhca
