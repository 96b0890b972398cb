#include "uct_mp/schedule/multiplexing.h"

namespace ucx_mp::schedule {

Lane Turns::next(PathTable& paths, std::int64_t window, Direction d) {
    const PathMask usable = paths.usable(d);
    PathIndex& last = last_[paths.apart() ? static_cast<unsigned>(d) : 0];
    PathIndex path = next_usable(usable, last);
    // Each round of skipping adds to the credit of the paths passed, so this ends; else the last one tried is taken.
    for (unsigned tries = paths.usable_count(d); tries > 1 && paths[path].ramp < 1; --tries) {
        double& turn = paths[path].turn;
        if ((turn += paths[path].ramp) >= 1) {
            turn -= 1;
            break;
        }
        path = next_usable(usable, path);
    }
    last = path;
    return {path, window};
}

Lane next_weighted_turn(PathTable& paths, std::int64_t window, Direction d) {
    double total = 0;
    for (PathIndex i : each(paths.usable(d))) total += paths[i].weight * paths[i].ramp;
    PathIndex best = kNoPath;
    for (PathIndex i : each(paths.usable(d))) {
        Path& path = paths[i];
        const double weight = total > 0 ? path.weight * path.ramp : 1; // all weights 0: plain turns
        path.turn += weight;
        if (weight > 0 && (best == kNoPath || path.turn > paths[best].turn)) best = i;
    }
    paths[best].turn -= total > 0 ? total : paths.usable_count(d);
    return {best, window};
}

} // namespace ucx_mp::schedule
