#include "uct_mp/link/queue_pair_pool.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::link {

void QueuePairPool::put(verbs::QueuePair qp, Kind kind, Nanos rested) {
    entries_.push_back({.qp = std::move(qp), .kind = kind, .rested = rested});
}

verbs::QueuePair QueuePairPool::take(Kind kind, Nanos now) {
    const auto found = std::ranges::find(entries_, kind, &Entry::kind);
    if (found == entries_.end() || found->rested > now) return nullptr;
    verbs::QueuePair qp = std::move(found->qp);
    entries_.erase(found);
    ++reused;
    return qp;
}

unsigned QueuePairPool::count(Kind kind) const {
    return static_cast<unsigned>(std::ranges::count(entries_, kind, &Entry::kind));
}

verbs::QueuePair QueuePairPool::trim(unsigned most) {
    const auto one = std::ranges::find_if(entries_, [&](const Entry& entry) { return count(entry.kind) > most; });
    if (one == entries_.end()) return nullptr;
    verbs::QueuePair qp = std::move(one->qp);
    entries_.erase(one);
    return qp;
}

verbs::QueuePair QueuePairPool::give_back(Kind kind) {
    const auto one = std::ranges::find(entries_, kind, &Entry::kind);
    if (one == entries_.end()) return nullptr;
    verbs::QueuePair qp = std::move(one->qp);
    entries_.erase(one);
    return qp;
}

void QueuePairPool::drop(std::uint8_t adapter) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.kind.adapter == adapter; });
}

} // namespace ucx_mp::link
