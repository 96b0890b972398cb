#include "engine/placement.h"

#include <cstring>
#include <mutex>

#include "engine/engine.h"
#include "engine/receives.h"

namespace softhca {

// Something that has been acknowledged but not yet put where it belongs.
struct Placement {
    uint32_t device, target_qpn;
    uint32_t rkey;      // written data
    uint32_t queue_srq; // receive data: index and kind of its queue
    bool is_srq;
    enum class Kind : uint8_t { write, receive, completion } kind;
    uint64_t to, entry;
    std::unique_ptr<char[]> data;
    uint64_t length;
    Cqe cqe;
    bool done = false;
};

namespace {

uint32_t delay_of(Engine& e, const QpRec& t) {
    return e.seg().device(t.device).place_delay_ns.load(std::memory_order_relaxed);
}

void perform(Engine& engine, Placement& p) {
    if (p.done) return;
    p.done = true;
    Segment& seg = engine.seg();
    QpRec& t = seg.qp(p.target_qpn & (kMaxQps - 1));
    if (t.qpn.load() != p.target_qpn || t.state.load() <= IBV_QPS_INIT) return; // destroyed or reset meanwhile
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
        if (g_touched) [[unlikely]] g_touched(p.device);
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
    engine.placements.push_back(p);
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
            delete p;
        },
        &engine, reinterpret_cast<uint64_t>(p));
    engine.kick();
}

// nullptr: the data can't be read.
Placement* make(Engine& engine, QpRec& t, Placement::Kind kind, const LocalData& data, uint64_t from, uint64_t length) {
    (void)engine;
    Placement* p = new Placement{};
    p->device = t.device;
    p->target_qpn = t.qpn.load();
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

CopyResult place_write(Engine& engine, QpRec& t, const MrRec& region, uint64_t to, const LocalData& data, uint64_t from,
                       uint64_t length, Nanos when) {
    if (g_touched) [[unlikely]] g_touched(t.device);
    if (length == 0) return CopyResult::ok;
    if (const uint32_t delay = delay_of(engine, t)) [[unlikely]] {
        Placement* p = make(engine, t, Placement::Kind::write, data, from, length);
        if (!p) return CopyResult::local_fault;
        p->rkey = region.key.load();
        p->to = to;
        defer(engine, p, when + delay);
        return CopyResult::ok;
    }
    iovec v[kMaxSge];
    const unsigned n = data.pieces(from, length, v);
    return engine.process().write_to(region.owner, to, {v, n}, length);
}

CopyResult place_receive(Engine& engine, QpRec& t, RecvQueue& q, uint64_t entry, uint64_t at, const LocalData& data,
                         uint64_t from, uint64_t length, Nanos when) {
    if (length == 0) return CopyResult::ok;
    if (const uint32_t delay = delay_of(engine, t)) [[unlikely]] {
        Placement* p = make(engine, t, Placement::Kind::receive, data, from, length);
        if (!p) return CopyResult::local_fault;
        p->is_srq = q.is_srq;
        p->queue_srq = t.recv_queue;
        p->entry = entry;
        p->to = at;
        defer(engine, p, when + delay);
        return CopyResult::ok;
    }
    return scatter_to_receive(engine.process(), q, entry, at, data, from, length);
}

void place_completion(Engine& engine, QpRec& t, const Cqe& cqe, uint8_t& held, Nanos when) {
    Segment& seg = engine.seg();
    if (const uint32_t delay = delay_of(engine, t)) [[unlikely]] {
        Placement* p = make(engine, t, Placement::Kind::completion, {}, 0, 0);
        p->cqe.seq.store(0);
        std::memcpy(reinterpret_cast<char*>(&p->cqe) + 4, reinterpret_cast<const char*>(&cqe) + 4, sizeof(Cqe) - 4);
        p->cqe.time = when + delay;
        held = 0;
        defer(engine, p, when + delay);
        return;
    }
    push_cqe(seg, seg.cq(t.recv_cq), cqe, &held);
}

void drop_placements(Engine& engine) {
    for (Placement* p : engine.placements) delete p;
    engine.placements.clear();
}

void drain_placements(Engine& engine, uint32_t device) {
    std::unique_lock lock(engine.mutex, std::try_to_lock); // as in defer()
    if (!lock) return;
    for (Placement* p : engine.placements)
        if (p->device == device) perform(engine, *p); // its event finds it done
}

} // namespace softhca
