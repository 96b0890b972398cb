#include "uct_mp/schedule/load_balanced.h"

#include <algorithm>
#include <limits>

namespace ucx_mp::schedule {

namespace {
// Mean deviations that a path must be behind the fastest one to be taken for slower; where all came late.
constexpr double kSure = 2, kSureOfJams = 0.5;
constexpr double kHopeless = 3; // so many times slower than the best one, a path has no piece of a small message

// If all paths do about as well as each other, measured by what their links can, then exactly as well.
void even_out(const PathTable& paths, PathMask mask, double* rates) {
    double best = 0, worst = std::numeric_limits<double>::infinity(), sum = 0, nominal = 0;
    unsigned k = 0;
    for (PathIndex i : each(mask)) {
        if (paths[i].nominal_rate <= 0) return;
        const double share = rates[k] / paths[i].nominal_rate;
        best = std::max(best, share), worst = std::min(worst, share);
        sum += rates[k++], nominal += paths[i].nominal_rate;
    }
    if (best > kNoise * worst) return;
    k = 0;
    for (PathIndex i : each(mask)) rates[k++] = paths[i].nominal_rate * sum / nominal;
}

// Rates by what links can, but for paths that have been clearly slower than others beside them. A rate that was
// measured at another time says how many paths shared the rail then, not what the route can do. By it a path that was
// left out would look slow for ever, and all peers of a busy fabric would crowd on the rest.
void by_comparison(const PathTable& paths, PathMask mask, Direction d, double bytes, double min_bytes, double* rates) {
    double weight[kMaxPaths];
    double measured = 0, weights = 0, best = 0, fastest = 0, fastest_in_jams = 0;
    for (PathIndex i : each(mask)) {
        fastest = std::max(fastest, paths[i].of(d).usual.relative);
        fastest_in_jams = std::max(fastest_in_jams, paths[i].of(d).jammed.relative);
    }
    const auto part = [](const Comparison& of, double fastest_one, double sure) {
        return of.relative + sure * of.scatter > fastest_one ? 1 : of.relative / fastest_one;
    };
    unsigned n = 0;
    for (PathIndex i : each(mask)) {
        if (paths[i].nominal_rate <= 0) return;
        const Account& account = paths[i].of(d);
        weight[n] = paths[i].nominal_rate * paths[i].ramp *
                    std::min(part(account.usual, fastest, kSure), part(account.jammed, fastest_in_jams, kSureOfJams));
        best = std::max(best, weight[n]);
        weights += weight[n];
        measured += rates[n++];
    }
    // A slow path has at least the least piece of a small message. Without it, others would have pieces no shorter.
    const double least = best * std::min(1.0, min_bytes * n / bytes);
    for (unsigned k = 0; k < n; ++k) {
        if (weight[k] < least && weight[k] > best / kHopeless) weight[k] = least;
        rates[k] = weight[k] * measured / weights;
    }
}

// Routes of one rail. One of them alone has all of the rail, unless others collide with it: what a further one saves is
// that, less than their rates as parts of the rail tell. How much less was measured (perf/transport-speed fat_tree).
// While they are idle none is better than another, whatever small messages have shown of a few of them.
class Alike {
public:
    Alike(const PathTable& paths, PathMask candidates, Direction d) {
        for (PathIndex i : each(candidates)) {
            const Path& path = paths[i];
            if (count_[path.rail]++ == 0) soonest_[path.rail] = std::numeric_limits<double>::infinity();
            if (path.of(d).in_flight == 0) soonest_[path.rail] = std::min(soonest_[path.rail], path.base_latency);
        }
    }
    [[nodiscard]] double ready(const Path& path) const { return soonest_[path.rail]; } // while it is idle
    // The first of a rail brings all of it. Of further ones only posting counts: what they bring is collected while
    // others wait for it.
    [[nodiscard]] double cost(const Path& path, double cost) const {
        if (!(chosen_ >> path.rail & 1)) return cost;
        const double posting = std::max(kPosting * cost, std::min(cost, PolicyConfig{}.descriptor_cost));
        return posting * std::max(1.0, kCollisions * count_[path.rail]);
    }
    void choose(const Path& path) { chosen_ |= 1u << path.rail; }

private:
    static constexpr double kCollisions = 0.5, kPosting = 0.5;
    unsigned count_[kMaxRails] = {}; // candidates
    unsigned chosen_ = 0;            // rails
    double soonest_[kMaxRails];
};
} // namespace

void fill(const PathTable& paths, PathMask candidates, Direction d, double bytes, const LevelRules& rules,
          Level& level) {
    double rates_of[kMaxPaths];
    paths.rates(candidates, d, rates_of);
    if (rules.compared)
        by_comparison(paths, candidates, d, bytes, rules.min_bytes, rates_of);
    else if (rules.coarse)
        even_out(paths, candidates, rates_of);
    Alike alike(paths, rules.routes ? candidates : 0, d);
    const PathMask behind = rules.routes ? ~PathMask{0} << rules.first % kMaxPaths : ~PathMask{0};
    unsigned n = 0;
    for (const PathMask part : {candidates & behind, candidates & ~behind})
        for (PathIndex i : each(part)) {
            const double rate = rates_of[std::popcount(candidates & ((PathMask{1} << i) - 1))];
            double ready =
                rules.routes && paths[i].of(d).in_flight == 0 ? alike.ready(paths[i]) : paths.ready(i, d, rate);
            if (rules.joint) {
                const Direction other = d == Direction::read ? Direction::write : Direction::read;
                ready += static_cast<double>(paths[i].of(other).in_flight) / paths.rate(i, other);
            }
            unsigned k = n++;
            // Sorted by when the least piece would be done: of two paths ready at the same time the faster one first.
            const double key = ready + rules.min_bytes / rate;
            for (; k > 0 && key < level.ready[k - 1] + rules.min_bytes / level.rate[k - 1]; --k) {
                level.path[k] = level.path[k - 1], level.rate[k] = level.rate[k - 1],
                level.ready[k] = level.ready[k - 1];
            }
            level.path[k] = i, level.rate[k] = rate, level.ready[k] = ready;
        }
    double rates = level.rate[0];
    double work = bytes + level.rate[0] * level.ready[0];
    level.time = work / rates;
    level.count = 1;
    alike.choose(paths[level.path[0]]);
    for (unsigned k = 1; k < n; ++k) {
        const double more_rates = rates + level.rate[k];
        const double more_work = work + level.rate[k] * level.ready[k];
        const double time = more_work / more_rates;
        const double cost = rules.routes ? alike.cost(paths[level.path[k]], rules.cost) : rules.cost;
        const bool helps = level.time - time > cost && level.rate[k] * (time - level.ready[k]) >= rules.min_bytes;
        if (!helps) continue;
        // The ones chosen before lose bytes to this one, but have the minimum still: their least piece ends sooner.
        rates = more_rates, work = more_work, level.time = time;
        alike.choose(paths[level.path[k]]);
        const unsigned to = level.count++;
        level.path[to] = level.path[k], level.rate[to] = level.rate[k], level.ready[to] = level.ready[k];
    }
    level.rate_sum = rates;
}

PathIndex stale_path(const PathTable& paths, PathMask chosen, Direction d, double interval) {
    for (PathIndex i : each(paths.usable(d) & ~chosen)) {
        const Account& account = paths[i].of(d);
        if (account.in_flight == 0 && static_cast<double>(paths.now() - account.sampled_at) > interval) return i;
    }
    return kNoPath;
}

void shares_of(const Level& level, const PathTable& paths, const Message& message, const PolicyConfig& config,
               std::uint64_t piece, Shares& shares) {
    PathMask chosen = 0;
    for (unsigned k = 0; k < level.count; ++k) {
        shares.add(level.path[k], level.bytes(k));
        chosen |= PathMask{1} << level.path[k];
    }
    piece = std::max(piece, PathTable::kRateBytes) + config.alignment; // rounded down it must still teach a rate
    if (chosen == paths.usable(direction(message.kind)) || message.size < 2 * piece) return;
    const PathIndex stale = stale_path(paths, chosen, direction(message.kind), config.probe_interval);
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
         {std::min(static_cast<double>(config_->min_stripe), bytes), 0, config_->accounts == 1}, level);
    Shares shares;
    shares_of(level, paths, message, *config_, config_->min_stripe, shares);
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
