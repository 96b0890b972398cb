#include "engine/requester.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "engine/read_stream.h"
#include "engine/waits.h"

namespace softhca {

namespace {
// Unacknowledged packets stay well inside half the 24-bit circle, so that old and new are told apart (9.7.1).
constexpr int32_t kPsnWindow = 1 << 22;
constexpr uint32_t kChunksPerAck = 16;
constexpr uint32_t kReadRequestBytes = 16; // RETH

uint8_t wc_opcode(uint8_t wr) {
    switch (wr) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    case kWait: // and all other raw ones
        return IBV_WC_DRIVER2;
    default:
        return IBV_WC_SEND;
    }
}
} // namespace

Requester::Requester(Engine& engine, Qp& qp)
    : engine_(engine), qp_(qp), rec_(*qp.rec),
      stride_((sizeof(SendWqe) + std::max<size_t>(qp.caps.max_send_sge * sizeof(ibv_sge), qp.caps.max_inline) + 15) &
              ~size_t{15}) {
    source_qpn = qp.rec->qpn.load();
}

Requester::~Requester() {
    for (uint64_t pos = head_; pos < tail_; ++pos) forget_early(wqe(pos));
}

// Chunks in flight are few compared with queue pairs: one pool for all of them (Engine::mutex). It owns also those that
// are on their way when the engine ends.
struct FlightPool {
    std::deque<Requester::Flight> all_flights;
    std::deque<Requester::ReplyEvent> all_replies;
    Requester::Flight* first = nullptr;
    Requester::ReplyEvent* replies = nullptr;
};
void FlightPoolDelete::operator()(FlightPool* pool) const { delete pool; }

void Requester::push_completion(uint64_t wr_id, uint8_t opcode, uint64_t bytes, ibv_wc_status status, Nanos when) {
    Cqe e;
    e.qpn = source_qpn;
    e.status = static_cast<uint8_t>(status);
    e.opcode = wc_opcode(opcode);
    e.kind = CqeKind::send;
    e.wc_flags = 0;
    e.byte_len = static_cast<uint32_t>(bytes);
    e.imm = 0;
    e.in_payload = 0;
    e.solicited = 0;
    e.vendor_err = 0;
    e.wr = wr_id;
    e.queue = 0;
    e.time = when;
    push_cqe(engine_.seg(), *qp_.send_cq->rec, e);
}

LocalData Requester::data_of(SendWqe& w) {
    LocalData d;
    if (w.inlined)
        d.flat = reinterpret_cast<const char*>(&w + 1);
    else if (w.early) [[unlikely]]
        d.flat = reinterpret_cast<const char*>(w.dc_key);
    else {
        d.sge = sges(w);
        d.sges = w.sges;
    }
    return d;
}

void Requester::grow() {
    const uint64_t size = std::max<uint64_t>(4, ring_size_ * 2);
    auto bigger = std::make_unique<char[]>(size * stride_);
    for (uint64_t pos = head_; pos < tail_; ++pos)
        std::memcpy(bigger.get() + (pos & (size - 1)) * stride_, &wqe(pos), stride_);
    ring_ = std::move(bigger);
    ring_size_ = size;
}

int Requester::enqueue(const SendDesc& d, uint64_t total, uint8_t bad, Nanos posted, Nanos now) {
    if (tail_ - head_ >= qp_.caps.max_send_wr) return ENOMEM;
    if (tail_ - head_ == ring_size_) grow();
    SendWqe& w = wqe(tail_);
    w = {};
    w.wr_id = d.wr_id;
    w.opcode = static_cast<uint8_t>(d.opcode);
    w.flags = d.flags;
    w.imm = d.imm;
    w.total = total;
    w.remote_addr = d.remote_addr;
    w.compare_add = d.compare_add;
    w.swap = d.swap;
    w.rkey = d.rkey;
    w.remote_qpn = rec_.kind == QpKind::ud || rec_.kind == QpKind::dci ? d.remote_qpn : rec_.dest_qpn;
    w.remote_qkey = d.remote_qkey;
    w.dc_key = d.dc_key;
    w.bad = bad;
    // Else at once, whatever the time: in real time events are told their nominal one, which may be before now.
    if (posted > now) [[unlikely]]
        w.posted = posted;
    if (d.ah) {
        w.dlid = d.ah->attr.dlid;
        w.sl = d.ah->attr.sl;
        w.path_bits = d.ah->attr.src_path_bits;
        w.is_global = d.ah->attr.is_global;
    }
    w.inlined = (d.flags & IBV_SEND_INLINE) != 0 && !reads(w.opcode);
    if (w.inlined) {
        char* to = reinterpret_cast<char*>(&w + 1);
        for (uint32_t i = 0; i < d.sges; ++i) {
            if (d.sge[i].length == 0) continue; // its address may be null
            std::memcpy(to, reinterpret_cast<const void*>(d.sge[i].addr), d.sge[i].length);
            to += d.sge[i].length;
        }
    } else {
        w.sges = static_cast<uint8_t>(d.sges);
        std::copy_n(d.sge, d.sges, sges(w));
    }
    if (engine_.seg().device(rec_.device).wait_prefetch.load(std::memory_order_relaxed) != 0) [[unlikely]]
        read_early(w);
    ++tail_;
    if (posted > now) [[unlikely]]
        wake_at(posted);
    else
        wake(now);
    return 0;
}

