#include "uct_mp/schedule/load_balanced.h"

#include <algorithm>

namespace ucx_mp::schedule {

void fill(const PathTable& paths, PathMask candidates, Direction d, double bytes, const LevelRules& rules,
          Level& level) {
    double rates_of[kMaxPaths];
    paths.rates(candidates, d, rates_of);
    unsigned n = 0;
    for (PathIndex i : each(candidates)) {
        const double rate = rates_of[n];
        double ready = paths.ready(i, d, rate);
        if (rules.joint) {
            const Direction other = d == Direction::read ? Direction::write : Direction::read;
            ready += static_cast<double>(paths[i].of(other).in_flight) / paths.rate(i, other);
        }
        unsigned k = n++;
        // Sorted by when the least piece would be done: of two paths ready at the same time the faster one first.
        const double key = ready + rules.min_bytes / rate;
        for (; k > 0 && key < level.ready[k - 1] + rules.min_bytes / level.rate[k - 1]; --k) {
            level.path[k] = level.path[k - 1], level.rate[k] = level.rate[k - 1], level.ready[k] = level.ready[k - 1];
        }
        level.path[k] = i, level.rate[k] = rate, level.ready[k] = ready;
    }
    double rates = level.rate[0];
    double work = bytes + level.rate[0] * level.ready[0];
    level.time = work / rates;
    level.count = 1;
    for (unsigned k = 1; k < n; ++k) {
        const double more_rates = rates + level.rate[k];
        const double more_work = work + level.rate[k] * level.ready[k];
        const double time = more_work / more_rates;
        const bool helps = time < level.time && level.rate[k] * (time - level.ready[k]) >= rules.min_bytes;
        if (!helps) continue;
        // Those chosen before lose bytes to this one, but still have the minimum: their least piece ends sooner.
        rates = more_rates, work = more_work, level.time = time;
        const unsigned to = level.count++;
        level.path[to] = level.path[k], level.rate[to] = level.rate[k], level.ready[to] = level.ready[k];
    }
}

PathIndex stale_path(const PathTable& paths, PathMask chosen, Direction d, double interval) {
    for (PathIndex i : each(paths.usable(d) & ~chosen)) {
        const Account& account = paths[i].of(d);
        if (account.in_flight == 0 && static_cast<double>(paths.now() - account.sampled_at) > interval) return i;
    }
    return kNoPath;
}

void try_stale(const PathTable& paths, PathMask chosen, const Message& message, const PolicyConfig& config,
               Shares& shares) {
    const Direction d = direction(message.kind);
    // Rounded down, it must still teach a rate.
    const std::uint64_t piece = std::max(config.min_stripe, PathTable::kRateBytes) + config.alignment;
    if (chosen == paths.usable(d) || message.size < 2 * piece) return;
    const PathIndex stale = stale_path(paths, chosen, d, config.probe_interval);
    if (stale == kNoPath) return;
    double* const largest = std::max_element(shares.share, shares.share + shares.count);
    const auto part = static_cast<double>(piece);
    if (*largest < 2 * part) return;
    *largest -= part;
    shares.add(stale, part);
}

Outcome LoadBalanced::split(PathTable& paths, const Message& message, Plan& plan) {
    const auto bytes = static_cast<double>(message.size);
    Level level;
    fill(paths, paths.usable(direction(message.kind)), direction(message.kind), bytes,
         {std::min(static_cast<double>(config_->min_stripe), bytes), config_->accounts == 1}, level);
    Shares shares;
    PathMask chosen = 0;
    for (unsigned k = 0; k < level.count; ++k) {
        shares.add(level.path[k], level.bytes(k));
        chosen |= PathMask{1} << level.path[k];
    }
    try_stale(paths, chosen, message, *config_, shares);
    cut(shares, message.size, config_->alignment, plan);
    return Outcome::stripes;
}

Outcome Epc::split(PathTable& paths, const Message& message, Plan& plan) {
    if (message.hint == TrafficHint::one_sided_epoch) return epoch_.split(paths, message, plan);
    if (message.hint != TrafficHint::non_blocking) return even_.split(paths, message, plan);
    plan.count = 0;
    plan.stripes[plan.count++] = {
        .offset = 0, .length = message.size, .path = turns_.next(paths, 1, direction(message.kind)).path};
    return Outcome::stripes;
}

} // namespace ucx_mp::schedule
