// Verbs objects of one node of a World, for tests and benchmarks: what every verbs program does, in few lines.
#pragma once
#include <infiniband/verbs.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "softhca/world.h"

namespace softhca::sim {

inline void must(bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// One adapter of a node: context, protection domain, one completion queue.
class Hca {
public:
    Hca(World& world, uint32_t node, int cqe, uint32_t device = 0) : Hca(world, node, cqe, device, node) {}
    // Of a program with a processor of its own.
    Hca(World& world, uint32_t node, int cqe, uint32_t device, uint32_t processor) {
        world.select(node, processor);
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        must(list && static_cast<uint32_t>(n) > device, "ibv_get_device_list");
        context = ibv_open_device(list[device]);
        ibv_free_device_list(list);
        must(context, "ibv_open_device");
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, cqe, nullptr, nullptr, 0);
        must(pd && cq, "ibv_create_cq");
        must(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
    }
    ~Hca() {
        for (ibv_mr* mr : mrs) ibv_dereg_mr(mr);
        ibv_destroy_cq(cq);
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
    }
    Hca(const Hca&) = delete;
    ibv_mr* reg(void* memory, size_t bytes) {
        mrs.push_back(ibv_reg_mr(pd, memory, bytes,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                     IBV_ACCESS_REMOTE_ATOMIC));
        must(mrs.back(), "ibv_reg_mr");
        return mrs.back();
    }

    ibv_context* context;
    ibv_pd* pd;
    ibv_cq* cq;
    ibv_port_attr port;
    std::vector<ibv_mr*> mrs;
};

// A reliable connection's end.
class Rc {
public:
    explicit Rc(Hca& hca, uint32_t send_depth = 16, uint32_t recv_depth = 16, uint32_t inline_bytes = 0) : hca(hca) {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = hca.cq;
        a.qp_type = IBV_QPT_RC;
        a.cap = {send_depth, recv_depth, 1, 1, inline_bytes};
        qp = ibv_create_qp(hca.pd, &a);
        must(qp, "ibv_create_qp");
    }
    ~Rc() { ibv_destroy_qp(qp); }
    Rc(const Rc&) = delete;

    // `path`: path bits of both ends (LMC). `timeout`, `retry`: as in ibv_qp_attr. `reads`: max_rd_atomic.
    void connect(const Rc& to, uint8_t path = 0, uint8_t timeout = 14, uint8_t retry = 7, uint8_t reads = 4) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.pkey_index = pkey_index;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = std::min(hca.port.active_mtu, to.hca.port.active_mtu);
        a.dest_qp_num = to.qp->qp_num;
        a.rq_psn = 0;
        a.max_dest_rd_atomic = 16;
        a.min_rnr_timer = 12;
        a.ah_attr.dlid = static_cast<uint16_t>(to.hca.port.lid + path);
        a.ah_attr.src_path_bits = path;
        a.ah_attr.port_num = 1;
        must(!ibv_modify_qp(qp, &a,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "RTR");
        a.qp_state = IBV_QPS_RTS;
        a.timeout = timeout;
        a.retry_cnt = retry;
        a.rnr_retry = 7;
        a.max_rd_atomic = reads;
        must(!ibv_modify_qp(qp, &a,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                IBV_QP_MAX_QP_RD_ATOMIC),
             "RTS");
    }
    // Fetch and add: of one.
    void post(ibv_wr_opcode op, const ibv_mr* from, uint64_t offset, uint32_t bytes, const ibv_mr* to = nullptr,
              uint64_t to_offset = 0, uint64_t id = 0) {
        ibv_sge sge{reinterpret_cast<uint64_t>(from->addr) + offset, bytes, from->lkey};
        ibv_send_wr wr{}, *bad;
        wr.wr_id = id;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = op;
        wr.send_flags = IBV_SEND_SIGNALED;
        const uint64_t remote = to ? reinterpret_cast<uint64_t>(to->addr) + to_offset : 0;
        if (to && op == IBV_WR_ATOMIC_FETCH_AND_ADD)
            wr.wr.atomic = {remote, 1, 0, to->rkey};
        else if (to)
            wr.wr.rdma = {remote, to->rkey};
        must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
    }
    void recv(const ibv_mr* into, uint64_t offset, uint32_t bytes, uint64_t id = 0) {
        ibv_sge sge{reinterpret_cast<uint64_t>(into->addr) + offset, bytes, into->lkey};
        ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
        must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
    }

    Hca& hca;
    ibv_qp* qp;
    uint16_t pkey_index = 0; // of connect()
};

} // namespace softhca::sim
