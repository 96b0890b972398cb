// Whole messages on one path each: binding, round robin, weighted round robin, window-based round robin
// (dissertation 4.1.2). They ignore the size of messages, as the dissertation does: small ones cost per message.
#pragma once

#include "uct_mp/schedule/policy_config.h"

namespace ucx_mp::schedule {

// The usable path with the smallest index > i, else the smallest of all. At least one path must be usable.
[[nodiscard]] constexpr PathIndex next_usable(PathMask usable, PathIndex i) {
    const PathMask above = i >= kMaxPaths - 1 ? 0 : usable & (~PathMask{0} << (i + 1));
    return static_cast<PathIndex>(std::countr_zero(above ? above : usable));
}

// Takes turns among the usable paths; a returned path (ramp < 1) has its turn only now and then.
// `seed` lets peers start at different paths.
class Turns {
public:
    explicit Turns(unsigned seed) : last_{before(seed), before(seed)} {}
    Lane next(PathTable& paths, std::int64_t window, Direction d);

private:
    static PathIndex before(unsigned seed) { return static_cast<PathIndex>((seed + kMaxPaths - 1) % kMaxPaths); }
    PathIndex last_[2]; // by Direction if they have paths of their own, else the first
};

// Turns in proportion to weight x ramp, spread evenly ("smooth" weighted round robin: the path with most turns owed).
Lane next_weighted_turn(PathTable& paths, std::int64_t window, Direction d);

// A policy that goes by nothing but its configuration and the accounts.
class Unlearning {
public:
    void observe(PathTable&, const Delivery&, const Sample&, Lane&) {}
    void path_changed(PathTable&, PathIndex) {}
};

class MultiplexingBase : public Unlearning {
public:
    Outcome split(PathTable&, const Message&, Plan&) { return Outcome::no_path; } // never called: threshold is infinite
};

// One path for everything: the seed-th, or another one while that is not usable.
class Binding : public MultiplexingBase {
public:
    Binding(const PolicyConfig&, unsigned seed) : seed_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) { return {paths.home(seed_, d), kForever}; }

private:
    unsigned seed_;
};

// W consecutive messages per path; W = 1 is plain round robin.
class RoundRobin : public MultiplexingBase {
public:
    RoundRobin(const PolicyConfig& config, unsigned seed)
        : turns_(seed), window_(config.kind == PolicyKind::window_rr ? config.window : 1) {}
    Lane next_lane(PathTable& paths, Direction d) { return turns_.next(paths, window_, d); }

private:
    Turns turns_;
    std::int64_t window_;
};

class WeightedRoundRobin : public MultiplexingBase {
public:
    WeightedRoundRobin(const PolicyConfig&, unsigned) {}
    Lane next_lane(PathTable& paths, Direction d) { return next_weighted_turn(paths, 1, d); }
};

} // namespace ucx_mp::schedule