bool Requester::sending() const {
    const uint32_t s = rec_.state.load(std::memory_order_relaxed);
    return s == IBV_QPS_RTS || s == IBV_QPS_SQD;
}

void Requester::wake(Nanos now) {
    if (dead_ || next_ >= tail_ || !sending() || now < paused_until_) return;
    source_port = rec_.port;
    engine_.network().activate(*this, now);
}

void Requester::wake_at(Nanos when) {
    ++refs_;
    engine_.scheduler().at(
        when,
        [](void* self, uint64_t, Nanos t) {
            Requester& r = *static_cast<Requester*>(self);
            --r.refs_;
            r.wake(t);
        },
        this);
}

bool Requester::may_start(SendWqe& w, Nanos now) {
    if (w.posted > now) [[unlikely]]
        return false;
    if (w.bad) {
        // Its turn comes when all before it are complete.
        if (head_ == next_) fail(static_cast<ibv_wc_status>(w.bad), now);
        return false;
    }
    if (w.assigned && !(reads(w.opcode) && next_offset_ == 0)) return true; // in the middle, or a retry
    if (!w.assigned) {
        if (draining_) return false;
        if ((w.flags & IBV_SEND_FENCE) && reads_out_) return false;
        if (rec_.kind == QpKind::dci && !dc_ready(w, now)) return false;
        const uint32_t n = rec_.kind == QpKind::ud ? 1 : packets_of(w.total, mtu);
        if (psn_diff(psn_add(next_psn, n), una_psn_) > kPsnWindow && head_ != next_) return false;
    }
    return !reads(w.opcode) || reads_out_ < std::max<uint32_t>(1, qp_.attr.max_rd_atomic);
}

void Requester::assign(SendWqe& w) {
    w.assigned = 1;
    w.first_psn = next_psn;
    w.packets =
        w.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 1 : packets_of(w.total, mtu);
    if (head_ == next_) una_psn_ = next_psn; // nothing else is outstanding
    next_psn = psn_add(next_psn, w.packets);
    rec_.sq_psn.store(next_psn, std::memory_order_relaxed);
}

bool Requester::next_chunk(Chunk& c, Nanos now) {
    if (dead_ || !sending() || now < paused_until_) return false;
    // Behind a request that is repeated: a read whose data are all here. It has nothing left to ask for, and a request
    // for nothing would look like a new one and take a packet number. Nor has a WAIT that is over.
    for (; next_ < tail_; ++next_, next_offset_ = 0) {
        const SendWqe& w = wqe(next_);
        if (w.assigned && w.done && (reads(w.opcode) || w.opcode == kWait)) continue;
        if (w.opcode != kWait) break;
        if (!pass_wait(now)) return false;
    }
    if (next_ >= tail_) {
        settle(); // a WAIT was the last
        return false;
    }
    SendWqe& w = wqe(next_);
    const bool started = w.assigned;
    if (!may_start(w, now)) return false;
    if (!started) {
        if (head_ == next_) timer_base_ = now;
        assign(w);
    }
    Flight* f = new_flight();
    f->pos = next_;
    f->era = era_;
    f->copy.reset();
    c = Chunk{};
    if (reads(w.opcode)) {
        const uint32_t done = static_cast<uint32_t>(w.received / mtu);
        f->psn = psn_add(w.first_psn, done);
        f->offset = w.received;
        f->bytes = 0;
        f->packets = 1;
        f->first = f->last = f->ack_request = true;
        c.payload = kReadRequestBytes;
        ++reads_out_;
        ++next_;
        next_offset_ = 0;
    } else {
        const uint32_t at_packet = static_cast<uint32_t>(next_offset_ / mtu);
        const uint32_t n = std::min<uint32_t>(engine_.chunk_packets(), w.packets - at_packet);
        const uint64_t bytes = std::min<uint64_t>(w.total - next_offset_, static_cast<uint64_t>(n) * mtu);
        f->psn = psn_add(w.first_psn, at_packet);
        f->offset = next_offset_;
        f->bytes = static_cast<uint32_t>(bytes);
        f->packets = static_cast<uint16_t>(n);
        f->first = next_offset_ == 0;
        f->last = at_packet + n == w.packets;
        f->ack_request = f->last || ++chunks_since_ack_ >= kChunksPerAck;
        if (f->ack_request) chunks_since_ack_ = 0;
        c.payload = f->bytes;
        next_offset_ += bytes;
        if (f->last) {
            ++next_;
            next_offset_ = 0;
        }
    }
    f->wqe = w;
    c.source = this;
    c.src_port = rec_.port;
    c.dlid = dlid_of(w);
    c.packets = f->packets;
    c.first_of_message = f->first;
    c.dst_qpn = w.remote_qpn;
    c.last_of_message = f->last;
    c.psn = f->psn;
    c.era = era_;
    c.item = reinterpret_cast<uint64_t>(f);
    c.offset = f->offset;
    if (rec_.kind == QpKind::rc || rec_.kind == QpKind::dci) arm_timer(now);
    return true;
}

