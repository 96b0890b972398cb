// Cutting a message into stripes, and the policies whose shares are known before: even, weighted (dissertation 4.1.2).
#pragma once

#include "uct_mp/schedule/multiplexing.h"
#include "uct_mp/schedule/policy_config.h"

namespace ucx_mp::schedule {

// Paths with relative shares of one message, in the order in which the stripes shall lie.
struct Shares {
    Shares() {} // uninitialised on purpose, like Plan
    unsigned count = 0;
    PathIndex path[kMaxPaths];
    double share[kMaxPaths]; // finite, >= 0
    void add(PathIndex p, double s) { path[count] = p, share[count++] = s; }
};

// Cuts [0, size) proportionally to the shares; cuts are multiples of alignment, an empty stripe is left out.
// One share at least must be > 0. Does not touch the accounts.
void cut(const Shares& shares, std::uint64_t size, std::uint64_t alignment, Plan& plan);

// As cut(), but no stripe below min_stripe: a path whose share is too small sits out and is owed the bytes
// (Path::carry). Over many messages every path gets exactly its share, and none is skipped for ever.
// If all shares are 0, they count as equal.
void cut_with_carry(PathTable& paths, const Shares& shares, std::uint64_t size, const PolicyConfig& config, Plan& plan);

// Equal stripes on all usable paths.
class Even : public Unlearning {
public:
    Even(const PolicyConfig& config, unsigned seed) : config_(&config), turns_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) { return turns_.next(paths, config_->window, d); }
    Outcome split(PathTable& paths, const Message& message, Plan& plan);

private:
    const PolicyConfig* config_;
    Turns turns_;
};

// Stripes in proportion to the configured weights (for instance the rails' rates).
class Weighted : public Unlearning {
public:
    Weighted(const PolicyConfig& config, unsigned) : config_(&config) {}
    Lane next_lane(PathTable& paths, Direction d) { return next_weighted_turn(paths, config_->window, d); }
    Outcome split(PathTable& paths, const Message& message, Plan& plan);

private:
    const PolicyConfig* config_;
};

} // namespace ucx_mp::schedule
