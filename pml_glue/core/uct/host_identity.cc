#include "pml_glue/core/uct/host_identity.h"

#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace ucx_mp::glue {

namespace {
void mix(std::uint64_t& hash, const void* data, std::size_t length) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < length; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u; // FNV-1a
}
} // namespace

std::uint64_t host_identity(bool adapters) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    if (boot.empty()) {
        char name[256] = {};
        gethostname(name, sizeof name - 1);
        boot = name;
    }
    mix(hash, boot.data(), boot.size());
    struct stat status {};
    if (stat("/proc/self/ns/ipc", &status) == 0) mix(hash, &status.st_ino, sizeof status.st_ino);
    if (!adapters) return hash;
    int count = 0;
    if (ibv_device** const devices = ibv_get_device_list(&count)) {
        for (int i = 0; i < count; ++i) {
            const auto guid = ibv_get_device_guid(devices[i]);
            mix(hash, &guid, sizeof guid);
        }
        ibv_free_device_list(devices);
    }
    return hash;
}

} // namespace ucx_mp::glue
