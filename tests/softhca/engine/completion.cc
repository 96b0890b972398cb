// Completion queues: pushing (any process), polling and arming (owner).
#include <endian.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/guarded_copy.h"
#include "engine/engine.h"
#include "engine/placement.h"

namespace softhca {

namespace {

// Completion event for the entry at `position`, if the queue is still armed: one event per arming. False: it is not.
bool announce(Segment& seg, CqRec& cq, uint64_t position) {
    const auto index = static_cast<uint32_t>(&cq - seg.at<CqRec>(seg.cqs));
    Process* const self = Process::current();
    if (!self) return false; // a child of fork()
    // Who is killed from here on leaves the event to whoever reaps it.
    std::atomic<uint32_t>& cell = Process::take_cell(seg.proc(self->slot()).announcing, index + 1);
    uint32_t armed = cq.armed.load();
    while (armed != kNotArmed && !cq.armed.compare_exchange_weak(armed, kNotArmed)) {}
    if (armed != kNotArmed) {
        cq.announced_head.store(cq.head.load(std::memory_order_relaxed), std::memory_order_relaxed);
        cq.announced.store(position + 1, std::memory_order_release);
        if (cq.has_channel) notify(cq.channel, &cq.user, sizeof cq.user);
    }
    cell.store(0, std::memory_order_release);
    return armed != kNotArmed;
}

} // namespace

bool lock_cq(Segment& seg, CqRec& cq, uint32_t milliseconds) {
    Taken how;
    if (!cq.lock.acquire_within(milliseconds, how)) return false;
    if (how == Taken::from_dead && cq.entries &&
        seg.at<Cqe>(cq.entries)[cq.tail & cq.mask].seq.load() == static_cast<uint32_t>(cq.tail + 1))
        ++cq.tail;
    return true;
}

void lock_cq(Segment& seg, CqRec& cq) { (void)lock_cq(seg, cq, kLongWait); }

bool announce_waiting(Segment& seg, CqRec& cq, uint64_t head) {
    const uint32_t armed = cq.armed.load();
    if (armed == kNotArmed) return false;
    // Entries that an event has announced are left out until the program polls: one that arms between event and poll
    // and counts its events (perftest with one channel for two queues) would be woken once too often. One that polls
    // some of them and arms again would else sleep although others wait.
    const uint64_t announced = cq.announced.load(std::memory_order_acquire);
    const bool polled = head != cq.announced_head.load(std::memory_order_relaxed);
    for (uint64_t at = polled ? head : std::max(head, announced);; ++at) {
        const Cqe& e = seg.at<Cqe>(cq.entries)[at & cq.mask];
        if (e.seq.load(std::memory_order_acquire) != static_cast<uint32_t>(at + 1)) return false;
        if (e.kind == CqeKind::dead || (armed == kArmedSolicited && !e.solicited && e.status == IBV_WC_SUCCESS))
            continue;
        return announce(seg, cq, at);
    }
}

namespace {

// Takes the lock. Null, without it: the queue is full, and the program hears of it.
Cqe* begin_push(Segment& seg, CqRec& cq, uint8_t* held) {
    if (!cq.lock.try_acquire()) [[unlikely]]
        lock_cq(seg, cq);
    Cqe* ring = seg.at<Cqe>(cq.entries); // under the lock: ibv_resize_cq replaces it
    if (cq.tail - cq.seen_head >= cq.capacity) {
        cq.seen_head = cq.head.load(std::memory_order_acquire);
        if (cq.tail - cq.seen_head >= cq.capacity) [[unlikely]] {
            cq.lock.release();
            if (held) *held = 0;
            if (cq.overrun.exchange(1) == 0) raise_object_event(seg, cq.async_channel, IBV_EVENT_CQ_ERR, cq.user);
            return nullptr;
        }
    }
    return &ring[cq.tail & cq.mask];
}

// Makes `e`, which begin_push() gave, `entry`, and releases the lock.
void end_push(Segment& seg, CqRec& cq, Cqe& e, const Cqe& entry, const void* payload, size_t bytes, uint8_t* held) {
    // Field by field up to the payload: the sequence number comes last, it is what the poller waits for.
    constexpr size_t kHead = offsetof(Cqe, payload);
    std::memcpy(reinterpret_cast<char*>(&e) + sizeof(e.seq), reinterpret_cast<const char*>(&entry) + sizeof(e.seq),
                kHead - sizeof(e.seq));
    if (bytes) std::memcpy(e.payload, payload, bytes);
    if (cq.wants_time) e.time = entry.time;
    if (entry.kind == CqeKind::recv) {
        e.src_qp = entry.src_qp;
        e.slid = entry.slid;
        e.pkey_index = 0;
        e.sl = entry.sl;
        e.path_bits = entry.path_bits;
    }
    const uint64_t position = cq.tail;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (held) *held = 0;
    e.seq.store(static_cast<uint32_t>(position + 1), std::memory_order_release);
    ++cq.tail;
    cq.lock.release();
    if (cq.has_channel) {
        std::atomic_thread_fence(
            std::memory_order_seq_cst); // entry visible before `armed` is read (arm_cq does the reverse)
        const uint32_t armed = cq.armed.load(std::memory_order_relaxed);
        if (armed && (armed == kArmed || entry.solicited || entry.status != IBV_WC_SUCCESS))
            (void)announce(seg, cq, position);
    }
    if (g_touched) [[unlikely]]
        g_touched(cq.device);
}

// Where `length` bytes fit into the staging ring now. Lock held. False: nowhere.
bool find_room(CqRec& cq, uint32_t length, Staged& at) {
    constexpr uint64_t kLine = 64;
    const uint64_t bytes = (length + kLine - 1) / kLine * kLine;
    at.begin = cq.staged_tail;
    const uint64_t left = kStagingBytes - at.begin % kStagingBytes;
    if (left < bytes) at.begin += left;
    at.end = at.begin + bytes;
    at.length = length;
    if (at.end - cq.seen_staged_head <= kStagingBytes) return true;
    cq.seen_staged_head = cq.staged_head.load(std::memory_order_acquire);
    return at.end - cq.seen_staged_head <= kStagingBytes;
}

} // namespace

void push_cqe(Segment& seg, CqRec& cq, const Cqe& entry, uint8_t* held) {
    Cqe* e = begin_push(seg, cq, held);
    if (e) end_push(seg, cq, *e, entry, entry.payload, entry.in_payload, held);
}

Staging push_staged(Segment& seg, CqRec& cq, Cqe& entry, const LocalData& payload, uint32_t length, uint8_t* held) {
    if (!cq.staging) return Staging::no_room;
    Cqe* e = begin_push(seg, cq, held);
    if (!e) return Staging::done;
    Staged at;
    const bool room = find_room(cq, length, at);
    if (!room || !payload.gather(0, length, seg.at<char>(cq.staging) + at.begin % kStagingBytes)) {
        cq.lock.release();
        return room ? Staging::fault : Staging::no_room;
    }
    // Counted before the entry is there: who is killed here leaves a gap, which goes with the next one.
    cq.staged_tail = at.end;
    entry.in_payload = kStaged;
    end_push(seg, cq, *e, entry, &at, sizeof at, held);
    return Staging::done;
}

namespace {

// `length` bytes to offset `at` of what the receive gave as memory. False: it is gone. A region that has been
// deregistered meanwhile is left alone: an adapter has written there before, and somebody else may have the memory now.
bool scatter(Segment& seg, RecvWqe& w, uint64_t at, const char* from, uint64_t length) {
    for (uint32_t i = 0; i < w.sges && length; ++i) {
        const RecvSge& s = w.sge()[i];
        if (at >= s.length) {
            at -= s.length;
            continue;
        }
        const uint64_t take = std::min<uint64_t>(length, s.length - at);
        const bool stands = seg.mr(s.lkey >> 8 & (kMaxMrs - 1)).key.load(std::memory_order_relaxed) == s.lkey;
        if (stands && softhca_guarded_copy(reinterpret_cast<void*>(s.addr + at), from, take)) [[unlikely]]
            return false;
        from += take;
        length -= take;
        at = 0;
    }
    return true;
}

// The global route header in front of a datagram that came with one (8.3): who sent it and to whom, from the LIDs.
// Traffic class, flow label and hop limit are not carried.
void write_grh(Segment& seg, const Cqe& e, RecvWqe& w) {
    const FabricImage& image = seg.img();
    const uint32_t to = seg.qp(e.qpn & (kMaxQps - 1)).port;
    if (to >= image.ports) return;
    const uint32_t from = image.port_of_lid(image.port(to).subnet, e.slid);
    const auto gid = [&](uint32_t port) {
        ibv_gid g{};
        if (port == kNone) return g;
        g.global.subnet_prefix = htobe64(image.subnet(image.port(port).subnet).prefix);
        g.global.interface_id = htobe64(image.port(port).guid);
        return g;
    };
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6u << 28);
    grh.paylen = htobe16(static_cast<uint16_t>(e.byte_len - sizeof grh));
    grh.next_hdr = 0x1b;
    grh.hop_limit = 64;
    grh.sgid = gid(from);
    grh.dgid = gid(to);
    (void)scatter(seg, w, 0, reinterpret_cast<const char*>(&grh), sizeof grh);
}

// The memory of a receive is gone, which is found only now: its sender has been told that all is well.
void receive_failed(Segment& seg, Cqe& e) {
    e.status = IBV_WC_LOC_PROT_ERR;
    QpRec& t = seg.qp(e.qpn & (kMaxQps - 1));
    (void)t.lock.acquire();
    if (t.qpn.load() == e.qpn) fail_target(seg, t, IBV_EVENT_QP_FATAL);
    t.lock.release();
}

// Copies data that travelled in the entry, or wait in the staging ring, to where the receive wants them.
void finish_receive(Segment& seg, CqRec& cq, Cqe& e) {
    RecvQ& q = *reinterpret_cast<RecvQ*>(e.queue);
    RecvWqe* w = q.wqe(static_cast<uint32_t>(e.wr));
    const uint64_t at = e.wc_flags & kCqeDatagram ? 40 : 0;
    if (e.in_payload == kStaged) {
        Staged data;
        std::memcpy(&data, e.payload, sizeof data);
        if (!scatter(seg, *w, at, seg.at<char>(cq.staging) + data.begin % kStagingBytes, data.length)) [[unlikely]]
            receive_failed(seg, e);
        cq.staged_head.store(data.end, std::memory_order_release);
    } else if (e.in_payload && !scatter(seg, *w, at, e.payload, e.in_payload)) [[unlikely]] {
        receive_failed(seg, e);
    }
    e.in_payload = 0;
    e.wc_flags &= static_cast<uint8_t>(~kCqeDatagram);
    if ((e.wc_flags & IBV_WC_GRH) && e.status == IBV_WC_SUCCESS) [[unlikely]]
        write_grh(seg, e, *w);
}

void retire_receive(Cqe& e) {
    RecvQ& q = *reinterpret_cast<RecvQ*>(e.queue);
    const uint32_t index = static_cast<uint32_t>(e.wr);
    std::lock_guard guard(q.lock);
    q.free.push_back(index);
}

} // namespace

