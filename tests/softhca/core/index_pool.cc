#include "core/index_pool.h"

#include <algorithm>

namespace softhca {

bool IndexPool::claim_block() {
    const uint32_t blocks = count_ / kBlock;
    for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t block = (search_ + i) % blocks;
        uint32_t free = 0;
        if (owners_[block].load(std::memory_order_relaxed) != 0) continue;
        // The mark first: who is killed after the claim must be found by a reaper that looks below the mark only.
        uint32_t top = top_.load();
        while (top < block + 1 && !top_.compare_exchange_weak(top, block + 1)) {}
        if (!owners_[block].compare_exchange_strong(free, owner_)) continue;
        search_ = block + 1;
        next_ = std::max(block * kBlock, first_);
        end_ = std::min((block + 1) * kBlock, count_ - 1);
        return true;
    }
    return false;
}

uint32_t IndexPool::claim() {
    std::lock_guard guard(mutex_);
    if (next_ >= end_ && freed_.size() < kReuseDistance && !claim_block() && freed_.empty()) return kNone;
    if (next_ < end_) return next_++;
    const uint32_t index = freed_.front();
    freed_.pop_front();
    return index;
}

void IndexPool::free(uint32_t index) {
    std::lock_guard guard(mutex_);
    freed_.push_back(index);
}

} // namespace softhca
