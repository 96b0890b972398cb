// The responder half of a queue pair, executed by the initiator's process on the target's shared records (no help from
// the target process): IB specification 9.6 (validation), 9.7.4-9.7.5 (RC responder), 9.8.2 (UC), 9.8.3 (UD).
#pragma once
#include <span>
#include <sys/uio.h>

#include "engine/objects.h"

namespace softhca {

// Payload of a request where it lies in the initiator's memory: an SGE list or one contiguous copy.
struct LocalData {
    const ibv_sge* sge = nullptr;
    uint32_t sges = 0;
    const char* flat = nullptr;
    // Fills `out` with the pieces of [offset, offset + length); returns how many (at most sges).
    unsigned pieces(uint64_t offset, uint64_t length, iovec* out) const;
    // Copies [offset, offset + length); false: some of the memory is gone.
    [[nodiscard]] bool gather(uint64_t offset, uint64_t length, char* to) const;
    // The other way round: `length` bytes to the start of the message's memory.
    [[nodiscard]] bool scatter(const char* from, uint64_t length) const;
};
inline constexpr unsigned kMaxSge = 32; // what an adapter offers, plus room for a split last word

// A run of consecutive packets of one message.
struct Request {
    ibv_wr_opcode opcode;
    bool first, last;
    bool ack_request;
    bool reliable;              // RC, DC
    bool with_grh = false;      // UD
    uint32_t psn, packets, mtu; // mtu in bytes
    uint32_t flags;             // IBV_SEND_SOLICITED
    uint64_t offset;            // of the first packet's payload in the message
    uint64_t bytes;             // payload of the run
    uint64_t total;             // of the message
    uint64_t remote_addr, compare_add, swap;
    uint32_t rkey, imm, src_qpn, dst_qpn;
    uint32_t qkey = 0; // UD
    uint16_t slid = 0;
    uint8_t sl = 0, path_bits = 0;
    uint64_t lost = 0; // bit i: packet i did not arrive
    Nanos when;
    LocalData data;
};

// local_fault: no answer of the target, which has not seen the packet; the initiator's own memory is gone.
enum class ReplyKind : uint8_t {
    none,
    ack,
    rnr,
    nak_sequence,
    nak_invalid,
    nak_access,
    nak_operation,
    atomic,
    read,
    local_fault
};

struct Reply { // two registers: in memory, it would wait for all writes to cold lines before it
    ReplyKind kind = ReplyKind::none;
    uint8_t rnr_timer = 0; // code of IB table 45
    uint32_t psn = 0;      // ack: everything up to this is executed. NAK, RNR: the packet refused
    uint64_t value = 0;    // atomic: the original value
};
static_assert(sizeof(Reply) == 16);

// Executes `r` at `target` under target.lock (taken here). `ctx` is target.responder, or the DCI's context for a DCT.
// Packets of `r.lost` are skipped, what follows is then out of sequence. Reads are only checked and counted: the caller
// moves the data (Reply::read). `target` is what find_target() has found for r.dst_qpn; if it has become another queue
// pair since, nothing happens.
Reply respond(Engine& engine, QpRec& target, Responder& ctx, const Request& r);
// Unreliable datagram to one QP. False: the sender's own memory is gone, nothing has happened.
bool deliver_datagram(Engine& engine, QpRec& target, const Request& r);

// The record of `qpn` if it exists on the device of `dst_port`; nullptr otherwise.
QpRec* find_target(Segment& seg, uint32_t dst_port, uint32_t qpn);
// Whether a packet is taken (IB 10.9.3): the keys' numbers are the same and not 0, and one end is a full member.
bool same_partition(Segment& seg, const QpRec& from, const QpRec& to);

// Checks a remote key for [va, va + length) with `access` in PD `pd`; returns the MR marked in use (Process::clear_mr)
// or nullptr.
MrRec* check_remote(Process& p, uint32_t rkey, uint64_t va, uint64_t length, int access, uint32_t pd, uint32_t device,
                    std::atomic<uint32_t>*& cell);

// The target's QP goes to ERR because of what a peer sent (IB 9.9.3): flushes its receives, event to its owner, who
// also finds its send queue in error at the next look (QpRec::state). target.lock held.
void fail_target(Segment& seg, QpRec& target, ibv_event_type event);

// The states in which a responder answers.
inline bool receives(uint32_t state) {
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

inline uint32_t psn_add(uint32_t psn, uint64_t n) { return static_cast<uint32_t>((psn + n) & 0xffffff); }
// Signed distance a - b in the 24-bit circle.
inline int32_t psn_diff(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) >> 8; }
inline uint32_t mtu_bytes(uint8_t mtu) { return 128u << mtu; }
inline uint32_t packets_of(uint64_t bytes, uint32_t mtu) {
    return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + mtu - 1) / mtu);
}
// Virtual time may leave long payloads out (FabricState::payload_limit, by message length).
inline bool carries_payload(Segment& seg, uint64_t total) {
    const uint64_t limit = seg.fabric.payload_limit.load(std::memory_order_relaxed);
    return limit == 0 || total <= limit;
}
Nanos rnr_delay(uint32_t code); // IB table 45, nanoseconds

} // namespace softhca
