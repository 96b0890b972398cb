// Memory registered with every device of a domain, and the keys that the other side needs.
//
// Adapters that have died have no key any more: 0.
//
// Packed keys (wire format, version 1): u8 count, then per device (in the order of the owner's DeviceSet) u32 rkey,
// little endian. Cookie and range are not in it: the adapter checks key and range of every access.
// Threads: any, no shared state.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

// One memory region per device, all of them or none.
struct Registration {
    std::array<MemoryRegion, kMaxDevices> mr;
    std::array<std::uint32_t, kMaxDevices> lkey{}; // copies: the data path reads one line
    std::array<std::uint32_t, kMaxDevices> rkey{};
    std::uint8_t count = 0;
};

// IBV_ACCESS_* in `access`: as given, never weakened. Memory that is read-only for this process can be registered
// without LOCAL_WRITE, REMOTE_WRITE and REMOTE_ATOMIC only; with them, current kernels refuse (invalid_param, errno
// EFAULT). Either every device has it afterwards or `out` is empty; errno tells why.
[[nodiscard]] Status register_memory(const DeviceSet& devices, void* address, std::size_t length, int access,
                                     Registration& out);

// By which key both sides name a region where no adapter is involved (key_table.h): the first one that is not 0.
[[nodiscard]] inline std::uint64_t key_of(const std::uint32_t* rkeys, unsigned count) {
    unsigned device = 0;
    while (device + 1 < count && rkeys[device] == 0) ++device;
    return std::uint64_t{device} << 32 | rkeys[device];
}

struct RemoteKeys {
    std::uint8_t count = 0;
    std::uint32_t rkey[kMaxDevices] = {}; // by the remote device's index
};
inline constexpr std::size_t packed_keys_size(unsigned devices) { return 1 + 4 * devices; }
void pack_keys(const Registration& registration, void* out); // packed_keys_size(count) bytes
// False: not something that pack_keys has written (count out of range). Reads at most 1 + 4 * kMaxDevices bytes.
[[nodiscard]] bool unpack_keys(const void* in, RemoteKeys& out);

} // namespace ucx_mp::verbs
