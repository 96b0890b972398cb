// Posting. Ideal, healthy and nothing outstanding: the request is executed at once, in the caller, without queueing.
#include <algorithm>
#include <cerrno>

#include "engine/engine.h"
#include "engine/placement.h"
#include "engine/requester.h"

namespace softhca {

constexpr uint64_t kMaxMessage = 1u << 31; // bytes (9.7.2)

// ibv_wc_status that a request with these local buffers ends with; 0 = fine.
uint8_t Engine::check_local(const Qp& qp, const SendDesc& d) const {
    Segment& seg = process_.seg();
    const bool stores = Requester::reads(static_cast<uint8_t>(d.opcode));
    if ((d.flags & IBV_SEND_INLINE) && !stores) return 0;
    for (uint32_t i = 0; i < d.sges; ++i) {
        const ibv_sge& s = d.sge[i];
        if (s.length == 0) continue;
        const MrRec& mr = seg.mr(s.lkey >> 8 & (kMaxMrs - 1));
        if (mr.key.load(std::memory_order_relaxed) != s.lkey || s.lkey == 0 || mr.pd != qp.pd->number ||
            s.addr < mr.iova || s.length > mr.length || s.addr - mr.iova > mr.length - s.length ||
            (stores && !(mr.access & IBV_ACCESS_LOCAL_WRITE)))
            return IBV_WC_LOC_PROT_ERR;
    }
    return 0;
}

int Engine::post_send(Qp& qp, const SendDesc& d) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < d.sges; ++i) total += d.sge[i].length;
    Requester& rq = *qp.requester;
    qp.sq_lock.lock();
    if (!rq.slow && rq.fast_ok && rq.generation == seg().fabric.generation.load(std::memory_order_relaxed)) [[likely]] {
        const bool done = post_fast(qp, rq, d, total);
        qp.sq_lock.unlock();
        if (done) [[likely]]
            return 0;
    } else {
        qp.sq_lock.unlock();
    }
    return post_slow(qp, d, total);
}

int Engine::post_raw(Qp& qp, const SendDesc& d) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < d.sges; ++i) total += d.sge[i].length;
    return post_slow(qp, d, total);
}

// True: executed and completed. False: nothing has happened that the slow path would not do again in the same way.
bool Engine::post_fast(Qp& qp, Requester& rq, const SendDesc& d, uint64_t total) {
    QpRec& peer = *rq.peer;
    QpRec& rec = *qp.rec;
    const bool datagram = qp.kind == QpKind::ud;
    const bool dc = qp.kind == QpKind::dci;
    // The last address used is cached; DC also needs its connection, which the slow path makes.
    if (datagram && (d.remote_qpn != rq.peer_qpn || d.ah->attr.dlid != rq.peer_dlid || total > rq.mtu)) return false;
    if (dc && !(d.ah && rq.dc_stands(d))) return false;
    if (peer.qpn.load(std::memory_order_acquire) != rq.peer_qpn ||
        rec.state.load(std::memory_order_relaxed) != IBV_QPS_RTS)
        return false;
    if (total > kMaxMessage || check_local(qp, d)) return false;
    Request r;
    r.opcode = d.opcode;
    r.first = r.last = r.ack_request = true;
    r.reliable = qp.kind == QpKind::rc || dc;
    r.psn = rq.next_psn;
    r.mtu = rq.mtu;
    const bool atomic = d.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || d.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    r.packets = atomic || total <= rq.mtu ? 1 : packets_of(total, rq.mtu);
    r.flags = d.flags;
    r.offset = 0;
    r.bytes = r.total = total;
    r.remote_addr = d.remote_addr;
    r.compare_add = d.compare_add;
    r.swap = d.swap;
    r.rkey = d.rkey;
    r.imm = d.imm;
    r.src_qpn = rq.source_qpn;
    r.dst_qpn = rq.peer_qpn;
    // The clock is read for who is told the time: adapters have theirs for nothing.
    const bool signaled = (d.flags & IBV_SEND_SIGNALED) || qp.sq_sig_all;
    r.when = (signaled && qp.send_cq->rec->wants_time) || seg().cq(peer.recv_cq).wants_time ? now() : 0;
    r.data.sge = d.sge;
    r.data.sges = d.sges;
    const bool is_read = d.opcode == IBV_WR_RDMA_READ;
    if (datagram) {
        r.qkey = d.remote_qkey & 0x80000000u ? rec.qkey : d.remote_qkey;
        r.with_grh = d.ah->attr.is_global;
        r.slid =
            static_cast<uint16_t>(seg().port(rec.port).lid.load(std::memory_order_relaxed) + d.ah->attr.src_path_bits);
        r.sl = d.ah->attr.sl;
        r.path_bits = static_cast<uint8_t>(d.ah->attr.dlid & ((1u << seg().img().port(rec.port).lmc) - 1));
        if (!deliver_datagram(*this, peer, r)) [[unlikely]]
            return false;
        rq.next_psn = psn_add(rq.next_psn, 1);
    } else {
        if (is_read) r.packets = 1; // one request; its responses take the sequence numbers
        if (dc) r.slid = static_cast<uint16_t>(seg().port(rec.port).lid.load(std::memory_order_relaxed) + rq.peer_bits);
        const Reply reply = respond(*this, peer, dc ? rec.responder : peer.responder, r);
        switch (reply.kind) {
        case ReplyKind::ack:
            break;
        case ReplyKind::atomic:
            // Not stored: asked again, which gets the saved result.
            if (!r.data.scatter(reinterpret_cast<const char*>(&reply.value), sizeof reply.value)) return false;
            break;
        case ReplyKind::read: {
            if (total == 0) break;
            std::atomic<uint32_t>* cell;
            MrRec* mr = check_remote(process_, d.rkey, d.remote_addr, total, IBV_ACCESS_REMOTE_READ, peer.pd,
                                     peer.device, cell);
            if (!mr) return false; // gone since the check: asked again as a duplicate, and refused there
            iovec v[kMaxSge];
            const unsigned n = r.data.pieces(0, total, v);
            const CopyResult result =
                process_.read_from(mr->owner, mr->addr + (d.remote_addr - mr->iova), {v, n}, total);
            Process::clear_mr(cell);
            if (result != CopyResult::ok) return false;
            break;
        }
        case ReplyKind::none:
            if (qp.kind == QpKind::uc) break; // nobody says anything
            return false;
        case ReplyKind::rnr:
        case ReplyKind::local_fault:
            return false;
        default:
            rq.refused = reply;
            return false;
        }
        rq.next_psn = psn_add(rq.next_psn, is_read ? packets_of(total, rq.mtu) : r.packets);
    }
    rec.sq_psn.store(rq.next_psn, std::memory_order_relaxed);
    if (signaled) rq.push_completion(d.wr_id, static_cast<uint8_t>(d.opcode), total, IBV_WC_SUCCESS, r.when);
    return true;
}

