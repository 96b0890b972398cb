// Queue pair set-up, transitions and teardown as far as peers and the send queue see them.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/reap.h"
#include "engine/engine.h"
#include "engine/placement.h"
#include "engine/receives.h"
#include "engine/requester.h"

namespace softhca {

namespace {

// The address vector in the terms of the fabric image.
PathRec path_of(Segment& seg, const QpRec& rec, const ibv_ah_attr& av, uint8_t port_num) {
    const DeviceImage& d = seg.img().device(rec.device);
    PathRec p{};
    p.src_port = d.first_port + std::clamp<uint32_t>(port_num, 1, d.ports) - 1;
    p.path_bits = av.src_path_bits;
    p.slid = static_cast<uint16_t>(seg.port(p.src_port).lid.load() + av.src_path_bits);
    p.dlid = av.dlid;
    p.sl = av.sl;
    p.is_global = av.is_global;
    p.valid = 1;
    return p;
}

// The SRQ entry that a half received message holds is free again; a DC initiator's goes back to its target. rec.lock
// held, `qp` ours.
void release_held_receive(Segment& seg, Qp& qp) {
    if (!qp.rec->responder.in_recv) return;
    if (qp.kind == QpKind::dci) return (void)return_held_receive(seg, qp.rec->responder);
    if (!qp.srq) return;
    std::lock_guard lock(qp.srq->queue.lock);
    qp.srq->queue.free.push_back(static_cast<uint32_t>(qp.rec->responder.recv_entry));
}

} // namespace

void Engine::init_qp(Qp& qp) {
    std::lock_guard guard(mutex);
    qp.requester = new Requester(*this, qp);
    qp.requester->position = qps.size();
    qps.push_back(&qp);
    if (DeviceState& device = seg().device(qp.rec->device); device.deaths == qp.rec->life) device.qps.fetch_add(1);
}

int Engine::apply_modify(Qp& qp, const ibv_qp_attr& a, int mask, ibv_qp_state from, ibv_qp_state to) {
    std::lock_guard guard(mutex);
    Segment& s = seg();
    QpRec& rec = *qp.rec;
    Requester& rq = *qp.requester;
    ibv_qp_attr& kept = qp.attr;

    if (to == IBV_QPS_RESET) {
        (void)rec.lock.acquire();
        rec.state.store(IBV_QPS_RESET); // from here on nobody completes anything
        release_held_receive(s, qp);
        // The target's context of a DC initiator is not the initiator's to forget: packets that are still on their way
        // meet the old one until there is a new one.
        const uint32_t expected_psn = rec.kind == QpKind::dci ? rec.responder.expected_psn : 0;
        rec.responder = {};
        rec.responder.expected_psn = expected_psn;
        if (rec.path.pkey_index != 0) s.fabric.generation.fetch_add(1);
        rec.path = rec.alt = {};
        rec.mig_refused = 0;
        rec.mig_state.store(IBV_MIG_MIGRATED);
        rec.lock.release();
        settle_writes(*this, rec.qpn.load());
        {
            std::lock_guard sq(qp.sq_lock);
            rq.reset();
        }
        const SoleUse use(qp.send_cq, qp.recv_cq);
        clean_cq(*qp.send_cq, rec.qpn.load());
        if (qp.recv_cq != qp.send_cq) clean_cq(*qp.recv_cq, rec.qpn.load());
        // Receives that were posted are forgotten without completions (10.3.1); those half filled as well. Not before
        // their completions: whoever polls one gives its entry back.
        if (!rec.is_srq) {
            RecvQueue& q = s.rq(rec.recv_queue);
            std::lock_guard lock(qp.rq.lock);
            qp.rq.free.clear();
            for (uint32_t i = 0; i < q.entries; ++i) qp.rq.free.push_back(q.entries - 1 - i);
            q.head.store(q.tail.load());
            q.seen_tail = q.tail.load();
        }
        kept = {};
        kept.qp_state = IBV_QPS_RESET;
        qp.qp.state = IBV_QPS_RESET;
        return 0;
    }
    if (to == IBV_QPS_ERR) {
        kept.qp_state = IBV_QPS_ERR;
        enter_error(qp);
        settle_writes(*this, rec.qpn.load());
        run_due(now());
        kick();
        return 0;
    }

    (void)rec.lock.acquire();
    if (rec.state.load() != static_cast<uint32_t>(from)) { // a peer has failed it since the caller looked: it stays so
        rec.lock.release();
        return EINVAL;
    }
    if (mask & IBV_QP_PORT) {
        kept.port_num = a.port_num;
        rec.port = s.img().device(rec.device).first_port + a.port_num - 1;
    }
    if (mask & IBV_QP_PKEY_INDEX) {
        kept.pkey_index = a.pkey_index;
        const auto before = std::exchange(rec.path.pkey_index, static_cast<uint8_t>(a.pkey_index));
        if (before != rec.path.pkey_index)
            s.fabric.generation.fetch_add(1); // who sends here by the fast path looks again
    }
    if (mask & IBV_QP_QKEY) rec.qkey = kept.qkey = a.qkey;
    if (mask & IBV_QP_ACCESS_FLAGS) rec.access = kept.qp_access_flags = a.qp_access_flags;
    if (mask & IBV_QP_PATH_MTU) {
        kept.path_mtu = a.path_mtu;
        rec.mtu = static_cast<uint8_t>(a.path_mtu);
    }
    if (mask & IBV_QP_AV) {
        kept.ah_attr = a.ah_attr;
        if (rec.kind != QpKind::dci && rec.kind != QpKind::dct) {
            const uint8_t timeout = rec.path.timeout, pkey_index = rec.path.pkey_index;
            rec.path = path_of(s, rec, a.ah_attr, a.ah_attr.port_num ? a.ah_attr.port_num : kept.port_num);
            rec.path.timeout = timeout;
            rec.path.pkey_index = pkey_index;
            rec.port = rec.path.src_port;
        }
    }
    if (mask & IBV_QP_ALT_PATH) {
        kept.alt_ah_attr = a.alt_ah_attr;
        kept.alt_port_num = a.alt_port_num;
        kept.alt_timeout = a.alt_timeout;
        kept.alt_pkey_index = a.alt_pkey_index;
        rec.alt = path_of(s, rec, a.alt_ah_attr, a.alt_port_num);
        rec.alt.timeout = a.alt_timeout;
        rec.alt.pkey_index = static_cast<uint8_t>(a.alt_pkey_index);
    }
    if (mask & (IBV_QP_AV | IBV_QP_ALT_PATH)) rec.mig_refused = 0;
    if (mask & IBV_QP_DEST_QPN) rec.dest_qpn = kept.dest_qp_num = a.dest_qp_num;
    if (mask & IBV_QP_RQ_PSN) {
        kept.rq_psn = a.rq_psn & 0xffffff;
        rec.responder = {};
        rec.responder.expected_psn = kept.rq_psn;
    }
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) rec.max_dest_rd_atomic = kept.max_dest_rd_atomic = a.max_dest_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER) rec.rnr_timer = kept.min_rnr_timer = a.min_rnr_timer;
    if (mask & IBV_QP_SQ_PSN) {
        kept.sq_psn = a.sq_psn & 0xffffff;
        std::lock_guard sq(qp.sq_lock);
        rq.next_psn = kept.sq_psn;
        rec.sq_psn.store(kept.sq_psn);
    }
    if (mask & IBV_QP_TIMEOUT) kept.timeout = rec.path.timeout = a.timeout;
    if (mask & IBV_QP_RETRY_CNT) kept.retry_cnt = a.retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) kept.rnr_retry = a.rnr_retry;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) kept.max_rd_atomic = a.max_rd_atomic;
    bool migrate = false;
    if (mask & IBV_QP_PATH_MIG_STATE) {
        migrate = a.path_mig_state == IBV_MIG_MIGRATED && rec.mig_state.load() == IBV_MIG_ARMED;
        if (a.path_mig_state == IBV_MIG_REARM)
            rec.mig_state.store(IBV_MIG_REARM);
        else if (!migrate)
            rec.mig_state.store(IBV_MIG_MIGRATED);
    }
    rec.state.store(to, std::memory_order_release);
    rec.lock.release();

    kept.qp_state = to;
    qp.qp.state = to;
    {
        std::lock_guard sq(qp.sq_lock);
        if (to == IBV_QPS_RTS || to == IBV_QPS_SQD) rq.connected();
    }
    if (migrate) (void)rq.migrate(IBV_EVENT_PATH_MIG);
    if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) {
        {
            std::lock_guard sq(qp.sq_lock);
            rq.slow = true;
        }
        rq.drain(true, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && a.en_sqd_async_notify);
    }
    if (to == IBV_QPS_RTS && (from == IBV_QPS_SQD || from == IBV_QPS_SQE)) rq.drain(false);
    run_due(now());
    kick();
    return 0;
}

