// Raw requests of the public mlx5 interface for every test that has some: a queue pair that takes them, and entries as
// its header lays them out. Knows neither clock nor fabric. Whatever fails throws std::runtime_error.
#pragma once
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace raw_test {

inline void must_work(bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// A reliable queue pair in state RESET; nullptr with errno if it is refused.
inline ibv_qp* create(ibv_pd* pd, ibv_cq* cq, uint32_t depth, bool sig_all = false) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.pd = pd;
    init.cap = {depth, 16, 2, 1, 64};
    init.sq_sig_all = sig_all;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    return mlx5dv_create_qp(pd->context, &init, &dv);
}

constexpr uint8_t kSignal = MLX5_WQE_CTRL_CQ_UPDATE, kFence = MLX5_WQE_CTRL_FENCE,
                  kSmallFence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
constexpr uint32_t kWait = 0x0f, kOnData = 1;
enum How : uint32_t { always, equal, bigger, smaller, cyclic_bigger, cyclic_smaller, inverted = 0x10 };

// Segments of 16 bytes, in the order in which they are added.
struct Entry {
    std::array<char, 256> bytes{};
    size_t used = 0;
    template <class Segment> Entry& add(const Segment& s) {
        std::memcpy(bytes.data() + used, &s, sizeof s);
        used += (sizeof s + 15) / 16 * 16;
        return *this;
    }
    mlx5_wqe_ctrl_seg& control() { return *reinterpret_cast<mlx5_wqe_ctrl_seg*>(bytes.data()); }
};

inline Entry begin(ibv_qp* qp, uint32_t opcode, uint32_t modifier, uint8_t flags) {
    mlx5_wqe_ctrl_seg c{};
    c.opmod_idx_opcode = htobe32(modifier << 24 | opcode);
    c.qpn_ds = htobe32(qp->qp_num << 8);
    c.fm_ce_se = flags;
    return Entry{}.add(c);
}

inline Entry& data(Entry& e, const void* from, uint32_t bytes, uint32_t lkey) {
    return e.add(mlx5_wqe_data_seg{htobe32(bytes), htobe32(lkey), htobe64(reinterpret_cast<uint64_t>(from))});
}

// Until the word, where `mask` has ones, is `value`.
inline Entry wait(ibv_qp* qp, const void* word, uint32_t lkey, uint64_t value, uint64_t mask = UINT64_MAX,
                  uint8_t flags = kSignal | kFence, uint32_t how = equal) {
    struct {
        uint32_t how, lkey;
        uint64_t address, value, mask;
    } s{htobe32(how), htobe32(lkey), htobe64(reinterpret_cast<uint64_t>(word)), value, mask};
    return begin(qp, kWait, kOnData, flags).add(s);
}

inline Entry write(ibv_qp* qp, const void* from, uint32_t bytes, uint32_t lkey, const void* to, uint32_t rkey,
                   uint8_t flags = kSignal | kSmallFence) {
    Entry e = begin(qp, MLX5_OPCODE_RDMA_WRITE, 0, flags);
    e.add(mlx5_wqe_raddr_seg{htobe64(reinterpret_cast<uint64_t>(to)), htobe32(rkey), 0});
    return data(e, from, bytes, lkey);
}

// What ibv_wr_complete says. Fills in how long the entry is, unless that is said.
inline int post(ibv_qp* qp, Entry e, uint64_t id, uint32_t segments = 0) {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    mlx5dv_qp_ex* dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    must_work(dv && dv->wr_raw_wqe, "raw requests");
    e.control().qpn_ds |= htobe32(segments ? segments : static_cast<uint32_t>(e.used / 16));
    ibv_wr_start(ex);
    ex->wr_id = id;
    ex->wr_flags = 0; // do not count
    mlx5dv_wr_raw_wqe(dv, e.bytes.data());
    return ibv_wr_complete(ex);
}

} // namespace raw_test