int Engine::post_slow(Qp& qp, const SendDesc& d, uint64_t total) {
    std::lock_guard guard(mutex);
    Requester& rq = *qp.requester;
    {
        std::lock_guard sq(qp.sq_lock);
        rq.slow = true; // from here on the send queue is ours
    }
    const Nanos t = now();
    const uint32_t state = qp.rec->state.load();
    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
        if (rq.outstanding() == 0) {
            const uint8_t opcode = d.flags & kRaw ? kWait : static_cast<uint8_t>(d.opcode);
            rq.push_completion(d.wr_id, opcode, 0, IBV_WC_WR_FLUSH_ERR, t);
            return 0;
        }
    }
    uint8_t bad = d.bad ? d.bad : check_local(qp, d);
    if (total > kMaxMessage || (qp.kind == QpKind::ud && total > rq.mtu)) bad = IBV_WC_LOC_LEN_ERR;
    if (rq.idle() && !bad) {
        const bool addressed = qp.kind == QpKind::ud || qp.kind == QpKind::dci;
        if (!addressed || d.ah)
            rq.refresh_path(addressed ? d.ah->attr.dlid : qp.rec->path.dlid,
                            addressed ? d.remote_qpn : qp.rec->dest_qpn,
                            addressed ? d.ah->attr.src_path_bits : qp.rec->path.path_bits);
    }
    const uint32_t device = qp.rec->device;
    const Nanos copied = host && (d.flags & IBV_SEND_INLINE) != 0 ? host->copy(total) : 0;
    const Nanos posted = host ? host->spend(qp.processor, device, host->costs.post + copied, t) : t;
    const int result = rq.enqueue(d, total, bad, posted, t);
    run_due(t);
    kick();
    return result;
}

uint32_t Engine::send_room(Qp& qp) {
    std::lock_guard guard(mutex);
    const uint32_t used = qp.requester->outstanding();
    return used < qp.caps.max_send_wr ? qp.caps.max_send_wr - used : 0;
}

int Engine::post_recv(RecvQ& q, const ibv_recv_wr& wr, uint32_t device, uint32_t pd) {
    if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > q.max_sge) return EINVAL;
    Segment& seg = process_.seg();
    std::lock_guard guard(q.lock);
    if (q.free.empty()) return ENOMEM;
    const uint32_t index = q.free.back();
    q.free.pop_back();
    RecvWqe& w = *q.wqe(index);
    w.wr_id = wr.wr_id;
    w.sges = static_cast<uint32_t>(wr.num_sge);
    uint64_t total = 0, covered = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
        const ibv_sge& s = wr.sg_list[i];
        w.sge()[i] = {s.addr, s.length, s.lkey};
        total += s.length;
        if (s.length == 0) continue;
        const MrRec& mr = seg.mr(s.lkey >> 8 & (kMaxMrs - 1));
        // Only what a message fills is looked at, as real adapters do: a receive may be longer than its region.
        if (covered == total - s.length && mr.key.load(std::memory_order_relaxed) == s.lkey && s.lkey != 0 &&
            mr.pd == pd && mr.device == device && (mr.access & IBV_ACCESS_LOCAL_WRITE) && s.addr >= mr.iova &&
            s.addr - mr.iova < mr.length)
            covered += std::min<uint64_t>(s.length, mr.length - (s.addr - mr.iova));
    }
    w.total = static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX)); // no message is longer
    w.covered = static_cast<uint32_t>(std::min<uint64_t>(covered, UINT32_MAX));
    if (w.covered < q.rec->min_length.load(std::memory_order_relaxed))
        q.rec->min_length.store(w.covered, std::memory_order_relaxed);
    q.ring[q.tail & q.rec->mask] = index;
    q.rec->tail.store(++q.tail, std::memory_order_release);
    return 0;
}

} // namespace softhca
