#include "uct_mp/schedule/both_ways.h"

namespace ucx_mp::schedule {

namespace {
constexpr std::uint64_t kMostWaiting =
    4 << 20;                            // bytes of a write; larger ones would leave much undone while it computes
constexpr Nanos kTurnRound = 2'000'000; // ns after its last completion in which a direction still counts as used
} // namespace

bool both_ways(const PathTable& paths, Direction d) {
    const Direction other = d == Direction::write ? Direction::read : Direction::write;
    for (PathIndex i : each(paths.usable())) {
        const Account& account = paths[i].of(other);
        if (account.in_flight >= PathTable::kRateBytes) return true;
        if (account.sampled_at != 0 && paths.now() < account.sampled_at + kTurnRound) return true;
    }
    return false;
}

std::uint64_t write_ahead(const PathTable& paths, const SprayWindows& windows, const PolicyConfig& config,
                          std::uint64_t size) {
    if (size > kMostWaiting || paths.apart() || !both_ways(paths, Direction::write)) return size;
    double room = 0, lead = 0; // lead: of the reads under way
    for (PathIndex i : each(paths.usable(Direction::write))) {
        const auto writes = static_cast<double>(paths[i].of(Direction::write).in_flight);
        room += std::max(0.0, windows.chunk(paths.rate(i, Direction::write)) - writes);
        lead += static_cast<double>(paths[i].of(Direction::read).in_flight) - writes;
    }
    const double bytes = std::min(std::max(room, lead), 0x1p62);
    // Too short for two parts that are worth their stripes: whole or not at all.
    if (size < 2 * config.stripe_threshold) return static_cast<double>(size) <= bytes ? size : 0;
    const std::uint64_t whole = 2 * config.alignment,
                        ahead = static_cast<std::uint64_t>(std::max(bytes, 0.0)) / whole * whole;
    if (size <= ahead + config.stripe_threshold) return size;
    return ahead < config.stripe_threshold ? 0 : ahead;
}

} // namespace ucx_mp::schedule
