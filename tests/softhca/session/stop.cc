#include "session/stop.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/liveness.h"

namespace softhca {

namespace {

bool send_signal(Segment& seg, uint32_t slot, int signal) {
    const int process = open_process(seg.proc(slot).pid.load(), seg.proc(slot).start_time.load());
    if (process < 0) return false;
    const bool ok = syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0;
    close(process);
    return ok;
}

// The letter that says what a thread does: T stopped, t traced, Z and X over.
bool thread_rests(const char* stat_path) {
    FILE* f = std::fopen(stat_path, "re");
    if (!f) return true; // gone
    char text[256] = {};
    const size_t n = std::fread(text, 1, sizeof text - 1, f);
    std::fclose(f);
    const char* at = n ? std::strrchr(text, ')') : nullptr;
    return !at || std::strchr("TtZX", at[2]) != nullptr;
}

bool all_threads_rest(int pid) {
    char path[300];
    std::snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR* dir = opendir(path);
    if (!dir) return true;
    bool rest = true;
    while (const dirent* e = readdir(dir)) {
        if (e->d_name[0] == '.') continue;
        std::snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, e->d_name);
        rest = rest && thread_rests(path);
    }
    closedir(dir);
    return rest;
}

template <class Fn> bool any_record(Segment& seg, Off owners, uint32_t blocks, Fn&& held) {
    auto* word = seg.at<std::atomic<uint32_t>>(owners);
    for (uint32_t b = 0; b < blocks; ++b)
        for (uint32_t i = b * kBlock; word[b].load() != 0 && i < (b + 1) * kBlock; ++i)
            if (held(i)) return true;
    return false;
}

// Somebody could wait for what this process holds: locks anywhere in the session, marks on memory regions,
// an event.
bool holds_anything(Segment& seg, uint32_t slot) {
    const ProcSlot& p = seg.proc(slot);
    const uint32_t word = lock_word(slot, p.generation.load());
    const auto held = [word](const SharedLock& lock) { return lock.word.load() == word; };
    for (const auto& h : p.hazard)
        if (h.load() != 0) return true;
    for (const auto& a : p.announcing)
        if (a.load() != 0) return true;
    if (held(seg.table_lock)) return true;
    for (uint32_t i = 0; i < kAtomicLocks; ++i)
        if (held(seg.at<SharedLock>(seg.atomic_locks)[i])) return true;
    const FabricImage& image = seg.img();
    for (uint32_t i = 0; i < image.devices; ++i)
        if (held(seg.device(i).lock)) return true;
    for (uint32_t i = 0; i < image.links; ++i)
        if (held(seg.link(i).turns.lock)) return true;
    return any_record(seg, seg.qp_owner, seg.qp_blocks,
                      [&](uint32_t i) { return held(seg.qp(i).lock) || held(seg.rq(i).lock); }) ||
           any_record(seg, seg.cq_owner, seg.cq_blocks, [&](uint32_t i) { return held(seg.cq(i).lock); }) ||
           any_record(seg, seg.srq_owner, seg.srq_blocks, [&](uint32_t i) { return held(seg.srq(i).lock); });
}

} // namespace

bool stop_process(Segment& seg, uint32_t slot, std::string& error) {
    ProcSlot& p = seg.proc(slot);
    const int pid = p.pid.load();
    const Nanos give_up = monotonic_now() + 1'000'000'000;
    for (useconds_t pause = 100; monotonic_now() < give_up; pause = pause < 5000 ? pause * 2 : 5000) {
        if (!send_signal(seg, slot, SIGSTOP)) {
            error = "process " + std::to_string(pid) + " is gone";
            return false;
        }
        while (!all_threads_rest(pid) && monotonic_now() < give_up) usleep(50);
        p.stop_request = 1;
        if (!holds_anything(seg, slot)) return true;
        p.stop_request = 0;
        send_signal(seg, slot, SIGCONT);
        usleep(pause);
    }
    error = "process " + std::to_string(pid) + " is always in the middle of something";
    continue_process(seg, slot);
    return false;
}

bool continue_process(Segment& seg, uint32_t slot) {
    seg.proc(slot).stop_request = 0;
    return send_signal(seg, slot, SIGCONT);
}

void kill_process(Segment& seg, uint32_t slot) { send_signal(seg, slot, SIGKILL); }

} // namespace softhca
