// What order keeps this safe while initiators of other processes are inside the dead process's objects:
// queue pairs first (under their locks: after that nobody starts anything at them), then the queues that queue pairs
// lead to, each under its own lock, then memory regions (when no copy through them is in flight), memory last. Every
// step is idempotent; ownership words, which say what is left to do, are cleared after the things that they own.
#include "core/reap.h"

#include <algorithm>
#include <ctime>

#include "core/heap.h"
#include "core/liveness.h"
#include "core/process.h"

namespace softhca {

namespace {

constexpr uint32_t kLockPatience = 200; // ms, per lock
using Words = std::atomic<uint32_t>;

template <class Fn> bool for_each_block(Segment& seg, Off owners, uint32_t top, uint32_t owner, Fn&& fn) {
    Words* word = seg.at<Words>(owners);
    for (uint32_t block = 0; block < top; ++block)
        if (word[block].load(std::memory_order_acquire) == owner && !fn(block)) return false;
    return true;
}

void release_blocks(Segment& seg, Off owners, uint32_t top, uint32_t owner) {
    Words* word = seg.at<Words>(owners);
    for (uint32_t block = 0; block < top; ++block)
        if (word[block].load(std::memory_order_relaxed) == owner) word[block].store(0, std::memory_order_release);
}

void count_down(Words& counter) {
    uint32_t value = counter.load();
    while (value != 0 && !counter.compare_exchange_weak(value, value - 1)) {}
}

void clear_receive_queue(RecvQueue& q) {
    q.id = 0;
    q.ring = q.pool = 0;
    q.limit = 0;
    q.head = 0;
    q.tail = 0;
    q.seen_tail = 0;
    q.min_length = 0;
}

bool clear_qp(Segment& seg, uint32_t index, bool& had_dci) {
    QpRec& qp = seg.qp(index);
    if (qp.qpn.load() == 0 && qp.kind == QpKind::none && seg.rq(index).id == 0) return true;
    Taken how; // from_dead needs no repair, everything goes
    if (!qp.lock.acquire_within(kLockPatience, how)) return false;
    DeviceState& device = seg.device(qp.device);
    if (qp.qpn.exchange(0) != 0 && qp.kind != QpKind::none && qp.life == device.deaths) count_down(device.qps);
    if (qp.kind == QpKind::dci) {
        had_dci = true;
        if (!return_held_receive(seg, qp.responder, kLockPatience)) {
            qp.lock.release();
            return false;
        }
    }
    qp.state = 0; // IBV_QPS_RESET
    qp.kind = QpKind::none;
    qp.dct_slots = 0;
    qp.async_channel = 0;
    qp.path.valid = qp.alt.valid = 0;
    qp.responder = {};
    clear_receive_queue(seg.rq(index));
    qp.lock.release();
    return true;
}

bool clear_srq(Segment& seg, uint32_t index) {
    RecvQueue& q = seg.srq(index);
    if (q.id == 0) return true;
    Taken how;
    if (!q.lock.acquire_within(kLockPatience, how)) return false;
    count_down(seg.device(q.device).srqs);
    clear_receive_queue(q);
    q.lock.release();
    return true;
}

bool clear_cq(Segment& seg, uint32_t index) {
    CqRec& cq = seg.cq(index);
    if (cq.id == 0) return true;
    Taken how;
    if (!cq.lock.acquire_within(kLockPatience, how)) return false;
    count_down(seg.device(cq.device).cqs);
    cq.id = 0;
    cq.has_channel = 0;
    cq.channel = cq.async_channel = 0;
    cq.armed = kNotArmed;
    cq.owed = 0;
    cq.overrun = 0;
    cq.entries = 0;
    cq.capacity = cq.mask = 0; // a late producer finds it full
    cq.tail = cq.seen_head = 0;
    cq.head = 0;
    cq.lock.release();
    return true;
}

// DCT contexts that the dead process's initiators held at anybody's targets: a context whose initiator has no queue
// pair any more. Looked for in all targets, because who was connected where is not recorded at the initiator.
bool release_dct_contexts(Segment& seg) {
    const uint32_t top = seg.qp_blocks.load();
    Words* word = seg.at<Words>(seg.qp_owner);
    for (uint32_t block = 0; block < top; ++block) {
        if (word[block].load() == 0) continue;
        for (uint32_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
            QpRec& target = seg.qp(i);
            if (target.qpn.load() == 0 || target.kind != QpKind::dct) continue;
            Taken how;
            if (!target.lock.acquire_within(kLockPatience, how)) return false;
            const uint32_t contexts = seg.img().device(target.device).limits.dct_contexts;
            if (target.qpn.load() != 0 && target.kind == QpKind::dct && target.dct_slots != 0)
                for (uint32_t c = 0; c < contexts; ++c) {
                    Words& holder = seg.at<Words>(target.dct_slots)[c];
                    const uint32_t qpn = holder.load();
                    if (qpn != 0 && seg.qp(qpn & (kMaxQps - 1)).qpn.load() != qpn) holder = 0;
                }
            target.lock.release();
        }
    }
    return true;
}

// True when no live process copies through a memory region whose block belongs to `owner`. Waits up to a second.
bool regions_unused(Segment& seg, uint32_t owner) {
    Words* word = seg.at<Words>(seg.mr_owner);
    const uint32_t top = seg.proc_top.load();
    for (int round = 0; round < 1000; ++round) {
        bool used = false;
        for (uint32_t slot = 0; slot < top && !used; ++slot) {
            if (slot == owner - 1) continue;
            for (auto& cell : seg.proc(slot).hazard) {
                const uint32_t mark = cell.load();
                if (mark != 0 && mark <= kMaxMrs && word[(mark - 1) / kBlock].load() == owner)
                    used |= slot_alive(seg, slot);
            }
        }
        if (!used) return true;
        const timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
    }
    return false;
}

void release_heap(Segment& seg, uint32_t owner) {
    Words* word = seg.at<Words>(seg.heap_owner);
    const uint64_t top = std::min(seg.heap_top.load(), seg.heap_pages);
    for (uint64_t page = 0; page < top;) {
        if (word[page].load(std::memory_order_acquire) != owner) {
            ++page;
            continue;
        }
        uint64_t end = page + 1;
        while (end < top && word[end].load(std::memory_order_acquire) == owner) ++end;
        Heap::zero_pages(seg, seg.heap + page * kHeapPage, (end - page) * kHeapPage);
        const uint64_t first = page;
        for (; page < end; ++page) word[page].store(0, std::memory_order_release);
        uint64_t hint = seg.heap_hint.load();
        while (hint > first && !seg.heap_hint.compare_exchange_weak(hint, first)) {}
    }
}

} // namespace

bool return_held_receive(Segment& seg, Responder& responder, uint32_t patience) {
    if (!responder.in_recv || responder.recv_srq_id == 0) return true;
    RecvQueue& q = seg.srq(responder.recv_srq);
    Taken how; // from_dead: `head` is one word
    if (!q.lock.acquire_within(patience, how)) return false;
    responder.in_recv = 0; // first: better lost than used twice, should we be killed here
    if (q.id == responder.recv_srq_id) {
        // There is room: the entries in the ring and those that are elsewhere are never more than the ring has places.
        const uint64_t head = q.head.load() - 1;
        seg.at<uint32_t>(q.ring)[head & q.mask] = static_cast<uint32_t>(responder.recv_entry);
        q.head.store(head, std::memory_order_release);
    }
    q.lock.release();
    return true;
}

bool release_objects(Segment& seg, uint32_t slot) {
    const uint32_t owner = slot + 1;
    for (uint32_t i = 0; i < kMaxContexts; ++i) {
        ContextRec& row = seg.context(i);
        if (row.used.load() != owner) continue;
        std::atomic_ref(row.async_channel).store(0);
        row.used.store(0);
    }
    const uint32_t qp_top = seg.qp_blocks.load(), mr_top = seg.mr_blocks.load();
    const uint32_t cq_top = seg.cq_blocks.load(), srq_top = seg.srq_blocks.load();
    bool had_dci = false;
    const auto each = [&](auto&& clear) {
        return [&, clear](uint32_t block) {
            for (uint32_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
                if (!clear(i)) return false;
            return true;
        };
    };
    bool done =
        for_each_block(seg, seg.qp_owner, qp_top, owner, each([&](uint32_t i) { return clear_qp(seg, i, had_dci); }));
    done = done && (!had_dci || release_dct_contexts(seg));
    done =
        done && for_each_block(seg, seg.srq_owner, srq_top, owner, each([&](uint32_t i) { return clear_srq(seg, i); }));
    done = done && for_each_block(seg, seg.cq_owner, cq_top, owner, each([&](uint32_t i) { return clear_cq(seg, i); }));
    if (!done) return false;
    bool had_mr = false;
    for_each_block(seg, seg.mr_owner, mr_top, owner, each([&](uint32_t i) {
                       MrRec& mr = seg.mr(i);
                       if (mr.key.exchange(0) != 0) count_down(seg.device(mr.device).mrs);
                       return had_mr = true;
                   }));
    if (had_mr && !regions_unused(seg, owner)) return false;
    // Indices become claimable only now: nobody can be on his way to an object of the dead process any more.
    release_heap(seg, owner);
    release_blocks(seg, seg.qp_owner, qp_top, owner);
    release_blocks(seg, seg.srq_owner, srq_top, owner);
    release_blocks(seg, seg.cq_owner, cq_top, owner);
    release_blocks(seg, seg.mr_owner, mr_top, owner);
    return true;
}

void count_live(Segment& seg) {
    uint32_t live = 0;
    const uint32_t top = seg.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot) live += seg.proc(slot).state.load() == ProcState::alive;
    seg.live_procs = live;
}

void free_slot(Segment& seg, uint32_t slot) {
    ProcSlot& p = seg.proc(slot);
    p.node = kNone;
    for (auto& h : p.hazard) h = 0;
    p.command[0] = 0;
    p.pid = 0;
    p.generation.fetch_add(1);
    p.state.store(ProcState::free, std::memory_order_release);
    count_live(seg);
}

// Events that it may not have lived to send. Whoever sends them is told by the queue, for the slot goes to another
// process.
void note_owed_events(Segment& seg, uint32_t slot) {
    for (auto& cell : seg.proc(slot).announcing) {
        const uint32_t index = cell.load();
        if (index != 0 && index <= kMaxCqs) seg.cq(index - 1).owed = 1;
        cell = 0;
    }
}

bool reap_process(Segment& seg, uint32_t slot) {
    Taken how; // from_dead: another reaper was killed; all steps can be repeated
    if (!seg.table_lock.acquire_within(1000, how)) return false;
    const ProcState state = seg.proc(slot).state.load();
    bool done = state == ProcState::free || slot_alive(seg, slot);
    if (!done) {
        seg.proc(slot).state = ProcState::dead;
        note_owed_events(seg, slot);
        done = release_objects(seg, slot);
        if (done) free_slot(seg, slot);
        // Its peers look at their queue pairs: it may have been killed while it failed one of them.
        if (done) seg.fabric.generation.fetch_add(1);
    }
    seg.table_lock.release();
    return done;
}

} // namespace softhca
