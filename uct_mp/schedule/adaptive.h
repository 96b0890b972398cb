// Striping with learned weights: HSAM (dissertation 7.1.2, formula 7.4) and BSS (8.2.1, formula 8.3).
//
// When the stripes of a message have completed, the weights W of its paths are distributed anew:
//     w_i' = (1 - a) * w_i + a * W * (w_i / t_i) / sum_k (w_k / t_k)
// The formula takes w_i / t_i for the path's bandwidth, up to a factor. We use bytes_i / t_i, which is the same and
// stays right when cuts are rounded. t_i excludes our own queueing (Sample::ns), so overlapping messages may share a
// round.
// The sum of the usable paths' weights is constant. A path that fails leaves its weight to the others in proportion.
// A path that returns takes 1/16 of a fair share from all, and learns its way up.
// Completions that are found late (7.1.2, cases 2 and 3) change little or nothing, as in the dissertation.
#pragma once

#include <array>

#include "uct_mp/schedule/striping.h"

namespace ucx_mp::schedule {

// Collects one measurement of every path of a message, then applies 7.4 / 8.3 to them.
class WeightRound {
public:
    // Starts a round with the paths of this plan, unless one is open. Plans of one stripe teach nothing.
    void open(const Plan& plan);
    // True when the round is complete and the weights have changed.
    bool observe(PathTable& paths, const Delivery& delivery, const Sample& sample, double alpha);
    void path_changed(PathTable& paths, PathIndex path); // keeps the usable paths' sum

private:
    // A completion that never comes (unmeasurable, cancelled) must not end the learning.
    static constexpr unsigned kGiveUpAfter = 256; // plans
    void update(PathTable& paths, double alpha) const;

    PathMask expected_ = 0; // the round's paths; 0: none open
    PathMask seen_ = 0;
    unsigned age_ = 0;
};

// HSAM: every message on all usable paths.
class Adaptive {
public:
    Adaptive(const PolicyConfig& config, unsigned) : config_(&config) {}
    Lane next_lane(PathTable& paths, Direction d) { return next_weighted_turn(paths, config_->window, d); }
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable& paths, const Delivery& delivery, const Sample& sample, Lane&) {
        round_.observe(paths, delivery, sample, config_->alpha);
    }
    void path_changed(PathTable& paths, PathIndex path) { round_.path_changed(paths, path); }

private:
    const PolicyConfig* config_;
    WeightRound round_;
};

// BSS (n_paths, n_batch): every message on the n_batch best of the first n_paths, which are kept sorted by weight.
// HSAM is the case n_batch = n_paths. Weights start equal (8.1). Beyond the dissertation: `explore`, because a path
// whose weight was once low would never be tried again while the batch slows down evenly.
class Bss {
public:
    Bss(const PolicyConfig& config, unsigned) : config_(&config) {}
    Lane next_lane(PathTable& paths, Direction d) { return next_weighted_turn(paths, config_->window, d); }
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable& paths, const Delivery& delivery, const Sample& sample, Lane&) {
        if (round_.observe(paths, delivery, sample, config_->alpha)) sort(paths);
    }
    void path_changed(PathTable& paths, PathIndex path);
    [[nodiscard]] PathIndex best(unsigned rank) const { return order_[rank]; }

private:
    void start(PathTable& paths);
    void sort(const PathTable& paths);

    const PolicyConfig* config_;
    WeightRound round_;
    std::array<PathIndex, kMaxPaths> order_{};
    unsigned n_paths_ = 0; // 0: not started
    PathMask tried_ = 0;   // the first n_paths for either direction
    std::uint32_t until_explore_ = 0;
    PathIndex explored_[2] = {}; // by Direction: the path tried last
};

} // namespace ucx_mp::schedule
