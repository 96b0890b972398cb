#include "uct_mp/schedule/default_policy.h"

#include <algorithm>
#include <limits>

#include "uct_mp/schedule/constants.h"
#include "uct_mp/schedule/load_balanced.h"

namespace ucx_mp::schedule {

namespace {

using namespace constants;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// A place where bytes can go: a port, or a route of one.
struct Bin {
    double rate;  // bytes/ns
    double ready; // ns from now until a byte would be there if it took no time itself
    unsigned id;  // for a port its rail, for a route its path
    [[nodiscard]] double done(double bytes) const { return ready + bytes / rate; }
};

struct Bins {
    Bins() {} // uninitialised on purpose, like Plan
    unsigned count = 0;
    Bin bin[kMaxPaths];
    // Keeps them sorted by the end of the least piece; of equal ones the first stays first.
    void insert(Bin added, double least) {
        unsigned k = count++;
        for (; k > 0 && added.done(least) < bin[k - 1].done(least); --k) bin[k] = bin[k - 1];
        bin[k] = added;
    }
    // The bin where `bytes` end first in one piece.
    [[nodiscard]] Bin soonest(double bytes) const {
        return *std::min_element(bin, bin + count,
                                 [=](const Bin& a, const Bin& b) { return a.done(bytes) < b.done(bytes); });
    }
    void keep(Bin only) { bin[0] = only, count = 1; }
};

// Water-filling: the bins are taken in order while each has at least `least` bytes,
// and while `worth(time, with, chosen, next)` says so. Its arguments are the time
// without the next bin, and with it. The others are dropped. Returns when all end.
template <class Worth> double fill(Bins& bins, double bytes, double least, Worth&& worth) {
    double rates = bins.bin[0].rate, work = bytes + rates * bins.bin[0].ready, time = work / rates;
    unsigned chosen = 1;
    for (unsigned k = 1; k < bins.count; ++k) {
        const Bin next = bins.bin[k];
        const double with = (work + next.rate * next.ready) / (rates + next.rate);
        if (next.rate * (with - next.ready) < least || !worth(time, with, chosen, next)) continue;
        rates += next.rate, work += next.rate * next.ready, time = with;
        bins.bin[chosen++] = next;
    }
    bins.count = chosen;
    return time;
}

// A rail's port, as this message finds it.
struct Port {
    double rate = 0, latency = kInfinite; // rate: of its routes together
    double fastest = 0;                   // the fastest of its routes
    double relative = 0;                  // the largest part of its link's rate that one of them is believed to give
    double queued = 0;                    // bytes of this peer
    Nanos since = 0;                      // they count from here, see Account::busy_from
    PathMask routes = 0;
    [[nodiscard]] double busy(Nanos now) const {
        if (queued == 0) return 0;
        const auto served = static_cast<double>(static_cast<std::int64_t>(now - since)) + latency;
        return std::max(0.0, queued / rate - served);
    }
};

// The rate of a path: that of its link, as far as it is believed to give it.
double rate_of(const PathTable& paths, PathIndex i, Direction d) {
    const Path& path = paths[i];
    if (path.nominal_rate <= 0) return paths.rate(i, d);
    const double proven = path.of(d).spent > 0 ? 1 / path.of(d).spent : 0;
    return std::max(proven, path.nominal_rate * path.of(d).relative) * path.ramp;
}

// Time from now until all that is under way on this path has been carried, ns.
double left(const PathTable& paths, PathIndex i, Direction d, double rate) {
    return paths.ready(i, d, rate) - paths[i].base_latency;
}

// The bytes that wait at a rail's port.
struct Queue {
    double bytes = 0;
    unsigned routes = 0;
};

// The time that a message of `bytes` may take on this path, ns.
double lane_cost(const PathTable& paths, PathIndex i, Direction d, double bytes, const Queue* queue) {
    const Path& path = paths[i];
    const double age = static_cast<double>(paths.now() - std::min(path.latency_at, paths.now()));
    const double trust = std::max(0.0, 1 - age / kHalfLife);
    const double excess = std::max(0.0, path.latency - path.base_latency) * trust;
    const double rate = rate_of(paths, i, d), limit = paths.rail_rate(path.rail);
    double backlog = left(paths, i, d, rate);
    // Routes of a port wait for one another there, and behind it each for itself, since others use the fabric, too. So
    // it is half of what waits at the port, and half of what would if all its routes had as much.
    if (const Queue& port = queue[path.rail]; port.routes > 1 && limit > 0)
        backlog = std::max(backlog, (port.bytes + backlog * rate * port.routes) / (2 * std::max(limit, rate)));
    // Latency contains the backlog that was there when it was measured: take the larger.
    return path.base_latency + std::max(excess, backlog) + bytes / rate;
}

// Calls f for each path of `mask`, beginning with `first` and going round.
template <class F> void each_from(PathMask mask, PathIndex first, F&& f) {
    const PathMask behind = ~PathMask{0} << first % kMaxPaths;
    for (const PathMask part : {mask & behind, mask & ~behind})
        for (PathIndex i : each(part)) f(i);
}

} // namespace

// A process that exchanges with several peers has, by the order, as many of them on each rail. So
// has each of the peers: programs that do the same thing reach their neighbours in the same order.
void DefaultPolicy::take_turn(PathTable& paths) {
    if (in_turn_ || !commons_) [[likely]]
        return;
    seed_ = commons_->turns++;
    first_[0] = paths.home(seed_, Direction::write), first_[1] = paths.home(seed_, Direction::read);
    in_turn_ = true;
    paths.begin();
}

Lane DefaultPolicy::next_lane(PathTable& paths, Direction d) {
    PathIndex& current = lane_path_[static_cast<unsigned>(d)];
    take_turn(paths);
    const PathIndex start = paths.is_usable(current, d) ? current : paths.home(seed_, d);
    PathIndex best = start;
    const Account& here = paths[start].of(d);
    // As many as the last one that went whole had: this is about such messages, not about parts of larger ones.
    const double bytes = here.sample_bytes < static_cast<double>(config_->stripe_threshold) ? here.sample_bytes : 0;
    Queue queue[kMaxRails];
    for (PathIndex i : each(paths.usable(d))) {
        const double rate = rate_of(paths, i, d);
        queue[paths[i].rail].bytes += left(paths, i, d, rate) * rate;
        ++queue[paths[i].rail].routes;
    }
    const double stay = lane_cost(paths, start, d, bytes, queue);
    double best_cost = stay;
    for (PathIndex i : each(paths.usable(d) & ~(PathMask{1} << start))) {
        const double cost = lane_cost(paths, i, d, bytes, queue);
        if (cost < best_cost) best = i, best_cost = cost;
    }
    if (stay <= best_cost + config_->lane_slack) best = start;
    // A path that is slow beside its link may be slow beside the other paths: that is known once one of them was tried.
    if (bytes > 0 && here.pace < -kSure * paths.scatter(d) && here.relative == 1)
        for (PathIndex i : each(paths.usable(d)))
            if (paths[i].of(d).sampled_at + static_cast<Nanos>(kHalfLife) < here.sampled_at) best = i;
    current = best;
    paths.let_pass(best, d, rate_of(paths, best, d));
    return {best, config_->window};
}

Outcome DefaultPolicy::split(PathTable& paths, const Message& message, Plan& plan) {
    const Direction d = direction(message.kind);
    take_turn(paths);
    Load load;
    load.bytes = static_cast<double>(message.size);
    load.least = static_cast<double>(message.size < config_->stripe_threshold
                                         ? std::max(config_->min_stripe / 2, config_->alignment)
                                         : config_->min_stripe);
    double rate[kMaxPaths], slowest = 1;
    for (PathIndex i : each(paths.usable(d))) {
        rate[i] = rate_of(paths, i, d);
        slowest = std::min(slowest, paths[i].of(d).relative * paths[i].ramp);
    }
    if (message.size >= config_->pull_threshold && slowest < 1) return Outcome::pull;

    // The ports: their rates, and when they are free.
    Port port[kMaxRails];
    unsigned used[kMaxRails], rails = 0;
    const PathIndex home = paths.home(seed_, d);
    each_from(paths.usable(d), home, [&](PathIndex i) {
        const Path& path = paths[i];
        Port& p = port[path.rail];
        if (p.routes == 0) used[rails++] = path.rail;
        p.rate += rate[i];
        p.fastest = std::max(p.fastest, rate[i]);
        p.relative = std::max(p.relative, path.of(d).relative);
        p.latency = std::min(p.latency, path.base_latency);
        p.queued += static_cast<double>(path.of(d).in_flight);
        if (path.of(d).in_flight > 0) p.since = std::max(p.since, path.of(d).busy_from);
        p.routes |= PathMask{1} << i;
    });
    Bins ports;
    double rates = 0, idle = kInfinite;
    for (unsigned k = 0; k < rails; ++k) {
        Port& p = port[used[k]];
        const double limit = paths.rail_rate(static_cast<std::uint8_t>(used[k]));
        // A slow port is slow to all its routes, and together they give no more than one that has it for itself.
        if (limit > 0) p.rate = std::min(p.rate, std::max(limit * p.relative, p.fastest));
        const double busy = p.busy(paths.now());
        rates += p.rate;
        idle = std::min(idle, busy);
        ports.insert({p.rate, p.latency + busy, used[k]}, load.least);
    }

    // How many of them.
    const bool waited_for = message.hint == TrafficHint::blocking || message.hint == TrafficHint::collective;
    const double ahead = waited_for ? 0 : std::max({0.0, idle * rates / load.bytes, message.open - 1});
    load.last = 1 / (1 + ahead);
    load.descriptor = std::max(config_->descriptor_cost, message.descriptor_time);
    // Writes need a marker on each rail but that of the lane, which tells of them, unless one is due there anyway.
    const double marker = d == Direction::read || message.shares_markers ? 0 : kMarker * message.descriptor_time;
    const double stripe = load.descriptor + (d == Direction::read ? kCollect * message.descriptor_time : 0);
    const PathIndex lane = lane_path_[static_cast<unsigned>(d)];
    const unsigned lane_rail = paths[paths.is_usable(lane, d) ? lane : home].rail;
    const Bin whole = *std::min_element(ports.bin, ports.bin + ports.count, [&](const Bin& a, const Bin& b) {
        const auto cost = [&](const Bin& x) {
            return load.last * x.done(load.bytes) + (x.id == lane_rail ? 0 : marker);
        };
        return cost(a) < cost(b);
    });
    const double end =
        fill(ports, load.bytes, load.least, [&](double time, double with, unsigned chosen, const Bin& next) {
            const double without = chosen == 1 ? std::min(time, whole.done(load.bytes)) : time;
            return load.last * (without - with) > stripe + (next.id == lane_rail ? 0 : marker);
        });
    Shares shares;
    if (ports.count == 1) {
        add_routes(paths, d, port[whole.id].routes, rate, whole.rate, load, shares);
    } else {
        for (unsigned k = 0; k < ports.count; ++k) {
            const Bin& p = ports.bin[k];
            load.bytes = p.rate * (end - p.ready);
            add_routes(paths, d, port[p.id].routes, rate, p.rate, load, shares);
        }
    }
    if (slowest < 1) { // a path that was slow once may be as fast as others again
        const bool any = !commons_ || commons_->may_try(paths.now(), config_->probe_interval, seed_);
        PathMask not_tried = 0;
        for (PathIndex i : each(paths.usable(d)))
            if (const Account& account = paths[i].of(d); account.relative == 1 || (!any && account.standing.known()))
                not_tried |= PathMask{1} << i;
        for (unsigned k = 0; k < shares.count; ++k) not_tried |= PathMask{1} << shares.path[k];
        const unsigned before = shares.count;
        try_stale(paths, not_tried, message, *config_, shares);
        if (commons_ && any && shares.count > before) commons_->tried_at = paths.now(), commons_->tried_by = seed_;
    }
    cut(shares, message.size, config_->alignment, plan);
    return Outcome::stripes;
}

void DefaultPolicy::add_routes(const PathTable& paths, Direction d, PathMask routes, const double* rate, double of_port,
                               const Load& load, Shares& shares) {
    if (std::has_single_bit(routes)) return shares.add(*each(routes).begin(), load.bytes);
    PathIndex& first = first_[static_cast<unsigned>(d)];
    Bins ways;
    each_from(routes, first, [&](PathIndex i) {
        ways.insert({rate[i], static_cast<double>(paths[i].of(d).in_flight) / rate[i], i}, load.least);
    });
    const Bin single = ways.soonest(load.bytes);
    const double risk = kRisk * load.bytes / of_port * paths.scatter(d);
    const double level = fill(ways, load.bytes, load.least, [&](double, double, unsigned chosen, const Bin& next) {
        double given = 0, squares = 0; // sums of the rates, and of their squares
        for (unsigned j = 0; j < chosen; ++j) given += ways.bin[j].rate, squares += ways.bin[j].rate * ways.bin[j].rate;
        const double slower = std::max(0.0, load.bytes / given - load.bytes / of_port); // slower than the port
        const double more = given + next.rate;
        const double spread = squares / (given * given) - (squares + next.rate * next.rate) / (more * more);
        return load.last * (slower + risk * spread) > kOverRoutes * load.descriptor;
    });
    if (ways.count == 1) ways.keep(single);
    for (unsigned j = 0; j < ways.count; ++j) {
        const Bin& way = ways.bin[j];
        shares.add(static_cast<PathIndex>(way.id), ways.count == 1 ? load.bytes : way.rate * (level - way.ready));
    }
    first = static_cast<PathIndex>((ways.bin[ways.count - 1].id + 1) % kMaxPaths);
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