// More pollers than cores: give way early, or every message waits for a time slice.
void Engine::empty_poll(Cq& cq) {
    if (process_.virtual_time()) return;
    const uint32_t limit = seg().live_procs.load(std::memory_order_relaxed) > cores() ? 16 : 2048;
    if (++cq.empty_polls < limit) return;
    cq.empty_polls = 0;
    sched_yield();
}

uint64_t Engine::cqe_wr_id(const Cqe& e) {
    return e.queue ? reinterpret_cast<RecvQ*>(e.queue)->wqe(static_cast<uint32_t>(e.wr))->wr_id : e.wr;
}

Cqe* Engine::next_cqe(Cq& cq) {
    for (;;) {
        Cqe& e = cq.entries[cq.head & cq.mask];
        if (e.seq.load(std::memory_order_acquire) != static_cast<uint32_t>(cq.head + 1)) return nullptr;
        if (e.kind == CqeKind::dead) [[unlikely]] { // its QP is destroyed
            if (e.in_payload == kStaged) {
                Staged data;
                std::memcpy(&data, e.payload, sizeof data);
                cq.rec->staged_head.store(data.end, std::memory_order_release);
            }
            ++cq.head;
            cq.rec->head.store(cq.head, std::memory_order_release); // room again, also if nothing follows
            continue;
        }
        if (e.queue) finish_receive(seg(), *cq.rec, e);
        return &e;
    }
}

