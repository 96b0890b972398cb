#include "uct_mp/schedule/standing.h"

#include <algorithm>
#include <cmath>

#include "uct_mp/schedule/constants.h"

namespace ucx_mp::schedule {

using namespace constants;

bool Pace::learn(double y, std::uint64_t now, double within, double& beside) {
    const bool recent = samples_ > 0 && static_cast<double>(now - std::min(now, at_)) <= within;
    beside = y - mean_;
    samples_ = recent ? std::min(kMemory, samples_ + 1) : 1;
    mean_ += beside / samples_;
    at_ = now;
    return recent;
}

double Standing::faded(std::uint64_t now) const {
    return now > at_ ? samples_ * std::exp2(-static_cast<double>(now - at_) / kHalfLife) : samples_;
}

bool Standing::rested(std::uint64_t now) const { return now > at_ && static_cast<double>(now - at_) > kHalfLife; }

void Standing::learn(double y, std::uint64_t now, Scatter& scatter, unsigned peers) {
    if (alone_ != (peers > 0)) *this = {};
    alone_ = peers > 0;
    const double samples = std::min(kMemory, faded(now) + 1), surprise = y - mean_;
    samples_ = static_cast<float>(samples);
    mean_ += surprise / samples;
    at_ = now;
    // Welford: the product of both deviations is an unbiased sample of the variance. A path's first sample shows none.
    // It lets a peer's first guess fade; with many peers there would be little but first samples.
    if (!alone_ || samples > 1)
        scatter.variance += kScatterGain / std::max(1U, peers) * (surprise * (y - mean_) - scatter.variance);
}

double Standing::behind(double best, const Scatter& scatter) const {
    // Alone, the best path's mean was not measured together with ours, and is as uncertain.
    const double variance = (alone_ ? 2 : 1) * scatter.variance / samples_;
    const double difference = mean_ - best, noise = kSure * std::sqrt(variance);
    if (difference >= -noise) return 0;
    return difference - noise * noise / difference; // both are negative: it comes nearer to 0
}

bool Standing::level(double y, double best, const Scatter& scatter) {
    return y - best > -kSure * std::sqrt(scatter.variance);
}

} // namespace ucx_mp::schedule
