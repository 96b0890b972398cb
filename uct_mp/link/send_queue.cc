#include "uct_mp/link/send_queue.h"

#include <bit>
#include <cstring>
#include <utility>

#include "uct_mp/link/posting.h"

namespace ucx_mp::link {

SendQueue::SendQueue(verbs::QueuePair queue_pair, Adapter& of_adapter, const QueueSizes& sizes, unsigned inline_limit,
                     Needs needs)
    : adapter(&of_adapter), qp(std::move(queue_pair)), slots_(static_cast<std::int32_t>(sizes.send_depth)),
      inline_bytes(inline_limit), dc(needs == Needs::address), addressed_(needs != Needs::nothing),
      depth_(sizes.send_depth), mask_(std::bit_ceil(sizes.send_depth + 1) - 1), ring_(new Posted[mask_ + 1]) {
    set_signal_interval(sizes.signal_interval);
    number = qp ? qp->qp_num : 0;
    wr_.sg_list = &sge_;
    wr_.num_sge = 1;
    wr_.opcode = IBV_WR_SEND;
    find_calls();
}

namespace {
// Puts the tag before a message, where there is room for it.
void put_tag(ibv_sge& sge, std::uint64_t tag) {
    sge.addr -= kTagBytes;
    sge.length += kTagBytes;
    std::memcpy(reinterpret_cast<void*>(sge.addr), &tag, kTagBytes);
}
} // namespace

void SendQueue::find_calls() {
    if (!dc || !qp) return;
    qp_ex_ = ibv_qp_to_qp_ex(qp.get());
    dv_ = mlx5dv_qp_ex_from_ibv_qp_ex(qp_ex_);
}

SendQueue::~SendQueue() { adapter->forget(); }

void SendQueue::replace(verbs::QueuePair fresh) {
    adapter->forget(); // its number may become another channel's
    qp = std::move(fresh);
    number = qp ? qp->qp_num : 0;
    draining = error_due = end_due = false;
    find_calls();
}

// Finds its place in a record, of its own or shared. Returns the flags that it is posted with.
[[gnu::always_inline]] inline unsigned SendQueue::join(const Origin& from, std::uint32_t bytes, bool signaled,
                                                       Nanos t_post) {
    Posted* joined = open_;
    if (joined && joined->epoch == from.epoch && joined->channel == from.channel && joined->path == from.path) {
        joined->bytes += bytes;
        ++joined->requests;
        --slots_;
        --adapter->send_credits;
        --quiet_left_;
    } else {
        record({.channel = from.channel, .bytes = bytes, .path = from.path, .epoch = from.epoch}, false);
        joined = open_ = &at(head - 1);
        wr_.wr_id = id_of(head - 1);
    }
    joined->extra += extra_packets(bytes);
    unsigned flags = 0;
    if (signaled) {
        joined->signaled = true;
        ++adapter->owed;
        joined->offset = bytes;
        joined->timed = t_post != 0;
        joined->t_post = t_post;
        open_ = nullptr;
        quiet_left_ = signal_interval_;
        flags = IBV_SEND_SIGNALED;
    }
    return flags;
}

bool SendQueue::send_whole(const Origin& from, const DcAddress& to, Buffer& buffer, bool signaled, Nanos t_post) {
    const std::uint32_t bytes = buffer.length;
    unsigned flags = join(from, bytes, signaled, t_post) | IBV_SEND_SOLICITED;
    sge_.addr = buffer.address();
    sge_.length = bytes;
    if (bytes <= inline_bytes)
        flags |= IBV_SEND_INLINE;
    else
        sge_.lkey = buffer.lkey[adapter->index];
    wr_.send_flags = flags;
    ibv_send_wr* bad;
    const int error = dc           ? post_dc(to, IBV_WR_SEND, &sge_, 1, {}, flags)
                      : addressed_ ? post_addressed(to, IBV_WR_SEND, &sge_, 1, {}, flags)
                                   : ibv_post_send(qp.get(), &wr_, &bad);
    return error == 0 || take_back(bytes);
}

bool SendQueue::write_whole(const Origin& from, const DcAddress& to, Buffer& buffer, const Written& as) {
    unsigned flags = join(from, as.bytes, as.signaled, as.t_post);
    ibv_sge sge{buffer.address(), as.bytes, 0};
    if (as.bytes <= inline_bytes)
        flags |= IBV_SEND_INLINE;
    else
        sge.lkey = buffer.lkey[adapter->index];
    const int error =
        dc ? post_dc(to, IBV_WR_RDMA_WRITE, &sge, 1, as.to, flags) : post_rc(IBV_WR_RDMA_WRITE, &sge, 1, as.to, flags);
    return error == 0 || take_back(as.bytes, true);
}

// The request that has just been recorded was not posted.
bool SendQueue::take_back(std::uint32_t bytes, bool written) {
    Posted& last = at(head - 1);
    last.bytes -= bytes;
    last.extra -=
        extra_packets(bytes + (addressed_ && !dc && !written ? kTagBytes : 0)); // for messages that share a record
    adapter->owed -= std::exchange(last.signaled, false);
    if (--last.requests == 0) --head;
    open_ = nullptr;
    ++slots_;
    ++adapter->send_credits;
    return false;
}

// The request of the last record.
int SendQueue::post_addressed(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                              unsigned flags) {
    if (dc) return post_dc(to, opcode, sge, count, remote, flags);
    if (opcode == IBV_WR_SEND) {
        std::uint32_t bytes = 0;
        for (int i = 0; i < count; ++i) bytes += sge[i].length;
        at(head - 1).extra += extra_packets(bytes + kTagBytes) - extra_packets(bytes);
        put_tag(*sge, to.tag);
    }
    return post_rc(opcode, sge, count, remote, flags);
}

int SendQueue::post_dc(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                       unsigned flags) {
    ibv_wr_start(qp_ex_);
    qp_ex_->wr_id = id_of(head - 1);
    qp_ex_->wr_flags = flags;
    switch (opcode) {
    case IBV_WR_SEND:
        put_tag(*sge, to.tag);
        ibv_wr_send(qp_ex_);
        break;
    case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(qp_ex_, remote.rkey, remote.address);
        break;
    default:
        ibv_wr_rdma_read(qp_ex_, remote.rkey, remote.address);
        break;
    }
    mlx5dv_wr_set_dc_addr(dv_, to.ah, to.dct_number, to.key);
    if (flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(qp_ex_, reinterpret_cast<void*>(sge->addr), sge->length);
    else
        ibv_wr_set_sge_list(qp_ex_, static_cast<std::size_t>(count), sge);
    return ibv_wr_complete(qp_ex_);
}

bool SendQueue::atomic(const DcAddress& to, ibv_sge result, RemotePiece remote, std::uint64_t compare_add,
                       const std::uint64_t* swap, const Posted& posted) {
    record(posted, true);
    int error;
    if (!dc) {
        ibv_send_wr wr{};
        ibv_send_wr* bad;
        wr.wr_id = id_of(head - 1);
        wr.sg_list = &result;
        wr.num_sge = 1;
        wr.opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.atomic = {remote.address, compare_add, swap ? *swap : 0, remote.rkey};
        error = ibv_post_send(qp.get(), &wr, &bad);
    } else {
        ibv_wr_start(qp_ex_);
        qp_ex_->wr_id = id_of(head - 1);
        qp_ex_->wr_flags = IBV_SEND_SIGNALED;
        if (swap)
            ibv_wr_atomic_cmp_swp(qp_ex_, remote.rkey, remote.address, compare_add, *swap);
        else
            ibv_wr_atomic_fetch_add(qp_ex_, remote.rkey, remote.address, compare_add);
        mlx5dv_wr_set_dc_addr(dv_, to.ah, to.dct_number, to.key);
        ibv_wr_set_sge(qp_ex_, result.lkey, result.addr, result.length);
        error = ibv_wr_complete(qp_ex_);
    }
    return error == 0 || take_back(posted.bytes);
}

bool SendQueue::send_inline(const DcAddress& to, const void* data, std::uint32_t length, const Posted& posted,
                            unsigned flags) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(data), length, 0};
    return post(to, IBV_WR_SEND, &sge, 1, {}, posted, flags | IBV_SEND_INLINE);
}

bool SendQueue::send(const DcAddress& to, ibv_sge* sge, int count, const Posted& posted, unsigned flags) {
    return post(to, IBV_WR_SEND, sge, count, {}, posted, flags);
}

bool SendQueue::write_inline(const DcAddress& to, const void* data, std::uint32_t length, RemotePiece remote,
                             const Posted& posted, unsigned flags) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(data), length, 0};
    return post(to, IBV_WR_RDMA_WRITE, &sge, length ? 1 : 0, remote, posted, flags | IBV_SEND_INLINE);
}

} // namespace ucx_mp::link
