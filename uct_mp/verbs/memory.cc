#include "uct_mp/verbs/memory.h"

#include <cerrno>

namespace ucx_mp::verbs {
namespace {

Status status_of(int error) {
    switch (error) {
    case ENOMEM: // also: more locked memory than RLIMIT_MEMLOCK allows
        return Status::no_memory;
    case EINVAL:
    case EFAULT: // not mapped, or read-only memory with a write access
        return Status::invalid_param;
    case EOPNOTSUPP:
        return Status::unsupported;
    default:
        return Status::io_error;
    }
}

} // namespace

Status register_memory(const DeviceSet& devices, void* address, std::size_t length, int access, Registration& out) {
    out = Registration{};
    Registration made;
    int last_error = 0;
    for (const Device& device : devices.devices()) {
        MemoryRegion region(ibv_reg_mr(device.pd.get(), address, length, access));
        if (!region) {
            const int error = errno;
            // An adapter that has died registers nothing any more; nothing is sent over it either.
            if (device.events) device.events->read();
            if (device.events && device.events->seen(0).fatal) {
                last_error = error;
                continue;
            }
            made = Registration{}; // deregisters, which may change errno
            errno = error;
            return status_of(error);
        }
        made.lkey[device.index] = region->lkey;
        made.rkey[device.index] = region->rkey;
        made.mr[device.index] = std::move(region);
        made.count = static_cast<std::uint8_t>(device.index + 1);
    }
    if (made.count == 0) return errno = last_error, status_of(last_error);
    out = std::move(made);
    return Status::ok;
}

void pack_keys(const Registration& registration, void* out) {
    auto* at = static_cast<std::uint8_t*>(out);
    *at++ = registration.count;
    for (unsigned i = 0; i < registration.count; ++i)
        for (unsigned byte = 0; byte < 4; ++byte) *at++ = static_cast<std::uint8_t>(registration.rkey[i] >> (8 * byte));
}

bool unpack_keys(const void* in, RemoteKeys& out) {
    const auto* at = static_cast<const std::uint8_t*>(in);
    out = RemoteKeys{};
    const std::uint8_t count = *at++;
    if (count == 0 || count > kMaxDevices) return false;
    out.count = count;
    for (unsigned i = 0; i < count; ++i)
        for (unsigned byte = 0; byte < 4; ++byte) out.rkey[i] |= std::uint32_t{*at++} << (8 * byte);
    return true;
}

} // namespace ucx_mp::verbs
