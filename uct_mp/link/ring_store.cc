#include "uct_mp/link/ring_store.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::link {

struct RingStore::Shelf {
    std::mutex mutex;
    std::vector<std::unique_ptr<RingMemory>> ready; // the oldest first
    bool busy = false, failed = false;
    unsigned clearings = 0; // work that began before the last one is not wanted any more
};

namespace {

std::unique_ptr<RingMemory> make(const verbs::DeviceSet& devices, std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    auto made = std::make_unique<RingMemory>();
    made->bytes = {static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) & ~(kPage - 1))), std::free};
    if (!made->bytes ||
        failed(verbs::register_memory(devices, made->bytes.get(), bytes,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, made->registration)))
        return nullptr;
    return made;
}

} // namespace

RingStore::RingStore() : shelf_(std::make_shared<Shelf>()) {}

RingStore::Prepared RingStore::prepare(Services& services, const verbs::DeviceSet& devices, std::size_t bytes,
                                       unsigned count) {
    unsigned missing = 0, clearings = 0;
    {
        const std::lock_guard lock(shelf_->mutex);
        if (shelf_->busy) return Prepared::under_way;
        if (shelf_->ready.size() >= count) return Prepared::there;
        missing = std::min(kBatch, count - static_cast<unsigned>(shelf_->ready.size()));
        clearings = shelf_->clearings;
        shelf_->busy = true;
    }
    const bool taken = services.aside([&services, shelf = shelf_, devices, bytes, missing, clearings] {
        for (unsigned i = 0; i < missing; ++i) {
            std::unique_ptr<RingMemory> made = make(devices, bytes);
            const std::lock_guard lock(shelf->mutex);
            if (!made) shelf->failed = true;
            if (!made || shelf->clearings != clearings) break; // deregistered here, where no message waits for it
            made->ready = services.now();
            shelf->ready.push_back(std::move(made));
        }
        const std::lock_guard lock(shelf->mutex);
        shelf->busy = false;
    });
    if (!taken) {
        const std::lock_guard lock(shelf_->mutex);
        shelf_->busy = false;
    }
    return taken ? Prepared::under_way : Prepared::refused;
}

std::unique_ptr<RingMemory> RingStore::take(Nanos now) {
    const std::lock_guard lock(shelf_->mutex);
    std::vector<std::unique_ptr<RingMemory>>& ready = shelf_->ready;
    if (ready.empty() || ready.front()->ready > now) return nullptr;
    std::unique_ptr<RingMemory> taken = std::move(ready.front());
    ready.erase(ready.begin());
    return taken;
}

bool RingStore::has_failed() {
    const std::lock_guard lock(shelf_->mutex);
    return std::exchange(shelf_->failed, false);
}

unsigned RingStore::count() const {
    const std::lock_guard lock(shelf_->mutex);
    return static_cast<unsigned>(shelf_->ready.size());
}

void RingStore::clear() {
    std::vector<std::unique_ptr<RingMemory>> old;
    const std::lock_guard lock(shelf_->mutex);
    ++shelf_->clearings;
    old.swap(shelf_->ready);
}

} // namespace ucx_mp::link
