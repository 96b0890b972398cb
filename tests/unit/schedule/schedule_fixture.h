// Short ways to say things about policies.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/schedule/scheduler.h"

namespace ucx_mp::schedule::test {

inline PolicyConfig policy(const std::string& text) {
    const PolicyChoice choice = make_policy(text);
    if (!choice.config) throw std::runtime_error(choice.error);
    return *choice.config;
}

inline std::vector<PathSetup> equal_paths(unsigned n, double rate = 1) {
    return std::vector<PathSetup>(n, PathSetup{.weight = 1, .nominal_rate = rate, .latency = 2000});
}

inline std::vector<PathSetup> weighted_paths(std::initializer_list<double> weights) {
    std::vector<PathSetup> setup;
    for (double w : weights) setup.push_back({.weight = w, .nominal_rate = w});
    return setup;
}

struct Peer {
    Peer(const std::string& text, std::span<const PathSetup> setup, unsigned seed = 0, Commons* commons = nullptr)
        : config(policy(text)), scheduler(config, setup, seed, commons) {}

    Outcome put(std::uint64_t size, TrafficHint hint = TrafficHint::none, Nanos now = 0) {
        return scheduler.plan({size, MessageKind::put, hint, now}, plan);
    }
    // The k-th stripe of the last plan was posted at t_post and completed at t_done.
    void done(unsigned k, Nanos t_post, Nanos t_done, Direction d = Direction::write) {
        const Stripe& s = plan.stripes[k];
        scheduler.observe({s.path, d, s.length, s.length, t_post, t_done});
    }
    void small_done(PathIndex path, Nanos t_post, Nanos t_done, std::uint64_t bytes = 8) {
        scheduler.observe({path, Direction::write, bytes, bytes, t_post, t_done});
    }
    // A path of this peer.
    const Path& path(unsigned i) const { return scheduler.paths()[PathIndex(i)]; }
    double weight(unsigned i) const { return path(i).weight; }
    double weight_sum() const {
        double sum = 0;
        for (PathIndex i : each(scheduler.paths().usable())) sum += weight(i);
        return sum;
    }
    // Paths of n small messages, as digits.
    std::string places(unsigned n, std::uint64_t size = 8) {
        std::string out;
        while (n-- > 0) out += std::to_string(scheduler.place(Direction::write, size));
        return out;
    }

    PolicyConfig config;
    Scheduler scheduler;
    Plan plan;
};

// Empty if the stripes are contiguous, in order, cover [0, size) and use each usable path at most once.
inline std::string wrong_with(const Plan& plan, std::uint64_t size, const PathTable& paths,
                              Direction d = Direction::write) {
    std::uint64_t at = 0;
    PathMask used = 0;
    if (plan.count == 0 || plan.count > kMaxStripes) return "count " + std::to_string(plan.count);
    for (unsigned k = 0; k < plan.count; ++k) {
        const Stripe& s = plan.stripes[k];
        if (s.offset != at) return "stripe " + std::to_string(k) + " starts at " + std::to_string(s.offset);
        if (s.length == 0 && size != 0) return "empty stripe " + std::to_string(k);
        if (!paths.is_usable(s.path, d)) return "path " + std::to_string(s.path) + " is not usable";
        if (used >> s.path & 1) return "path " + std::to_string(s.path) + " twice";
        used |= PathMask{1} << s.path;
        if (__builtin_add_overflow(at, s.length, &at)) return "overflow";
    }
    return at == size ? "" : "covers " + std::to_string(at) + " of " + std::to_string(size);
}

// Takes chunks until there are none for now.
inline std::vector<Stripe> drain(Peer& peer, Transfer& transfer, Nanos now) {
    std::vector<Stripe> out;
    Stripe chunk;
    while (peer.scheduler.next(transfer, now, chunk)) out.push_back(chunk);
    return out;
}

} // namespace ucx_mp::schedule::test
