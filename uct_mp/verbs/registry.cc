#include "uct_mp/verbs/registry.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace ucx_mp::verbs {

Device Registry::device(unsigned index) const {
    const std::lock_guard lock(mutex_);
    return devices_[index];
}

bool Registry::is_there(unsigned index, std::uint8_t mine, Device& out) const {
    out = device(index);
    if (out.life == mine || out.life != life(index)) return false;
    out.events->read();
    return out.events->seen(0).fatal == 0;
}

bool Registry::reopen(unsigned index, std::string& trouble) {
    trouble.clear();
    const std::unique_lock one(reopening_, std::try_to_lock);
    if (!one.owns_lock()) return false;
    Device present = device(index);
    present.events->read();
    if (present.events->seen(0).fatal) {
        Device again;
        if (!open_again(present, again, trouble)) return false;
        const std::lock_guard lock(mutex_);
        devices_[index] = std::move(again);
    } else if (present.life == life(index)) {
        return false;
    }
    if (!register_all(index, trouble)) return false;
    const std::lock_guard lock(mutex_);
    lives_[index].store(devices_[index].life, std::memory_order_release);
    return true;
}

// One region after the other, so that others can register theirs in between.
bool Registry::register_all(unsigned index, std::string& trouble) {
    const Device now = device(index);
    std::vector<std::uint64_t> ids;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [id, region] : regions_)
            if (region->life(index) != now.life) ids.push_back(id);
    }
    for (const std::uint64_t id : ids) {
        std::size_t bytes = 0;
        int error = 0;
        while ((error = register_again(id, now, bytes)) == ENOMEM && relieve(bytes)) {}
        if (error == 0) continue;
        trouble = now.name + ": cannot register " + std::to_string(bytes) + " bytes again: " + std::strerror(error);
        return false;
    }
    return true;
}

int Registry::register_again(std::uint64_t id, const Device& device, std::size_t& bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(id);
    if (found == regions_.end()) return 0;
    Registration& region = *found->second;
    bytes = region.length_;
    MemoryRegion made(ibv_reg_mr(device.pd.get(), region.address_, region.length_, region.access_));
    // No longer mapped: nobody uses it, and it will be released.
    if (!made && errno != EFAULT && errno != EINVAL) return errno;
    region.set_key(device, std::move(made));
    return 0;
}

bool Registry::find(std::uint64_t id, RemoteKeys& out) const {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(id);
    if (found == regions_.end() || !found->second->packed_) return false;
    found->second->copy_keys(out);
    return true;
}

std::uint64_t Registry::new_id() const {
    std::uint64_t id = 0;
    // It never fails for so few bytes, but may be interrupted early after boot.
    while (getrandom(&id, sizeof id, 0) != sizeof id || id == 0 || regions_.contains(id)) {}
    return id;
}

} // namespace ucx_mp::verbs
