// A path's standing beside the others: the estimate that decides how much of a message it gets.
//
// A path's rate varies, mostly by collisions with others' traffic, which meet every route now and then.
// A bad link is slow each time. Statistics tell both apart (empirical Bayes; James and Stein 1961):
// - A sample is y = ln(rate / link's rate), less the same of the
//   fastest path that was measured at about that time. A slowdown
//   of all of them, by a busy receiver for instance, cancels out. In the
//   end of a burst only slow paths are in use. They stay as slow as they are
//   believed to be on average, but none of them slower than it is beside its link.
// - Routes that share a port have a part of its rate. A rate is multiplied by the number of those in use. So each route
//   of a slow port shows the port's rate, and the port gives no more than its best route shows.
// - A path's mean is that of its last kMemory samples. It fades while nothing is measured (kHalfLife).
// - The scatter is the variance of y about the paths' own means, one for all paths of a peer and direction.
// - A mean is known to about sqrt(variance / samples). Let t be kSure times
//   that, and x the gap to the best path. The path is believed to be behind by
//   x - t^2 / x where x > t, else not at all (James and Stein, positive part).
// So a link that is slower by a factor of four is believed after two or three messages, a scatter of 20 % never.
//
// *Messages that go whole, to many peers in turn.* Then no other path of the peer was measured at about that time. The
// model is: ln(rate of path i to peer p at time t) = a(t) + b(p) + c(p, i) + noise. Only c is the path's. `a` is common
// to all that the interface does (the processor, the port), `b` to all paths of the peer. The fastest path of the peer
// takes off both. Else `Pace`, the mean of the interface's last samples to all peers, takes off `a`. Then b stays in
// all means of the peer, and cancels in the gap to its best path. That gap is between two means of which each has its
// own noise, so its variance is twice as large. The scatter of such samples is one for all peers, since one peer has
// too few of them.
//
// Pure; times in ns.
#pragma once

#include <cstdint>

namespace ucx_mp::schedule {

struct Scatter {
    double variance = 0.25; // as if rates differed by a factor of e^0.5: nothing is known
};

// The interface's samples of late, whichever peers they went to.
class Pace {
public:
    // Adds a sample. True if others are not older than `within`; then `beside` is the sample less their mean.
    bool learn(double y, std::uint64_t now, double within, double& beside);

private:
    double mean_ = 0, samples_ = 0;
    std::uint64_t at_ = 0;
};

class Standing {
public:
    // `y`: see above. `peers`: 0 if it is beside other paths of the peer, else beside the samples of so many
    // peers. The two do not mix: the first sample beside other paths ends what was learned without them, and one
    // without them counts when what was learned beside them has faded.
    void learn(double y, std::uint64_t now, Scatter& scatter, unsigned peers = 0);
    [[nodiscard]] bool alone() const { return alone_; }
    [[nodiscard]] bool known() const { return samples_ > 0; }
    [[nodiscard]] bool counts(std::uint64_t now) const { return faded(now) >= 0.5; }
    [[nodiscard]] bool rested(std::uint64_t now) const; // for kHalfLife at least: what is learned now was a try
    [[nodiscard]] double mean() const { return mean_; }
    // How far the path is behind `best`, the largest mean, as far as it is believed: <= 0.
    [[nodiscard]] double behind(double best, const Scatter& scatter) const;
    // A sample that is as good as `best`, but for the noise.
    [[nodiscard]] static bool level(double y, double best, const Scatter& scatter);

private:
    [[nodiscard]] double faded(std::uint64_t now) const; // samples
    double mean_ = 0;
    float samples_ = 0;
    bool alone_ = false;
    std::uint64_t at_ = 0;
};

} // namespace ucx_mp::schedule
