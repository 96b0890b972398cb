// One queue pair that sends: of one path (RC), or a DC initiator that many channels use. Knows what has been posted and
// not yet reaped, in order; posts.
//
// Threads: the interface's. A SendQueue never moves: completions find it by its address in wr_id.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>

#include "uct_mp/channel/buffer.h"
#include "uct_mp/host/services.h"
#include "uct_mp/verbs/handle.h"

namespace ucx_mp::channel {

struct Adapter;
class Channel;

// One posted work request.
struct Posted {
    Channel* channel;
    Work* work;           // RDMA and zcopy; null: a message that its channel retains, or control
    std::uint64_t offset; // of the stripe in its work
    std::uint32_t bytes;  // in the path's account
    std::uint8_t path;
    std::uint8_t epoch;   // see Channel::epochs; kNoEpoch for control
    bool read;            // account: reads, else writes
    bool timed;           // t_post is set
    Nanos t_post;
};
inline constexpr std::uint8_t kNoEpoch = 0xff;

// Where a request goes: for DC the address of the target, otherwise the queue pair knows.
struct DcAddress {
    ibv_ah* ah = nullptr;
    std::uint32_t dct_number = 0;
    std::uint64_t key = 0;
};

struct RemotePiece {
    std::uint64_t address;
    std::uint32_t rkey;
};

class SendQueue {
public:
    SendQueue(verbs::QueuePair qp, Adapter& adapter, unsigned depth, unsigned inline_bytes, bool dc);
    SendQueue(const SendQueue&) = delete;

    // Requests that fit now; `reserve` keeps some for acknowledgments and markers.
    static constexpr unsigned kReserve = 4;
    [[nodiscard]] bool room(unsigned n = 1 + kReserve) const;
    [[nodiscard]] bool idle() const { return head == tail; }
    [[nodiscard]] unsigned outstanding() const { return head - tail; }

    // Each posts one request and records it; the caller has asked room() before. False: the provider refused, which is
    // an error of the queue pair (see complete.cc), the record has not been made.
    [[nodiscard]] bool send_inline(const DcAddress& to, const void* data, std::uint32_t length, const Posted& posted,
                                   unsigned flags);
    [[nodiscard]] bool send(const DcAddress& to, ibv_sge* sge, int count, const Posted& posted, unsigned flags);
    [[nodiscard]] bool write_inline(const DcAddress& to, const void* data, std::uint32_t length, RemotePiece remote,
                                    const Posted& posted, unsigned flags);
    [[nodiscard]] bool rdma(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                            const Posted& posted, unsigned flags);

    // 64 bit; `result` takes the value before. swap != null: compare and swap, else add.
    [[nodiscard]] bool atomic(const DcAddress& to, ibv_sge result, RemotePiece remote, std::uint64_t compare_add,
                              const std::uint64_t* swap, const Posted& posted);

    // wr_id: tag, position, and this object's address.
    static constexpr std::uint64_t kTag = 1;
    static SendQueue* of(std::uint64_t wr_id) {
        return reinterpret_cast<SendQueue*>(wr_id & 0x0000'ffff'ffff'fffeull);
    }
    static std::uint16_t position_of(std::uint64_t wr_id) { return static_cast<std::uint16_t>(wr_id >> 48); }
    static bool is_send(std::uint64_t wr_id) { return wr_id & kTag; }

    Posted& at(std::uint32_t position) { return ring_[position & mask_]; }

    std::uint32_t head = 0, tail = 0; // posted, reaped; count up for ever
    std::uint32_t unsignaled = 0;     // at the end of the queue, with no completion of their own to come
    Adapter* const adapter;
    const std::uint32_t inline_bytes;
    const bool dc;
    bool failed = false; // in the error state: nothing may be posted
    verbs::QueuePair qp;

private:
    [[nodiscard]] std::uint64_t next_id() const {
        return kTag | reinterpret_cast<std::uint64_t>(this) | std::uint64_t{head} << 48;
    }
    bool record(const Posted& posted, unsigned flags);
    bool post(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
              const Posted& posted, unsigned flags);
    int post_dc(const DcAddress& to, ibv_wr_opcode opcode, const ibv_sge* sge, int count, RemotePiece remote,
                unsigned flags);

    ibv_qp_ex* qp_ex_ = nullptr;
    mlx5dv_qp_ex* dv_ = nullptr;
    std::uint32_t depth_, mask_;
    std::unique_ptr<Posted[]> ring_;
};

} // namespace ucx_mp::channel