void Cq::broken_promise() const {
    static constexpr char text[] =
        "softhca: two threads use a completion queue at the same time that was made for a single one "
        "(IBV_CREATE_CQ_ATTR_SINGLE_THREADED)\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    abort();
}

void Engine::retire(Cqe& e) {
    if (!e.queue) return;
    retire_receive(e);
    e.queue = 0;
}

void Engine::consume_cqe(Cq& cq) {
    Cqe& e = cq.entries[cq.head & cq.mask];
    charge_completions(cq, 1, e.kind == CqeKind::recv);
    if (e.queue) retire_receive(e);
    ++cq.head;
    cq.rec->head.store(cq.head, std::memory_order_release);
}

int Engine::poll_cq(Cq& cq, int entries, ibv_wc* wc) {
    poll();
    cq.begin_use();
    int n = 0;
    uint32_t receives = 0;
    while (n < entries) {
        Cqe* e = next_cqe(cq);
        if (!e) break;
        ibv_wc& w = wc[n++];
        w.wr_id = cqe_wr_id(*e);
        w.status = static_cast<ibv_wc_status>(e->status);
        w.opcode = static_cast<ibv_wc_opcode>(e->opcode);
        w.vendor_err = e->vendor_err;
        w.byte_len = e->byte_len;
        w.imm_data = e->imm;
        w.qp_num = e->qpn;
        w.wc_flags = e->wc_flags;
        if (e->kind == CqeKind::recv) {
            ++receives;
            w.src_qp = e->src_qp;
            w.pkey_index = 0;
            w.slid = e->slid;
            w.sl = e->sl;
            w.dlid_path_bits = e->path_bits;
        }
        retire(*e);
        ++cq.head;
    }
    if (n) {
        cq.rec->head.store(cq.head, std::memory_order_release);
        cq.empty_polls = 0;
        charge_completions(cq, static_cast<uint32_t>(n), receives);
    }
    cq.end_use();
    poll_waits(cq.rec->device);
    if (n == 0) empty_poll(cq);
    return n; // after an overrun, too: what is there is still valid
}

int Engine::arm_cq(Cq& cq, bool solicited_only) {
    // A send of a datagram has ended on real adapters long before its answer comes. Here the helper may lose its
    // processor between the arrival there and the completion here, and then the answer's event comes first. Programs
    // arm between event and poll: what is due is there then.
    catch_up();
    std::lock_guard guard(cq.poll_lock);
    // A pending request for any completion is not narrowed by one for solicited ones (11.4.2.2).
    if (!solicited_only)
        cq.rec->armed.store(kArmed);
    else
        for (uint32_t before = cq.rec->armed.load();
             before != kArmed && !cq.rec->armed.compare_exchange_weak(before, kArmedSolicited);) {}
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // Entries that came while the queue was not armed, and are not polled yet, fire at once as with real adapters, or a
    // sleeper would miss them.
    (void)announce_waiting(seg(), *cq.rec, cq.head);
    expect_sleep();
    return 0;
}

} // namespace softhca