void Requester::chunk_injected(Chunk& c) {
    // The retry timer of the oldest packet runs from when it has really left the adapter.
    if (c.era == era_ && psn_diff(c.psn, una_psn_) <= 0) timer_base_ = std::max(timer_base_, c.injected);
}

Requester::Flight* Requester::new_flight() {
    if (!engine_.flights) engine_.flights.reset(new FlightPool);
    Flight* f = engine_.flights->first;
    if (f)
        engine_.flights->first = f->next;
    else
        f = &engine_.flights->all_flights.emplace_back();
    f->prev = nullptr;
    f->next = flights_;
    if (flights_) flights_->prev = f;
    flights_ = f;
    return f;
}

void Requester::drop_flight(Flight* f) {
    if (f->prev)
        f->prev->next = f->next;
    else
        flights_ = f->next;
    if (f->next) f->next->prev = f->prev;
    f->copy.reset();
    f->next = engine_.flights->first;
    engine_.flights->first = f;
}

void Requester::orphan_flights() {
    for (Flight* f = flights_; f; f = f->next) {
        if (f->copy || f->bytes == 0 || f->era != era_ || f->pos < head_ || f->pos >= tail_) continue;
        f->copy = std::make_unique<char[]>(f->bytes);
        (void)data_of(wqe(f->pos)).gather(f->offset, f->bytes, f->copy.get()); // memory that is gone: zeroes
    }
}

QpRec* Requester::find_peer(const SendWqe& w, uint32_t dst_port) {
    QpRec* t = find_target(engine_.seg(), dst_port, w.remote_qpn);
    if (!t || !same_partition(engine_.seg(), rec_, *t)) return nullptr;
    static constexpr QpKind wanted[] = {QpKind::none, QpKind::rc, QpKind::uc, QpKind::ud, QpKind::dct};
    return t->kind == wanted[static_cast<int>(rec_.kind)] ? t : nullptr;
}

uint32_t Requester::source_lid(uint8_t path_bits) const {
    return engine_.seg().port(rec_.port).lid.load(std::memory_order_relaxed) + path_bits;
}

