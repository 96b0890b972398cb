// Completion queues: creation, resizing, destruction.
#include <algorithm>
#include <cstring>
#include <new>

#include "verbs/face.h"

namespace softhca::face {
namespace {

// Entries of a ring for `cqe` completions. Never a single one: adapters give some more than asked (mlx5 rounds cqe + 1
// up), and perftest's latency tests with events lean on that.
uint32_t ring_entries(uint32_t cqe) { return round_up_pow2(std::max(cqe, 2u)); }

Cq* new_cq(Context& c, uint32_t cqe, ibv_comp_channel* channel, void* cq_context, uint64_t wc_flags,
           bool single_threaded) {
    Process& process = *c.process;
    const uint32_t entries = ring_entries(cqe);
    const uint32_t index = process.claim_cq();
    if (index == kNone) return fail_null(ENOMEM);
    const Off ring = process.alloc(uint64_t{entries} * sizeof(Cqe));
    // In virtual time all is one process.
    const Off staging = process.virtual_time() ? 0 : process.alloc(kStagingBytes);
    auto* cq = ring ? new (std::nothrow) Cq{} : nullptr;
    if (!cq) {
        if (ring) process.free(ring, uint64_t{entries} * sizeof(Cqe));
        if (staging) process.free(staging, kStagingBytes);
        process.free_cq(index);
        return fail_null(ENOMEM);
    }
    constexpr uint64_t kTimes = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    auto* wire = reinterpret_cast<CompChannel*>(channel);
    CqRec& rec = c.seg().cq(index);
    rec.owner = process.slot();
    rec.device = c.device;
    rec.mask = entries - 1;
    rec.capacity = entries;
    rec.has_channel = channel != nullptr;
    rec.wants_time = (wc_flags & kTimes) != 0;
    rec.channel = channel ? wire->wire.id : 0;
    rec.user = reinterpret_cast<uint64_t>(cq);
    rec.async_channel = c.async.id;
    rec.entries = ring;
    rec.staging = staging;
    rec.staged_tail = rec.seen_staged_head = 0;
    rec.staged_head.store(0);
    rec.overrun.store(0);
    rec.armed.store(kNotArmed);
    rec.announced.store(0);
    rec.announced_head.store(0);
    rec.owed.store(0);
    rec.tail = rec.seen_head = 0;
    rec.head.store(0);
    rec.id = index;
    c.state().cqs.fetch_add(1, std::memory_order_relaxed);

    cq->rec = &rec;
    cq->index = index;
    cq->entries = c.seg().at<Cqe>(ring);
    cq->mask = rec.mask;
    cq->channel = wire;
    cq->wc_flags = wc_flags;
    cq->single_threaded = single_threaded;
    cq->processor = c.processor;
    cq->engine = c.engine;
    ibv_cq_ex& ex = cq->ex;
    ex.context = &c.vctx.context;
    ex.channel = channel;
    ex.cq_context = cq_context;
    ex.handle = index;
    ex.cqe = static_cast<int>(entries);
    init_waiter(ex.mutex, ex.cond);
    if (wire) {
        std::lock_guard guard(wire->mutex);
        wire->live.insert(rec.user);
        ++channel->refcnt;
    }
    add_event_target(c, cq);
    return cq;
}

// Arguments that both forms of creation check. 0 or an errno value.
int check_request(Context& c, uint64_t cqe, const ibv_comp_channel* channel, uint64_t vector) {
    if (int error = command(c, create_cmd)) return error;
    if (cqe == 0 || cqe > kMaxCqe) return EINVAL;
    if (vector >= static_cast<uint64_t>(c.vctx.context.num_comp_vectors)) return EINVAL;
    return channel && channel->context != &c.vctx.context ? EINVAL : 0;
}

} // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    Context& c = *context_of(context);
    uint64_t known = IBV_WC_STANDARD_FLAGS;
    if (c.has_timestamps())
        known |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if (attr->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) return fail_null(EINVAL);
    if (attr->wc_flags & ~known) return fail_null(EOPNOTSUPP);
    const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
    if (flags & ~uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) return fail_null(EOPNOTSUPP);
    if (int error = check_request(c, attr->cqe, attr->channel, attr->comp_vector)) return fail_null(error);
    Cq* cq = new_cq(c, attr->cqe, attr->channel, attr->cq_context, attr->wc_flags, flags != 0);
    if (!cq) return nullptr;
    set_cq_ex_calls(*cq);
    return &cq->ex;
}

