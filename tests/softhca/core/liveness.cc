#include "core/liveness.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softhca {

uint32_t g_self_slot = 0;
uint32_t g_lock_word = lock_word(0, 0);
static std::atomic<Segment*> g_segment{nullptr};

namespace {

// The end of field 2 of /proc/PID/stat, nullptr if there is no such process. The command (field 2) may contain
// anything, also spaces and brackets: count from the last bracket.
const char* read_stat(int32_t pid, char (&text)[1024]) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return nullptr;
    text[n] = 0;
    return std::strrchr(text, ')');
}

} // namespace

uint64_t process_start_time(int32_t pid) {
    char text[1024];
    const char* at = read_stat(pid, text);
    for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
    return at ? std::strtoull(at + 1, nullptr, 10) : 0;
}

int open_process(int32_t pid, uint64_t start_time) {
    if (pid <= 0) {
        errno = ESRCH;
        return -1;
    }
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    // Checked after opening: the descriptor is of the process that has the start time now.
    if (fd >= 0 && process_start_time(pid) != start_time) {
        close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

bool process_alive(int32_t pid, uint64_t start_time) {
    if (pid == getpid()) return process_start_time(pid) == start_time; // ours may be the number of a dead one
    const int fd = open_process(pid, start_time);
    if (fd < 0) return errno != ESRCH; // out of descriptors and the like: don't bury the living
    pollfd ended{fd, POLLIN, 0};       // readable when the last thread has ended, even if nobody has waited for it
    const int n = poll(&ended, 1, 0);
    close(fd);
    return n == 0;
}

void take_life(ProcSlot& slot) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&slot.life, &how); // what the last user of the slot has left there is void
    pthread_mutexattr_destroy(&how);
    // Nobody else ever locks it: this doesn't wait, and it is no part of any order of locks (it is held for life).
    if (gettid() == getpid()) (void)pthread_mutex_trylock(&slot.life);
}

void give_life_up(ProcSlot& slot) { (void)pthread_mutex_unlock(&slot.life); }

bool slot_deserted(Segment& seg, uint32_t slot) {
    ProcSlot& p = seg.proc(slot);
    // The futex word is the mutex's first (part of the C library's ABI); trying to lock it would take it over.
    const int word = std::atomic_ref(p.life.__data.__lock).load(std::memory_order_acquire);
    if ((static_cast<unsigned>(word) & FUTEX_OWNER_DIED) == 0) [[likely]]
        return false;
    // Or the main thread has ended and others go on: it is a zombie then, and not waited for.
    char text[1024];
    const char* at = slot_alive(seg, slot) ? read_stat(p.pid.load(), text) : nullptr;
    return !at || at[1] != ' ' || at[2] != 'Z';
}

bool slot_alive(Segment& seg, uint32_t slot) {
    ProcSlot& p = seg.proc(slot);
    const ProcState state = p.state.load(std::memory_order_acquire);
    if (state != ProcState::alive && state != ProcState::starting) return false;
    return process_alive(p.pid.load(std::memory_order_relaxed), p.start_time.load(std::memory_order_relaxed));
}

bool slot_alive(uint32_t slot) {
    Segment* seg = g_segment.load(std::memory_order_acquire);
    return seg && slot < kMaxProcs && slot_alive(*seg, slot);
}

bool lock_owner_alive(uint32_t word) {
    if (word == g_lock_word) return true;
    Segment* seg = g_segment.load(std::memory_order_acquire);
    const uint32_t slot = (word & ((1u << kLockSlotBits) - 1)) - 1;
    if (!seg || slot >= kMaxProcs) return false;
    // A newer generation means that the owner was buried with the lock in its hand.
    if (lock_word(slot, seg->proc(slot).generation.load(std::memory_order_acquire)) != word) return false;
    return slot_alive(*seg, slot);
}

void set_self(Segment* seg, uint32_t slot) {
    g_segment.store(seg, std::memory_order_release);
    g_self_slot = slot;
    g_lock_word = lock_word(slot, seg ? seg->proc(slot).generation.load() : 0);
}

} // namespace softhca
