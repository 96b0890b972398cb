#include "engine/placement.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/liveness.h"
#include "engine/engine.h"
#include "engine/receives.h"

namespace softhca {

// Something that has been acknowledged but not yet put where it belongs.
struct Placement {
    uint32_t device, target_qpn, source_qpn;
    uint32_t rkey;      // written data
    uint32_t queue_srq; // receive data: index and kind of its queue
    bool is_srq;
    enum class Kind : uint8_t { write, receive, completion } kind;
    uint64_t to, entry;
    std::unique_ptr<char[]> data;
    uint64_t length;
    Cqe cqe;
    Nanos at;
    bool done = false;
};

namespace {

// Whose order is kept: that of all that a device is sent, or of one queue pair's (over DC: one initiator's) alone.
struct Stream {
    uint32_t device, target_qpn, source_qpn;
    bool alone;
    [[nodiscard]] bool has(const Placement& p) const {
        return p.device == device && (!alone || (p.target_qpn == target_qpn && p.source_qpn == source_qpn));
    }
};

Stream stream_of(Engine& e, uint32_t device, uint32_t target_qpn, uint32_t source_qpn) {
    return {device, target_qpn, source_qpn,
            e.seg().device(device).place_delay_qp_ns.load(std::memory_order_relaxed) != 0};
}

// A queue pair's own part of what place-delay-qp allows: an eighth of it more for each value that its numbers come to,
// the same for as long as it lives. One in nine or so is not late at all.
uint32_t share_of(Engine& e, uint32_t target_qpn, uint32_t source_qpn, uint32_t most) {
    uint64_t x = (uint64_t{target_qpn} << 32 | source_qpn) + 0x9e3779b97f4a7c15u * (e.seg().fabric.seed.load() + 1);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>(uint64_t{most} * ((x ^ x >> 31) % 9) / 8);
}

uint32_t delay_of(Engine& e, const Stream& s) {
    const DeviceState& d = e.seg().device(s.device);
    const uint32_t all = d.place_delay_ns.load(std::memory_order_relaxed);
    return s.alone ? all + share_of(e, s.target_qpn, s.source_qpn, d.place_delay_qp_ns.load(std::memory_order_relaxed))
                   : all;
}

constexpr uint64_t kWord = 8;    // Lack::write_order: bytes that come first,
constexpr Nanos kTorn = 2000000; // and how long before the others

// True: it is late, and appears at `when`, moved here to where its order allows. Also behind what is late still when
// the knob has been turned back.
bool is_late(Engine& e, const Stream& s, Nanos& when) {
    const uint32_t delay = delay_of(e, s);
    if (delay == 0 && e.late.load(std::memory_order_relaxed) == 0) [[likely]]
        return false;
    std::unique_lock lock(e.mutex, std::try_to_lock); // as in defer()
    Nanos behind = 0;
    for (size_t i = lock ? e.placements.size() : 0; i-- > 0 && !behind;)
        if (!e.placements[i]->done && s.has(*e.placements[i])) behind = e.placements[i]->at;
    if (delay == 0 && behind == 0) return false;
    when = std::max(when + delay, behind);
    return true;
}

void perform(Engine& engine, Placement& p) {
    if (p.done) return;
    p.done = true;
    Segment& seg = engine.seg();
    QpRec& t = seg.qp(p.target_qpn & (kMaxQps - 1));
    // Destroyed or reset meanwhile. What has been written is not lost with the queue pair: it was on its way to memory.
    if (p.kind != Placement::Kind::write && (t.qpn.load() != p.target_qpn || t.state.load() <= IBV_QPS_INIT)) return;
    LocalData d;
    d.flat = p.data.get();
    switch (p.kind) {
    case Placement::Kind::write: {
        std::atomic<uint32_t>* cell;
        const MrRec* region = engine.process().mark_mr(p.rkey, cell);
        if (!region) break;
        const iovec v{p.data.get(), p.length};
        (void)engine.process().write_to(region->owner, p.to, {&v, 1}, p.length);
        Process::clear_mr(cell);
        if (g_touched) [[unlikely]]
            g_touched(p.device);
        break;
    }
    case Placement::Kind::receive: {
        RecvQueue& q = p.is_srq ? seg.srq(p.queue_srq) : seg.rq(p.queue_srq);
        (void)scatter_to_receive(engine.process(), q, p.entry, p.to, d, 0, p.length);
        break;
    }
    case Placement::Kind::completion:
        // Accepted and acknowledged, but the QP failed before it was placed: real adapters may flush such a receive.
        if (t.state.load() == IBV_QPS_ERR && seg.device(p.device).flush_accepted.load()) {
            p.cqe.status = IBV_WC_WR_FLUSH_ERR;
            p.cqe.in_payload = 0;
        }
        push_cqe(seg, seg.cq(t.recv_cq), p.cqe);
        break;
    }
}

// Usually under Engine::mutex. The fast path gets here without it only while the knob is being turned; it holds inner
// locks then and must not wait for the outer one.
void defer(Engine& engine, Placement* p, Nanos at) {
    std::unique_lock lock(engine.mutex, std::try_to_lock);
    if (!lock) {
        perform(engine, *p);
        delete p;
        return;
    }
    p->at = at;
    engine.placements.push_back(p);
    engine.late.fetch_add(1, std::memory_order_relaxed);
    engine.scheduler().at(
        at,
        [](void* self, uint64_t arg, Nanos) {
            Engine& e = *static_cast<Engine*>(self);
            Placement* p = reinterpret_cast<Placement*>(arg);
            QpRec& t = e.seg().qp(p->target_qpn & (kMaxQps - 1));
            (void)t.lock.acquire(); // its owner may be destroying it
            perform(e, *p);
            t.lock.release();
            std::erase(e.placements, p);
            e.late.fetch_sub(1, std::memory_order_relaxed);
            delete p;
        },
        &engine, reinterpret_cast<uint64_t>(p));
    engine.kick();
}

// nullptr: the data can't be read.
Placement* make(const Stream& stream, Placement::Kind kind, const LocalData& data, uint64_t from, uint64_t length) {
    Placement* p = new Placement{};
    p->device = stream.device;
    p->target_qpn = stream.target_qpn;
    p->source_qpn = stream.source_qpn;
    p->kind = kind;
    p->length = length;
    if (length) {
        p->data = std::make_unique<char[]>(length);
        if (!data.gather(from, length, p->data.get())) {
            delete p;
            return nullptr;
        }
    }
    return p;
}

} // namespace

CopyResult place_write(Engine& engine, QpRec& t, uint32_t source, const MrRec& region, uint64_t to,
                       const LocalData& data, uint64_t from, uint64_t length, Nanos when) {
    if (g_touched) [[unlikely]]
        g_touched(t.device);
    if (length == 0) return CopyResult::ok;
    const Stream stream = stream_of(engine, t.device, t.qpn.load(), source);
    iovec v[kMaxSge];
    if (length > kWord && engine.seg().device(t.device).lack(Lack::write_order)) [[unlikely]] {
        // Out of order within the write: the last word of each run of packets is there first. All that comes behind the
        // write is in order, so only who polls for the last word can tell.
        const uint64_t late = length - kWord;
        Placement* p = make(stream, Placement::Kind::write, data, from, late);
        if (!p) return CopyResult::local_fault;
        p->rkey = region.key.load();
        p->to = to;
        when += kTorn;
        (void)is_late(engine, stream, when);
        defer(engine, p, when);
        const unsigned n = data.pieces(from + late, kWord, v);
        return engine.process().write_to(region.owner, to + late, {v, n}, kWord);
    }
    if (is_late(engine, stream, when)) [[unlikely]] {
        Placement* p = make(stream, Placement::Kind::write, data, from, length);
        if (!p) return CopyResult::local_fault;
        p->rkey = region.key.load();
        p->to = to;
        defer(engine, p, when);
        return CopyResult::ok;
    }
    const unsigned n = data.pieces(from, length, v);
    return engine.process().write_to(region.owner, to, {v, n}, length);
}

CopyResult place_receive(Engine& engine, QpRec& t, uint32_t source, RecvQueue& q, uint64_t entry, uint64_t at,
                         const LocalData& data, uint64_t from, uint64_t length, Nanos when) {
    if (length == 0) return CopyResult::ok;
    if (const Stream stream = stream_of(engine, t.device, t.qpn.load(), source); is_late(engine, stream, when))
        [[unlikely]] {
        Placement* p = make(stream, Placement::Kind::receive, data, from, length);
        if (!p) return CopyResult::local_fault;
        p->is_srq = q.is_srq;
        p->queue_srq = t.recv_queue;
        p->entry = entry;
        p->to = at;
        defer(engine, p, when);
        return CopyResult::ok;
    }
    return scatter_to_receive(engine.process(), q, entry, at, data, from, length);
}

void place_completion(Engine& engine, QpRec& t, uint32_t source, const Cqe& cqe, uint8_t& held, Nanos when) {
    Segment& seg = engine.seg();
    if (const Stream stream = stream_of(engine, t.device, t.qpn.load(), source); is_late(engine, stream, when))
        [[unlikely]] {
        Placement* p = make(stream, Placement::Kind::completion, {}, 0, 0);
        p->cqe.seq.store(0);
        std::memcpy(reinterpret_cast<char*>(&p->cqe) + 4, reinterpret_cast<const char*>(&cqe) + 4, sizeof(Cqe) - 4);
        p->cqe.time = when;
        held = 0;
        defer(engine, p, when);
        return;
    }
    push_cqe(seg, seg.cq(t.recv_cq), cqe, &held);
}

Staging place_staged(Engine& engine, QpRec& t, uint32_t source, RecvQueue& q, Cqe& cqe, const LocalData& data,
                     uint32_t length, uint8_t& held, Nanos when) {
    if (q.owner == engine.process().slot()) return Staging::no_room;
    // Nor for a process that is gone and has not been cleaned up yet: who copies finds out.
    if (engine.seg().proc(q.owner).state.load(std::memory_order_acquire) != ProcState::alive ||
        slot_deserted(engine.seg(), q.owner)) [[unlikely]]
        return Staging::no_room;
    RecvWqe* w = recv_entry(engine.seg(), q, cqe.wr);
    for (uint32_t i = 0; i < w->sges; ++i) {
        const RecvSge& s = w->sge()[i];
        if (s.length && engine.seg().mr(s.lkey >> 8 & (kMaxMrs - 1)).key.load(std::memory_order_relaxed) != s.lkey)
            return Staging::no_room;
    }
    if (is_late(engine, stream_of(engine, t.device, t.qpn.load(), source), when)) [[unlikely]]
        return Staging::no_room;
    return push_staged(engine.seg(), engine.seg().cq(t.recv_cq), cqe, data, length, &held);
}

void drop_placements(Engine& engine) {
    for (Placement* p : engine.placements) delete p;
    engine.placements.clear();
    engine.late = 0;
}

void drain_placements(Engine& engine, uint32_t device, uint32_t target_qpn, uint32_t source_qpn) {
    if (engine.late.load(std::memory_order_relaxed) == 0 || engine.seg().device(device).lack(Lack::read_push)) return;
    std::unique_lock lock(engine.mutex, std::try_to_lock); // as in defer()
    if (!lock) return;
    const Stream stream = stream_of(engine, device, target_qpn, source_qpn);
    for (Placement* p : engine.placements)
        if (stream.has(*p)) perform(engine, *p); // its event finds it done
}

void settle_writes(Engine& engine, uint32_t target_qpn) {
    for (Placement* p : engine.placements)
        if (p->target_qpn == target_qpn && p->kind == Placement::Kind::write) perform(engine, *p);
}

} // namespace softhca
