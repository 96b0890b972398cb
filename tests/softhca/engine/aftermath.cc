#include "engine/aftermath.h"

#include <infiniband/verbs.h>

#include "core/notify.h"
#include "engine/engine.h"
#include "engine/receives.h"

namespace softhca {

namespace {

constexpr uint32_t kPatience = 200; // ms, per lock

template <class Fn> void for_each_owned(Segment& seg, Off owners, uint32_t top, Fn&& fn) {
    auto* word = seg.at<std::atomic<uint32_t>>(owners);
    for (uint32_t block = 0; block < top; ++block)
        if (word[block].load(std::memory_order_acquire) != 0)
            for (uint32_t i = block * kBlock; i < (block + 1) * kBlock; ++i) fn(i);
}

void flush_failed(Segment& seg, uint32_t index) {
    QpRec& qp = seg.qp(index);
    const auto failed = [&] {
        return qp.qpn.load() != 0 && qp.state.load() == IBV_QPS_ERR && !qp.is_srq && qp.kind != QpKind::dci &&
               qp.kind != QpKind::dct;
    };
    if (!failed()) return;
    const RecvQueue& q = seg.rq(index);
    Taken how; // from_dead: what is left is what flush_receives() begins with
    if (!qp.responder.in_recv && q.head.load() == q.tail.load()) return;
    if (!qp.lock.acquire_within(kPatience, how)) return;
    if (failed()) flush_receives(seg, qp);
    qp.lock.release();
}

// Of an entry that nobody has announced; else what somebody may have been killed before he sent it. That is once too
// often if he had sent it, or if another one has taken his arming.
void send_missed_event(Segment& seg, uint32_t index) {
    CqRec& cq = seg.cq(index);
    if (cq.id == 0 || !cq.has_channel) return;
    const bool owed = cq.owed.load() != 0;
    if (!owed && cq.armed.load() == kNotArmed) return;
    bool sent = false;
    if (lock_cq(seg, cq, kPatience)) {
        sent = announce_waiting(seg, cq, cq.head.load());
        cq.lock.release();
    }
    if (owed && !sent) notify(cq.channel, &cq.user, sizeof cq.user);
    if (owed) cq.owed = 0; // last: who is killed before leaves it to the next
}

} // namespace

void finish_work_of_the_dead(Segment& seg) {
    for_each_owned(seg, seg.qp_owner, seg.qp_blocks.load(), [&](uint32_t i) { flush_failed(seg, i); });
    for_each_owned(seg, seg.cq_owner, seg.cq_blocks.load(), [&](uint32_t i) { send_missed_event(seg, i); });
}

} // namespace softhca
