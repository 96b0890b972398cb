// The direct verbs of mlx5 that make DC and raw requests usable without its hardware rings. Exported under libmlx5's
// version names; the real libmlx5 may be loaded beside, its other calls see that the device is not theirs and answer
// EOPNOTSUPP.
#include <infiniband/mlx5dv.h>

#include <ctime>

#include "verbs/face.h"

using namespace softhca;
using namespace softhca::face;

namespace {

bool has_dc(uint32_t device) {
    Process* process = Process::current();
    return process && device < process->seg().img().devices && process->seg().img().device(device).limits.has_dc &&
           !process->seg().device(device).lack(Lack::dc);
}

// Raw requests are there whether or not one of them may be a WAIT.
bool is_mlx5(uint32_t device) {
    Process* process = Process::current();
    return has_dc(device) || (process && device < process->seg().img().devices &&
                              process->seg().img().device(device).limits.has_wait != 0);
}

ibv_qp* create_dc(ibv_context* context, ibv_qp_init_attr_ex* a, const mlx5dv_dc_init_attr& dc) {
    if (!has_dc(context_of(context)->device)) return fail_null(EOPNOTSUPP);
    if (a->qp_type != IBV_QPT_DRIVER || !(a->comp_mask & IBV_QP_INIT_ATTR_PD)) return fail_null(EINVAL);
    const bool with_ops = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    QpRequest r;
    r.pd = a->pd;
    r.send_cq = a->send_cq;
    r.recv_cq = a->recv_cq;
    r.srq = a->srq;
    r.qp_context = a->qp_context;
    r.type = IBV_QPT_DRIVER;
    r.cap = a->cap;
    r.sq_sig_all = a->sq_sig_all != 0;
    switch (dc.dc_type) {
    case MLX5DV_DCTYPE_DCI:
        r.kind = QpKind::dci;
        r.srq = nullptr; // accepted and without meaning for an initiator
        r.cap.max_recv_wr = r.cap.max_recv_sge = 0;
        r.with_ex = with_ops;
        r.send_ops = with_ops ? a->send_ops_flags : 0;
        break;
    case MLX5DV_DCTYPE_DCT:
        if (with_ops && a->send_ops_flags) return fail_null(EINVAL);
        r.kind = QpKind::dct;
        r.dc_key = dc.dct_access_key;
        break;
    default:
        return fail_null(EINVAL);
    }
    Qp* qp = create_qp(*context_of(context), r);
    if (!qp) return nullptr;
    a->cap = r.cap;
    return &qp->qp;
}

} // namespace

VERBS_API bool mlx5dv_is_supported(ibv_device* device) { return is_mlx5(reinterpret_cast<Device*>(device)->index); }

VERBS_API ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    if (!mlx5dv_is_supported(device)) return fail_null(EOPNOTSUPP);
    if (attr && (attr->comp_mask || attr->flags)) return fail_null(EOPNOTSUPP); // DEVX
    return ibv_open_device(device);
}

namespace {
// Fields that the header has since rdma-core 45: reads and atomics of DC under way at once.
template <class Context> void tell_dc_atomics(Context& out, uint64_t asked) {
    constexpr uint64_t kAsked = 1u << 14; // MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM
    if constexpr (requires { out.max_dc_rd_atom; })
        if (asked & kAsked) {
            out.max_dc_rd_atom = out.max_dc_init_rd_atom = kMaxRdAtomic;
            out.comp_mask |= kAsked;
        }
}
} // namespace

VERBS_API int mlx5dv_query_device(ibv_context* context, mlx5dv_context* out) {
    if (!is_mlx5(context_of(context)->device)) return fail(EOPNOTSUPP);
    const uint64_t asked = out->comp_mask;
    out->version = 0;
    out->flags = 0;
    out->comp_mask = asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS; // of the optional parts, what is there and is zero
    out->cqe_comp_caps = {};
    if (asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) out->dc_odp_caps = 0;
    tell_dc_atomics(*out, asked);
    return 0;
}

// How entries of completion queues look is the provider's private matter: nothing of it can be chosen.
VERBS_API ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv) {
    if (!is_mlx5(context_of(context)->device) || (dv && dv->comp_mask)) return fail_null(EOPNOTSUPP);
    return create_cq_ex(context, attr);
}

VERBS_API ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
    if (!is_mlx5(context_of(context)->device)) return fail_null(EOPNOTSUPP);
    if (!dv || dv->comp_mask == 0) return ibv_create_qp_ex(context, attr);
    constexpr uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
                               MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    if (dv->comp_mask & ~known) return fail_null(EINVAL);
    const uint64_t ops = dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS ? dv->send_ops_flags : 0;
    // Hardware takes raw requests from DC initiators, too: not here.
    const bool dc = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) != 0;
    if ((ops & ~uint64_t{MLX5DV_QP_EX_WITH_RAW_WQE}) || (ops && (dc || attr->qp_type != IBV_QPT_RC)))
        return fail_null(EOPNOTSUPP);
    // Where small data is scattered is the hardware's private matter; other flags change behaviour.
    constexpr uint32_t harmless = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
    if ((dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) && (dv->create_flags & ~harmless))
        return fail_null(EOPNOTSUPP);
    if (dc) return create_dc(context, attr, dv->dc_init_attr);
    return ops ? create_raw_qp(context, attr) : ibv_create_qp_ex(context, attr);
}

// Also called with the null that ibv_qp_to_qp_ex gives for a DCT.
VERBS_API mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* p) { return p ? dv_face(*qp_of(p)) : nullptr; }

// What maps completion time stamps to the calendar clock (mlx5dv_ts_to_ns): nsec + (ticks * mult >> shift).
VERBS_API int mlx5dv_get_clock_info(ibv_context* context, mlx5dv_clock_info* info) {
    Context& c = *context_of(context);
    const AdapterLimits& limits = c.image().limits;
    if (!limits.has_dc || !limits.has_timestamps) return fail(EOPNOTSUPP);
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const Nanos now = c.engine->program_now(c.processor);
    info->last_cycles = adapter_time(c.image(), now);
    info->nsec = c.process->virtual_time()
                     ? now
                     : static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(wall.tv_nsec);
    info->frac = 0;
    info->shift = 24;
    info->mult = static_cast<uint32_t>((1.0 - limits.clock_drift_ppb * 1e-9) * (1u << info->shift) + 0.5);
    info->mask = kClockMask;
    return 0;
}

VERBS_API int mlx5dv_dci_stream_id_reset(ibv_qp*, uint16_t) { return fail(EOPNOTSUPP); }
VERBS_API int mlx5dv_init_obj(mlx5dv_obj*, uint64_t) { return fail(EOPNOTSUPP); } // raw rings: there are none
