#include "uct_mp/schedule/standing.h"

#include <algorithm>
#include <cmath>

#include "uct_mp/schedule/constants.h"

namespace ucx_mp::schedule {

using namespace constants;

void Standing::learn(double y, std::uint64_t now, Scatter& scatter) {
    const double faded = now > at_ ? samples_ * std::exp2(-static_cast<double>(now - at_) / kHalfLife) : samples_;
    samples_ = std::min(kMemory, faded + 1);
    const double surprise = y - mean_;
    mean_ += surprise / samples_;
    // Welford: the product of both deviations is an unbiased sample of the variance.
    scatter.variance += kScatterGain * (surprise * (y - mean_) - scatter.variance);
    at_ = now;
}

double Standing::behind(double best, const Scatter& scatter) const {
    const double difference = mean_ - best, noise = kSure * std::sqrt(scatter.variance / samples_);
    if (difference >= -noise) return 0;
    return difference - noise * noise / difference; // both are negative: it comes nearer to 0
}

} // namespace ucx_mp::schedule
