#include "core/notify.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>
#include <unordered_map>

#include "core/liveness.h"
#include "core/process.h"

namespace softhca {

void (*g_touched)(uint32_t device) = nullptr;
void (*g_written)(uint64_t, uint64_t) = nullptr;

namespace {

// id = slot (10 bits) | fd of the writing end (21) | 1 | low 32 bits of the pipe's inode: names that very pipe, also
// after slot, pid or descriptor number have been used again.
constexpr unsigned kInodeBits = 32, kFdBits = 21;
static_assert(kMaxProcs == 1024);

uint32_t slot_of(uint64_t id) { return static_cast<uint32_t>(id >> (kInodeBits + kFdBits + 1)); }
int fd_of(uint64_t id) { return static_cast<int>(id >> (kInodeBits + 1)) & ((1 << kFdBits) - 1); }

bool is_channel(int fd, uint64_t id) {
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode) && static_cast<uint32_t>(s.st_ino) == static_cast<uint32_t>(id);
}

uint64_t make_id(uint32_t slot, int fd) {
    struct stat s;
    if (fstat(fd, &s) != 0 || fd >= 1 << kFdBits) return 0;
    const uint64_t high = uint64_t{slot} << kFdBits | static_cast<uint64_t>(fd);
    return (high << 1 | 1) << kInodeBits | static_cast<uint32_t>(s.st_ino);
}

struct Entry {
    int fd;
    bool own; // the channel's own descriptor: not closed here
};

struct Cache {
    std::mutex mutex;
    std::unordered_map<uint64_t, Entry> entries;
};
// Replaced by a new one in the child of a fork (the old one's mutex may be held by a thread that is not there).
Cache* g_cache = new Cache;

constexpr size_t kMaxCached = 512; // duplicates of other processes' descriptors; the rest are fetched again

int fetch(Segment& seg, uint64_t id) {
    const uint32_t slot = slot_of(id);
    if (slot >= kMaxProcs) return -1;
    ProcSlot& p = seg.proc(slot);
    const int process = open_process(p.pid.load(), p.start_time.load());
    if (process < 0) return -1;
    const int fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, fd_of(id), 0));
    close(process);
    if (fd >= 0 && !is_channel(fd, id)) { // closed meanwhile, and the number used for something else
        close(fd);
        return -1;
    }
    return fd;
}

// A pipe has no MSG_NOSIGNAL: the signal that says "nobody reads" is kept away from the program.
bool write_quietly(int fd, const void* message, uint32_t bytes) {
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ssize_t n;
    do n = write(fd, message, bytes);
    while (n < 0 && errno == EINTR);
    const bool broken = n < 0 && errno == EPIPE;
    const timespec none{};
    if (broken && !was_pending)
        while (sigtimedwait(&pipe, nullptr, &none) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return !broken;
}

void drop(Cache& cache, uint64_t id) {
    const auto it = cache.entries.find(id);
    if (it == cache.entries.end()) return;
    if (!it->second.own) close(it->second.fd);
    cache.entries.erase(it);
}

// Nobody writes to a channel that has been closed, so nobody would find out: contexts come and go with adapters.
void drop_closed(Cache& cache) {
    std::erase_if(cache.entries, [](const auto& e) {
        pollfd one{e.second.fd, POLLOUT, 0};
        if (e.second.own || poll(&one, 1, 0) <= 0 || !(one.revents & POLLERR)) return false;
        close(e.second.fd);
        return true;
    });
}

} // namespace

bool open_channel(Channel& c) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    // Only the writing end never blocks; the reading end's mode is the program's business.
    const bool ok = fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0;
    c = {fds[0], fds[1], ok ? make_id(g_self_slot, fds[1]) : 0};
    if (c.id != 0) {
        std::lock_guard guard(g_cache->mutex);
        g_cache->entries[c.id] = {c.tx, true};
        return true;
    }
    const int error = errno;
    close(fds[0]);
    close(fds[1]);
    c = {};
    errno = error ? error : EMFILE;
    return false;
}

void close_channel(Channel& c) {
    {
        std::lock_guard guard(g_cache->mutex);
        g_cache->entries.erase(c.id);
    }
    if (c.rx >= 0) close(c.rx);
    if (c.tx >= 0) close(c.tx);
    c = {};
}

void notify(uint64_t id, const void* message, uint32_t bytes) {
    Process* self = Process::current();
    if (id == 0 || !self) return;
    Cache& cache = *g_cache;
    std::lock_guard guard(cache.mutex);
    auto it = cache.entries.find(id);
    if (it == cache.entries.end()) {
        if (slot_of(id) == self->slot()) return; // closed
        const int fd = fetch(self->seg(), id);
        if (fd < 0) return;
        drop_closed(cache);
        if (cache.entries.size() >= kMaxCached)
            std::erase_if(cache.entries, [](const auto& e) {
                if (!e.second.own) close(e.second.fd);
                return !e.second.own;
            });
        it = cache.entries.emplace(id, Entry{fd, false}).first;
    }
    if (!write_quietly(it->second.fd, message, bytes)) drop(cache, id);
}

void forget_channels() {
    Cache& cache = *g_cache;
    std::lock_guard guard(cache.mutex);
    for (const auto& [id, entry] : cache.entries)
        if (!entry.own) close(entry.fd);
    cache.entries.clear();
}

void abandon_channels() { g_cache = new Cache; }

void raise_object_event(Segment&, uint64_t async_channel, uint32_t type, uint64_t element) {
    const AsyncMessage message{type, 0, element};
    notify(async_channel, &message, sizeof message);
}

static void raise_to_contexts(Segment& seg, uint32_t device, const AsyncMessage& message) {
    for (uint32_t i = 0; i < kMaxContexts; ++i) {
        ContextRec& row = seg.context(i);
        if (row.used.load(std::memory_order_acquire) == 0 || row.device != device) continue;
        // The last that contexts of an adapter hear is its death.
        const uint32_t died = seg.device(device).deaths.load() - row.life;
        if (died > (message.type == IBV_EVENT_DEVICE_FATAL ? 1 : 0)) continue;
        notify(std::atomic_ref(row.async_channel).load(std::memory_order_acquire), &message, sizeof message);
    }
    if (g_touched) g_touched(device);
}

void raise_device_event(Segment& seg, uint32_t device, uint32_t type) { raise_to_contexts(seg, device, {type, 0, 0}); }

void raise_port_event(Segment& seg, uint32_t port, uint32_t type) {
    const PortImage& image = seg.img().port(port);
    raise_to_contexts(seg, image.device, {type, image.number, 0});
}

} // namespace softhca