void Engine::fill_query(Qp& qp, ibv_qp_attr& out) {
    std::lock_guard guard(mutex);
    QpRec& rec = *qp.rec;
    out = qp.attr;
    (void)rec.lock.acquire();
    out.qp_state = out.cur_qp_state = static_cast<ibv_qp_state>(rec.state.load());
    out.sq_psn = rec.sq_psn.load();
    out.rq_psn = rec.kind == QpKind::dci ? 0 : rec.responder.expected_psn;
    out.path_mig_state = static_cast<ibv_mig_state>(rec.mig_state.load());
    out.sq_draining = out.qp_state == IBV_QPS_SQD && qp.requester->draining();
    if (rec.path.valid && rec.port != kNone) { // after a migration the alternate path is the path
        out.ah_attr.dlid = rec.path.dlid;
        out.ah_attr.src_path_bits = rec.path.path_bits;
        out.ah_attr.sl = rec.path.sl;
        out.timeout = rec.path.timeout;
        out.pkey_index = rec.path.pkey_index;
        out.port_num = out.ah_attr.port_num = static_cast<uint8_t>(seg().img().port(rec.port).number);
    }
    rec.lock.release();
}

void Engine::enter_error(Qp& qp) {
    QpRec& rec = *qp.rec;
    (void)rec.lock.acquire();
    const bool fresh = rec.state.exchange(IBV_QPS_ERR) != IBV_QPS_ERR;
    if (rec.kind != QpKind::dct && rec.kind != QpKind::dci && (fresh || !rec.is_srq)) flush_receives(seg(), rec);
    rec.lock.release();
    qp.qp.state = IBV_QPS_ERR;
    {
        std::lock_guard sq(qp.sq_lock);
        qp.requester->slow = true;
    }
    qp.requester->flush(IBV_WC_WR_FLUSH_ERR);
}

