// DC queue pairs by the public mlx5dv calls, for every test that has some: made, brought to work, and used. Knows
// neither clock nor fabric. Whatever fails throws std::runtime_error; who has made an object destroys it.
#pragma once
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dc_test {

constexpr uint64_t kOps =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

inline void must_work(bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// In state RESET.
inline ibv_qp* create_target(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, uint64_t key) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_DRIVER;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    dv.dc_init_attr.dct_access_key = key;
    ibv_qp* qp = mlx5dv_create_qp(pd->context, &init, &dv);
    must_work(qp, "DCT");
    return qp;
}

inline ibv_qp* create_initiator(ibv_pd* pd, ibv_cq* cq, uint32_t depth) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_DRIVER;
    init.send_cq = init.recv_cq = cq;
    init.pd = pd;
    init.cap.max_send_wr = depth;
    init.cap.max_send_sge = 1;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = kOps;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    ibv_qp* qp = mlx5dv_create_qp(pd->context, &init, &dv);
    must_work(qp, "DCI");
    return qp;
}

// From RESET to the state in which it answers, on port 1.
inline void open_target(ibv_qp* qp) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    must_work(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "DCT to INIT");
    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.min_rnr_timer = 1;
    a.ah_attr.port_num = 1;
    must_work(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU), "DCT to RTR");
}

// From RESET to the state in which it sends, on port 1.
inline void open_initiator(ibv_qp* qp, uint8_t timeout, uint8_t retry) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    must_work(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), "DCI to INIT");
    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.ah_attr.port_num = 1;
    must_work(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV), "DCI to RTR");
    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = timeout;
    a.retry_cnt = retry;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    must_work(!ibv_modify_qp(qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                 IBV_QP_MAX_QP_RD_ATOMIC),
              "DCI to RTS");
}

inline ibv_ah* address_of(ibv_pd* pd, uint16_t lid) {
    ibv_ah_attr a{};
    a.dlid = lid;
    a.port_num = 1;
    ibv_ah* ah = ibv_create_ah(pd, &a);
    must_work(ah, "ibv_create_ah");
    return ah;
}

enum class Op { send, write, read };
struct Where { // a target, and memory behind it
    ibv_ah* ah;
    uint32_t number;
    uint64_t key;
    uint32_t rkey = 0;
    uint64_t address = 0;
};

// One signalled request; what ibv_wr_complete says.
inline int post(ibv_qp* dci, Op op, const Where& to, const ibv_sge& from, uint64_t id) {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
    ibv_wr_start(ex);
    ex->wr_id = id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    if (op == Op::send)
        ibv_wr_send(ex);
    else if (op == Op::write)
        ibv_wr_rdma_write(ex, to.rkey, to.address);
    else
        ibv_wr_rdma_read(ex, to.rkey, to.address);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to.ah, to.number, to.key);
    ibv_wr_set_sge(ex, from.lkey, from.addr, from.length);
    return ibv_wr_complete(ex);
}

} // namespace dc_test
