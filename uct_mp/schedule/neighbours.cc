#include "uct_mp/schedule/neighbours.h"

#include <algorithm>

namespace ucx_mp::schedule {

namespace {
constexpr double kWrites = 32;        // that count; the part of an older one fades
constexpr double kWritesOfARail = 16; // likewise, for the rails' shares
// One write of a burst comes when nothing is under way, and stripes end sooner. So few are enough, and it is not
// decided anew with each: jobs where some messages are cut and others are not take longer than with either.
constexpr double kSeveral = 0.2, kAlone = 0.1;
// Of the fullest rail, of its part. Stripes over two rails lose about as much as the first to more streams that meet.
// With the second, which is that of three peers on two rails, it is over.
constexpr double kEven = 1.15, kUneven = 1.3;
} // namespace

// The last write is under way if its peer has about as much more under way as before it. Small messages count in that,
// too, and some of them are not settled before a later one completes: so it is half of the write at least.
void Neighbours::write(const PathTable& peer, PathIndex home, std::uint64_t bytes) {
    if (turns_ < 2) return; // there is only one
    const bool another = latest_ && latest_ != &peer && latest_->under_way(Direction::write) >= open_;
    latest_ = &peer;
    open_ = peer.under_way(Direction::write) + bytes / 2;
    others_ += (another - others_) / kWrites;
    if (others_ > kSeveral) several_ = true;
    if (others_ < kAlone) several_ = false;
    share_rails(peer, home, bytes);
}

void Neighbours::share_rails(const PathTable& peer, PathIndex home, std::uint64_t bytes) {
    double rate[kMaxRails] = {};
    bool known = true;
    for (PathIndex i : each(peer.usable(Direction::write))) {
        rate[peer[i].rail] = std::max(rate[peer[i].rail], peer[i].nominal_rate);
        known = known && peer[i].nominal_rate > 0;
    }
    const double fade = 1 / (kWritesOfARail * std::max(1u, peer.rails(Direction::write)));
    double all = 0, rates = 0, longest = 0;
    for (unsigned rail = 0; rail < kMaxRails; ++rail) {
        bytes_[rail] -= fade * bytes_[rail];
        if (rail == peer[home].rail) bytes_[rail] += static_cast<double>(bytes);
        if (rate[rail] <= 0) continue; // there is none now
        all += bytes_[rail];
        rates += rate[rail];
        longest = std::max(longest, bytes_[rail] / rate[rail]);
    }
    if (!known || longest * rates > kUneven * all)
        even_ = false;
    else if (longest * rates <= kEven * all)
        even_ = true;
}

void Neighbours::forget(const PathTable& peer) {
    if (latest_ == &peer) latest_ = nullptr;
}

} // namespace ucx_mp::schedule