void Engine::flush_posted(Qp& qp) {
    (void)qp.rec->lock.acquire();
    if (qp.rec->state.load() == IBV_QPS_ERR && !qp.rec->is_srq && qp.kind != QpKind::dci)
        flush_receives(seg(), *qp.rec);
    qp.rec->lock.release();
}

// Completions of a QP that is gone must not reach the program any more (as hardware drivers clean their CQs).
void Engine::clean_cq(Cq& cq, uint32_t qpn) {
    std::unique_lock poll(cq.poll_lock, std::defer_lock);
    if (!cq.single_threaded) poll.lock(); // else the caller's SoleUse
    lock_cq(seg(), *cq.rec);
    for (uint64_t at = cq.head;; ++at) {
        Cqe& e = cq.entries[at & cq.mask];
        if (e.seq.load() != static_cast<uint32_t>(at + 1)) break;
        if (e.qpn != qpn || e.kind == CqeKind::dead) continue;
        if (e.kind == CqeKind::recv && e.queue) {
            RecvQ& q = *reinterpret_cast<RecvQ*>(e.queue);
            if (q.rec->is_srq) {
                std::lock_guard lock(q.lock);
                q.free.push_back(static_cast<uint32_t>(e.wr));
            }
        }
        e.kind = CqeKind::dead;
        e.queue = 0;
    }
    cq.rec->lock.release();
}

void Engine::destroy_qp(Qp& qp) {
    std::lock_guard guard(mutex);
    QpRec& rec = *qp.rec;
    const uint32_t qpn = rec.qpn.load();
    (void)rec.lock.acquire();
    rec.qpn.store(0);
    rec.state.store(IBV_QPS_RESET);
    rec.kind = QpKind::none;
    release_held_receive(seg(), qp);
    rec.responder = {};
    rec.lock.release();
    settle_writes(*this, qpn);
    if (qp.requester) {
        forget_qp(qp);
        qp.requester->retire();
    }
    qp.requester = nullptr;
    if (qp.send_cq) clean_cq(*qp.send_cq, qpn);
    if (qp.recv_cq && qp.recv_cq != qp.send_cq) clean_cq(*qp.recv_cq, qpn);
    if (DeviceState& device = seg().device(rec.device); device.deaths == rec.life) device.qps.fetch_sub(1);
    run_due(now());
    kick();
}

void Engine::destroy_qps_of(const ibv_context* context) {
    std::lock_guard guard(mutex);
    const std::vector<Qp*> all = qps;
    for (Qp* qp : all)
        if (qp && qp->qp.context == context) destroy_qp(*qp);
}

} // namespace softhca
