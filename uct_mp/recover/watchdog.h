// Finds silent loss: sends probes over paths on which nothing completes.
//
// A path is suspect after three looks without a completion. It is given up after five, if the peer answers over another
// path and not over this one.
//
// Callers: Progress, through Observer, about every RecoveryConfig::watch_interval (ns).
// Threads: the interface's. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Watchdog {
public:
    Watchdog(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    void watch_paths(Nanos now);

    // -- What others read
    Nanos next_path_watch = 0;
    Services::Timer watch_timer = 0; // runs while some path is suspect

private:
    bool watch_path(Channel& channel, PathIndex path, Nanos now);
    void suspect(Channel& channel, PathIndex path);
    void suspect_siblings(Channel& channel, PathIndex path, PathMask moved);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
