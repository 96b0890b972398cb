#include "core/liveness.h"

#include <fcntl.h>
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

uint64_t process_start_time(int32_t pid) {
    char path[32], text[1024];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    // The command (field 2) may contain anything, also spaces and brackets: count from the last bracket.
    const char* at = std::strrchr(text, ')');
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
