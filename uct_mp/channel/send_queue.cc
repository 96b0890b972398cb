#include "uct_mp/channel/send_queue.h"

#include <bit>

#include "uct_mp/channel/adapter.h"

namespace ucx_mp::channel {

SendQueue::SendQueue(verbs::QueuePair queue_pair, Adapter& of_adapter, unsigned depth, unsigned inline_limit, bool is_dc)
    : adapter(&of_adapter), inline_bytes(inline_limit), dc(is_dc), qp(std::move(queue_pair)), depth_(depth),
      mask_(std::bit_ceil(depth) - 1), ring_(new Posted[mask_ + 1]) {
    if (dc) {
        qp_ex_ = ibv_qp_to_qp_ex(qp.get());
        dv_ = mlx5dv_qp_ex_from_ibv_qp_ex(qp_ex_);
    }
}

inline bool SendQueue::record(const Posted& posted, unsigned flags) {
    at(head) = posted;
    ++head;
    --adapter->send_credits;
    unsignaled = flags & IBV_SEND_SIGNALED ? 0 : unsignaled + 1;
    return true;
}

inline bool SendQueue::post(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                            const Posted& posted, unsigned flags) {
    int error;
    if (!dc) {
        ibv_send_wr wr; // only what the operation needs is set: the rest of its 128 bytes is never read
        ibv_send_wr* bad;
        wr.wr_id = next_id();
        wr.next = nullptr;
        wr.sg_list = sge;
        wr.num_sge = count;
        wr.opcode = opcode;
        wr.send_flags = flags;
        wr.wr.rdma.remote_addr = remote.address;
        wr.wr.rdma.rkey = remote.rkey;
        error = ibv_post_send(qp.get(), &wr, &bad);
    } else {
        error = post_dc(to, opcode, sge, count, remote, flags);
    }
    return error == 0 && record(posted, flags);
}

int SendQueue::post_dc(const DcAddress& to, ibv_wr_opcode opcode, const ibv_sge* sge, int count, RemotePiece remote,
                       unsigned flags) {
    ibv_wr_start(qp_ex_);
    qp_ex_->wr_id = next_id();
    qp_ex_->wr_flags = flags;
    switch (opcode) {
    case IBV_WR_SEND: ibv_wr_send(qp_ex_); break;
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(qp_ex_, remote.rkey, remote.address); break;
    default: ibv_wr_rdma_read(qp_ex_, remote.rkey, remote.address); break;
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
    int error;
    if (!dc) {
        ibv_send_wr wr{};
        ibv_send_wr* bad;
        wr.wr_id = next_id();
        wr.sg_list = &result;
        wr.num_sge = 1;
        wr.opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.atomic = {remote.address, compare_add, swap ? *swap : 0, remote.rkey};
        error = ibv_post_send(qp.get(), &wr, &bad);
    } else {
        ibv_wr_start(qp_ex_);
        qp_ex_->wr_id = next_id();
        qp_ex_->wr_flags = IBV_SEND_SIGNALED;
        if (swap) ibv_wr_atomic_cmp_swp(qp_ex_, remote.rkey, remote.address, compare_add, *swap);
        else ibv_wr_atomic_fetch_add(qp_ex_, remote.rkey, remote.address, compare_add);
        mlx5dv_wr_set_dc_addr(dv_, to.ah, to.dct_number, to.key);
        ibv_wr_set_sge(qp_ex_, result.lkey, result.addr, result.length);
        error = ibv_wr_complete(qp_ex_);
    }
    return error == 0 && record(posted, IBV_SEND_SIGNALED);
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

bool SendQueue::rdma(const DcAddress& to, ibv_wr_opcode opcode, ibv_sge* sge, int count, RemotePiece remote,
                     const Posted& posted, unsigned flags) {
    return post(to, opcode, sge, count, remote, posted, flags);
}

} // namespace ucx_mp::channel
