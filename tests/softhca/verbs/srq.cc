// Shared receive queues.
#include <algorithm>
#include <new>

#include "verbs/face.h"

namespace softhca::face {
namespace {

Srq* new_srq(Pd* pd, void* srq_context, ibv_srq_attr& attr) {
    Context& c = *context_of(pd->pd.context);
    Process& process = *c.process;
    if (command(c, create_cmd)) return nullptr;
    if (c.state().lack(Lack::srq)) return fail_null(EOPNOTSUPP);
    if (attr.max_wr > kMaxSrqWr || attr.max_sge > kMaxSge) return fail_null(EINVAL);
    attr.max_wr = std::max(attr.max_wr, 1u);
    attr.max_sge = std::max(attr.max_sge, 1u);
    const uint32_t index = process.claim_srq();
    if (index == kNone) return fail_null(ENOMEM);
    auto* srq = new (std::nothrow) Srq{};
    if (!srq) {
        process.free_srq(index);
        return fail_null(ENOMEM);
    }
    RecvQueue& rec = c.seg().srq(index);
    srq->index = index;
    srq->pd = pd;
    srq->queue.rec = &rec;
    if (!make_recv_queue(process, srq->queue, attr.max_wr, attr.max_sge)) {
        process.free_srq(index);
        delete srq;
        return fail_null(ENOMEM);
    }
    rec.is_srq = 1;
    rec.device = c.device;
    rec.async_channel = c.async.id;
    rec.user = reinterpret_cast<uint64_t>(srq);
    do rec.id = static_cast<uint32_t>(c.seg().next_id.fetch_add(1));
    while (rec.id == 0);
    c.state().srqs.fetch_add(1, std::memory_order_relaxed);
    ++pd->users;
    ibv_srq& v = srq->srq;
    v.context = &c.vctx.context;
    v.srq_context = srq_context;
    v.pd = &pd->pd;
    v.handle = index;
    init_waiter(v.mutex, v.cond);
    add_event_target(c, srq);
    return srq;
}

// Gives the queue rings for `max_wr` entries; positions and pool indices stay valid.
int resize(Context& c, Srq& srq, uint32_t max_wr) {
    RecvQ& q = srq.queue;
    RecvQueue& r = *q.rec;
    if (max_wr == 0 || max_wr > kMaxSrqWr) return fail(EINVAL);
    Process& process = *c.process;
    std::lock_guard posting(q.lock);
    const uint32_t used = r.entries - static_cast<uint32_t>(q.free.size());
    if (max_wr <= r.entries) return max_wr < used ? fail(EINVAL) : 0; // shrinking keeps the memory
    const uint32_t mask = round_up_pow2(max_wr) - 1;
    const uint64_t ring_bytes = (uint64_t{mask} + 1) * sizeof(uint32_t), pool_bytes = uint64_t{max_wr} * r.stride;
    const Off ring = process.alloc(ring_bytes), pool = process.alloc(pool_bytes);
    if (!ring || !pool) {
        if (ring) process.free(ring, ring_bytes);
        if (pool) process.free(pool, pool_bytes);
        return fail(ENOMEM);
    }
    auto* to_ring = process.seg().at<uint32_t>(ring);
    auto* to_pool = process.seg().at<char>(pool);
    (void)r.lock.acquire(); // consumers of any process stand still
    const uint64_t tail = r.tail.load();
    for (uint64_t at = r.head.load(); at != tail; ++at) to_ring[at & mask] = q.ring[at & r.mask];
    __builtin_memcpy(to_pool, q.pool, uint64_t{r.entries} * r.stride);
    const Off old_ring = r.ring, old_pool = r.pool;
    const uint64_t old_ring_bytes = (uint64_t{r.mask} + 1) * sizeof(uint32_t);
    const uint64_t old_pool_bytes = uint64_t{r.entries} * r.stride;
    for (uint32_t i = r.entries; i < max_wr; ++i) q.free.push_back(i);
    r.mask = mask;
    r.entries = max_wr;
    r.ring = ring;
    r.pool = pool;
    q.ring = to_ring;
    q.pool = to_pool;
    q.max_wr = max_wr;
    r.lock.release();
    process.free(old_ring, old_ring_bytes);
    srq.outgrown.emplace_back(old_pool, old_pool_bytes); // an initiator with an entry of it reads it without the lock
    return 0;
}

} // namespace

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attr) {
    constexpr uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if (attr->comp_mask & ~known) return fail_null(EOPNOTSUPP); // XRC, tag matching
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) return fail_null(EINVAL);
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC) return fail_null(EOPNOTSUPP);
    Srq* srq = new_srq(pd_of(attr->pd), attr->srq_context, attr->attr);
    return srq ? &srq->srq : nullptr;
}

int get_srq_num(ibv_srq* srq, uint32_t* number) {
    *number = srq_of(srq)->index;
    return 0;
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    Srq* srq = new_srq(pd_of(pd), attr->srq_context, attr->attr);
    return srq ? &srq->srq : nullptr;
}

VERBS_API int ibv_modify_srq(ibv_srq* p, ibv_srq_attr* attr, int mask) {
    Srq* srq = srq_of(p);
    Context& c = *context_of(p->context);
    if (int error = command(c, modify_cmd)) return error;
    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) return fail(EINVAL);
    if (mask & IBV_SRQ_LIMIT) {
        const uint32_t entries = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->queue.rec->entries;
        if (attr->srq_limit > entries) return fail(EINVAL);
    }
    if (mask & IBV_SRQ_MAX_WR)
        if (int error = resize(c, *srq, attr->max_wr)) return error;
    if (mask & IBV_SRQ_LIMIT) srq->queue.rec->limit.store(attr->srq_limit);
    return 0;
}

VERBS_API int ibv_query_srq(ibv_srq* p, ibv_srq_attr* attr) {
    const Srq* srq = srq_of(p);
    if (int error = command(*context_of(p->context), query_cmd)) return error;
    attr->max_wr = srq->queue.max_wr;
    attr->max_sge = srq->queue.max_sge;
    attr->srq_limit = srq->queue.rec->limit.load();
    return 0;
}

VERBS_API int ibv_destroy_srq(ibv_srq* p) {
    Srq* srq = srq_of(p);
    Context& c = *context_of(p->context);
    c.engine->charge_command(c.device, create_cmd, c.processor);
    if (srq->users.load()) return fail(EBUSY);
    srq->queue.rec->id = 0;
    remove_event_target(c, srq);
    await_acks(p->mutex, p->cond, p->events_completed, srq->events_reported);
    free_recv_queue(*c.process, srq->queue);
    for (const auto& [pool, bytes] : srq->outgrown) c.process->free(pool, bytes);
    c.process->free_srq(srq->index);
    c.state().srqs.fetch_sub(1, std::memory_order_relaxed);
    --srq->pd->users;
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->cond);
    delete srq;
    return 0;
}