void Requester::chunk_arrived(Chunk& c) {
    Flight* f = reinterpret_cast<Flight*>(c.item);
    const uint64_t all = c.packets >= 64 ? ~uint64_t{0} : (uint64_t{1} << c.packets) - 1;
    const bool current = f->era == era_ && !dead_;
    const bool in_queue = current && f->pos >= head_ && f->pos < tail_;
    // A destroyed queue pair's record may be somebody else's by now: what it has under way is lost.
    QpRec* target = !dead_ && c.dst_port != kNone && (c.lost & all) != all ? find_peer(f->wqe, c.dst_port) : nullptr;
    // The target has a new context for this initiator: packets of the life before are none of its.
    if (rec_.kind == QpKind::dci && f->era != dc_era_) target = nullptr;
    bool sent = true; // false: its own memory is gone
    if (target) {
        const SendWqe& w = f->wqe;
        Request r;
        r.opcode = static_cast<ibv_wr_opcode>(w.opcode);
        r.first = f->first;
        r.last = f->last;
        r.ack_request = f->ack_request;
        r.reliable = rec_.kind == QpKind::rc || rec_.kind == QpKind::dci;
        r.psn = f->psn;
        r.packets = f->packets;
        r.mtu = mtu;
        r.flags = w.flags;
        r.offset = f->offset;
        r.bytes = f->bytes;
        r.total = w.total;
        r.remote_addr = w.remote_addr;
        r.compare_add = w.compare_add;
        r.swap = w.swap;
        r.rkey = w.rkey;
        r.imm = w.imm;
        r.src_qpn = source_qpn;
        r.dst_qpn = w.remote_qpn;
        r.slid = static_cast<uint16_t>(source_lid(path_bits_of(w)));
        r.lost = c.lost;
        r.when = c.arrived;
        if (w.opcode == IBV_WR_RDMA_READ) { // a repeated read asks for the rest only
            r.remote_addr += f->offset;
            r.total -= f->offset;
            r.offset = 0;
        }
        if (f->copy)
            r.data.flat = f->copy.get() - f->offset;
        else if (in_queue)
            r.data = data_of(wqe(f->pos));
        if (rec_.kind == QpKind::ud) {
            r.qkey = w.remote_qkey & 0x80000000u ? rec_.qkey : w.remote_qkey; // 10.2.5: the high bit takes the QP's own
            r.with_grh = w.is_global;
            r.sl = w.sl;
            r.path_bits = static_cast<uint8_t>(w.dlid & ((1u << engine_.seg().img().port(c.dst_port).lmc) - 1));
            sent = deliver_datagram(engine_, *target, r);
        } else {
            Responder& ctx = rec_.kind == QpKind::dci ? rec_.responder : target->responder;
            const bool has_data = f->copy || in_queue || f->bytes == 0;
            // A late duplicate whose data is gone can only be a duplicate: never let it write garbage.
            if (has_data || psn_diff(psn_add(f->psn, f->packets), ctx.expected_psn) <= 0) {
                Reply reply = respond(engine_, *target, ctx, r);
                sent = reply.kind != ReplyKind::local_fault;
                if (rec_.kind == QpKind::rc && current && sent) apm_exchange(*target);
                if (current && reply.kind == ReplyKind::none && refused.kind != ReplyKind::none) {
                    reply = refused; // what the fast path was told
                    refused = {};
                }
                if (current && sent && r.reliable && reply.kind != ReplyKind::none) {
                    if (reply.kind == ReplyKind::read) {
                        if (!reads_) reads_ = std::make_unique<ReadStream>(*this);
                        reads_->start(f->pos, f->psn, f->offset, c.dst_port, target, c.arrived);
                    } else {
                        send_reply(c.dst_port, reply, c.arrived, *f);
                    }
                }
            }
        }
    }
    if (!sent && in_queue) {
        stop_at(f->pos, c.arrived);
    } else if (in_queue && rec_.kind != QpKind::rc && rec_.kind != QpKind::dci && f->last) {
        wqe(f->pos).done = 1;
        complete_done(c.arrived);
    }
    drop_flight(f);
    if (!dead_) settle();
}

void Requester::send_reply(uint32_t from_port, const Reply& reply, Nanos when, const Flight& f) {
    constexpr uint32_t kAckBytes = 4; // AETH
    const Nanos at = engine_.network().control(from_port, source_lid(path_bits_of(f.wqe)), kAckBytes, when, true);
    if (at == kNever) return;
    FlightPool& pool = *engine_.flights; // there is one: `f` came from it
    ReplyEvent* e = pool.replies;
    if (e)
        pool.replies = e->next;
    else
        e = &pool.all_replies.emplace_back();
    *e = {this, reply, f.pos, era_, nullptr};
    ++refs_;
    engine_.scheduler().at(
        at,
        [](void* self, uint64_t, Nanos t) {
            ReplyEvent* e = static_cast<ReplyEvent*>(self);
            Requester& r = *e->requester;
            --r.refs_;
            if (e->era == r.era_ && !r.dead_) r.handle_reply(e->reply, t, e->pos);
            e->next = r.engine_.flights->replies;
            r.engine_.flights->replies = e;
            if (!r.dead_) r.settle();
        },
        e);
}

// Nothing is outstanding: requests may be executed at once again.
void Requester::settle() {
    if (dead_ || head_ != tail_ || rec_.state.load(std::memory_order_relaxed) != IBV_QPS_RTS) return;
    if (engine_.modelled()) return;
    std::lock_guard guard(qp_.sq_lock);
    slow = false;
}

void Requester::retire() {
    if (stands_) engine_.waits().leave(*this, engine_.now());
    dead_ = true;
    ++era_;
    dc_release();
    cancel_reads();
    engine_.bury(this);
}

bool Requester::unused() const { return refs_ == 0 && in_flight == 0 && !net_ready && (!reads_ || reads_->unused()); }

void Requester::cancel_reads() {
    if (reads_) reads_->cancel();
}

} // namespace softhca
