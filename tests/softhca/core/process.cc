// Joining, leaving, the node. Allocation: index_pool, heap. Copies: copy.cc. Cleaning up: reap.cc.
#include "core/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/guarded_copy.h"
#include "core/join.h"
#include "core/liveness.h"
#include "core/notify.h"
#include "core/process_impl.h"
#include "core/reap.h"

namespace softhca {

Process* Process::current_ = nullptr;

namespace {

std::mutex g_attach;
std::atomic<uint32_t> g_fork_epoch{0};

void complain(const char* text, const std::string& detail) {
    std::fprintf(stderr, "softhca: %s%s\n", text, detail.c_str());
}

void before_fork() { g_attach.lock(); }
void after_fork_parent() { g_attach.unlock(); }
void after_fork_child() {
    g_attach.unlock();
    g_fork_epoch.fetch_add(1);
    ProcessImpl::leave_parent();
}

void prepare_process() {
    guard_against_faults();
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(before_fork, after_fork_parent, after_fork_child); });
#ifdef PR_SET_PTRACER
    // Where Yama restricts ptrace, copies by other processes of the session need this. EINVAL: no Yama.
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

} // namespace

uint32_t Process::fork_epoch() { return g_fork_epoch.load(); }

// The parent's segment must not be touched from here: zeroes take its place, so that what the program still does with
// the parent's objects (exit handlers) goes nowhere.
void ProcessImpl::leave_parent() {
    Process* parent = Process::current_;
    if (!parent) return;
    Process::current_ = nullptr;
    set_self(nullptr, 0);
    if (parent->impl_->keeper >= 0) close(parent->impl_->keeper);
    if (parent->impl_->memory >= 0) close(parent->impl_->memory);
    abandon_channels();
    void* at = parent->segment_;
    if (mmap(at, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        (void)mprotect(at, kSegmentBytes, PROT_NONE); // better a crash here than damage there
    // The object itself stays: its locks may be held by threads that don't exist here.
}

uint32_t claim_slot(Segment& seg, uint32_t wanted, int32_t pid) {
    Taken how;
    if (!seg.table_lock.acquire_within(1000, how)) return kNone; // from_dead: what it protects is single words
    uint32_t slot = wanted;
    if (wanted == kNone)
        for (slot = kKeeperSlot + 1; slot < kMaxProcs; ++slot)
            if (seg.proc(slot).state.load() == ProcState::free) break;
    if (slot >= kMaxProcs) slot = kNone;
    if (slot != kNone) {
        ProcSlot& p = seg.proc(slot);
        if (seg.proc_top.load() < slot + 1) seg.proc_top = slot + 1;
        p.pid = pid;
        p.start_time = process_start_time(pid);
        p.node = kNone;
        p.stop_request = 0;
        for (auto& h : p.hazard) h = 0;
        for (auto& a : p.announcing) a = 0;
        p.waiting = p.written = 0;
        p.state.store(ProcState::starting, std::memory_order_release); // last: a reaper sees all or nothing
    }
    seg.table_lock.release();
    return slot;
}

Process* ProcessImpl::enter(Segment* segment, uint32_t slot) {
    prepare_process();
    Process* p = new Process;
    p->segment_ = segment;
    p->slot_ = slot;
    p->impl_ = new ProcessImpl(*segment, slot);
    p->impl_->pid = getpid();
    set_self(segment, slot);
    ProcSlot& s = segment->proc(slot);
    if (FILE* f = std::fopen("/proc/self/comm", "re")) {
        if (!std::fgets(s.command, sizeof s.command, f)) s.command[0] = 0;
        s.command[std::strcspn(s.command, "\n")] = 0;
        std::fclose(f);
    }
    take_life(s);
    s.state.store(ProcState::alive, std::memory_order_release);
    count_live(*segment);
    Process::current_ = p;
    return p;
}

Process* Process::attach_local(Segment* segment) {
    std::lock_guard guard(g_attach);
    set_self(segment, 0); // until there is a slot, locks are taken in the name of slot 0
    const uint32_t slot = claim_slot(*segment, kNone, getpid());
    if (slot == kNone) {
        errno = EUSERS;
        return nullptr;
    }
    return ProcessImpl::enter(segment, slot);
}

Process* attach_keeper(Segment* segment) {
    std::lock_guard guard(g_attach);
    set_self(segment, kKeeperSlot);
    ProcSlot& p = segment->proc(kKeeperSlot);
    p.generation.fetch_add(1); // locks that the predecessor left are a dead process's from here on
    set_self(segment, kKeeperSlot);
    p.pid = getpid();
    p.start_time = process_start_time(getpid());
    p.node = kNone;
    p.state = ProcState::alive;
    if (segment->proc_top.load() == 0) segment->proc_top = 1;
    return ProcessImpl::enter(segment, kKeeperSlot);
}

Process* Process::attach() {
    std::lock_guard guard(g_attach);
    if (current_) return current_;
    const char* session = std::getenv(kSessionEnv);
    if (!session || !*session) {
        complain("no session: start the program with `softhca run -- PROGRAM`", "");
        errno = ENODEV;
        return nullptr;
    }
    int file = -1, keeper = -1;
    uint32_t slot = kNone;
    std::string error;
    // A keeper that was killed is replaced within this time.
    for (int attempt = 0; attempt < 20 && keeper < 0; ++attempt) {
        keeper = connect_session(session, HelloKind::process, file, slot, error);
        if (keeper < 0 && errno != ECONNREFUSED) break;
        if (keeper < 0) usleep(50'000);
    }
    if (keeper < 0) {
        const int saved = errno;
        complain("", error);
        errno = saved;
        return nullptr;
    }
    void* memory = map_segment_file(file, false);
    const int saved = errno;
    const int kept = fcntl(file, F_DUPFD_CLOEXEC, 64); // out of the way of numbers that programs expect
    close(file);
    if (!memory || static_cast<Segment*>(memory)->magic != kSegmentMagic) {
        complain(memory ? "the session's memory is not ready"
                        : "can't map the session (address space, see ulimit -v): ",
                 memory ? "" : std::strerror(saved));
        if (memory) unmap_segment(memory);
        close(keeper); // the keeper frees the slot
        if (kept >= 0) close(kept);
        errno = memory ? EPROTO : saved;
        return nullptr;
    }
    Process* p = ProcessImpl::enter(static_cast<Segment*>(memory), slot);
    p->impl_->keeper = keeper;
    p->impl_->memory = kept;
    p->impl_->mapped = true;
    return p;
}

void Process::detach() {
    std::lock_guard guard(g_attach);
    Segment& seg = *segment_;
    give_life_up(seg.proc(slot_));
    release_objects(seg, slot_);
    Taken how;
    if (seg.table_lock.acquire_within(1000, how)) {
        free_slot(seg, slot_);
        seg.table_lock.release();
    }
    set_self(nullptr, 0);
    forget_channels();
    if (impl_->keeper >= 0) close(impl_->keeper);
    if (impl_->memory >= 0) close(impl_->memory);
    if (impl_->mapped) unmap_segment(segment_);
    if (current_ == this) current_ = nullptr;
    delete impl_;
    delete this;
}

uint32_t Process::claim_qp() { return impl_->qps.claim(); }
uint32_t Process::claim_mr() { return impl_->mrs.claim(); }
uint32_t Process::claim_cq() { return impl_->cqs.claim(); }
uint32_t Process::claim_srq() { return impl_->srqs.claim(); }
void Process::free_qp(uint32_t i) { impl_->qps.free(i); }
void Process::free_mr(uint32_t i) { impl_->mrs.free(i); }
void Process::free_cq(uint32_t i) { impl_->cqs.free(i); }
void Process::free_srq(uint32_t i) { impl_->srqs.free(i); }
Off Process::alloc(uint64_t bytes) { return impl_->heap.alloc(bytes); }
void Process::free(Off at, uint64_t bytes) { impl_->heap.free(at, bytes); }

uint32_t Process::next_qpn(uint32_t index) {
    constexpr uint32_t kCounts = 1u << (24 - kQpBits);
    return index | (segment_->qp(index).uses++ % kCounts) << kQpBits;
}

uint32_t Process::next_mr_key(uint32_t index) { return index << 8 | (++segment_->mr(index).uses & 0xff); }

} // namespace softhca
