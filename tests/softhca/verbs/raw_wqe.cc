// Raw requests: work queue entries as the public mlx5 interface (mlx5dv.h) lays them out, of a reliable connection. A
// control segment of 16 bytes, then by opcode:
//   SEND, SEND with immediate            data segments
//   RDMA WRITE, the same with immediate  the remote address, data segments
//   WAIT on data (modifier 1)            32 bytes: how to compare, local key, address and what to do if it does not
//   hold,
//                                        value, mask
// Data segments are {length, local key, address} of 16 bytes each, or one of inline data. All numbers are big endian,
// but for value and mask, which lie there as the word lies in memory.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstring>

#include "engine/waits.h"
#include "verbs/face.h"

namespace softhca::face {
namespace {

// The interface has no names for these.
constexpr uint32_t kOpcodeWait = 0x0f;
constexpr uint32_t kWaitOnData = 1;
constexpr uint64_t kActionBits = 7; // of the address; 0: look again
struct WaitSegment {
    __be32 operation, lkey;
    __be64 address_action, value, mask;
};
constexpr size_t kSegment = 16;
static_assert(sizeof(WaitSegment) == 2 * kSegment && sizeof(mlx5_wqe_ctrl_seg) == kSegment &&
              sizeof(mlx5_wqe_raddr_seg) == kSegment && sizeof(mlx5_wqe_data_seg) == kSegment);
constexpr uint32_t kWholeLength = 1u << 31; // what a segment of length 0 has

template <class Segment> Segment at(const char* place) {
    Segment s;
    std::memcpy(&s, place, sizeof s);
    return s;
}

uint32_t flags_of(uint8_t fm_ce_se) {
    uint32_t flags = kRaw;
    if (fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) flags |= IBV_SEND_SIGNALED;
    if (fm_ce_se & MLX5_WQE_CTRL_SOLICITED) flags |= IBV_SEND_SOLICITED;
    // Two bits more than the header names: 1 small fence, 2 fence, 3 strong order, 4 small fence and fence.
    const uint32_t fence = fm_ce_se >> 5;
    if (fence >= 2) flags |= IBV_SEND_FENCE;
    if (fence == 1 || fence >= 3) flags |= kSmallFence;
    return flags;
}

bool read_wait(const Qp& qp, const char* from, const char* end, SendDesc& d) {
    const Context& c = *context_of(qp.qp.context);
    if (!c.image().limits.has_wait || c.state().lack(Lack::wait)) return false;
    if (end - from != sizeof(WaitSegment)) return false;
    const auto s = at<WaitSegment>(from);
    const uint64_t address = be64toh(s.address_action);
    if (!wait_op_known(be32toh(s.operation)) || (address & kActionBits)) return false;
    d.opcode = IBV_WR_DRIVER1;
    d.imm = be32toh(s.operation);
    d.rkey = be32toh(s.lkey);
    d.remote_addr = address;
    d.compare_add = s.value;
    d.swap = s.mask;
    return true;
}

bool read_data(const Qp& qp, const char* from, const char* end, SendDesc& d, std::vector<ibv_sge>& sges,
               std::vector<char>& inlined) {
    for (; end - from >= static_cast<ptrdiff_t>(kSegment); from += kSegment) {
        const auto s = at<mlx5_wqe_data_seg>(from);
        const uint32_t length = be32toh(s.byte_count);
        if (length & MLX5_INLINE_SEG) {
            const uint32_t bytes = length & ~static_cast<uint32_t>(MLX5_INLINE_SEG);
            const char* data = from + sizeof s.byte_count;
            if (d.sges || bytes > qp.caps.max_inline || bytes > static_cast<size_t>(end - data)) return false;
            if (static_cast<size_t>(end - data) - bytes >= kSegment) return false; // segments behind it
            sges.push_back({.addr = inlined.size(), .length = bytes, .lkey = 0});
            inlined.insert(inlined.end(), data, data + bytes);
            d.sges = 1;
            d.flags |= IBV_SEND_INLINE;
            return true;
        }
        if (d.sges == qp.caps.max_send_sge) return false;
        sges.push_back({.addr = be64toh(s.addr), .length = length ? length : kWholeLength, .lkey = be32toh(s.lkey)});
        ++d.sges;
    }
    return from == end;
}

bool read_entry(const Qp& qp, const char* wqe, SendDesc& d, std::vector<ibv_sge>& sges, std::vector<char>& inlined) {
    const auto control = at<mlx5_wqe_ctrl_seg>(wqe);
    const uint32_t what = be32toh(control.opmod_idx_opcode), whose = be32toh(control.qpn_ds);
    d.flags = flags_of(control.fm_ce_se);
    d.imm = control.imm;
    const char* from = wqe + kSegment;
    const char* end = wqe + (whose & 0x3f) * kSegment;
    if (end < from || whose >> 8 != qp.qp.qp_num) return false;
    const uint32_t opcode = what & 0xff, modifier = what >> 24;
    if (opcode == kOpcodeWait) return modifier == kWaitOnData && read_wait(qp, from, end, d);
    if (modifier != 0) return false;
    switch (opcode) {
    case MLX5_OPCODE_SEND:
        d.opcode = IBV_WR_SEND;
        break;
    case MLX5_OPCODE_SEND_IMM:
        d.opcode = IBV_WR_SEND_WITH_IMM;
        break;
    case MLX5_OPCODE_RDMA_WRITE:
    case MLX5_OPCODE_RDMA_WRITE_IMM: {
        if (end - from < static_cast<ptrdiff_t>(kSegment)) return false;
        const auto remote = at<mlx5_wqe_raddr_seg>(from);
        d.opcode = opcode == MLX5_OPCODE_RDMA_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
        d.remote_addr = be64toh(remote.raddr);
        d.rkey = be32toh(remote.rkey);
        from += kSegment;
        break;
    }
    default:
        return false;
    }
    return read_data(qp, from, end, d, sges, inlined);
}

} // namespace

void read_raw(const Qp& qp, const void* wqe, SendDesc& d, std::vector<ibv_sge>& sges, std::vector<char>& inlined) {
    if (read_entry(qp, static_cast<const char*>(wqe), d, sges, inlined)) return;
    d.opcode = IBV_WR_SEND;
    d.flags &= ~uint32_t{IBV_SEND_INLINE};
    d.sges = 0;
    d.bad = IBV_WC_LOC_QP_OP_ERR;
}

} // namespace softhca::face
