// Queue pairs: creation and destruction. Transitions and queries: modify_qp.cc.
#include <algorithm>
#include <new>

#include "verbs/face.h"

namespace softhca::face {
namespace {

QpKind kind_of(ibv_qp_type type) {
    switch (type) {
    case IBV_QPT_RC:
        return QpKind::rc;
    case IBV_QPT_UC:
        return QpKind::uc;
    case IBV_QPT_UD:
        return QpKind::ud;
    default:
        return QpKind::none;
    }
}

// 0 or an errno value. Grants what is asked for within the limits; `cap` tells.
int grant(QpRequest& r) {
    ibv_qp_cap& cap = r.cap;
    if (r.kind == QpKind::dct) {
        if (!r.srq || !r.recv_cq) return EINVAL;
        cap = {};
        return 0;
    }
    if (!r.send_cq) return EINVAL;
    if (r.kind == QpKind::dci) {
        if (cap.max_recv_wr || r.srq) return EINVAL;
    } else if (!r.recv_cq) {
        return EINVAL;
    }
    if (cap.max_send_wr > kMaxQpWr || cap.max_recv_wr > kMaxQpWr || cap.max_send_sge > kMaxSge ||
        cap.max_recv_sge > kMaxSge || cap.max_inline_data > kMaxInline)
        return EINVAL;
    if (cap.max_send_wr) cap.max_send_sge = std::max(cap.max_send_sge, 1u);
    if (r.srq)
        cap.max_recv_wr = cap.max_recv_sge = 0;
    else if (cap.max_recv_wr)
        cap.max_recv_sge = std::max(cap.max_recv_sge, 1u);
    cap.max_inline_data = (cap.max_inline_data + 15) & ~15u;
    return 0;
}

bool same_device(const Context& c, const QpRequest& r) {
    const auto ours = [&](auto* object) { return !object || object->context == &c.vctx.context; };
    return ours(r.pd) && ours(r.send_cq) && ours(r.recv_cq) && ours(r.srq);
}

Off dct_slot_bytes(const Context& c) { return Off{c.image().limits.dct_contexts} * sizeof(uint32_t); }

void fill_rec(Context& c, const QpRequest& r, Qp& qp) {
    QpRec& rec = *qp.rec;
    rec.state.store(IBV_QPS_RESET);
    rec.kind = r.kind;
    rec.mtu = IBV_MTU_256;
    rec.rnr_timer = 0;
    rec.max_dest_rd_atomic = 0;
    rec.owner = c.process->slot();
    rec.device = c.device;
    rec.life = c.life;
    rec.pd = qp.pd->number;
    rec.dest_qpn = rec.access = rec.qkey = 0;
    rec.recv_cq = qp.recv_cq->index;
    rec.is_srq = r.srq != nullptr;
    rec.recv_queue = r.srq ? qp.srq->index : qp.index;
    rec.sq_psn.store(0);
    rec.mig_state.store(IBV_MIG_MIGRATED);
    rec.port = c.image().first_port;
    rec.mig_refused = 0;
    rec.user = reinterpret_cast<uint64_t>(&qp);
    rec.async_channel = c.async.id;
    rec.dc_key = r.dc_key;
    rec.path = rec.alt = {};
    rec.responder = {};
}

void fill_visible(Context& c, const QpRequest& r, Qp& qp, uint32_t qpn) {
    ibv_qp& v = qp.qp;
    v.context = &c.vctx.context;
    v.qp_context = r.qp_context;
    v.pd = r.pd;
    v.send_cq = r.send_cq;
    v.recv_cq = r.recv_cq;
    v.srq = r.srq;
    v.handle = qp.index;
    v.qp_num = qpn;
    v.state = IBV_QPS_RESET;
    v.qp_type = r.type;
    init_waiter(v.mutex, v.cond);
    qp.init_attr = {.qp_context = r.qp_context,
                    .send_cq = r.send_cq,
                    .recv_cq = r.recv_cq,
                    .srq = r.srq,
                    .cap = r.cap,
                    .qp_type = r.type,
                    .sq_sig_all = r.sq_sig_all};
}

void drop(Context& c, Qp* qp) {
    if (!qp->srq && qp->rq.rec) free_recv_queue(*c.process, qp->rq);
    if (qp->rec->dct_slots) c.process->free(qp->rec->dct_slots, dct_slot_bytes(c));
    qp->rec->dct_slots = 0;
    c.process->free_qp(qp->index);
    delete qp;
}

} // namespace

Qp* create_qp(Context& c, QpRequest& r) {
    Process& process = *c.process;
    if (command(c, create_cmd)) return nullptr;
    if (!r.pd || !same_device(c, r)) return fail_null(EINVAL);
    if (int error = grant(r)) return fail_null(error);
    const DeviceState& device = c.seg().device(c.device);
    if (const uint32_t most = device.max_qps; most && device.qps >= most) return fail_null(ENOMEM);
    const uint32_t index = process.claim_qp();
    if (index == kNone) return fail_null(ENOMEM);
    auto* qp = new (std::nothrow) Qp;
    if (!qp) {
        process.free_qp(index);
        return fail_null(ENOMEM);
    }
    qp->rec = &c.seg().qp(index);
    qp->index = index;
    qp->kind = r.kind;
    qp->processor = c.processor;
    qp->engine = c.engine;
    // The engine finds a CQ in both places; the program sees what it gave.
    qp->send_cq = cq_of(r.send_cq ? r.send_cq : r.recv_cq);
    qp->recv_cq = cq_of(r.recv_cq ? r.recv_cq : r.send_cq);
    qp->srq = srq_of(r.srq);
    qp->pd = pd_of(r.pd);
    qp->caps = {r.cap.max_send_wr, r.cap.max_recv_wr, r.cap.max_send_sge, r.cap.max_recv_sge, r.cap.max_inline_data};
    qp->sq_sig_all = r.sq_sig_all;
    qp->takes_raw = r.raw;
    if (r.with_ex && !set_wr_api(*qp, r.send_ops)) {
        process.free_qp(index);
        delete qp;
        return fail_null(EOPNOTSUPP);
    }
    qp->rec->dct_slots = 0;
    if (!r.srq) {
        qp->rq.rec = &c.seg().rq(index);
        if (!make_recv_queue(process, qp->rq, r.cap.max_recv_wr, r.cap.max_recv_sge)) {
            free_wr_api(*qp);
            drop(c, qp);
            return fail_null(ENOMEM);
        }
    }
    fill_rec(c, r, *qp);
    if (r.kind == QpKind::dct && dct_slot_bytes(c) != 0) qp->rec->dct_slots = process.alloc(dct_slot_bytes(c));
    const uint32_t qpn = process.next_qpn(index);
    if (!r.srq) {
        RecvQueue& rq = *qp->rq.rec;
        rq.is_srq = 0;
        rq.device = c.device;
        rq.async_channel = c.async.id;
        rq.user = qp->rec->user;
        rq.id = qpn;
    }
    fill_visible(c, r, *qp, qpn);
    ++qp->pd->users;
    ++qp->send_cq->users;
    ++qp->recv_cq->users;
    if (qp->srq) ++qp->srq->users;
    add_event_target(c, qp);
    qp->rec->qpn.store(qpn, std::memory_order_release);
    qp->engine->init_qp(*qp);
    return qp;
}

namespace {

ibv_qp* create_extended(ibv_context* context, ibv_qp_init_attr_ex* a, bool raw) {
    constexpr uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if (a->comp_mask & ~known) return fail_null(EOPNOTSUPP);
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD)) return fail_null(EINVAL);
    if ((a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags) return fail_null(EOPNOTSUPP);
    QpRequest r;
    r.kind = kind_of(a->qp_type);
    if (r.kind == QpKind::none) return fail_null(EOPNOTSUPP);
    r.pd = a->pd;
    r.send_cq = a->send_cq;
    r.recv_cq = a->recv_cq;
    r.srq = a->srq;
    r.qp_context = a->qp_context;
    r.type = a->qp_type;
    r.cap = a->cap;
    r.sq_sig_all = a->sq_sig_all != 0;
    const bool with_ops = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    r.with_ex = with_ops || raw;
    r.raw = raw;
    r.send_ops = with_ops ? a->send_ops_flags : 0;
    Qp* qp = create_qp(*context_of(context), r);
    if (!qp) return nullptr;
    a->cap = r.cap;
    return &qp->qp;
}

} // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* a) { return create_extended(context, a, false); }
ibv_qp* create_raw_qp(ibv_context* context, ibv_qp_init_attr_ex* a) { return create_extended(context, a, true); }

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* a) {
    QpRequest r;
    r.kind = kind_of(a->qp_type);
    if (r.kind == QpKind::none) return fail_null(EOPNOTSUPP);
    r.pd = pd;
    r.send_cq = a->send_cq;
    r.recv_cq = a->recv_cq;
    r.srq = a->srq;
    r.qp_context = a->qp_context;
    r.type = a->qp_type;
    r.cap = a->cap;
    r.sq_sig_all = a->sq_sig_all != 0;
    Qp* qp = create_qp(*context_of(pd->context), r);
    if (!qp) return nullptr;
    a->cap = r.cap;
    return &qp->qp;
}

VERBS_API int ibv_destroy_qp(ibv_qp* p) {
    Qp* qp = qp_of(p);
    Context& c = *context_of(p->context);
    {
        const SoleUse use(qp->send_cq, qp->recv_cq);
        c.engine->charge_command(c.device, destroy_cmd, c.processor);
        qp->engine->destroy_qp(*qp);
    }
    remove_event_target(c, qp);
    await_acks(p->mutex, p->cond, p->events_completed, qp->events_reported);
    if (!qp->srq) qp->rq.rec->id = 0;
    --qp->pd->users;
    --qp->send_cq->users;
    --qp->recv_cq->users;
    if (qp->srq) --qp->srq->users;
    free_wr_api(*qp);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->cond);
    drop(c, qp);
    return 0;
}

VERBS_API ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* p) {
    Qp* qp = qp_of(p);
    return qp->batch ? &qp->ex : nullptr;
}
