#include "uct_mp/verbs/queue_pair.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ucx_mp::verbs {
namespace {

constexpr unsigned kRemoteAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t kPsnMask = 0xffffff;
constexpr std::uint64_t kDciOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                         IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                         IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

// 0 or a positive errno, whatever the provider returns on failure.
int modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
    const int result = ibv_modify_qp(qp, &attributes, mask);
    if (result == 0) return 0;
    if (result > 0) return result;
    return errno ? errno : EIO;
}

// For the functions that report by errno: the queue pair is destroyed first, which may change it.
QueuePair give_up(QueuePair qp, int error) {
    qp.reset();
    errno = error;
    return nullptr;
}

QueuePair if_good(QueuePair qp, int error) { return error ? give_up(std::move(qp), error) : std::move(qp); }

// Some providers grant less inline space than asked for, others (mlx4, mlx5) refuse too much for a work
// request: so ask for less until it fits. `create` gets the capabilities and updates them to the granted ones.
template <class Create>
QueuePair create_with_inline(ibv_qp_cap wanted, std::uint32_t* granted_inline, const Create& create) {
    for (std::uint32_t bytes = wanted.max_inline_data;; bytes /= 2) {
        ibv_qp_cap cap = wanted;
        cap.max_inline_data = bytes;
        if (QueuePair qp{create(cap)}) {
            if (granted_inline) *granted_inline = cap.max_inline_data;
            return qp;
        }
        if (bytes == 0 || (errno != EINVAL && errno != ENOMEM)) return nullptr;
    }
}

ibv_qp_cap send_capabilities(const Device& device, const QueuePairLimits& limits) {
    ibv_qp_cap cap{};
    cap.max_send_wr = std::min(limits.send_wr, device.max_qp_wr);
    cap.max_send_sge = std::min(limits.send_sge, device.max_sge);
    cap.max_inline_data = limits.inline_bytes;
    return cap;
}

// Remote access is said at INIT; adapters without atomics refuse it with the atomics in.
int rc_to_init(ibv_qp* qp, const Rail& rail) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = rail.port;
    a.pkey_index = rail.pkey_index;
    a.qp_access_flags = kRemoteAccess;
    constexpr int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const int error = modify(qp, a, mask);
    if (error != EINVAL && error != EOPNOTSUPP) return error;
    a.qp_access_flags &= ~static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC);
    return modify(qp, a, mask);
}

// Over RoCE every packet has a global header: its source is an entry of our port's table. Routers count hops.
// The traffic class is the one that UCX's own transports use there (DSCP 26, congestion may be marked).
constexpr std::uint8_t kHops = 255, kTrafficClass = 106;

ibv_ah_attr address_of(ibv_context* context, const Rail& rail, const Destination& to, std::uint8_t service_level) {
    ibv_ah_attr a{};
    a.port_num = rail.port;
    a.sl = service_level;
    a.dlid = to.dlid;
    a.src_path_bits = to.source_path_bits;
    if (!rail.ethernet) return a;
    a.is_global = 1;
    std::memcpy(a.grh.dgid.raw, to.gid.data(), to.gid.size());
    a.grh.sgid_index = gid_index_now(context, rail);
    a.grh.hop_limit = kHops;
    a.grh.traffic_class = kTrafficClass;
    return a;
}

// The address comes with every request; the primary path says only port, service level and source.
ibv_ah_attr dc_address(ibv_qp* qp, const Rail& rail, const Reliability& reliability) {
    return address_of(qp->context, rail, {}, reliability.service_level);
}

