#include "core/segment.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

namespace softhca {

namespace {

// Hands out ranges of the segment, each on pages of its own: tables are sparse and don't share memory.
class Layout {
public:
    explicit Layout(Off start) : next_(start) {}
    Off take(uint64_t bytes, uint64_t alignment = 4096) {
        const Off at = (next_ + alignment - 1) / alignment * alignment;
        next_ = at + bytes;
        return at;
    }

private:
    Off next_;
};

void start_states(Segment& seg, const FabricImage& image, Layout& layout) {
    for (uint32_t i = 0; i < image.links; ++i) seg.link(i).up = 1;
    for (uint32_t i = 0; i < image.ports; ++i) {
        PortState& port = seg.port(i);
        const PortImage& from = image.port(i);
        port.up = from.cabled;
        port.announced = from.cabled;
        port.lid = from.lid;
        for (uint32_t k = 0; k < kMaxPkeys; ++k) port.pkeys[k] = from.pkeys[k];
    }
    for (uint32_t i = 0; i < image.devices; ++i) {
        DeviceState& device = seg.device(i);
        for (auto& cost : device.command_ns) cost = kNone;
        const uint32_t entries = image.device(i).limits.qp_cache_entries;
        if (entries) device.qp_cache = layout.take(uint64_t{entries} * sizeof(uint32_t), 64);
    }
}

} // namespace

int create_segment_file(const char* name) {
    char file[80];
    std::snprintf(file, sizeof file, "softhca-%s", name);
    const int fd = memfd_create(file, MFD_CLOEXEC);
    if (fd < 0) return -1;
    // Beyond the limit of file sizes (which counts here, though next to nothing is stored) a signal would end the
    // process.
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit wide{limit.rlim_max, limit.rlim_max};
    const bool widen = limit.rlim_cur < kSegmentBytes && limit.rlim_max >= kSegmentBytes;
    if (widen) setrlimit(RLIMIT_FSIZE, &wide);
    const bool allowed = limit.rlim_max >= kSegmentBytes;
    const bool ok = allowed && ftruncate(fd, static_cast<off_t>(kSegmentBytes)) == 0;
    const int error = allowed ? errno : EFBIG;
    if (widen) setrlimit(RLIMIT_FSIZE, &limit);
    if (!ok) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

void* map_segment_file(int fd, bool read_only) {
    void* p = mmap(nullptr, kSegmentBytes, PROT_READ | (read_only ? 0 : PROT_WRITE), MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) return nullptr;
    madvise(p, kSegmentBytes, MADV_DONTDUMP); // a core file would hold all of it
    return p;
}

// Shared anonymous memory rather than private: pages stay small (tables are sparse) and can be punched out again.
void* map_private_segment() {
    void* p = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    madvise(p, kSegmentBytes, MADV_DONTDUMP);
    return p;
}

void unmap_segment(void* memory) { munmap(memory, kSegmentBytes); }

void format_segment(void* memory, const FabricImage& image, const char* session, bool virtual_time) {
    Segment& seg = *new (memory) Segment{};
    seg.version = kSegmentVersion;
    seg.bytes = kSegmentBytes;
    std::snprintf(seg.session, sizeof seg.session, "%s", session);
    if (!virtual_time) seg.tsc = calibrate_tsc();
    seg.virtual_time = virtual_time;
    seg.next_id = 1;

    Layout layout(sizeof(Segment));
    const auto table = [&](Off& at, uint64_t count, uint64_t size) { at = layout.take(count * size); };
    constexpr uint64_t kWord = sizeof(uint32_t);
    table(seg.image, 1, image.bytes);
    table(seg.links, image.links, sizeof(LinkState));
    table(seg.ports, image.ports, sizeof(PortState));
    table(seg.devices, image.devices, sizeof(DeviceState));
    table(seg.procs, kMaxProcs, sizeof(ProcSlot));
    table(seg.atomic_locks, kAtomicLocks, sizeof(SharedLock));
    table(seg.qps, kMaxQps, sizeof(QpRec));
    table(seg.qp_owner, kMaxQps / kBlock, kWord);
    table(seg.mrs, kMaxMrs, sizeof(MrRec));
    table(seg.mr_owner, kMaxMrs / kBlock, kWord);
    table(seg.cqs, kMaxCqs, sizeof(CqRec));
    table(seg.cq_owner, kMaxCqs / kBlock, kWord);
    table(seg.rqs, kMaxQps, sizeof(RecvQueue));
    table(seg.srqs, kMaxSrqs, sizeof(RecvQueue));
    table(seg.srq_owner, kMaxSrqs / kBlock, kWord);
    table(seg.contexts, kMaxContexts, sizeof(ContextRec));

    std::memcpy(static_cast<char*>(memory) + seg.image, &image, image.bytes);
    start_states(seg, image, layout);
    seg.fabric.modelled = !image.ideal;
    seg.fabric.generation = 1;

    // What is left is heap and its owner table (one word per page).
    seg.heap_owner = layout.take(kSegmentBytes / kHeapPage * kWord);
    seg.heap = layout.take(0, kHeapPage);
    seg.heap_pages = (kSegmentBytes - seg.heap) / kHeapPage;

    // Last: who maps an unfinished segment sees no magic number.
    std::atomic_thread_fence(std::memory_order_release);
    seg.magic = kSegmentMagic;
}

} // namespace softhca
