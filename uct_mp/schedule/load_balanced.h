// Load-balanced fragmentation with separate accounts for reads and writes (dissertation 5.2.2, 5.2.3): stripes are
// as long as it takes to bring all paths to the same level. And EPC, which chooses by hint (6.2).
#pragma once

#include "uct_mp/schedule/striping.h"

namespace ucx_mp::schedule {

// The instant at which all chosen paths would be done with what they have and `bytes` more, ns from PathTable::now().
struct Level {
    Level() {}
    double time = 0;
    unsigned count = 0; // chosen paths, soonest ready first
    PathIndex path[kMaxPaths];
    double rate[kMaxPaths];
    double ready[kMaxPaths]; // see PathTable::ready
    [[nodiscard]] double bytes(unsigned k) const { return rate[k] * (time - ready[k]); }
};

struct LevelRules {
    double min_bytes = 0; // a path that would get less is left out
    bool joint = false;   // reads and writes count as one load
};

// Water-filling over the candidates (not empty, all usable): the soonest ready first, as long as it helps.
void fill(const PathTable& paths, PathMask candidates, Direction d, double bytes, const LevelRules& rules,
          Level& level);

// A usable idle path outside `chosen` whose rate was last measured longer than `interval` ns ago. It should
// get a small piece, or a path that was once slow would never be tried again. kNoPath if there is none.
[[nodiscard]] PathIndex stale_path(const PathTable& paths, PathMask chosen, Direction d, double interval);

// Takes a least piece off the largest share for a stale path outside
// `chosen`, if the message is so large that it does not matter much.
void try_stale(const PathTable& paths, PathMask chosen, const Message& message, const PolicyConfig& config,
               Shares& shares);

class LoadBalanced : public Unlearning {
public:
    LoadBalanced(const PolicyConfig& config, unsigned seed) : config_(&config), turns_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) {
        return turns_.next(paths, 1, d);
    } // small ones: round robin (5.2.3)
    Outcome split(PathTable& paths, const Message& message, Plan& plan);

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
