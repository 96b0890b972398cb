// A path's standing beside the others: the estimate that decides how much of a message it gets.
//
// A path's rate varies, mostly by collisions with others' traffic, which meet every route now and then.
// A bad link is slow each time. Statistics tell both apart (empirical Bayes; James and Stein 1961):
// - A sample is y = ln(rate / link's rate), less the same of the
//   fastest path that was measured at about that time. A slowdown
//   of all of them, by a busy receiver for instance, cancels out.
// - A path's mean is that of its last kMemory samples. It fades while nothing is measured (kHalfLife).
// - The scatter is the variance of y about the paths' own means, one for all paths of a peer and direction.
// - A mean is known to about sqrt(variance / samples). Let t be kSure times
//   that, and x the gap to the best path. The path is believed to be behind by
//   x - t^2 / x where x > t, else not at all (James and Stein, positive part).
// So a link that is slower by a factor of four is believed after two or three messages, a scatter of 20 % never.
//
// Pure; times in ns.
#pragma once

#include <cstdint>

namespace ucx_mp::schedule {

struct Scatter {
    double variance = 0.25; // as if rates differed by a factor of e^0.5: nothing is known
};

class Standing {
public:
    // `y`: see above.
    void learn(double y, std::uint64_t now, Scatter& scatter);
    [[nodiscard]] bool known() const { return samples_ > 0; }
    [[nodiscard]] double mean() const { return mean_; }
    // How far the path is behind `best`, the largest mean, as far as it is believed: <= 0.
    [[nodiscard]] double behind(double best, const Scatter& scatter) const;

private:
    double mean_ = 0, samples_ = 0;
    std::uint64_t at_ = 0;
};

} // namespace ucx_mp::schedule
