// Load-balanced fragmentation with separate accounts for reads and writes (dissertation 5.2.2, 5.2.3): stripes are
// as long as it takes to bring all paths to the same level. And EPC, which chooses by hint (6.2).
#pragma once

#include "uct_mp/schedule/striping.h"

namespace ucx_mp::schedule {

// The instant at which all chosen paths would be done with what they have and `bytes` more, ns from PathTable::now().
struct Level {
    Level() {}
    double time = 0;
    double rate_sum = 0;
    unsigned count = 0; // chosen paths, soonest ready first
    PathIndex path[kMaxPaths];
    double rate[kMaxPaths];
    double ready[kMaxPaths]; // see PathTable::ready
    // Bytes that path k of the chosen ones gets.
    [[nodiscard]] double bytes(unsigned k) const { return rate[k] * (time - ready[k]); }
};

inline constexpr double kNoise = 1.5; // of rates measured while reads and writes share queue pairs

struct LevelRules {
    double min_bytes = 0;  // a path that would get less is left out
    double cost = 0;       // ns that a further path must save to be used
    bool joint = false;    // reads and writes count as one load
    bool compared = false; // rates by what links can, and by Comparison where that says more than its scatter
    bool coarse = false;   // measured rates are noisy: only what differs by more than kNoise counts
    bool routes = false;   // paths of a rail are routes that others use, too: see Alike
    unsigned first = 0;    // then: of idle paths that are alike, which one comes first; any number
};

// Water-filling over the candidates (not empty, all usable): the soonest ready first, as long as it helps.
void fill(const PathTable& paths, PathMask candidates, Direction d, double bytes, const LevelRules& rules,
          Level& level);

// A usable idle path outside `chosen` whose rate was last measured longer than `interval` ns ago. It should get a small
// piece, or what was once slow would never be tried again. kNoPath if there is none.
[[nodiscard]] PathIndex stale_path(const PathTable& paths, PathMask chosen, Direction d, double interval);

// The level as shares, a stale path included if the message is large enough for it not to matter much.
void shares_of(const Level& level, const PathTable& paths, const Message& message, const PolicyConfig& config,
               std::uint64_t piece, Shares& shares);

class LoadBalanced {
public:
    LoadBalanced(const PolicyConfig& config, unsigned seed) : config_(&config), turns_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) {
        return turns_.next(paths, 1, d);
    } // small ones: round robin (5.2.3)
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable&, const Delivery&, const Sample&, Lane&) {}
    void path_changed(PathTable&, PathIndex) {}

private:
    const PolicyConfig* config_;
    Turns turns_;
};

// Enhanced point-to-point and collective: blocking, collective and unmarked messages even, non-blocking ones round
// robin, those of an epoch load-balanced (that case is ours).
class Epc {
public:
    Epc(const PolicyConfig& config, unsigned seed) : even_(config, seed), epoch_(config, seed), turns_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) { return turns_.next(paths, 1, d); }
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable&, const Delivery&, const Sample&, Lane&) {}
    void path_changed(PathTable&, PathIndex) {}

private:
    Even even_;
    LoadBalanced epoch_;
    Turns turns_;
};

} // namespace ucx_mp::schedule
