#include "uct_mp/ucx/shared_statistics.h"

#include <chrono>
#include <utility>

namespace ucx_mp::face {

namespace {

constexpr std::chrono::milliseconds kPatience{20}; // a reader waits so long for a program that does not progress

} // namespace

channel::Interface::Statistics SharedStatistics::get(std::atomic<bool>& attention) {
    std::unique_lock lock(lock_);
    wanted_ = true;
    attention.store(true, std::memory_order_relaxed);
    made_.wait_for(lock, kPatience, [&] { return !wanted_; });
    return copy_;
}

void SharedStatistics::update(const channel::Interface& core) {
    const std::lock_guard lock(lock_);
    if (!std::exchange(wanted_, false)) return;
    core.statistics(copy_);
    made_.notify_all();
}

} // namespace ucx_mp::face