// Moderation delays completion events. An event at once is within what it allows.
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
    if (int error = command(*context_of(cq->context), modify_cmd)) return error;
    return attr->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE} ? fail(EINVAL) : 0;
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                int vector) {
    Context& c = *context_of(context);
    if (cqe < 1 || vector < 0) return fail_null(EINVAL);
    if (int error = check_request(c, static_cast<uint64_t>(cqe), channel, static_cast<uint64_t>(vector)))
        return fail_null(error);
    Cq* cq = new_cq(c, static_cast<uint32_t>(cqe), channel, cq_context, 0, false);
    return cq ? ibv_cq_ex_to_cq(&cq->ex) : nullptr;
}

VERBS_API int ibv_resize_cq(ibv_cq* p, int cqe) {
    Context& c = *context_of(p->context);
    if (int error = command(c, modify_cmd)) return error;
    if (c.state().lack(Lack::resize)) return fail(EOPNOTSUPP);
    if (cqe < 1 || static_cast<uint32_t>(cqe) > kMaxCqe) return fail(EINVAL);
    Cq* cq = cq_of(p);
    CqRec& rec = *cq->rec;
    const uint32_t entries = ring_entries(static_cast<uint32_t>(cqe));
    const Off ring = c.process->alloc(uint64_t{entries} * sizeof(Cqe));
    if (!ring) return fail(ENOMEM);

    // Both sides stand still: the consumer (poll_lock) and producers of any process (rec.lock).
    Off old;
    uint32_t old_entries;
    {
        const SoleUse use(cq, nullptr);
        std::unique_lock polling(cq->poll_lock, std::defer_lock);
        if (!cq->single_threaded) polling.lock();
        lock_cq(c.seg(), rec);
        const uint64_t waiting = rec.tail - cq->head;
        if (waiting > entries) {
            rec.lock.release();
            c.process->free(ring, uint64_t{entries} * sizeof(Cqe));
            return fail(EINVAL);
        }
        Cqe* to = c.seg().at<Cqe>(ring);
        for (uint64_t at = cq->head; at != rec.tail; ++at)
            std::memcpy(static_cast<void*>(&to[at & (entries - 1)]), &cq->entries[at & cq->mask], sizeof(Cqe));
        old = rec.entries;
        old_entries = rec.mask + 1;
        rec.entries = ring;
        rec.mask = entries - 1;
        rec.capacity = entries;
        cq->entries = to;
        cq->mask = rec.mask;
        rec.lock.release();
    }
    c.process->free(old, uint64_t{old_entries} * sizeof(Cqe));
    p->cqe = static_cast<int>(entries);
    return 0;
}

VERBS_API int ibv_destroy_cq(ibv_cq* p) {
    Cq* cq = cq_of(p);
    Context& c = *context_of(p->context);
    c.engine->charge_command(c.device, create_cmd, c.processor);
    if (cq->users.load()) return fail(EBUSY);
    CqRec& rec = *cq->rec;
    (void)rec.lock.acquire();
    rec.id = 0;
    rec.has_channel = 0;
    rec.lock.release();

    remove_event_target(c, cq);
    if (cq->channel) remove_channel_target(*cq->channel, cq);
    await_acks(p->mutex, p->cond, p->comp_events_completed, cq->comp_events_reported);
    await_acks(p->mutex, p->cond, p->async_events_completed, cq->async_events_reported);
    if (cq->channel) {
        std::lock_guard guard(cq->channel->mutex);
        --cq->channel->channel.refcnt;
    }
    c.process->free(rec.entries, (uint64_t{rec.mask} + 1) * sizeof(Cqe));
    if (rec.staging) c.process->free(rec.staging, kStagingBytes);
    c.process->free_cq(cq->index);
    c.state().cqs.fetch_sub(1, std::memory_order_relaxed);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->cond);
    delete cq;
    return 0;
}
