// Calls of libc that programs make on the device file of an adapter: UCX looks whether /dev/infiniband/uverbsN exists
// and may be opened before it uses a device. Exported without a version, which the dynamic linker takes for any.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "verbs/face.h"

using namespace softhca;

namespace {

// N of "/dev/infiniband/uverbsN" if this process has an emulated device with that file name; else -1. Signal safe.
long device_file(const char* path) {
    static constexpr char kPrefix[] = "/dev/infiniband/uverbs";
    if (!path || std::strncmp(path, kPrefix, sizeof kPrefix - 1) != 0) return -1;
    const char* digits = path + sizeof kPrefix - 1;
    char* end;
    const long n = std::strtol(digits, &end, 10);
    Process* process = Process::current();
    if (*end || end == digits || n < 0 || !process || process->node() == kNone) return -1;
    return n < static_cast<long>(process->seg().img().node(process->node()).devices) ? n : -1;
}

template <class Stat> void fill(Stat* st, long n) {
    std::memset(st, 0, sizeof *st);
    st->st_mode = S_IFCHR | 0666;
    st->st_rdev = makedev(231, static_cast<unsigned>(192 + n)); // InfiniBand's major number
    st->st_nlink = 1;
    st->st_blksize = 4096;
}

} // namespace

VERBS_API int stat(const char* path, struct stat* st) noexcept {
    if (const long n = device_file(path); n >= 0) [[unlikely]]
        return fill(st, n), 0;
    return fstatat(AT_FDCWD, path, st, 0);
}

VERBS_API int stat64(const char* path, struct stat64* st) noexcept {
    if (const long n = device_file(path); n >= 0) [[unlikely]]
        return fill(st, n), 0;
    return fstatat64(AT_FDCWD, path, st, 0);
}

// What stat() is in programs built with a C library before 2.33.
VERBS_API int __xstat(int, const char* path, struct stat* st) noexcept { return stat(path, st); }
VERBS_API int __xstat64(int, const char* path, struct stat64* st) noexcept { return stat64(path, st); }

VERBS_API int access(const char* path, int mode) noexcept {
    if (device_file(path) >= 0) [[unlikely]] {
        if (!(mode & X_OK)) return 0;
        errno = EACCES;
        return -1;
    }
    return faccessat(AT_FDCWD, path, mode, 0);
}
