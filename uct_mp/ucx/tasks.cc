// The public functions of queues that wait (uct_mp/api/uct_mp.h).
#include "uct_mp/ucx/tasks.h"

#include <algorithm>
#include <cstring>

#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"
#include "uct_mp/verbs/memory.h"

extern "C" {
#include "uct_mp/api/uct_mp.h"
}

using namespace ucx_mp;
using namespace ucx_mp::face;

struct uct_mp_task_queue {
    Tasks& tasks;
    std::unique_ptr<tasks::Queue> queue;
    unsigned device;      // ours
    unsigned peer_device; // its keys are to be used
};

namespace {

static_assert(sizeof(tasks::Half) == UCT_MP_TASK_HALF_SIZE && sizeof(tasks::Ended) == UCT_MP_TASK_ENDED_SIZE);
constexpr std::size_t kMostBytes = std::size_t{1} << 31; // of a message

ucs_status_t status(Status s) { return static_cast<ucs_status_t>(s); }
bool ours(uct_iface_h iface) { return iface && iface->ops.iface_close == Iface::close; }

const verbs::MemoryKeys& keys(uct_mem_h memh) { return *static_cast<const verbs::MemoryKeys*>(memh); }
// 0: it has none.
std::uint32_t key_of(const uct_mp_task_queue& q, uct_rkey_t rkey) {
    if (rkey == UCT_INVALID_RKEY) return 0;
    const auto& all = *reinterpret_cast<const verbs::RemoteKeys*>(rkey);
    return q.peer_device < all.count ? all.rkey[q.peer_device] : 0;
}

} // namespace

Tasks::Tasks(const verbs::DeviceSet& devices, Services& services, TasksMode mode)
    : pool(devices, services, {}), devices_(devices), mode_(mode) {}
Tasks::~Tasks() = default;

const verbs::Rail* Tasks::rail(unsigned index) const {
    return index < devices_.rails().size() ? &devices_.rails()[index] : nullptr;
}

// By the names of those that queues have been tried with. Only the emulated adapter so far.
bool Tasks::wanted(const verbs::Rail& rail) const {
    if (mode_ != TasksMode::automatic) return mode_ == TasksMode::yes;
    return devices_.device_of(rail).name.starts_with("softhca_");
}

Status Tasks::create(const verbs::Rail& rail, unsigned depth, uct_mp_task_queue*& out) {
    std::unique_ptr<tasks::Queue> queue;
    if (const Status made = pool.create(rail, depth, queue); failed(made)) return made;
    queues_.push_back(std::make_unique<uct_mp_task_queue>(uct_mp_task_queue{*this, std::move(queue), rail.device, 0}));
    out = queues_.back().get();
    return Status::ok;
}

void Tasks::destroy(const uct_mp_task_queue* queue) {
    std::erase_if(queues_, [queue](const auto& held) { return held.get() == queue; });
}

#define TASKS_API extern "C" __attribute__((visibility("default")))

TASKS_API ucs_status_t uct_mp_tasks_query(uct_iface_h iface, unsigned rail) {
    if (!ours(iface)) return UCS_ERR_UNSUPPORTED;
    return guard("asking for queues that wait", [&] {
        Tasks& all = Iface::of(iface).tasks();
        const verbs::Rail* which = all.rail(rail);
        if (!which) return UCS_ERR_INVALID_PARAM;
        if (!all.wanted(*which)) {
            ucs_debug("mp: %s is not asked whether it waits for data: UCX_MP_TASKS", which->name.c_str());
            return UCS_ERR_UNSUPPORTED;
        }
        switch (all.pool.can_wait(*which)) {
        case tasks::Waits::yes:
            return UCS_OK;
        case tasks::Waits::trying:
            return UCS_INPROGRESS;
        case tasks::Waits::unknown:
            return UCS_ERR_UNREACHABLE;
        default:
            ucs_debug("mp: %s does not wait for data: %s", which->name.c_str(), all.pool.why_not(*which).c_str());
            return UCS_ERR_UNSUPPORTED;
        }
    });
}

TASKS_API unsigned uct_mp_tasks_progress(uct_iface_h iface) {
    if (!ours(iface) || !Iface::of(iface).has_tasks()) return 0;
    unsigned n = 0;
    (void)guard("progress of queues that wait", [&] {
        n = Iface::of(iface).tasks().pool.poll();
        return UCS_OK;
    });
    return n;
}

