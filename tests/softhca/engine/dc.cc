// Dynamically connected transport, initiator side: one target at a time. Going to another target waits for the last
// acknowledgment, disconnects, and connects (a request packet that takes a context at the DCT or is refused as busy).
// The responder context that a DCT would keep for this initiator lives in the DCI's own record (Responder).
#include <algorithm>

#include "core/reap.h"
#include "engine/requester.h"

namespace softhca {

namespace {
constexpr uint32_t kRequestBytes = 28; // to connect, and to disconnect
} // namespace

bool Requester::dc_ready(SendWqe& w, Nanos now) {
    const bool same = dc_qpn_ == w.remote_qpn && dc_dlid_ == w.dlid && dc_key_ == w.dc_key;
    if (dc_ == Dc::connected && same) return true;
    if (dc_ == Dc::connecting || head_ != next_) return false;
    const AdapterLimits& limits = engine_.seg().img().device(rec_.device).limits;
    const Nanos leave = dc_ == Dc::connected ? limits.dc_disconnect_ns : 0;
    dc_leave(now);
    dc_ = Dc::connecting;
    dc_qpn_ = w.remote_qpn;
    dc_dlid_ = w.dlid;
    dc_key_ = w.dc_key;
    const Nanos cost = engine_.modelled() ? leave + limits.dc_connect_ns : 0;
    if (cost == 0) {
        dc_attempt(now);
        return dc_ == Dc::connected;
    }
    ++refs_;
    engine_.scheduler().at(
        now + cost,
        [](void* self, uint64_t era, Nanos t) {
            Requester& r = *static_cast<Requester*>(self);
            --r.refs_;
            if (!r.dead_ && r.era_ == era && r.dc_ == Dc::connecting) r.dc_attempt(t);
        },
        this, era_);
    return false;
}

bool Requester::dc_stands(const SendDesc& d) const {
    const ibv_ah_attr& to = d.ah->attr;
    return dc_ == Dc::connected && dc_era_ == era_ && d.remote_qpn == dc_qpn_ && to.dlid == dc_dlid_ &&
           d.dc_key == dc_key_ && dc_qpn_ == peer_qpn && dc_dlid_ == peer_dlid && to.src_path_bits == peer_bits;
}

// The connect request. Lost or unanswered: again after the retry period, until retries are used up.
void Requester::dc_attempt(Nanos when) {
    Segment& seg = engine_.seg();
    if (!sending()) return;
    auto again = [&](Nanos at) {
        ++refs_;
        engine_.scheduler().at(
            at,
            [](void* self, uint64_t era, Nanos t) {
                Requester& r = *static_cast<Requester*>(self);
                --r.refs_;
                if (!r.dead_ && r.era_ == era && r.dc_ == Dc::connecting) r.dc_attempt(t);
            },
            this, era_);
    };
    QpRec* dct = nullptr;
    Network& network = engine_.network();
    const bool charged = seg.img().device(rec_.device).limits.dc_request_ns != 0;
    const Nanos arrives = charged ? network.request(rec_.port, dc_dlid_, kRequestBytes, when)
                                  : network.control(rec_.port, dc_dlid_, kRequestBytes, when, false);
    if (arrives != kNever) dct = find_target(seg, engine_.network().route(rec_.port, dc_dlid_).dst_port, dc_qpn_);
    if (dct && !same_partition(seg, rec_, *dct)) dct = nullptr;
    bool there = false, allowed = false, joined = false;
    if (dct) {
        (void)dct->lock.acquire(); // its owner may be destroying it, contexts and all
        there = dct->qpn.load() == dc_qpn_ && dct->kind == QpKind::dct && dct->state.load() == IBV_QPS_RTR;
        allowed = there && dct->dc_key == dc_key_;
        joined = allowed && dc_join(*dct);
        if (there && !allowed) raise_object_event(seg, dct->async_channel, IBV_EVENT_QP_ACCESS_ERR, dct->user);
        dct->lock.release();
    }
    if (!there) {
        if (retries_left_ == 0) {
            dc_ = Dc::idle;
            return fail(IBV_WC_RETRY_EXC_ERR, when);
        }
        --retries_left_;
        if (const Nanos period = retry_period()) again(when + period);
        return;
    }
    if (!allowed) { // access key violation: the target's owner has been told
        dc_ = Dc::idle;
        return fail(IBV_WC_REM_ACCESS_ERR, when);
    }
    if (!joined) { // all contexts busy: NAK, back off, try again; no retry is used up
        const uint32_t wait = seg.img().device(rec_.device).limits.dc_busy_backoff_ns;
        // Not before it is refused: repeated all the same, requests would pile up at a target that many want.
        again((charged ? std::max(arrives, when) : when) + (wait ? wait : 1000));
        return;
    }
    dc_ = Dc::connected;
    dc_era_ = era_;
    retries_left_ = qp_.attr.retry_cnt;
    (void)return_held_receive(seg, rec_.responder);
    rec_.responder = {};
    rec_.responder.expected_psn = next_psn;
    wake(when);
}

// Takes a context of the target. dct.lock held.
bool Requester::dc_join(QpRec& dct) {
    Segment& seg = engine_.seg();
    const uint32_t limit = seg.img().device(dct.device).limits.dct_contexts;
    if (limit == 0 || dct.dct_slots == 0 || !engine_.modelled()) return true;
    auto* slot = seg.at<std::atomic<uint32_t>>(dct.dct_slots);
    for (uint32_t i = 0; i < limit; ++i) {
        const uint32_t holder = slot[i].load();
        // A context whose initiator has vanished is free again.
        if (holder && seg.qp(holder & (kMaxQps - 1)).qpn.load() == holder) continue;
        slot[i].store(source_qpn);
        return dc_holds_ = true;
    }
    return false;
}

// Nothing more to send: the context goes back after a while, or initiators that have been refused would ask for ever.
void Requester::dc_idle(Nanos now) {
    const AdapterLimits& limits = engine_.seg().img().device(rec_.device).limits;
    ++refs_;
    engine_.scheduler().at(
        now + limits.dc_disconnect_ns + std::max<Nanos>(limits.dc_busy_backoff_ns, 1000),
        [](void* self, uint64_t posted, Nanos now) {
            Requester& r = *static_cast<Requester*>(self);
            --r.refs_;
            if (!r.dead_ && r.tail_ == posted && r.idle()) r.dc_leave(now);
        },
        this, tail_);
}

// Tells the target, where that costs something.
void Requester::dc_leave(Nanos now) {
    if (dc_ == Dc::connected && engine_.seg().img().device(rec_.device).limits.dc_request_ns != 0)
        (void)engine_.network().request(rec_.port, dc_dlid_, kRequestBytes, now);
    dc_release();
}

void Requester::dc_release() {
    dc_ = Dc::idle;
    if (!dc_holds_) return;
    dc_holds_ = false;
    Segment& seg = engine_.seg();
    QpRec& dct = seg.qp(dc_qpn_ & (kMaxQps - 1));
    (void)dct.lock.acquire();
    if (dct.qpn.load() == dc_qpn_ && dct.dct_slots != 0) {
        auto* slot = seg.at<std::atomic<uint32_t>>(dct.dct_slots);
        const uint32_t limit = seg.img().device(dct.device).limits.dct_contexts;
        const auto mine =
            std::find_if(slot, slot + limit, [this](const auto& holder) { return holder.load() == source_qpn; });
        if (mine != slot + limit) mine->store(0);
    }
    dct.lock.release();
}

} // namespace softhca
