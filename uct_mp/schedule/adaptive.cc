#include "uct_mp/schedule/adaptive.h"

#include <algorithm>

namespace ucx_mp::schedule {

namespace {
// A weight never falls below this part of a fair share. The path still gets a stripe now and then (Path::carry): that
// is how we learn that it is free again.
constexpr double kWeightFloor = 1.0 / 32;
constexpr double kReentryWeight = 1.0 / 16; // of a fair share
} // namespace

void WeightRound::open(const Plan& plan) {
    if (expected_ != 0 && ++age_ < kGiveUpAfter) return;
    expected_ = seen_ = 0;
    age_ = 0;
    if (plan.count < 2) return;
    for (unsigned k = 0; k < plan.count; ++k) expected_ |= PathMask{1} << plan.stripes[k].path;
}

bool WeightRound::observe(PathTable& paths, const Delivery& delivery, const Sample& sample, double alpha) {
    if (delivery.path >= paths.size()) return false;
    const PathMask bit = PathMask{1} << delivery.path;
    if ((expected_ & ~seen_ & bit) == 0 || !delivery.teaches_rate()) return false;
    if (sample.measurable()) {
        paths[delivery.path].round_rate = sample.bytes / sample.ns;
        seen_ |= bit;
    } else {
        expected_ &= ~bit;
    }
    if (seen_ != expected_) return false;
    const bool enough = std::popcount(seen_) > 1;
    if (enough) update(paths, alpha);
    expected_ = 0;
    return enough;
}

void WeightRound::update(PathTable& paths, double alpha) const {
    double weights = 0, rates = 0;
    for (PathIndex i : each(seen_)) weights += paths[i].weight, rates += paths[i].round_rate;
    const double floor = kWeightFloor * paths.total_weight() / paths.size();
    double sum = 0;
    for (PathIndex i : each(seen_)) {
        double& weight = paths[i].weight;
        weight = std::max((1 - alpha) * weight + alpha * weights * (paths[i].round_rate / rates), floor);
        sum += weight;
    }
    if (sum <= 0) return;
    for (PathIndex i : each(seen_)) paths[i].weight *= weights / sum; // 1 but for the floor and rounding
}

void WeightRound::path_changed(PathTable& paths, PathIndex path) {
    const PathMask bit = PathMask{1} << path;
    expected_ &= ~bit;
    seen_ &= ~bit;
    if (seen_ == expected_) expected_ = seen_ = 0; // it was the last one missing; learn from the next message
    double total = paths.total_weight();
    if (total <= 0) return;
    PathMask others = paths.usable();
    const bool back = (others & bit) != 0 && paths[path].ramp < 1;
    if (back && (others & ~bit) != 0) {
        others &= ~bit;
        paths[path].weight = kReentryWeight * total / paths.size();
        total -= paths[path].weight;
    }
    double sum = 0;
    for (PathIndex i : each(others)) sum += paths[i].weight;
    for (PathIndex i : each(others)) {
        paths[i].weight = sum > 0 ? paths[i].weight * (total / sum) : total / std::popcount(others);
    }
}

Outcome Adaptive::split(PathTable& paths, const Message& message, Plan& plan) {
    Shares shares;
    for (PathIndex i : each(paths.usable(direction(message.kind)))) shares.add(i, paths[i].weight);
    cut_with_carry(paths, shares, message.size, *config_, plan);
    round_.open(plan);
    return Outcome::stripes;
}

void Bss::start(PathTable& paths) {
    for (Direction d : {Direction::write, Direction::read}) {
        unsigned left = config_->n_paths ? config_->n_paths : kMaxPaths;
        for (PathIndex i : each(paths.meant(d)))
            if (left && left--) tried_ |= PathMask{1} << i;
    }
    for (PathIndex i : each(tried_)) order_[n_paths_++] = i;
    sort(paths);
    until_explore_ = config_->explore;
}

void Bss::sort(const PathTable& paths) {
    // Insertion sort: nearly sorted already, stable, and no allocation.
    for (unsigned k = 1; k < n_paths_; ++k) {
        const PathIndex path = order_[k];
        unsigned j = k;
        for (; j > 0 && paths[order_[j - 1]].weight < paths[path].weight; --j) order_[j] = order_[j - 1];
        order_[j] = path;
    }
}

void Bss::path_changed(PathTable& paths, PathIndex path) {
    round_.path_changed(paths, path);
    if (n_paths_ != 0) sort(paths);
}

Outcome Bss::split(PathTable& paths, const Message& message, Plan& plan) {
    if (n_paths_ == 0) start(paths);
    const Direction d = direction(message.kind);
    Shares shares;
    for (unsigned k = 0; k < n_paths_ && shares.count < config_->n_batch; ++k) {
        if (paths.is_usable(order_[k], d)) shares.add(order_[k], paths[order_[k]].weight);
    }
    if (shares.count == 0) { // the first n_paths are all down: any path is better than none
        const PathIndex any = next_usable(paths.usable(d), kMaxPaths - 1);
        shares.add(any, paths[any].weight);
    }
    if (config_->explore != 0 && --until_explore_ == 0) {
        until_explore_ = config_->explore;
        PathIndex path = explored_[static_cast<unsigned>(d)];
        for (unsigned tries = 0; tries < n_paths_; ++tries) {
            path = next_usable(tried_, path);
            const bool in_batch =
                std::find(shares.path, shares.path + shares.count, path) != shares.path + shares.count;
            if (!paths.is_usable(path, d) || in_batch) continue;
            explored_[static_cast<unsigned>(d)] = path;
            if (shares.count > 1) --shares.count;
            // At least one stripe of measurable size, whatever its weight: the round needs it.
            double batch = 0;
            for (unsigned k = 0; k < shares.count; ++k) batch += shares.share[k];
            const double least = static_cast<double>(std::max(config_->min_stripe, PathTable::kRateBytes)) * 1.1;
            const double part = std::min(0.5, least / static_cast<double>(message.size));
            shares.add(path, std::max(paths[path].weight, batch * part / (1 - part)));
            break;
        }
    }
    cut_with_carry(paths, shares, message.size, *config_, plan);
    round_.open(plan);
    return Outcome::stripes;
}

} // namespace ucx_mp::schedule
