// One queue pair that sends: of one path (RC), or a DC initiator that many channels use. It posts, and knows in order
// what has been posted and not yet reaped. Channels and works are pointers here, which it only keeps.
//
// Threads: the interface's. A SendQueue never moves: completions find it by its address in wr_id.
#pragma once

#include <infiniband/mlx5dv.h>

#include <bit>
#include <cstdint>
#include <memory>

#include "uct_mp/host/services.h"
#include "uct_mp/link/buffer.h"
#include "uct_mp/link/sizes.h"
#include "uct_mp/schedule/path_state.h"
#include "uct_mp/verbs/handle.h"

namespace ucx_mp::link {

struct Adapter;
using schedule::PathIndex;

inline constexpr std::uint8_t kNoEpoch = 0xff;
// One posted work request; or several messages of one channel, path and epoch, of which at most the last asks for a
// completion.
struct Posted {
    channel::Channel* channel = nullptr;
    channel::Work* work = nullptr; // RDMA and zcopy; null: messages that their channel retains, or control
    std::uint64_t offset = 0;      // of the stripe in its work; messages: bytes of the last one
    std::uint32_t bytes = 0;       // charged to the path's account, in all
    std::uint8_t path = 0;
    std::uint8_t epoch = kNoEpoch; // a flush waits for it; kNoEpoch: control, or its work waits
    bool read = false;             // charged to the account of reads, else writes
    bool timed = false;            // t_post (of the last one) is set
    Nanos t_post = 0;
    std::uint32_t requests = 1;
    std::uint32_t extra = 0; // packets, beyond one per request
    std::uint32_t fence = 0; // its number, if this is a marker or a fenced message
    bool signaled = false;   // the last one asks for a completion; see Adapter::owed
};

// The destination of a request: for DC the address of the target, otherwise the queue pair knows. The tag is for both.
struct DcAddress {
    ibv_ah* ah = nullptr;
    std::uint32_t dct_number = 0;
    std::uint64_t key = 0;
    std::uint64_t tag = 0; // goes before every message
};

// The sender of a message: messages of one origin may share a record.
struct Origin {
    channel::Channel* channel;
    PathIndex path;
    std::uint8_t epoch;
};

struct RemotePiece {
    std::uint64_t address;
    std::uint32_t rkey;
};

// The form of a message: `bytes` in all.
struct Written {
    RemotePiece to;
    std::uint32_t bytes;
    bool signaled;
    Nanos t_post; // as send_whole()
};

// A caller's knowledge of a message at compile time: it is short enough
// to be copied into the request; it fits into one packet of every path.
enum class Fits : std::uint8_t { maybe, yes, one_packet };

class SendQueue;

// wr_id of a send: tag, position of its record, and its queue's address.
namespace request_id {
inline constexpr std::uint64_t kTag = 1;
inline SendQueue* queue_of(std::uint64_t id) { return reinterpret_cast<SendQueue*>(id & 0x0000'ffff'ffff'fffeull); }
inline std::uint16_t position_of(std::uint64_t id) { return static_cast<std::uint16_t>(id >> 48); }
inline bool is_send(std::uint64_t id) { return id & kTag; }
} // namespace request_id

// The requests of a queue need these beside it. RC needs nothing, or a tag before every message if the peer wants that.
// DC needs the address of a target, and the tag.
enum class Needs : std::uint8_t { nothing, tag, address };

inline constexpr std::int32_t kFailed = 1 << 24; // see SendQueue::slots_

class alignas(64) SendQueue {
public:
    SendQueue(verbs::QueuePair qp, Adapter& adapter, const QueueSizes& sizes, unsigned inline_bytes, Needs needs);
    SendQueue(const SendQueue&) = delete;
    ~SendQueue();

    Adapter* const adapter;
    verbs::QueuePair qp; // null: its adapter has died, or the pair is being ended aside

private:
    // A message needs these, on two cache lines with the request that is the same for all messages in one piece.
    Posted* open_ = nullptr;       // the last record, if messages may join it
    std::uint32_t quiet_left_ = 1; // messages until one asks for a completion; signal_interval_: the last one has
    std::int32_t slots_;           // requests that the queue pair has room for; kFailed less once it has failed

public:
    const std::uint32_t inline_bytes;

private:
    std::uint32_t mtu_ = 4096; // of the path, a power of two

public:
    const bool dc;

private:
    bool addressed_; // a request needs what DcAddress says
    ibv_sge sge_{};
    ibv_send_wr wr_{};

public:
    // Requests that fit now; `reserve` keeps some for acknowledgments and markers.
    static constexpr unsigned kReserve = 4;
    [[nodiscard]] bool room(unsigned n = 1 + kReserve) const;
    [[nodiscard]] bool idle() const { return head == tail; }
    [[nodiscard]] unsigned outstanding() const; // requests
    [[nodiscard]] unsigned records() const { return head - tail; }

    // Needs::tag, Needs::address: a message (not a write) has kTagBytes bytes of room in front of it, for
    // the tag. Each call posts one request and records it; the caller has asked room() before. False: the
    // provider refused, which is an error of the queue pair (channel/failures.cc), and there is no record.

    // A retained message in one piece, copied into the request if it is short enough. It may join
    // the record of the messages before. t_post: 0, or the time if it asks for a completion.
    [[nodiscard]] bool send_whole(const Origin& from, const DcAddress& to, Buffer& buffer, bool signaled, Nanos t_post);
    // The same written to the peer's memory, with more bytes behind it; no tag goes before it.
    [[nodiscard]] bool write_whole(const Origin& from, const DcAddress& to, Buffer& buffer, const Written& as);
    // The same in two steps, for mp_rc: a caller asks first whether the message may join the last record. Null: there
    // is none, or the next request must ask for a completion. If send_joined() returns false the caller calls
    // take_back().
    [[nodiscard]] Posted* joinable() const { return signal_due() ? nullptr : open_; }
    // joinable(), if there is also room().
    [[nodiscard]] Posted* ready() const;
    template <Fits> [[nodiscard]] bool send_joined(Posted& joined, Buffer& buffer, const std::uint64_t* tag = nullptr);
    // The same for a message over a ring: `bytes` with its tail. False: the caller calls take_back(bytes, true).
    [[nodiscard]] bool write_joined(Posted& joined, Buffer& buffer, std::uint32_t bytes, RemotePiece to);
    // The next request must ask for a completion, so that a queue never fills with requests that do not.
    [[nodiscard]] bool signal_due() const;
    [[nodiscard]] bool all_signaled() const { return quiet_left_ == signal_interval_; }
    // The queue pair of the only path to a peer (Wiring::only).
    bool sole = false;
    // At most half of the queue's depth: with kReserve kept free, one that asks for a completion must still fit.
    void set_signal_interval(std::uint32_t n) { quiet_left_ = signal_interval_ = n < depth_ / 2 ? n : depth_ / 2; }
    [[nodiscard]] bool send_inline(const DcAddress& to, const void* data, std::uint32_t length, const Posted& posted,
                                   unsigned flags);
    [[nodiscard]] bool send(const DcAddress& to, ibv_sge* sge, int count, const Posted& posted, unsigned flags);
    [[nodiscard]] bool write_inline(const DcAddress& to, const void* data, std::uint32_t length, RemotePiece remote,
                                    const Posted& posted, unsigned flags);
    [[nodiscard]] bool rdma(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                            const Posted& posted, unsigned flags);

    // The parts of rdma() for mp_rc, for a caller that has the record's contents at hand.
    void record(const Posted& posted, bool signaled);
    [[nodiscard]] int post_rc(ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote, unsigned flags);
    bool take_back(std::uint32_t bytes, bool written = false); // always false

    // 64 bit; `result` takes the value before. swap != null: compare and swap, else add.
    [[nodiscard]] bool atomic(const DcAddress& to, ibv_sge result, RemotePiece remote, std::uint64_t compare_add,
                              const std::uint64_t* swap, const Posted& posted);

    Posted& at(std::uint32_t position) { return ring_[position & mask_]; }
    // The oldest record is over: its room is there again.
    Posted& pop();
    // Later messages make a new record.
    void close() { open_ = nullptr; }

    // RC: packet numbers, which tell what the other side has executed.
    void begin_packets(std::uint32_t psn, ibv_mtu mtu);
    [[nodiscard]] std::uint32_t psn() const { return next_psn_; }         // behind everything reaped (not masked)
    [[nodiscard]] std::uint32_t extra_packets(std::uint32_t bytes) const; // of one request, beyond its first
    // Begins another life, after everything of the old one has been reaped. The queue still counts as
    // failed until revive(), and can be ended in its turn. Null: until the adapter is there again.
    void replace(verbs::QueuePair fresh);
    void revive();

    std::uint32_t head = 0, tail = 0; // records made, reaped; count up for ever
    // In the error state: nothing may be posted.
    [[nodiscard]] bool failed() const { return slots_ < -kFailed / 2; }
    void fail() { slots_ -= failed() ? 0 : kFailed; }
    std::uint32_t number = 0, drained_from = 0; // the pair's number, also while it is aside; psn() at its life's end
    // How its life ends (recover/failure.h). `draining`: nothing but the last request may be posted. `error_due`: the
    // queue pair is still to be moved to the error state. `end_due`: the last request is still to be posted.
    bool draining = false, error_due = false, end_due = false;

private:
    unsigned join(const Origin& from, std::uint32_t bytes, bool signaled, Nanos t_post); // returns the flags
    // The record at `position`.
    [[nodiscard]] std::uint64_t id_of(std::uint32_t position) const { return id_ | std::uint64_t{position} << 48; }
    void find_calls(); // finds the queue pair's functions
    bool post(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
              const Posted& posted, unsigned flags);
    int post_addressed(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                       unsigned flags);
    int post_dc(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote, unsigned flags);

    const std::uint64_t id_ = request_id::kTag | reinterpret_cast<std::uint64_t>(this);
    std::uint32_t signal_interval_ = 1, next_psn_ = 0; // every so many messages one asks for a completion
    const std::uint32_t depth_, mask_;
    std::unique_ptr<Posted[]> ring_;
    ibv_qp_ex* qp_ex_ = nullptr;
    mlx5dv_qp_ex* dv_ = nullptr;
};

inline void SendQueue::begin_packets(std::uint32_t psn, ibv_mtu mtu) {
    next_psn_ = psn;
    mtu_ = 128u << mtu;
}

inline void SendQueue::revive() {
    if (failed()) slots_ += kFailed;
    draining = error_due = end_due = false;
    quiet_left_ = signal_interval_;
    open_ = nullptr;
}

inline unsigned SendQueue::outstanding() const {
    return static_cast<unsigned>(static_cast<std::int32_t>(depth_) - slots_ - (failed() ? kFailed : 0));
}

inline std::uint32_t SendQueue::extra_packets(std::uint32_t bytes) const {
    return bytes > mtu_ ? (bytes - 1) >> std::countr_zero(mtu_) : 0;
}

} // namespace ucx_mp::link
