#include "engine/responder.h"

#include <algorithm>
#include <cstring>

#include "core/guarded_copy.h"
#include "engine/engine.h"
#include "engine/placement.h"
#include "engine/receives.h"

namespace softhca {

unsigned LocalData::pieces(uint64_t offset, uint64_t length, iovec* out) const {
    if (flat) {
        out[0] = {const_cast<char*>(flat) + offset, length};
        return length ? 1 : 0;
    }
    unsigned n = 0;
    for (uint32_t i = 0; i < sges && length; ++i) {
        if (offset >= sge[i].length) {
            offset -= sge[i].length;
            continue;
        }
        const uint64_t take = std::min<uint64_t>(length, sge[i].length - offset);
        out[n++] = {reinterpret_cast<void*>(sge[i].addr + offset), take};
        length -= take;
        offset = 0;
    }
    return n;
}

bool LocalData::gather(uint64_t offset, uint64_t length, char* to) const {
    iovec v[kMaxSge];
    const unsigned n = pieces(offset, length, v);
    for (unsigned i = 0; i < n; ++i) {
        if (softhca_guarded_copy(to, v[i].iov_base, v[i].iov_len)) [[unlikely]]
            return false;
        to += v[i].iov_len;
    }
    return true;
}

bool LocalData::scatter(const char* from, uint64_t length) const {
    iovec v[kMaxSge];
    const unsigned n = pieces(0, length, v);
    for (unsigned i = 0; i < n; ++i) {
        if (softhca_guarded_copy(v[i].iov_base, from, v[i].iov_len)) [[unlikely]]
            return false;
        from += v[i].iov_len;
    }
    return true;
}

Nanos rnr_delay(uint32_t code) {
    static constexpr uint32_t us10[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                          48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                          2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return static_cast<Nanos>(us10[code & 31]) * 10000;
}

QpRec* find_target(Segment& seg, uint32_t dst_port, uint32_t qpn) {
    if (dst_port == kNone) return nullptr;
    QpRec& t = seg.qp(qpn & (kMaxQps - 1));
    if (t.qpn.load(std::memory_order_acquire) != qpn || qpn == 0) return nullptr;
    if (t.device != seg.img().port(dst_port).device) return nullptr;
    return t.life == seg.device(t.device).deaths.load(std::memory_order_relaxed) ? &t : nullptr;
}

bool same_partition(Segment& seg, const QpRec& from, const QpRec& to) {
    const auto key_of = [&](const QpRec& qp) -> uint32_t {
        if (qp.port == kNone || qp.path.pkey_index >= kMaxPkeys) return 0;
        return seg.port(qp.port).pkeys[qp.path.pkey_index].load(std::memory_order_relaxed);
    };
    const uint32_t ours = key_of(from), theirs = key_of(to);
    constexpr uint32_t kNumber = kFullMember - 1;
    return (ours & kNumber) != 0 && (ours & kNumber) == (theirs & kNumber) && ((ours | theirs) & kFullMember) != 0;
}

MrRec* check_remote(Process& p, uint32_t rkey, uint64_t va, uint64_t length, int access, uint32_t pd, uint32_t device,
                    std::atomic<uint32_t>*& cell) {
    MrRec* mr = p.mark_mr(rkey, cell);
    if (!mr) return nullptr;
    const bool ok = mr->pd == pd && mr->device == device && (static_cast<int>(mr->access) & access) == access &&
                    va >= mr->iova && length <= mr->length && va - mr->iova <= mr->length - length;
    if (ok) return mr;
    Process::clear_mr(cell);
    return nullptr;
}

void fail_target(Segment& seg, QpRec& target, ibv_event_type event) {
    if (target.state.load() == IBV_QPS_ERR) return;
    if (target.kind != QpKind::dct) { // a DCT serves others: it stays
        target.state.store(IBV_QPS_ERR);
        flush_receives(seg, target);
    }
    raise_object_event(seg, target.async_channel, event, target.user);
    seg.fabric.generation.fetch_add(1); // the owner looks at its QPs' states when this moves
}

namespace {

bool is_send(ibv_wr_opcode op) { return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV; }
bool is_write(ibv_wr_opcode op) { return op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM; }

// One call of respond(): the state that its steps share.
class Execution {
public:
    Execution(Engine& engine, QpRec& target, Responder& ctx, const Request& r)
        : engine_(engine), p_(engine.process()), seg_(engine.seg()), t_(target), ctx_(ctx), r_(r) {}

    Reply run() {
        Reply reply;
        uint32_t i = 0;
        while (i < r_.packets) { // runs of packets that arrived
            if (i < 64 && (r_.lost >> i & 1)) {
                ++i;
                continue;
            }
            uint32_t n = 1;
            while (i + n < r_.packets && !(i + n < 64 && (r_.lost >> (i + n) & 1))) ++n;
            const Reply step = packets(i, n);
            if (step.kind != ReplyKind::none) reply = step;
            if (step.kind > ReplyKind::ack && step.kind != ReplyKind::atomic && step.kind != ReplyKind::read) break;
            i += n;
        }
        return reply;
    }

private:
    Reply ack() const { return {ReplyKind::ack, 0, psn_add(ctx_.expected_psn, 0xffffff), 0}; }

    // Packets [i, i + n) of the request.
    Reply packets(uint32_t i, uint32_t n) {
        uint32_t psn = psn_add(r_.psn, i);
        if (!r_.reliable) return unreliable(i, n, psn);
        const int32_t ahead = psn_diff(psn, ctx_.expected_psn);
        if (ahead > 0) { // something before it is missing
            if (ctx_.nak_sent) return {};
            ctx_.nak_sent = 1;
            return {ReplyKind::nak_sequence, 0, ctx_.expected_psn, 0};
        }
        if (ahead < 0) {
            if (r_.opcode == IBV_WR_RDMA_READ) return read(true);
            if (r_.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r_.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
                return saved_atomic(psn);
            const uint32_t seen = static_cast<uint32_t>(-ahead);
            if (seen >= n) return ack(); // executed already: only the acknowledgment again
            i += seen;
            n -= seen;
        }
        ctx_.nak_sent = 0;
        return execute(i, n);
    }

    // UC: a lost packet costs the message it belonged to, nothing else (9.8.2.2.1).
    Reply unreliable(uint32_t i, uint32_t n, uint32_t psn) {
        const bool at_first = r_.first && i == 0;
        if (!at_first && (psn != ctx_.expected_psn || !ctx_.in_message)) {
            drop_message();
            return {};
        }
        if (at_first) {
            drop_message();
            ctx_.expected_psn = psn;
        }
        const Reply reply = execute(i, n);
        if (reply.kind != ReplyKind::local_fault) return {};
        drop_message();
        return reply;
    }
    void drop_message() {
        ctx_.in_message = 0; // its receive, if it holds one, serves the next message: nothing was reported
    }

    Reply execute(uint32_t i, uint32_t n) {
        const bool first = r_.first && i == 0;
        const bool last = r_.last && i + n == r_.packets;
        const uint64_t from = std::min<uint64_t>(r_.bytes, static_cast<uint64_t>(i) * r_.mtu);
        const uint64_t bytes = std::min<uint64_t>(r_.bytes - from, static_cast<uint64_t>(n) * r_.mtu);
        if (is_send(r_.opcode)) return send(n, first, last, r_.offset + from, bytes);
        if (is_write(r_.opcode)) return write(n, first, last, r_.offset + from, bytes);
        if (r_.opcode == IBV_WR_RDMA_READ) return read(false);
        return atomic();
    }

    Reply refuse(ReplyKind kind, ibv_event_type event) {
        const Reply nak{kind, 0, ctx_.expected_psn, 0};
        if (r_.reliable)
            fail_target(seg_, t_, event);
        else
            drop_message();
        return nak;
    }

    Reply advance(uint32_t packets, bool last) {
        ctx_.expected_psn = psn_add(ctx_.expected_psn, packets);
        ctx_.in_message = !last;
        if (last) ++ctx_.msn;
        return r_.ack_request ? ack() : Reply{};
    }

    // A DCT has no such attribute: it serves what its initiators may ask for.
    bool serves_reads() const { return t_.kind == QpKind::dct || t_.max_dest_rd_atomic != 0; }

    Reply not_ready() {
        ctx_.nak_sent = 1; // what follows is dropped in silence until the refused packet comes again (9.7.5.2.8)
        return {ReplyKind::rnr, t_.rnr_timer, ctx_.expected_psn, 0};
    }

    bool hold_receive() {
        const bool held = ctx_.in_recv;
        RecvQueue& q = recv_queue_of(seg_, t_);
        if (!take_receive(seg_, q, ctx_)) return false;
        if (!held) {
            if (t_.kind == QpKind::dct) {
                ctx_.recv_srq = t_.recv_queue;
                ctx_.recv_srq_id = q.id;
            }
            ctx_.in_recv = 1;
        }
        return true;
    }

    // A receive completion for the message in progress. False: the payload can't be read; nothing has happened.
    bool complete_receive(uint8_t status, uint64_t length, const LocalData* payload) {
        Cqe e;
        fill_receive(e, t_, recv_queue_of(seg_, t_), ctx_.recv_entry, r_);
        e.status = status;
        e.byte_len = static_cast<uint32_t>(length);
        e.in_payload = payload ? static_cast<uint8_t>(length) : 0;
        if (payload && !payload->gather(0, length, e.payload)) [[unlikely]]
            return false;
        place_completion(engine_, t_, r_.src_qpn, e, ctx_.in_recv, r_.when);
        return true;
    }

    // A whole message of more than the completion entry holds, by way of the staging ring. no_room: nothing has
    // happened.
    Staging stage(uint32_t length) {
        Cqe e;
        fill_receive(e, t_, recv_queue_of(seg_, t_), ctx_.recv_entry, r_);
        e.byte_len = length;
        return place_staged(engine_, t_, r_.src_qpn, recv_queue_of(seg_, t_), e, r_.data, length, ctx_.in_recv,
                            r_.when);
    }

    // The packet stays unsent. `first`: the message has not begun then.
    Reply not_sent(bool first) {
        if (first) ctx_.in_message = 0;
        return {ReplyKind::local_fault, 0, ctx_.expected_psn, 0};
    }

    Reply receive_error(uint8_t wc_status, ReplyKind nak) {
        (void)complete_receive(wc_status, 0, nullptr);
        ctx_.in_message = 0;
        if (!r_.reliable) return {};
        const Reply reply{nak, 0, ctx_.expected_psn, 0};
        fail_target(seg_, t_, IBV_EVENT_QP_FATAL);
        return reply;
    }

    Reply send(uint32_t n, bool first, bool last, uint64_t offset, uint64_t bytes) {
        if (first == static_cast<bool>(ctx_.in_message)) return refuse(ReplyKind::nak_invalid, IBV_EVENT_QP_REQ_ERR);
        if (!hold_receive()) {
            if (!r_.reliable) return {};
            return not_ready();
        }
        RecvQueue& q = recv_queue_of(seg_, t_);
        if (first) {
            ctx_.in_message = 1;
            ctx_.progress = 0;
        }
        const uint64_t end = ctx_.progress + bytes;
        if (end > q.min_length.load(std::memory_order_relaxed)) {
            const RecvWqe* w = recv_entry(seg_, q, ctx_.recv_entry);
            if (end > w->total) return receive_error(IBV_WC_LOC_LEN_ERR, ReplyKind::nak_invalid);
            if (end > w->covered) return receive_error(IBV_WC_LOC_PROT_ERR, ReplyKind::nak_operation);
        }
        if (first && last && bytes <= kCqePayload) { // small messages travel in the completion entry
            if (!complete_receive(IBV_WC_SUCCESS, bytes, bytes ? &r_.data : nullptr)) return not_sent(first);
            return advance(n, true);
        }
        if (first && last && bytes <= kStagedMost) {
            const Staging staged = stage(static_cast<uint32_t>(bytes));
            if (staged == Staging::fault) return not_sent(first);
            if (staged == Staging::done) return advance(n, true);
        }
        switch (carries_payload(seg_, r_.total) ? place_receive(engine_, t_, r_.src_qpn, q, ctx_.recv_entry,
                                                                ctx_.progress, r_.data, offset, bytes, r_.when)
                                                : CopyResult::ok) {
        case CopyResult::ok:
            break;
        case CopyResult::dead:
            if (first) ctx_.in_message = 0; // it has not begun: the repeated packet is a first one again
            return {};
        case CopyResult::fault:
            return receive_error(IBV_WC_LOC_PROT_ERR, ReplyKind::nak_operation);
        case CopyResult::local_fault:
            return not_sent(first);
        }
        ctx_.progress = static_cast<uint32_t>(end);
        if (last) (void)complete_receive(IBV_WC_SUCCESS, end, nullptr);
        return advance(n, last);
    }

    Reply write(uint32_t n, bool first, bool last, uint64_t offset, uint64_t bytes) {
        if (first == static_cast<bool>(ctx_.in_message)) return refuse(ReplyKind::nak_invalid, IBV_EVENT_QP_REQ_ERR);
        if (!(t_.access & IBV_ACCESS_REMOTE_WRITE)) return refuse(ReplyKind::nak_access, IBV_EVENT_QP_ACCESS_ERR);
        const bool imm = r_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        if (imm && last && !hold_receive()) {
            // The packets before the last one are executed; only the last is refused (9.7.5.2.8). The run is cut there.
            if (n > 1) {
                const uint64_t body = static_cast<uint64_t>(n - 1) * r_.mtu;
                const Reply before = write_body(n - 1, first, false, offset, std::min(bytes, body));
                if (before.kind > ReplyKind::ack) return before;
            }
            return r_.reliable ? not_ready() : Reply{};
        }
        return write_body(n, first, last, offset, bytes);
    }

    Reply write_body(uint32_t n, bool first, bool last, uint64_t offset, uint64_t bytes) {
        if (bytes || (first && r_.total)) {
            std::atomic<uint32_t>* cell;
            // The first packet's RETH covers the whole message; later packets are checked again as the key may be gone.
            const uint64_t check_at = first ? 0 : offset, check_len = first ? r_.total : bytes;
            MrRec* mr = check_remote(p_, r_.rkey, r_.remote_addr + check_at, check_len, IBV_ACCESS_REMOTE_WRITE, t_.pd,
                                     t_.device, cell);
            if (!mr) return refuse(ReplyKind::nak_access, IBV_EVENT_QP_ACCESS_ERR);
            const uint64_t to = mr->addr + (r_.remote_addr + offset - mr->iova);
            const CopyResult result = carries_payload(seg_, r_.total) ? place_write(engine_, t_, r_.src_qpn, *mr, to,
                                                                                    r_.data, offset, bytes, r_.when)
                                                                      : CopyResult::ok;
            Process::clear_mr(cell);
            if (result == CopyResult::dead) return {};
            if (result == CopyResult::fault) return refuse(ReplyKind::nak_operation, IBV_EVENT_QP_FATAL);
            if (result == CopyResult::local_fault) return not_sent(first);
        }
        if (last && r_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) (void)complete_receive(IBV_WC_SUCCESS, r_.total, nullptr);
        return advance(n, last);
    }

    Reply read(bool duplicate) {
        if (!duplicate && ctx_.in_message) return refuse(ReplyKind::nak_invalid, IBV_EVENT_QP_REQ_ERR);
        if (!(t_.access & IBV_ACCESS_REMOTE_READ) || !serves_reads())
            return refuse(ReplyKind::nak_access, IBV_EVENT_QP_ACCESS_ERR);
        if (r_.total) {
            std::atomic<uint32_t>* cell;
            MrRec* mr =
                check_remote(p_, r_.rkey, r_.remote_addr, r_.total, IBV_ACCESS_REMOTE_READ, t_.pd, t_.device, cell);
            if (!mr) return refuse(ReplyKind::nak_access, IBV_EVENT_QP_ACCESS_ERR);
            Process::clear_mr(cell);
        }
        if (!duplicate) advance(packets_of(r_.total, r_.mtu), true);
        return {ReplyKind::read, 0, r_.psn, 0};
    }

    Reply atomic() {
        if (ctx_.in_message) return refuse(ReplyKind::nak_invalid, IBV_EVENT_QP_REQ_ERR);
        if (r_.remote_addr % 8) return refuse(ReplyKind::nak_invalid, IBV_EVENT_QP_REQ_ERR);
        std::atomic<uint32_t>* cell = nullptr;
        MrRec* mr = (t_.access & IBV_ACCESS_REMOTE_ATOMIC) && serves_reads()
                        ? check_remote(p_, r_.rkey, r_.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC, t_.pd, t_.device, cell)
                        : nullptr;
        if (!mr) return refuse(ReplyKind::nak_access, IBV_EVENT_QP_ACCESS_ERR);
        uint64_t old = 0;
        drain_placements(engine_, t_.device, r_.dst_qpn, r_.src_qpn); // an atomic sees all that was written before it
        const CopyResult result = p_.atomic_at(mr->owner, mr->addr + (r_.remote_addr - mr->iova),
                                               r_.opcode == IBV_WR_ATOMIC_CMP_AND_SWP, r_.compare_add, r_.swap, &old);
        Process::clear_mr(cell);
        if (g_touched) [[unlikely]]
            g_touched(t_.device);
        if (result == CopyResult::dead) return {};
        if (result == CopyResult::fault) return refuse(ReplyKind::nak_operation, IBV_EVENT_QP_FATAL);
        const uint32_t slot = ctx_.saved_next++ % 16;
        ctx_.saved_psn[slot] = ctx_.expected_psn | Responder::kSaved;
        ctx_.saved_result[slot] = old;
        const uint32_t psn = ctx_.expected_psn;
        advance(1, true);
        return {ReplyKind::atomic, 0, psn, old};
    }

    Reply saved_atomic(uint32_t psn) const {
        for (uint32_t back = 1; back <= 16; ++back) { // newest first: an old one may have the same number, a round ago
            const uint32_t i = (ctx_.saved_next - back) % 16;
            if (ctx_.saved_psn[i] == (psn | Responder::kSaved))
                return {ReplyKind::atomic, 0, psn, ctx_.saved_result[i]};
        }
        return {}; // older than what is kept: dropped (9.7.5.1.3)
    }

    Engine& engine_;
    Process& p_;
    Segment& seg_;
    QpRec& t_;
    Responder& ctx_;
    const Request& r_;
};

} // namespace

Reply respond(Engine& engine, QpRec& target, Responder& ctx, const Request& r) {
    (void)target.lock.acquire();
    Reply reply;
    if (receives(target.state.load(std::memory_order_relaxed)) &&
        target.qpn.load(std::memory_order_relaxed) == r.dst_qpn)
        reply = Execution(engine, target, ctx, r).run();
    target.lock.release();
    return reply;
}

bool deliver_datagram(Engine& engine, QpRec& target, const Request& r) {
    Segment& seg = engine.seg();
    (void)target.lock.acquire();
    RecvQueue& q = recv_queue_of(seg, target);
    // A sender that is killed in the middle leaves its receive here, for the next datagram.
    Responder& ctx = target.responder;
    const uint64_t& entry = ctx.recv_entry;
    constexpr uint32_t kGrh = 40; // room in front of every datagram (11.4.1.2)
    if (receives(target.state.load(std::memory_order_relaxed)) &&
        target.qpn.load(std::memory_order_relaxed) == r.dst_qpn && target.kind == QpKind::ud && target.qkey == r.qkey &&
        take_receive(seg, q, ctx)) {
        ctx.in_recv = 1;
        Cqe e;
        fill_receive(e, target, q, entry, r);
        e.byte_len = static_cast<uint32_t>(r.total) + kGrh;
        const RecvWqe* w = recv_entry(seg, q, entry);
        bool sent = true;
        if (w->total < e.byte_len) {
            e.status = IBV_WC_LOC_LEN_ERR; // UD: the QP goes to ERR (11.6.2)
        } else if (w->covered < e.byte_len) {
            e.status = IBV_WC_LOC_PROT_ERR;
        } else if (r.total && r.total <= kCqePayload) {
            e.in_payload = static_cast<uint8_t>(r.total);
            e.wc_flags |= kCqeDatagram;
            sent = r.data.gather(0, r.total, e.payload);
        } else {
            if (r.total && r.total <= kStagedMost) {
                const uint8_t flags = e.wc_flags;
                e.wc_flags |= kCqeDatagram;
                const Staging staged = place_staged(engine, target, r.src_qpn, q, e, r.data,
                                                    static_cast<uint32_t>(r.total), ctx.in_recv, r.when);
                if (staged != Staging::no_room) {
                    target.lock.release();
                    return staged == Staging::done;
                }
                e.wc_flags = flags;
            }
            const CopyResult result =
                place_receive(engine, target, r.src_qpn, q, entry, kGrh, r.data, 0, r.total, r.when);
            if (result == CopyResult::fault) e.status = IBV_WC_LOC_PROT_ERR;
            sent = result != CopyResult::local_fault;
        }
        if (!sent) [[unlikely]] {
            target.lock.release();
            return false;
        }
        place_completion(engine, target, r.src_qpn, e, ctx.in_recv, r.when);
        if (e.status != IBV_WC_SUCCESS) fail_target(seg, target, IBV_EVENT_QP_FATAL);
    }
    target.lock.release();
    return true;
}

} // namespace softhca
