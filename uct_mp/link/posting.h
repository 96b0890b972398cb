// Posting and reaping, inline: the part of a SendQueue that every operation executes. For callers on the data path.
#pragma once

#include <cstring>

#include "uct_mp/link/adapter.h"
#include "uct_mp/link/send_queue.h"

namespace ucx_mp::link {

[[gnu::always_inline]] inline void SendQueue::record(const Posted& posted, bool signaled) {
    Posted& made = at(head++);
    made = posted;
    made.signaled = signaled;
    adapter->owed += signaled;
    open_ = nullptr;
    quiet_left_ = signaled ? signal_interval_ : quiet_left_ - 1;
    --slots_;
    --adapter->send_credits;
}

[[gnu::always_inline]] inline Posted& SendQueue::pop() {
    Posted& posted = at(tail++);
    slots_ += static_cast<std::int32_t>(posted.requests);
    next_psn_ += posted.requests + posted.extra;
    adapter->send_credits += static_cast<std::int32_t>(posted.requests);
    adapter->owed -= posted.signaled;
    return posted;
}

// A message that joins the record before it and needs no completion,
// as most do. `tag` goes before it, if the queue needs one.
template <Fits fits>
[[gnu::always_inline]] inline bool SendQueue::send_joined(Posted& joined, Buffer& buffer, const std::uint64_t* tag) {
    const std::uint32_t bytes = buffer.length, sent = bytes + (tag ? kTagBytes : 0);
    joined.bytes += bytes;
    ++joined.requests;
    --slots_;
    --adapter->send_credits;
    --quiet_left_;
    if constexpr (fits != Fits::one_packet) { // a request may hold more than a packet
        if (sent > mtu_) [[unlikely]]
            joined.extra += extra_packets(sent);
    }
    unsigned flags = IBV_SEND_SOLICITED;
    sge_.addr = buffer.address();
    sge_.length = sent;
    if (tag) {
        sge_.addr -= kTagBytes;
        std::memcpy(reinterpret_cast<void*>(sge_.addr), tag, kTagBytes);
    }
    if (fits != Fits::maybe || bytes <= inline_bytes)
        flags |= IBV_SEND_INLINE;
    else
        sge_.lkey = buffer.lkey[adapter->index];
    wr_.send_flags = flags;
    ibv_send_wr* bad;
    return ibv_post_send(qp.get(), &wr_, &bad) == 0;
}

// The request at hand has the record's number already: it is a write for this one post.
[[gnu::always_inline]] inline bool SendQueue::write_joined(Posted& joined, Buffer& buffer, std::uint32_t bytes,
                                                           RemotePiece to) {
    joined.bytes += bytes;
    ++joined.requests;
    --slots_;
    --adapter->send_credits;
    --quiet_left_;
    if (bytes > mtu_) [[unlikely]]
        joined.extra += extra_packets(bytes);
    unsigned flags = 0;
    sge_.addr = buffer.address();
    sge_.length = bytes;
    if (bytes <= inline_bytes)
        flags = IBV_SEND_INLINE;
    else
        sge_.lkey = buffer.lkey[adapter->index];
    wr_.opcode = IBV_WR_RDMA_WRITE;
    wr_.send_flags = flags;
    wr_.wr.rdma.remote_addr = to.address;
    wr_.wr.rdma.rkey = to.rkey;
    ibv_send_wr* bad;
    const int error = ibv_post_send(qp.get(), &wr_, &bad);
    wr_.opcode = IBV_WR_SEND;
    return error == 0;
}

// The request of the last record.
[[gnu::always_inline]] inline int SendQueue::post_rc(ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                                                     unsigned flags) {
    ibv_send_wr wr; // only the fields that the operation needs are set: the rest of its 128 bytes is never read
    ibv_send_wr* bad;
    wr.wr_id = id_of(head - 1);
    wr.next = nullptr;
    wr.sg_list = sge;
    wr.num_sge = count;
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.wr.rdma.remote_addr = remote.address;
    wr.wr.rdma.rkey = remote.rkey;
    return ibv_post_send(qp.get(), &wr, &bad);
}

[[gnu::always_inline]] inline bool SendQueue::post(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count,
                                                   RemotePiece remote, const Posted& posted, unsigned flags) {
    record(posted, flags & IBV_SEND_SIGNALED);
    const int error =
        addressed_ ? post_addressed(to, opcode, sge, count, remote, flags) : post_rc(opcode, sge, count, remote, flags);
    return error == 0 || take_back(posted.bytes);
}

[[gnu::always_inline]] inline bool SendQueue::rdma(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count,
                                                   RemotePiece remote, const Posted& posted, unsigned flags) {
    return post(to, opcode, sge, count, remote, posted, flags);
}

} // namespace ucx_mp::link
