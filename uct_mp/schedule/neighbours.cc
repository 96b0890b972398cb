#include "uct_mp/schedule/neighbours.h"

#include <algorithm>

namespace ucx_mp::schedule {

namespace {
constexpr double kMessages = 32; // that count; the part of an older one fades
// One message of a burst comes when nothing is under way, and stripes end sooner. So few are enough, and it is not
// decided anew with each: jobs where some messages are cut and others are not take longer than with either.
constexpr double kSeveral = 0.2, kAlone = 0.1;
constexpr std::uint64_t kOpen = 4096; // bytes: more than what tells of a message that has been written
constexpr double kUneven = 1.15;      // stripes over two rails lose about as much to more streams that meet
} // namespace

void Neighbours::message(const PathTable& peer, Direction d, PathIndex home, std::uint64_t bytes) {
    Of& of = of_[static_cast<unsigned>(d)];
    const bool another = of.latest && of.latest != &peer && of.latest->under_way(d) >= kOpen;
    of.latest = &peer;
    of.others += (another - of.others) / kMessages;
    if (of.others > kSeveral) of.several = true;
    if (of.others < kAlone) of.several = false;
    for (double& rail : of.bytes) rail -= rail / kMessages;
    const Path& path = peer[home];
    of.bytes[path.rail] += static_cast<double>(bytes);
    for (PathIndex i : each(peer.usable(d))) of.rate[peer[i].rail] = peer[i].nominal_rate;
}

bool Neighbours::even(Direction d) const {
    const Of& of = of_[static_cast<unsigned>(d)];
    double bytes = 0, rates = 0, longest = 0;
    for (unsigned rail = 0; rail < kMaxRails; ++rail) {
        if (of.rate[rail] <= 0) continue;
        bytes += of.bytes[rail];
        rates += of.rate[rail];
        longest = std::max(longest, of.bytes[rail] / of.rate[rail]);
    }
    return rates > 0 && longest * rates <= kUneven * bytes;
}

void Neighbours::forget(const PathTable& peer) {
    for (Of& of : of_)
        if (of.latest == &peer) of.latest = nullptr;
}

} // namespace ucx_mp::schedule
