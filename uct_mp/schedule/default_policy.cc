#include "uct_mp/schedule/default_policy.h"

#include <algorithm>
#include <limits>

#include "uct_mp/schedule/both_ways.h"

namespace ucx_mp::schedule {

namespace {

constexpr double kLaneTolerance = 1.25;
// Of a medium message's own time on the fastest link: so much later it may be on its lane.
constexpr double kLaneExcess = 1.0 / 4, kLaneExcessAmong = 1;
// Of its time on all paths together: what a message's descriptors may cost to be cut although all paths are busy.
constexpr double kDescriptorShare = 1.0 / 64;
// Whoever reads goes on only when all stripes have been collected, so each further one counts more. With 1, where a
// request costs 2 us, all-to-alls of 16 KiB take a tenth longer and incast a third. With 2.5 those of 24 KiB at 1 us
// take a twentieth longer.
constexpr double kOfRead = 1.5;
// So many messages wait on every path: cutting one more makes the burst end no sooner.
constexpr double kDeep = 4;
constexpr double kCrowded = 0.4; // of a link's rate: who has less of it shares the peer's with others
// Descriptors for a further stripe over several adapters, where others that send at the same time keep these busy. A
// marker follows what is written, or it is read back, and a marker is a message at the peer.
constexpr double kOverRails = 3, kMarkedOverRails = 5;
// The same of what is written among peers: the next message, to somebody else, waits for the processor.
constexpr double kAmongPeers = 8.5;
// Medium messages over the routes of one adapter, by Direction. kSqueezed, of a link's rate: whoever has less of it
// waits for others. kSqueezedShare, of a message's time on a free link: what its further stripes may cost the processor
// then. With 0.3 for writes six neighbours at once, who share our own port, count, too: whole, they take a third
// longer.
constexpr double kSqueezed[2] = {0.15, 0.3}, kSqueezedShare[2] = {1.0 / 4, 1.0 / 8};
constexpr std::uint64_t kMediumLanes = 2; // stripe_thresholds: longer messages are cut whatever it costs
constexpr unsigned kTriedAgain = 32;      // one of so many is cut although the peer looks crowded
constexpr double kShortStripe = 12288;    // bytes: one or two chunks of an adapter's turns
constexpr double kLeastShare = 0.8;       // of a link's rate: below it, somebody else takes part of it
constexpr double kLatencyFades = 20e6;    // ns until a measured latency is forgotten

// What a small message may expect on this path.
double lane_cost(const PathTable& paths, PathIndex i, Direction d) {
    const Path& path = paths[i];
    const double age = static_cast<double>(paths.now() - std::min(path.latency_at, paths.now()));
    const double trust = std::max(0.0, 1 - age / kLatencyFades);
    const double excess = std::max(0.0, path.latency - path.base_latency) * trust;
    const double backlog = static_cast<double>(path.of(d).in_flight) / paths.rate(i, d);
    // Latency contains the backlog that was there when it was measured: take the larger.
    return path.base_latency + std::max(excess, backlog);
}

// Every path does what its rail's link can, shared by the rail's paths: nobody else is on the way, as far as we know.
bool undisturbed(const PathTable& paths, Direction d) {
    double rates[kMaxPaths];
    paths.rates(paths.usable(d), d, rates);
    unsigned on_rail[kMaxRails] = {};
    for (PathIndex i : each(paths.usable(d))) ++on_rail[paths[i].rail];
    unsigned k = 0;
    for (PathIndex i : each(paths.usable(d))) {
        if (paths[i].nominal_rate <= 0) return false;
        const double share = rates[k++] * on_rail[paths[i].rail] / paths[i].nominal_rate;
        if (share < kLeastShare || share > 1 / kLeastShare) return false;
    }
    return true;
}

// Of stripes of messages shorter than stripe_threshold.
std::uint64_t least_of_short(const PolicyConfig& config) { return std::max(config.min_stripe / 2, config.alignment); }

double descriptors_of_stripe(const PathTable& paths, const Message& message, bool among_peers) {
    if (paths.rails(direction(message.kind)) < 2) return 1;
    if (direction(message.kind) == Direction::read || message.shares_markers) return kOverRails;
    return among_peers ? kAmongPeers : kMarkedOverRails;
}

} // namespace

// Whoever exchanges with several peers has the same number of them on each rail by the order. So has each of the peers:
// programs that do the same thing reach their neighbours in the same order.
void DefaultPolicy::take_turn() {
    if (in_turn_ || !neighbours_) [[likely]]
        return;
    seed_ = neighbours_->turn();
    in_turn_ = true;
}

// Whether this is one of a burst of writes to several peers, over several rails.
bool DefaultPolicy::learn_neighbours(const PathTable& paths, const Message& message) {
    const Direction d = direction(message.kind);
    if (!neighbours_ || d == Direction::read || paths.rails(d) < 2) return false;
    neighbours_->write(paths, paths.home(seed_, d), message.size);
    return neighbours_->several();
}

PathIndex DefaultPolicy::lane_of(const PathTable& paths, Direction d) const {
    const PathIndex current = lane_path_[static_cast<unsigned>(d)];
    return paths.is_usable(current, d) ? current : paths.home(seed_, d);
}

Lane DefaultPolicy::next_lane(PathTable& paths, Direction d) {
    PathIndex& current = lane_path_[static_cast<unsigned>(d)];
    take_turn();
    const PathIndex start = lane_of(paths, d);
    PathIndex best = start;
    const double stay = lane_cost(paths, start, d);
    double best_cost = stay;
    for (PathIndex i : each(paths.usable(d) & ~(PathMask{1} << start))) {
        const double cost = lane_cost(paths, i, d);
        if (cost < best_cost) best = i, best_cost = cost;
    }
    if (stay <= kLaneTolerance * best_cost + config_->lane_slack) best = start;
    current = best;
    return {best, config_->window};
}

bool DefaultPolicy::worth_cutting(const PathTable& paths, const Message& message) {
    const Direction d = direction(message.kind);
    take_turn();
    const bool among_peers = learn_neighbours(paths, message);
    if (message.host_is_busy) return false;
    const double link = paths.fastest_link(d);
    const double descriptor = std::max(config_->descriptor_cost, message.descriptor_time) *
                              descriptors_of_stripe(paths, message, among_peers);
    const auto pieces =
        static_cast<double>(std::min<std::uint64_t>(paths.usable_count(d), message.size / least_of_short(*config_)));
    if (link <= 0 || (pieces - 1) * descriptor * link > static_cast<double>(message.size)) return false;
    // The peer may be who everybody waits for, whatever the routes: then nothing that is cut comes sooner. It may also
    // be a bad route that whole messages have taken: so some are cut all the same. Written over several adapters of
    // ours, whole messages of all who send may meet at one of the peer's: stripes keep the others busy, if it has any.
    return paths.through(d) >= kCrowded || (d == Direction::write && paths.rails(d) > 1) ||
           ++kept_whole_ % kTriedAgain == 0;
}

// `descriptors`: ns that a message's further stripes cost the processor.
bool DefaultPolicy::better_whole(const PathTable& paths, Direction d, double descriptors, double bytes) {
    const auto k = static_cast<unsigned>(d);
    return paths.rails(d) < 2 && paths.through(d) < kSqueezed[k] &&
           descriptors * paths.fastest_link(d) > kSqueezedShare[k] * bytes && ++kept_whole_ % kTriedAgain != 0;
}

Outcome DefaultPolicy::split(PathTable& paths, const Message& message, Plan& plan) {
    const Direction d = direction(message.kind);
    take_turn();
    PathIndex& first = first_[static_cast<unsigned>(d)];
    const bool both = both_ways(paths, d);
    const bool large = message.size >= config_->pull_threshold;
    if (large && !(both && !paths.apart()) && !undisturbed(paths, d)) return Outcome::pull;
    const auto bytes = static_cast<double>(message.size);
    const double descriptor = std::max(config_->descriptor_cost, message.descriptor_time);
    const bool is_short = message.size < config_->stripe_threshold && message.hint != TrafficHint::one_sided_epoch;
    const bool among_peers =
        !is_short && learn_neighbours(paths, message); // of a short one worth_cutting() has learned
    const std::uint64_t least = is_short ? least_of_short(*config_) : config_->min_stripe;
    Level level;
    fill(paths, paths.usable(d), d, bytes,
         {.min_bytes = static_cast<double>(least),
          .cost = d == Direction::read ? kOfRead * descriptor : descriptor,
          .compared = !both,
          .coarse = both || large,
          .routes = !both && !large,
          .first = first},
         level);
    // The next one begins behind the last of these, so that all routes have the same part of it. Where all are used it
    // is the order that changes: of short stripes the last is late, whatever its route. Longer ones keep their order,
    // since programs that do the same at the same time have less in each other's way by it.
    if (level.count < paths.usable_count(d))
        first = next_usable(paths.usable(d), level.path[level.count - 1]);
    else if (bytes < kShortStripe * level.count)
        first = next_usable(paths.usable(d), level.path[0]);

    const bool at_once = message.hint == TrafficHint::blocking || message.hint == TrafficHint::collective;
    if (!at_once && level.count > 1) {
        // Busy everywhere for longer than this message would take on all paths together?
        double rates = 0, idle = std::numeric_limits<double>::infinity();
        double whole = idle;
        bool under_way = false;
        PathIndex soonest = level.path[0];
        double rates_of[kMaxPaths];
        paths.rates(paths.usable(d), d, rates_of);
        unsigned k = 0;
        for (PathIndex i : each(paths.usable(d))) {
            const double rate = rates_of[k++];
            const double ready = paths.ready(i, d, rate);
            rates += rate;
            under_way |= paths[i].of(d).in_flight > 0;
            idle = std::min(idle, ready - paths[i].base_latency);
            const double done = ready + bytes / rate;
            // Of several that are as soon, the one whose turn it is.
            if (done < whole || (done == whole && i == level.path[0])) whole = done, soonest = i;
        }
        const double together = bytes / rates;
        const double descriptors = (level.count - 1) * descriptor;
        const bool cheap = descriptors <= kDescriptorShare * together;
        const bool many = message.hint == TrafficHint::non_blocking;
        const bool enough = idle > (many ? 0 : together); // for the paths to be busy until the next message
        // A window of reads, whose stripes would keep the processor busy for longer than the links. Half is enough:
        // it has more to do for a message than its stripes.
        const bool costly = d == Direction::read && under_way && 2 * level.count * descriptor >= together;
        // Two stripes over several adapters cost the processors more than they save: as of short messages. Neighbours
        // share the adapters by their lanes.
        const double in_all = message.descriptor_time * descriptors_of_stripe(paths, message, among_peers);
        const bool dear = !both && !is_short && paths.rails(d) > 1 &&
                          message.size < kMediumLanes * config_->stripe_threshold &&
                          in_all * paths.fastest_link(d) > bytes;
        // Each neighbour has its own rail, and all rails have as much.
        bool shared = among_peers && !both && !large && message.size > config_->stripe_threshold && neighbours_->even();
        if (dear || shared) {
            const PathIndex lane = among_peers ? paths.home(seed_, d) : lane_of(paths, d);
            const double rate = rates_of[std::popcount(paths.usable(d) & ((PathMask{1} << lane) - 1))];
            const double excess = (among_peers ? kLaneExcessAmong : kLaneExcess) * bytes / paths.fastest_link(d);
            if (paths.ready(lane, d, rate) + bytes / rate <= whole + excess)
                soonest = lane;
            else
                shared = false;
        }
        const bool deep = !both && !large && idle > kDeep * together; // the end of the burst is far
        const bool squeezed = !deep && !both && !large && !is_short && better_whole(paths, d, descriptors, bytes);
        if (deep || squeezed || dear || shared ||
            (cheap ? many && enough : many || enough || costly || message.host_is_busy)) {
            first = next_usable(paths.usable(d), soonest);
            plan.count = 1;
            plan.stripes[0] = {.offset = 0, .length = message.size, .path = soonest};
            return Outcome::stripes;
        }
    }
    Shares shares;
    shares_of(level, paths, message, *config_, least, shares);
    cut(shares, message.size, config_->alignment, plan);
    return Outcome::stripes;
}

void DefaultPolicy::observe(PathTable& paths, const Delivery& delivery, const Sample&, Lane& lane) {
    if (delivery.path != lane.path || delivery.teaches_rate()) return;
    const double base = paths[delivery.path].base_latency;
    if (static_cast<double>(delivery.t_done - delivery.t_post) > 2 * base + config_->lane_slack &&
        delivery.t_done > delivery.t_post) {
        lane.left = 0; // hot or jammed: look around before the next message
    }
}

} // namespace ucx_mp::schedule
