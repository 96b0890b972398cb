// The default policy. Three laws, each with its mathematics; no rule for a pattern, no flag for a case.
//
// 1. *No path idles while anything waits.* The bytes under way to the peer are known exactly. So a message is cut such
//    that all ports that it uses end together (water-filling), or goes whole where it ends first. A window of messages,
//    however few, ends on all paths at the same time.
// 2. *One cost decides.* A further stripe is worth the time by which the message ends sooner, times the
// probability that somebody waits for just this end. If n + 1 messages are at work, to all peers, one is
// the last: 1 / (n + 1). The length of a burst is told only by its present length, and by the usual one.
// A stripe costs the processor the time of its descriptors, as measured. A write over another rail than
// that of messages needs a marker there, whole or cut. So a message alone is cut, and deep in a window
// only a long one is. A processor that has more to do than the links posts no further descriptors.
// 3. *The rate of a path is an estimate with an uncertainty* (standing.h). Differences within the noise are none.
//
// Routes that share a port give no more than that port. A further one saves only the cost of collisions
// with others' traffic. Routes share that risk by their shares s of the message: the expected loss is
// bytes / rate x scatter x sum of s^2. The scatter is measured. With k equal routes the sum is 1 / k.
//
// *Small messages*, and all that cannot be cut, keep to one lane for a few microseconds (order, no
// search per message). The lane is left when its backlog, or its latency as measured lately, exceeds
// that of the best path by more than lane_slack. A lane that is slow beside its link is compared
// with a path that was not tried. *Large messages* are pulled in chunks (spray.h) where some path
// gives less than its link. There even a good estimate is too coarse for their many bytes.
#pragma once

#include "uct_mp/schedule/policy_config.h"
#include "uct_mp/schedule/striping.h"

namespace ucx_mp::schedule {

class DefaultPolicy {
public:
    // `seed` differs between peers, so that those that share routes do not all begin at the same one. Where all
    // peers share `commons`, the order in which they are sent something for the first time decides, see take_turn().
    DefaultPolicy(const PolicyConfig& config, unsigned seed, Commons* commons)
        : config_(&config), seed_(seed), commons_(commons) {}
    Lane next_lane(PathTable& paths, Direction d);
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable& paths, const Delivery& delivery, const Sample& sample, Lane& lane);
    void path_changed(PathTable&, PathIndex) {}

private:
    // The load to be placed, or the part of it that a port has.
    struct Load {
        double bytes, least; // least: of a stripe
        double last;         // probability that somebody waits for its end
        double descriptor;   // ns
    };
    void take_turn(PathTable& paths); // with the first message to the peer
    // Adds the bytes of a port to `shares`, by its routes. `rate`: by path.
    void add_routes(const PathTable& paths, Direction d, PathMask routes, const double* rate, double of_port,
                    const Load& load, Shares& shares);

    const PolicyConfig* config_;
    unsigned seed_;
    bool in_turn_ = false; // the seed is that of the order
    Commons* commons_;
    PathIndex first_[2] = {}; // by Direction: among routes that are alike, the first one of the next message
    PathIndex lane_path_[2] = {kNoPath, kNoPath}; // by Direction
};

} // namespace ucx_mp::schedule
