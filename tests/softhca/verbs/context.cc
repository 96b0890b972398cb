// Opening and closing a device.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "verbs/face.h"

namespace softhca::face {
namespace {

// A row in the segment's context table, through which events find this context. kNone: table full.
uint32_t claim_row(Context& c) {
    Segment& seg = c.seg();
    for (uint32_t i = 0; i < kMaxContexts; ++i) {
        ContextRec& row = seg.context(i);
        uint32_t free = 0;
        if (row.used.load(std::memory_order_relaxed) != 0 ||
            !row.used.compare_exchange_strong(free, c.process->slot() + 1))
            continue;
        row.device = c.device;
        row.life = c.life;
        std::atomic_ref(row.async_channel).store(c.async.id, std::memory_order_release); // until here: no events
        return i;
    }
    return kNone;
}

void release_row(Context& c) {
    ContextRec& row = c.seg().context(c.row);
    std::atomic_ref(row.async_channel).store(0);
    row.used.store(0);
}

// The engine that drives this process's queue pairs; made with the first context, and again in a child of fork(): the
// parent's has threads and locks of another process. Virtual-time worlds bring their own.
Engine* engine_of(Process& process) {
    static std::mutex mutex;
    static uint32_t epoch = 0;
    std::lock_guard guard(mutex);
    if (process.virtual_time()) return Engine::current();
    if (!Engine::current() || epoch != Process::fork_epoch()) {
        epoch = Process::fork_epoch();
        new Engine(process, false); // for the rest of the process; findable by Engine::current()
    }
    return Engine::current();
}

// Calls that this adapter does not have stay null: the inline wrappers of verbs.h then answer EOPNOTSUPP themselves.
void set_calls(verbs_context& v) {
    v.sz = sizeof v;
    v.query_port = query_port;
    v.query_device_ex = query_device_ex;
    v.query_rt_values = query_rt_values;
    v.create_cq_ex = create_cq_ex;
    v.modify_cq = modify_cq;
    v.create_qp_ex = create_qp_ex;
    v.create_srq_ex = create_srq_ex;
    v.get_srq_num = get_srq_num;
    v.alloc_td = alloc_td;
    v.dealloc_td = dealloc_td;
    v.alloc_parent_domain = alloc_parent_domain;
    ibv_context_ops& ops = v.context.ops;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
}

} // namespace
} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_context* ibv_open_device(ibv_device* dev) {
    const uint32_t index = reinterpret_cast<Device*>(dev)->index;
    Process* process = Process::current();
    if (!process || index >= process->seg().img().devices) return fail_null(ENODEV);
    auto* c = new (std::nothrow) Context{};
    if (!c) return fail_null(ENOMEM);
    c->device = index;
    c->process = process;
    c->life = c->state().deaths.load();
    c->engine = engine_of(*process);
    c->processor = c->engine ? c->engine->processor : 0;
    if (c->dead() || !c->engine) {
        delete c;
        return fail_null(EIO);
    }
    if (!open_channel(c->async)) {
        delete c;
        return nullptr;
    }
    c->row = claim_row(*c);
    if (c->row == kNone) {
        close_channel(c->async);
        delete c;
        return fail_null(EMFILE);
    }
    set_calls(c->vctx);
    c->vctx.priv = reinterpret_cast<verbs_ex_private*>(c);
    ibv_context& v = c->vctx.context;
    v.device = dev;
    v.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC); // never used, but programs duplicate and pass it on
    v.async_fd = c->async.rx;
    v.num_comp_vectors = 8;
    v.abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&v.mutex, nullptr);
    return &v;
}

VERBS_API int ibv_close_device(ibv_context* context) {
    Context* c = context_of(context);
    // What was left open goes with the context, as in the kernel: peers get no answers, keys are void.
    for (const uint32_t index : c->regions) revoke_mr(*c, index);
    c->engine->destroy_qps_of(context);
    release_row(*c);
    close_channel(c->async);
    if (context->cmd_fd >= 0) close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    delete c;
    return 0;
}

// Sharing a device between processes by file descriptor has no meaning here: every process has its own adapter view.
VERBS_API ibv_context* ibv_import_device(int) { return fail_null(EOPNOTSUPP); }