// RESET -> RTS. DC's own rules for masks (mlx5): INIT without access flags, RTR with the MTU alone.
int dci_to_rts(ibv_qp* qp, const Device& device, const Rail& rail, const Reliability& reliability) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = rail.port;
    a.pkey_index = rail.pkey_index;
    if (const int error = modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT)) return error;

    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = rail.mtu;
    a.ah_attr = dc_address(qp, rail, reliability);
    if (const int error = modify(qp, a, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV)) return error;

    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = reliability.timeout;
    a.retry_cnt = reliability.retry_count;
    a.rnr_retry = reliability.rnr_retry;
    a.max_rd_atomic = static_cast<std::uint8_t>(std::min<unsigned>(reliability.max_rd_atomic, device.max_rd_atomic));
    return modify(qp, a,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC);
}

int dct_to_rtr(ibv_qp* qp, const Rail& rail, const Reliability& reliability) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = rail.port;
    a.pkey_index = rail.pkey_index;
    a.qp_access_flags = kRemoteAccess;
    if (const int error = modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return error;

    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = rail.mtu;
    a.min_rnr_timer = reliability.min_rnr_timer;
    a.ah_attr = dc_address(qp, rail, reliability);
    return modify(qp, a, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
}

int ud_to_rts(ibv_qp* qp, const Rail& rail, std::uint32_t q_key) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = rail.port;
    a.pkey_index = rail.pkey_index;
    a.qkey = q_key;
    if (const int error = modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) return error;
    a = {};
    a.qp_state = IBV_QPS_RTR;
    if (const int error = modify(qp, a, IBV_QP_STATE)) return error;
    a = {};
    a.qp_state = IBV_QPS_RTS;
    return modify(qp, a, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

} // namespace

QueuePair create_rc(const Device& device, const Rail& rail, const Queues& queues, const QueuePairLimits& limits,
                    std::uint32_t* granted_inline, QueuePair* broken) {
    QueuePair qp = create_with_inline(send_capabilities(device, limits), granted_inline, [&](ibv_qp_cap& cap) {
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.send_cq = queues.sends;
        init.recv_cq = queues.receives;
        init.srq = queues.srq;
        init.cap = cap;
        ibv_qp* made = ibv_create_qp(device.pd.get(), &init);
        cap = init.cap;
        return made;
    });
    if (!qp) return nullptr;
    const int error = rc_to_init(qp.get(), rail);
    if (error && broken) {
        *broken = std::move(qp);
        errno = error;
        return nullptr;
    }
    return if_good(std::move(qp), error);
}

QueuePair create_waiting_rc(const Device& device, const Rail& rail, ibv_cq* cq, const QueuePairLimits& limits) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.pd = device.pd.get();
    init.cap = send_capabilities(device, limits);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    mlx5dv_qp_init_attr raw{};
    raw.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    raw.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    QueuePair qp(mlx5dv_create_qp(device.context.get(), &init, &raw));
    if (!qp) return nullptr;
    const int error = rc_to_init(qp.get(), rail);
    return if_good(std::move(qp), error);
}

int to_reset(ibv_qp* qp) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    return modify(qp, a, IBV_QP_STATE);
}

int init_rc(ibv_qp* qp, const Rail& rail) { return rc_to_init(qp, rail); }

