// The median of the last few samples of a time. Whoever measures on a processor that others use, too, finds some that
// are a thousand times too long: a mean is made of nothing else then.
//
// Pure. Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ucx_mp::adapt {

// Half of the weight lies below it: samples as {value, weight > 0}, in any order, which changes. At least one.
[[nodiscard]] inline double weighted_median(std::span<std::pair<double, double>> samples) {
    std::ranges::sort(samples);
    double half = 0, below = 0;
    for (const auto& [value, weight] : samples) half += weight / 2;
    for (const auto& [value, weight] : samples)
        if ((below += weight) >= half) return value;
    return samples.back().first;
}

class Median {
public:
    static constexpr std::size_t kKept = 9; // four of them may be anything

    void add(double sample) {
        samples_[count_++ % kKept] = sample;
        auto sorted = samples_;
        const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kKept));
        const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
        std::nth_element(sorted.begin(), middle, end);
        value_ = *middle;
    }
    [[nodiscard]] bool known() const { return count_ != 0; }
    [[nodiscard]] double value() const { return value_; } // ns; 0: not known

private:
    std::array<double, kKept> samples_{};
    std::size_t count_ = 0;
    double value_ = 0;
};

} // namespace ucx_mp::adapt
