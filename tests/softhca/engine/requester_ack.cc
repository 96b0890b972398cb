// What comes back to a requester: acknowledgments, NAKs, read data, timeouts (IB 9.7.5.2, 9.7.6, 9.9.2), and how a send
// queue ends: flush, reset, migration.
#include <algorithm>
#include <cstring>

#include "engine/placement.h"
#include "engine/receives.h"
#include "engine/requester.h"
#include "engine/waits.h"

namespace softhca {

void Requester::handle_reply(const Reply& reply, Nanos when, uint64_t pos) {
    if (!sending()) return;
    const uint32_t before = psn_add(reply.psn, 0xffffff);
    switch (reply.kind) {
    case ReplyKind::ack:
        acknowledge(reply.psn, when);
        return;
    case ReplyKind::atomic: {
        if (pos < head_ || pos >= tail_) return;
        SendWqe& w = wqe(pos);
        if (!w.assigned || w.done || w.first_psn != reply.psn) return;
        uint64_t value = reply.value;
        if (!data_of(w).scatter(reinterpret_cast<const char*>(&value), sizeof value)) return stop_at(pos, when);
        w.done = 1;
        progressed(when);
        if (psn_diff(reply.psn, una_psn_) >= 0)
            acknowledge(reply.psn, when);
        else
            complete_done(when); // a repeated request before it was acknowledged with everything executed so far
        wake(when);
        return;
    }
    default:
        break;
    }
    if (psn_diff(reply.psn, una_psn_) < 0 || psn_diff(reply.psn, next_psn) >= 0) return; // stale
    if (psn_diff(reply.psn, una_psn_) > 0) acknowledge(before, when); // a NAK acknowledges what is before it
    switch (reply.kind) {
    case ReplyKind::nak_sequence:
        retry(when, reply.psn);
        break;
    case ReplyKind::rnr:
        if (rnr_left_ == 0) return fail(IBV_WC_RNR_RETRY_EXC_ERR, when);
        if (rnr_left_ < 7) --rnr_left_;
        rewind(reply.psn);
        paused_until_ = when + rnr_delay(reply.rnr_timer);
        timer_base_ = paused_until_;
        wake_at(paused_until_);
        break;
    case ReplyKind::nak_invalid:
        fail(IBV_WC_REM_INV_REQ_ERR, when);
        break;
    case ReplyKind::nak_access:
        fail(IBV_WC_REM_ACCESS_ERR, when);
        break;
    case ReplyKind::nak_operation:
        fail(IBV_WC_REM_OP_ERR, when);
        break;
    default:
        break;
    }
}

void Requester::progressed(Nanos when) {
    timer_base_ = std::max(timer_base_, when);
    retries_left_ = qp_.attr.retry_cnt;
    rnr_left_ = qp_.attr.rnr_retry;
}

void Requester::acknowledge(uint32_t psn, Nanos when) {
    if (psn_diff(psn, una_psn_) < 0 || psn_diff(psn, next_psn) >= 0) return;
    una_psn_ = psn_add(psn, 1);
    progressed(when);
    complete_done(when);
    wake(when);
}

void Requester::complete_done(Nanos when) {
    const bool acked_by_psn = rec_.kind == QpKind::rc || rec_.kind == QpKind::dci;
    while (head_ < tail_) {
        SendWqe& w = wqe(head_);
        if (!w.assigned) break;
        if (reads(w.opcode) || !acked_by_psn) {
            if (!w.done) break;
            if (reads_out_) --reads_out_;
        } else if (w.opcode == kWait) { // over, as it is assigned
        } else if (psn_diff(psn_add(w.first_psn, w.packets - 1), una_psn_) >= 0) {
            break;
        }
        complete_head(IBV_WC_SUCCESS, when);
    }
    if (next_ < head_) { // acknowledged while it was being sent again
        next_ = head_;
        next_offset_ = 0;
    }
    if (dc_holds_ && head_ == tail_) dc_idle(when);
    if (drained_event_ && !started()) {
        drained_event_ = false;
        raise_object_event(engine_.seg(), rec_.async_channel, IBV_EVENT_SQ_DRAINED, rec_.user);
    }
}

void Requester::complete_head(ibv_wc_status status, Nanos when) {
    SendWqe& w = wqe(head_);
    const bool raw = (w.flags & kRaw) != 0;
    if ((qp_.sq_sig_all && !raw) || (w.flags & IBV_SEND_SIGNALED) || status != IBV_WC_SUCCESS)
        push_completion(w.wr_id, raw ? kWait : w.opcode, w.total, status, when);
    forget_early(w);
    ++head_;
}

// Go-back-N: transmission continues at `psn`.
void Requester::rewind(uint32_t psn) {
    cancel_reads();
    reads_out_ = 0; // but for what has its answer and waits for the one of a request before it
    for (uint64_t pos = head_; pos < tail_ && wqe(pos).assigned; ++pos)
        reads_out_ += reads(wqe(pos).opcode) && wqe(pos).done;
    next_offset_ = 0;
    for (next_ = head_; next_ < tail_; ++next_) {
        SendWqe& w = wqe(next_);
        if (!w.assigned) return;
        if (w.opcode == kWait) continue;
        const int32_t into = psn_diff(psn, w.first_psn);
        const bool incomplete_read = reads(w.opcode) && !w.done;
        if (incomplete_read) return; // a read is asked for again from where its data ends
        if (into >= static_cast<int32_t>(w.packets) || (reads(w.opcode) && w.done)) continue;
        next_offset_ = into > 0 ? static_cast<uint64_t>(into) * mtu : 0;
        return;
    }
}

void Requester::retry(Nanos when, uint32_t from_psn) {
    if (retries_left_ == 0) {
        if (!migrate(IBV_EVENT_PATH_MIG)) return fail(IBV_WC_RETRY_EXC_ERR, when);
        retries_left_ = qp_.attr.retry_cnt;
    } else {
        --retries_left_;
    }
    rewind(from_psn);
    timer_base_ = when;
    wake(when);
}

void Requester::arm_timer(Nanos now) {
    if (timer_on_ || retry_period() == 0) return;
    timer_on_ = true;
    ++refs_;
    engine_.scheduler().at(
        std::max(now, timer_base_ + retry_period()),
        [](void* self, uint64_t, Nanos t) { static_cast<Requester*>(self)->on_timer(t); }, this);
}

void Requester::on_timer(Nanos when) {
    --refs_;
    timer_on_ = false;
    if (dead_ || !sending() || head_ == next_) {
        // Nothing handed out is waiting for an answer - unless all of it has been rewound behind a pause.
        if (!dead_ && sending() && head_ < tail_ && wqe(head_).assigned) {
            timer_base_ = std::max(when, paused_until_); // it runs from when they leave again
            arm_timer(when);
        }
        return;
    }
    const Nanos period = retry_period(); // not always that of when the timer was set
    if (period != 0 && when >= std::max(timer_base_, paused_until_) + period) {
        retry(when, una_psn_);
        if (!sending() || head_ == tail_) return;
    }
    arm_timer(when);
}

void Requester::stop_at(uint64_t pos, Nanos when) {
    SendWqe& w = wqe(pos);
    w.bad = IBV_WC_LOC_PROT_ERR;
    rewind(w.first_psn);
    if (head_ == pos) return fail(IBV_WC_LOC_PROT_ERR, when);
    wake(when);
}

// IB 9.9.2: the oldest request fails with `status`, the QP goes to ERR, everything else is flushed.
void Requester::fail(ibv_wc_status status, Nanos when) {
    (void)when;
    refused = {};
    (void)rec_.lock.acquire();
    const bool was_live = rec_.state.load() != IBV_QPS_ERR;
    if (was_live) {
        // UD and UC requesters stop sending only (SQE); reliable ones stop altogether.
        const bool sqe = rec_.kind == QpKind::ud || rec_.kind == QpKind::uc;
        rec_.state.store(sqe ? IBV_QPS_SQE : IBV_QPS_ERR);
        if (!sqe && rec_.kind != QpKind::dci) flush_receives(engine_.seg(), rec_);
    }
    rec_.lock.release();
    flush(status);
}

void Requester::flush(ibv_wc_status first) {
    if (stands_) engine_.waits().leave(*this, engine_.now());
    orphan_flights();
    const Nanos now = engine_.now();
    ibv_wc_status status = first;
    while (head_ < tail_) {
        complete_head(status, now);
        status = IBV_WC_WR_FLUSH_ERR;
    }
    next_ = head_;
    next_offset_ = 0;
    reads_out_ = 0;
    paused_until_ = 0;
    cancel_reads();
    dc_release();
    ++era_;
    std::lock_guard guard(qp_.sq_lock);
    slow = true;
}

void Requester::reset() {
    if (stands_) engine_.waits().leave(*this, engine_.now());
    orphan_flights();
    for (uint64_t pos = head_; pos < tail_; ++pos) forget_early(wqe(pos));
    ++era_;
    head_ = next_ = tail_ = 0;
    next_offset_ = 0;
    reads_out_ = chunks_since_ack_ = 0;
    paused_until_ = 0;
    draining_ = drained_event_ = false;
    refused = {};
    cancel_reads();
    dc_release();
    fast_ok = false;
    slow = false;
    ring_.reset();
    ring_size_ = 0;
}

void Requester::connected() {
    const ibv_qp_attr& a = qp_.attr;
    source_port = rec_.port;
    source_qpn = rec_.qpn.load();
    const PortImage& port = engine_.seg().img().port(rec_.port);
    const bool datagram = rec_.kind == QpKind::ud;
    mtu = mtu_bytes(datagram || a.path_mtu == 0 ? port.mtu : static_cast<uint8_t>(a.path_mtu));
    retries_left_ = a.retry_cnt;
    rnr_left_ = a.rnr_retry;
    generation = engine_.seg().fabric.generation.load() - 1; // look the path up with the next request
    fast_ok = false;
}

void Requester::drain(bool on, bool notify) {
    draining_ = on;
    drained_event_ = on && notify;
    if (on)
        complete_done(engine_.now());
    else
        wake(engine_.now());
}

void Requester::read_arrived(uint64_t pos, const Chunk& c, QpRec*, uint32_t target_qpn) {
    if (pos < head_ || pos >= tail_ || !sending()) return;
    SendWqe& w = wqe(pos);
    if (!w.assigned || w.done || c.offset > w.received) {
        // A response before it is missing: ask again from there (9.7.5.1.4: out of sequence response).
        if (w.assigned && !w.done && c.offset > w.received && next_ > pos) retry(c.arrived, una_psn_);
        return;
    }
    if (c.offset < w.received && c.offset + c.payload <= w.received && w.total) return; // already here
    // Packets of this chunk up to the first lost one.
    uint64_t good = c.payload;
    for (uint32_t i = 0; i < c.packets && i < 64; ++i)
        if (c.lost >> i & 1) {
            good = std::min<uint64_t>(good, static_cast<uint64_t>(i) * mtu);
            if (w.total == 0) return; // the only packet
            break;
        }
    if (good && carries_payload(engine_.seg(), w.total)) {
        Process& p = engine_.process();
        QpRec& t = engine_.seg().qp(target_qpn & (kMaxQps - 1));
        std::atomic<uint32_t>* cell;
        MrRec* mr =
            check_remote(p, w.rkey, w.remote_addr + c.offset, good, IBV_ACCESS_REMOTE_READ, t.pd, t.device, cell);
        // Who has left the queue pair, or died, does not answer: the timer decides. Looked at behind the key, which
        // goes after the queue pair when a process dies.
        if (t.qpn.load() != target_qpn || !receives(t.state.load())) {
            if (mr) Process::clear_mr(cell);
            return;
        }
        if (!mr) return fail(IBV_WC_REM_ACCESS_ERR, c.arrived);
        drain_placements(engine_, t.device, target_qpn, rec_.qpn.load());
        iovec v[kMaxSge];
        const unsigned n = data_of(w).pieces(c.offset, good, v);
        const CopyResult result =
            p.read_from(mr->owner, mr->addr + (w.remote_addr + c.offset - mr->iova), {v, n}, good);
        Process::clear_mr(cell);
        if (result == CopyResult::dead) return; // no answer: the timer decides
        if (result == CopyResult::local_fault) return stop_at(pos, c.arrived);
        if (result == CopyResult::fault) {
            (void)t.lock.acquire();
            if (t.qpn.load() == target_qpn) fail_target(engine_.seg(), t, IBV_EVENT_QP_FATAL);
            t.lock.release();
            return fail(IBV_WC_REM_OP_ERR, c.arrived);
        }
    }
    w.received = std::max(w.received, c.offset + good);
    progressed(c.arrived);
    if (w.received < w.total) {
        if (good < c.payload && next_ > pos) retry(c.arrived, una_psn_);
        return;
    }
    w.done = 1;
    const uint32_t last = psn_add(w.first_psn, w.packets - 1);
    if (psn_diff(last, una_psn_) >= 0)
        acknowledge(last, c.arrived);
    else
        complete_done(c.arrived);
    wake(c.arrived);
}

// Re-computes what depends on routes and states after FabricState::generation moved.
void Requester::note_fabric_change(Nanos now) {
    Segment& seg = engine_.seg();
    {
        std::lock_guard guard(qp_.sq_lock);
        fast_ok = false;
    }
    if (seg.device(rec_.device).deaths.load() != rec_.life && rec_.state.load() != IBV_QPS_ERR &&
        rec_.state.load() > IBV_QPS_INIT)
        return engine_.enter_error(qp_);
    if (rec_.state.load() == IBV_QPS_ERR) { // a peer's request failed this QP: its own sends are flushed by us
        if (head_ < tail_) flush(IBV_WC_WR_FLUSH_ERR);
        engine_.flush_posted(qp_); // the peer may have been killed before it was through
        return;
    }
    wake(now);
}

void Requester::refresh_path(uint16_t dlid, uint32_t qpn, uint8_t path_bits) {
    Segment& seg = engine_.seg();
    generation = seg.fabric.generation.load(std::memory_order_acquire);
    fast_ok = false;
    peer = nullptr;
    if (engine_.modelled() || engine_.process().virtual_time() || seg.fabric.disturbed.load() != 0 ||
        !engine_.placements.empty() || rec_.state.load() != IBV_QPS_RTS || rec_.mig_state.load() == IBV_MIG_REARM)
        return;
    const Network::Route& there = engine_.network().route(rec_.port, dlid);
    if (!there.ok) return;
    SendWqe probe{};
    probe.remote_qpn = qpn;
    QpRec* t = find_peer(probe, there.dst_port);
    if (!t) return;
    const DeviceState& theirs = seg.device(t->device);
    if (theirs.place_delay_ns.load() != 0 || theirs.place_delay_qp_ns.load() != 0 || theirs.lack(Lack::write_order))
        return;
    // What a datagram's sender has for path bits does not matter: nothing comes back.
    if (rec_.kind != QpKind::ud && !engine_.network().route(there.dst_port, source_lid(path_bits)).ok) return;
    peer = t;
    peer_qpn = qpn;
    peer_dlid = dlid;
    peer_bits = path_bits;
    fast_ok = true;
}

// ---- automatic path migration (IB 17.2.8)
// ----------------------------------------------------------------------------

bool Requester::migrate(ibv_event_type cause) {
    (void)rec_.lock.acquire();
    const bool armed = rec_.mig_state.load() == IBV_MIG_ARMED && rec_.alt.valid;
    if (armed) {
        rec_.path = rec_.alt;
        rec_.alt.valid = 0;
        rec_.port = rec_.path.src_port;
        rec_.mig_state.store(IBV_MIG_MIGRATED);
    }
    rec_.lock.release();
    if (!armed) return false;
    raise_object_event(engine_.seg(), rec_.async_channel, cause, rec_.user);
    return true;
}

// Both ends look at each other's migration state with every request: the bits that BTH.MigReq carries.
void Requester::apm_exchange(QpRec& target) {
    const uint32_t mine = rec_.mig_state.load(std::memory_order_relaxed);
    const uint32_t theirs = target.mig_state.load(std::memory_order_relaxed);
    if (mine == theirs && mine != IBV_MIG_REARM) return;
    Segment& seg = engine_.seg();
    if (mine == IBV_MIG_REARM && theirs == IBV_MIG_REARM) {
        for (QpRec* qp : {&rec_, &target}) { // unless its owner has just decided otherwise
            uint32_t rearm = IBV_MIG_REARM;
            qp->mig_state.compare_exchange_strong(rearm, IBV_MIG_ARMED);
        }
        return;
    }
    if (mine != IBV_MIG_MIGRATED || rec_.port == kNone) return;
    // We send with MigReq. If the request came to the other end's alternate path, it follows.
    (void)target.lock.acquire();
    const bool on_alternate = target.alt.valid && seg.img().port_of_lid(seg.img().port(target.alt.src_port).subnet,
                                                                        target.alt.dlid) == rec_.port;
    const bool on_primary =
        seg.img().port_of_lid(seg.img().port(target.path.src_port).subnet, target.path.dlid) == rec_.port &&
        target.path.src_port == target.port;
    const bool same = on_alternate && on_primary && target.alt.dlid == target.path.dlid;
    ibv_event_type event{};
    bool raise = false;
    if (theirs == IBV_MIG_ARMED && on_alternate && !same) {
        target.path = target.alt;
        target.alt.valid = 0;
        target.port = target.path.src_port;
        target.mig_state.store(IBV_MIG_MIGRATED);
        event = IBV_EVENT_PATH_MIG;
        raise = true;
    } else if (!on_primary && !on_alternate && target.mig_refused != rec_.port + 1) {
        event = IBV_EVENT_PATH_MIG_ERR; // asked to go where no path was loaded
        raise = true;
        target.mig_refused = rec_.port + 1;
    }
    target.lock.release();
    if (raise) raise_object_event(seg, target.async_channel, event, target.user);
}

} // namespace softhca