TASKS_API ucs_status_t uct_mp_task_queue_create(uct_iface_h iface, unsigned rail, unsigned depth,
                                                uct_mp_task_queue_h* queue) {
    if (!ours(iface)) return UCS_ERR_UNSUPPORTED;
    return guard("making a queue that waits", [&] {
        Tasks& all = Iface::of(iface).tasks();
        const verbs::Rail* which = all.rail(rail);
        return which && queue ? status(all.create(*which, depth, *queue)) : UCS_ERR_INVALID_PARAM;
    });
}

TASKS_API void uct_mp_task_queue_destroy(uct_mp_task_queue_h queue) {
    if (queue) queue->tasks.destroy(queue);
}

TASKS_API ucs_status_t uct_mp_task_queue_tell(uct_mp_task_queue_h queue, void* half) {
    tasks::Half told;
    queue->queue->tell(told);
    std::memcpy(half, &told, sizeof told);
    return UCS_OK;
}

TASKS_API ucs_status_t uct_mp_task_queue_connect(uct_mp_task_queue_h queue, const void* half, size_t size) {
    tasks::Half told;
    if (size != sizeof told) return UCS_ERR_INVALID_PARAM;
    std::memcpy(&told, half, sizeof told);
    const Status done = queue->queue->connect(told);
    if (!failed(done)) queue->peer_device = told.device;
    return status(done);
}

TASKS_API ucs_status_t uct_mp_task_wait(uct_mp_task_queue_h queue, const uint64_t* word, uct_mem_h memh,
                                        uint64_t value) {
    const std::uint32_t lkey = keys(memh).lkey[queue->device];
    if (lkey == 0) return UCS_ERR_UNREACHABLE;
    return status(queue->queue->wait(reinterpret_cast<std::uint64_t>(word), lkey, value));
}

TASKS_API ucs_status_t uct_mp_task_write(uct_mp_task_queue_h queue, const void* from, size_t length, uct_mem_h memh,
                                         uint64_t remote, uct_rkey_t rkey) {
    const std::uint32_t lkey = keys(memh).lkey[queue->device], key = key_of(*queue, rkey);
    if (length == 0 || length > kMostBytes) return UCS_ERR_INVALID_PARAM;
    if (lkey == 0 || key == 0) return UCS_ERR_UNREACHABLE;
    const auto bytes = static_cast<std::uint32_t>(length);
    return status(queue->queue->write(reinterpret_cast<std::uint64_t>(from), bytes, lkey, remote, key));
}

TASKS_API ucs_status_t uct_mp_task_word(uct_mp_task_queue_h queue, uint64_t value, uint64_t remote, uct_rkey_t rkey) {
    const std::uint32_t key = key_of(*queue, rkey);
    return key == 0 ? UCS_ERR_UNREACHABLE : status(queue->queue->word(value, remote, key));
}

TASKS_API ucs_status_t uct_mp_task_post(uct_mp_task_queue_h queue) { return status(queue->queue->post()); }

TASKS_API void uct_mp_task_forget(uct_mp_task_queue_h queue) { queue->queue->forget(); }

TASKS_API ucs_status_t uct_mp_task_queue_query(uct_mp_task_queue_h queue, uct_mp_task_queue_attr_t* attr, size_t size) {
    if (!attr) return UCS_ERR_INVALID_PARAM;
    const tasks::Queue& q = *queue->queue;
    const uct_mp_task_queue_attr_t is{q.posted(), q.done(), q.failed() || q.dead(), q.dead()};
    std::memcpy(attr, &is, std::min(size, sizeof is));
    return UCS_OK;
}

TASKS_API ucs_status_t uct_mp_task_queue_end(uct_mp_task_queue_h queue, void* ended) {
    return guard("ending a queue that waits", [&] {
        const Status is = queue->queue->end();
        if (is != Status::ok) return status(is);
        const tasks::Ended told = queue->queue->ended();
        std::memcpy(ended, &told, sizeof told);
        return UCS_OK;
    });
}

TASKS_API ucs_status_t uct_mp_task_queue_how_far(uct_mp_task_queue_h queue, const void* ended, size_t size,
                                                 uint64_t* done) {
    tasks::Ended told, is;
    if (size != sizeof told || !done) return UCS_ERR_INVALID_PARAM;
    std::memcpy(&told, ended, sizeof told);
    const Status result = queue->queue->how_far(told, is);
    if (result == Status::ok) *done = is.done;
    return status(result);
}