int connect_rc(ibv_qp* qp, const Rail& rail, const RemoteEnd& remote, const Reliability& reliability,
               std::uint32_t sq_psn) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = std::min(remote.mtu, rail.mtu);
    a.dest_qp_num = remote.qp_number;
    a.rq_psn = remote.rq_psn & kPsnMask;
    a.max_dest_rd_atomic = reliability.max_rd_atomic;
    a.min_rnr_timer = reliability.min_rnr_timer;
    a.ah_attr = address_of(qp->context, rail, remote.destination(), reliability.service_level);
    if (const int error = modify(qp, a,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return error;

    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = reliability.timeout;
    a.retry_cnt = reliability.retry_count;
    a.rnr_retry = reliability.rnr_retry;
    a.sq_psn = sq_psn & kPsnMask;
    a.max_rd_atomic = reliability.max_rd_atomic;
    return modify(qp, a,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC);
}

int load_alternate(ibv_qp* qp, const Rail& rail, const RemoteEnd& remote, const Reliability& reliability) {
    ibv_qp_attr a{};
    a.alt_ah_attr = address_of(qp->context, rail, remote.destination(), reliability.service_level);
    a.alt_port_num = rail.port;
    a.alt_pkey_index = rail.pkey_index;
    a.alt_timeout = reliability.timeout;
    a.path_mig_state = IBV_MIG_REARM;
    return modify(qp, a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

int migrate(ibv_qp* qp) {
    ibv_qp_attr a{};
    a.path_mig_state = IBV_MIG_MIGRATED;
    return modify(qp, a, IBV_QP_PATH_MIG_STATE);
}

QueuePair create_dci(const Device& device, const Rail& rail, ibv_cq* cq, const QueuePairLimits& limits,
                     const Reliability& reliability, std::uint32_t* granted_inline) {
    QueuePair qp = create_with_inline(send_capabilities(device, limits), granted_inline, [&](ibv_qp_cap& cap) {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = cq;
        init.pd = device.pd.get();
        init.cap = cap;
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = kDciOperations;
        mlx5dv_qp_init_attr dc{};
        dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        dc.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        ibv_qp* made = mlx5dv_create_qp(device.context.get(), &init, &dc);
        cap = init.cap;
        return made;
    });
    if (!qp) return nullptr;
    const int error = dci_to_rts(qp.get(), device, rail, reliability);
    return if_good(std::move(qp), error);
}

QueuePair create_dct(const Device& device, const Rail& rail, ibv_cq* cq, ibv_srq* srq, std::uint64_t access_key,
                     const Reliability& reliability) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_DRIVER;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.pd = device.pd.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr dc{};
    dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dc.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    dc.dc_init_attr.dct_access_key = access_key;
    QueuePair qp(mlx5dv_create_qp(device.context.get(), &init, &dc));
    if (!qp) return nullptr;
    const int error = dct_to_rtr(qp.get(), rail, reliability);
    return if_good(std::move(qp), error);
}

QueuePair create_ud(const Device& device, const Rail& rail, ibv_cq* send_cq, ibv_cq* recv_cq, std::uint32_t send_wr,
                    std::uint32_t recv_wr, std::uint32_t q_key) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = send_cq;
    init.recv_cq = recv_cq;
    init.cap.max_send_wr = std::min(send_wr, device.max_qp_wr);
    init.cap.max_recv_wr = std::min(recv_wr, device.max_qp_wr);
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    QueuePair qp(ibv_create_qp(device.pd.get(), &init));
    if (!qp) return nullptr;
    const int error = ud_to_rts(qp.get(), rail, q_key);
    return if_good(std::move(qp), error);
}

int restart_ud(ibv_qp* qp, const Rail& rail, std::uint32_t q_key) {
    if (const int error = to_reset(qp)) return error;
    return ud_to_rts(qp, rail, q_key);
}

AddressHandle create_ah(const Device& device, const Rail& rail, const Destination& to, std::uint8_t service_level) {
    ibv_ah_attr a = address_of(device.context.get(), rail, to, service_level);
    return AddressHandle(ibv_create_ah(device.pd.get(), &a));
}

int to_error(ibv_qp* qp) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_ERR;
    return modify(qp, a, IBV_QP_STATE);
}

int restart_dci(ibv_qp* qp, const Device& device, const Rail& rail, const Reliability& reliability) {
    if (const int error = to_reset(qp)) return error;
    return dci_to_rts(qp, device, rail, reliability);
}

int query(ibv_qp* qp, QueuePairTruth& out) {
    ibv_qp_attr a{};
    ibv_qp_init_attr init{};
    const int result = ibv_query_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init);
    if (result != 0) return result > 0 ? result : errno ? errno : EIO;
    out = {a.qp_state, a.sq_psn, a.rq_psn};
    return 0;
}

} // namespace ucx_mp::verbs
