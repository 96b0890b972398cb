#include "uct_mp/verbs/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/verbs/registry.h"

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

template <class T> std::uint8_t* put(std::uint8_t* at, T value) {
    for (unsigned byte = 0; byte < sizeof(T); ++byte) *at++ = static_cast<std::uint8_t>(value >> (8 * byte));
    return at;
}

template <class T> const std::uint8_t* take(const std::uint8_t* at, T& value) {
    value = 0;
    for (unsigned byte = 0; byte < sizeof(T); ++byte) value |= static_cast<T>(T{*at++} << (8 * byte));
    return at;
}

} // namespace

Status register_memory(const DeviceSet& devices, void* address, std::size_t length, int access, Registration& out) {
    Status status;
    int error;
    do {
        errno = 0;
        status = register_once(devices, address, length, access, out);
        error = errno;
    } while (status == Status::no_memory && devices.registry()->relieve(length));
    errno = error;
    return status;
}

Status register_once(const DeviceSet& devices, void* address, std::size_t length, int access, Registration& out) {
    out.reset();
    Registry& registry = *devices.registry();
    const std::size_t count = devices.devices().size();
    std::array<Device, kMaxDevices> present; // kept: another life may begin meanwhile
    std::array<MemoryRegion, kMaxDevices> made;
    // Again for a device that has been opened anew meanwhile.
    bool current = false;
    for (std::array<bool, kMaxDevices> done{}; !current;) {
        for (unsigned i = 0; i < count; ++i) {
            if (done[i]) continue;
            done[i] = true;
            made[i].reset();
            const Device& device = present[i] = registry.device(i);
            if (device.events && device.events->seen(0).fatal)
                continue; // nothing is sent over it until it is there again
            made[i].reset(ibv_reg_mr(device.pd.get(), address, length, access));
            if (made[i]) continue;
            const int error = errno;
            if (is_dead(device)) continue;
            made = {}; // deregisters, which may change errno
            errno = error;
            return status_of(error);
        }
        const std::lock_guard lock(registry.mutex_);
        current = true;
        for (unsigned i = 0; i < count; ++i) {
            if (registry.devices_[i].life == present[i].life) continue;
            done[i] = current = false;
        }
        if (!current) continue;
        out.address_ = address;
        out.length_ = length;
        out.access_ = access;
        out.count = static_cast<std::uint8_t>(count);
        out.id = registry.new_id();
        out.registry_ = devices.registry();
        for (unsigned i = 0; i < count; ++i) out.set_key(present[i], std::move(made[i]));
        registry.regions_.emplace(out.id, &out);
    }
    return Status::ok;
}

void Registration::set_key(const Device& device, MemoryRegion region) {
    const unsigned i = device.index;
    const auto set = [&](MemoryKeys& keys) {
        keys.lkey[i] = region ? region->lkey : 0;
        keys.rkey[i] = region ? region->rkey : 0;
        keys.lives = (keys.lives & ~(std::uint64_t{0xff} << (8 * i))) | std::uint64_t{device.life} << (8 * i);
    };
    set(*this);
    for (MemoryKeys* copy : copies_) set(*copy);
    if (region) registry_->locked_ += length_;
    if (mr[i]) registry_->locked_ -= length_;
    mr[i] = std::move(region); // the former region goes now, before its protection domain
    pds_[i] = device.pd;
}

void Registration::reset() {
    if (const auto registry = std::exchange(registry_, nullptr)) {
        {
            const std::lock_guard lock(registry->mutex_);
            registry->regions_.erase(id);
        }
        for (MemoryRegion& region : mr) {
            if (region) registry->locked_ -= length_;
            region.reset();
        }
        pds_ = {};
        packed_ = false;
    }
    static_cast<MemoryKeys&>(*this) = {};
}

void Registration::add_copy(MemoryKeys& copy) {
    const std::lock_guard lock(registry_->mutex_);
    copy = *this;
    copies_.push_back(&copy);
}

void Registration::drop_copy(const MemoryKeys& copy) {
    const std::lock_guard lock(registry_->mutex_);
    std::erase(copies_, &copy);
}

void Registration::pack(void* out) {
    const std::lock_guard lock(registry_->mutex_);
    packed_ = true;
    pack_keys(*this, out);
}

void Registration::withdraw() {
    const std::lock_guard lock(registry_->mutex_);
    packed_ = false;
}

void Registration::look_up(RemoteKeys& out) const {
    const std::lock_guard lock(registry_->mutex_);
    copy_keys(out);
}

void Registration::copy_keys(RemoteKeys& out) const {
    out = {};
    out.count = count;
    out.id = id;
    out.lives = lives;
    for (unsigned i = 0; i < count; ++i) out.rkey[i] = rkey[i];
}

std::string registration_trouble(int error, const std::string& who) {
    std::string text = std::strerror(error);
    rlimit limit{};
    if (error == ENOMEM && !who.empty()) text += "; " + who;
    if (error != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return text;
    return text + "; the limit of locked memory is " + std::to_string(limit.rlim_cur / 1024) +
           " KiB (ulimit -l): raise it on every host, also for what starts the ranks "
           "(/etc/security/limits.conf, LimitMEMLOCK=)";
}

void pack_keys(const MemoryKeys& keys, void* out) {
    auto* at = put(put(static_cast<std::uint8_t*>(out), keys.count), keys.id);
    for (unsigned i = 0; i < keys.count; ++i) at = put(put(at, keys.rkey[i]), keys.life(i));
}

bool unpack_keys(const void* in, RemoteKeys& out) {
    const auto* at = static_cast<const std::uint8_t*>(in);
    out = RemoteKeys{};
    const std::uint8_t count = *at++;
    if (count == 0 || count > kMaxDevices) return false;
    out.count = count;
    at = take(at, out.id);
    for (unsigned i = 0; i < count; ++i) {
        std::uint8_t life;
        at = take(take(at, out.rkey[i]), life);
        out.lives |= std::uint64_t{life} << (8 * i);
    }
    return true;
}

} // namespace ucx_mp::verbs
