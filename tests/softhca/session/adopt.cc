#include "session/adopt.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "core/liveness.h"
#include "core/segment.h"
#include "session/keeper.h"

namespace softhca {

namespace {

struct CloseFolder {
    void operator()(DIR* d) const { closedir(d); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

// Whether another build has made it: its records are laid out in another way. (Who joins tells the keeper: join.h.)
bool foreign(const Segment& seg) {
    const auto differs = [](Off table, Off next, uint64_t count, uint64_t size) {
        constexpr uint64_t kPage = 4096; // every table begins on one
        return next - table != (count * size + kPage - 1) / kPage * kPage;
    };
    return seg.version != kSegmentVersion || differs(seg.procs, seg.atomic_locks, kMaxProcs, sizeof(ProcSlot)) ||
           differs(seg.qps, seg.qp_owner, kMaxQps, sizeof(QpRec)) ||
           differs(seg.mrs, seg.mr_owner, kMaxMrs, sizeof(MrRec)) ||
           differs(seg.cqs, seg.cq_owner, kMaxCqs, sizeof(CqRec)) ||
           differs(seg.rqs, seg.srqs, kMaxQps, sizeof(RecvQueue));
}

// A keeper there was, and it has not ended by itself; somebody uses the session, or has died in it.
bool lost(Segment& seg, uint32_t& live, uint32_t& dead) {
    live = dead = 0;
    if (seg.magic != kSegmentMagic || seg.virtual_time || foreign(seg)) return false;
    const ProcSlot& keeper = seg.proc(kKeeperSlot);
    if (keeper.state.load() != ProcState::alive || process_alive(keeper.pid.load(), keeper.start_time.load()))
        return false;
    const uint32_t top = seg.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot)
        if (seg.proc(slot).state.load() != ProcState::free) ++(slot_alive(seg, slot) ? live : dead);
    return live + dead > 0;
}

// The memory behind `path`, which may be a session's; "" or what has been done.
std::string look_at(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return "";
    std::string said;
    struct stat status;
    void* memory = nullptr;
    if (fstat(file, &status) == 0 && static_cast<uint64_t>(status.st_size) == kSegmentBytes)
        memory = map_segment_file(file, true);
    if (memory) {
        auto& seg = *static_cast<Segment*>(memory);
        uint32_t live = 0, dead = 0;
        const std::string name(seg.session, strnlen(seg.session, sizeof seg.session));
        // Whoever binds the name is the one who may: a launcher may have the same in mind.
        if (const int listen = lost(seg, live, dead) ? bind_session(name) : -1; listen >= 0)
            if (spawn_keeper(name, file, listen))
                said = "session '" + name + "' had lost its keeper: a new one cleans up after " + std::to_string(dead) +
                       " dead process" + (dead == 1 ? "" : "es") + ", " + std::to_string(live) + " live";
        unmap_segment(memory);
    }
    close(file);
    return said;
}

} // namespace

std::vector<std::string> adopt_lost_sessions() {
    constexpr const char* kPrefix = "/memfd:softhca-";
    std::vector<std::string> said;
    std::set<std::string> seen; // each session's memory once: by name and inode
    const Folder processes(opendir("/proc"));
    while (const dirent* process = processes ? readdir(processes.get()) : nullptr) {
        if (process->d_name[0] < '0' || process->d_name[0] > '9') continue;
        const std::string files = std::string("/proc/") + process->d_name + "/fd/";
        struct stat status;
        if (stat(files.c_str(), &status) != 0 || status.st_uid != getuid()) continue;
        const Folder open_files(opendir(files.c_str()));
        while (const dirent* file = open_files ? readdir(open_files.get()) : nullptr) {
            char target[128];
            const std::string path = files + file->d_name;
            const ssize_t n = readlink(path.c_str(), target, sizeof target - 1);
            if (n <= 0) continue;
            target[n] = 0;
            if (std::strncmp(target, kPrefix, std::strlen(kPrefix)) != 0 || stat(path.c_str(), &status) != 0) continue;
            if (!seen.insert(target + std::to_string(status.st_ino)).second) continue;
            if (std::string what = look_at(path); !what.empty()) said.push_back(std::move(what));
        }
    }
    return said;
}

} // namespace softhca
