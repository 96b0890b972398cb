// Protection domains (and parent and thread domains, which cost nothing here) and memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/guarded_copy.h"
#include "core/locked.h"
#include "verbs/face.h"

namespace softhca::face {
namespace {

struct Mr {
    ibv_mr mr;
    uint32_t index;
};

Pd* new_pd(Context& c, uint32_t number) {
    auto* pd = new (std::nothrow) Pd{};
    if (!pd) return fail_null(ENOMEM);
    pd->number = number;
    pd->pd.context = &c.vctx.context;
    pd->pd.handle = number;
    return pd;
}

// Access flags as the kernel takes them: 0, or the errno value it refuses with.
int check_access(unsigned access) {
    constexpr unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                               IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
    if (access & ~known) return EINVAL;
    // Whoever may write from remote must be allowed to write locally (IB 11.2.8.2).
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (access & IBV_ACCESS_ON_DEMAND) return EOPNOTSUPP;
    return 0;
}

// Whether every page of the range exists in this process. A hole makes pinning fail on real systems.
bool mapped(uintptr_t addr, size_t length) {
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    constexpr size_t kPages = 4096;
    unsigned char vec[kPages];
    const uintptr_t end = addr + length;
    for (uintptr_t at = addr & ~(page - 1); at < end;) {
        const size_t bytes = std::min<size_t>(kPages * page, end - at);
        if (mincore(reinterpret_cast<void*>(at), bytes, vec) != 0) return false;
        at += kPages * page;
    }
    return true;
}

// Whether the adapter could write there, at the range's two ends: a read-only mapping makes pinning for writing fail.
// Not page by page: that would make memory real which the program has only reserved.
bool writable(uintptr_t addr, size_t length) {
#ifdef MADV_POPULATE_WRITE
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto refuses = [page](uintptr_t at) {
        return madvise(reinterpret_cast<void*>(at & ~(page - 1)), page, MADV_POPULATE_WRITE) != 0;
    };
    static const bool known = [&] { // Linux 5.14
        char here = 0;
        return !refuses(reinterpret_cast<uintptr_t>(&here));
    }();
    return !known || (!refuses(addr) && !refuses(addr + length - 1));
#else
    (void)addr, (void)length;
    return true;
#endif
}

} // namespace

// Afterwards nobody reads or writes memory through the key.
void revoke_mr(Context& c, uint32_t index) {
    c.seg().mr(index).key.store(0);
    c.process->wait_mr_unused(index);
    c.process->free_mr(index);
    c.state().mrs.fetch_sub(1, std::memory_order_relaxed);
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
    if (attr->comp_mask) return fail_null(EINVAL);
    auto* td = new (std::nothrow) Td{};
    if (!td) return fail_null(ENOMEM);
    td->td.context = context;
    return &td->td;
}

int dealloc_td(ibv_td* p) {
    auto* td = reinterpret_cast<Td*>(p);
    if (td->users.load()) return fail(EBUSY);
    delete td;
    return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    constexpr uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (!attr->pd || (attr->comp_mask & ~known)) return fail_null(EINVAL);
    Pd* parent = pd_of(attr->pd);
    // Custom allocators serve rings that an adapter reads; ours are in the segment.
    Pd* pd = new_pd(*context_of(context), parent->number);
    if (!pd) return nullptr;
    pd->parent = parent;
    ++parent->users;
    pd->td = reinterpret_cast<Td*>(attr->td);
    if (pd->td) ++pd->td->users;
    return &pd->pd;
}

// Bytes that this process has registered. With SOFTHCA_MEMLOCK they count as a kernel counts those of a user without
// CAP_IPC_LOCK; without it the limit is not looked at, for most people's is small.
std::atomic<uint64_t> locked{0};

uint64_t limit_of_locked() {
    static const uint64_t limit = [] {
        const char* const text = std::getenv(kLockedEnv);
        const auto read = read_locked_limit(text);
        if (!read) std::fprintf(stderr, "softhca: %s=%s: allowed is %s\n", kLockedEnv, text, kLockedAllowed);
        return read.value_or(0);
    }();
    return limit;
}

bool may_lock(uint64_t bytes) {
    if (locked.fetch_add(bytes) + bytes <= limit_of_locked()) return true;
    locked.fetch_sub(bytes);
    return false;
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_pd* ibv_alloc_pd(ibv_context* context) {
    Context& c = *context_of(context);
    if (command(c, create_cmd)) return nullptr;
    Pd* pd = new_pd(c, static_cast<uint32_t>(c.seg().next_id.fetch_add(1) + 1));
    return pd ? &pd->pd : nullptr;
}

VERBS_API int ibv_dealloc_pd(ibv_pd* p) {
    Pd* pd = pd_of(p);
    if (pd->users.load()) return fail(EBUSY);
    if (pd->parent) --pd->parent->users;
    if (pd->td) --pd->td->users;
    delete pd;
    return 0;
}

VERBS_API ibv_mr* ibv_reg_mr_iova2(ibv_pd* p, void* addr, size_t length, uint64_t iova, unsigned access) {
    Context& c = *context_of(p->context);
    Process& process = *c.process;
    Pd* pd = pd_of(p);
    if (command(c, reg_cmd)) return nullptr;
    access &= ~unsigned{IBV_ACCESS_OPTIONAL_RANGE}; // hints (relaxed ordering)
    if (int error = check_access(access)) return fail_null(error);
    const auto start = reinterpret_cast<uintptr_t>(addr);
    if (length == 0 || start + length < start) return fail_null(EINVAL);
    if (access & IBV_ACCESS_ZERO_BASED)
        iova = 0;
    else if ((iova ^ start) & 4095)
        return fail_null(EINVAL);
    guard_against_faults(); // a handler may have been set since
    if (!mapped(start, length)) return fail_null(EFAULT);
    if ((access & IBV_ACCESS_LOCAL_WRITE) && !process.virtual_time() && !writable(start, length))
        return fail_null(EFAULT);

    if (!may_lock(length)) return fail_null(ENOMEM);
    const uint32_t index = process.claim_mr();
    if (index == kNone) {
        locked.fetch_sub(length);
        return fail_null(ENOMEM);
    }
    auto* mr = new (std::nothrow) Mr{};
    if (!mr) {
        locked.fetch_sub(length);
        process.free_mr(index);
        return fail_null(ENOMEM);
    }
    MrRec& rec = c.seg().mr(index);
    rec.access = access;
    rec.pd = pd->number;
    rec.owner = process.slot();
    rec.device = c.device;
    rec.iova = iova;
    rec.length = length;
    rec.addr = start;
    const uint32_t key = process.next_mr_key(index);
    rec.key.store(key, std::memory_order_release);
    c.state().mrs.fetch_add(1, std::memory_order_relaxed);
    ++pd->users;
    {
        std::lock_guard guard(c.mutex);
        c.regions.insert(index);
    }

    mr->index = index;
    mr->mr = {
        .context = p->context, .pd = p, .addr = addr, .length = length, .handle = index, .lkey = key, .rkey = key};
    return &mr->mr;
}

#undef ibv_reg_mr
VERBS_API ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned>(access));
}

#undef ibv_reg_mr_iova
VERBS_API ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, addr, length, iova, static_cast<unsigned>(access));
}

VERBS_API int ibv_dereg_mr(ibv_mr* p) {
    auto* mr = reinterpret_cast<Mr*>(p);
    Context& c = *context_of(p->context);
    c.engine->charge_command(c.device, reg_cmd, c.processor);
    revoke_mr(c, mr->index);
    locked.fetch_sub(mr->mr.length);
    {
        std::lock_guard guard(c.mutex);
        c.regions.erase(mr->index);
    }
    --pd_of(p->pd)->users;
    delete mr;
    return 0;
}

VERBS_API int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

VERBS_API ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) { return fail_null(EOPNOTSUPP); }
