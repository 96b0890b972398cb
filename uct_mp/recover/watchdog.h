// Paths on which nothing completes are looked at.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Watchdog {
public:
    Watchdog(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void watch_paths(Nanos now);
    void path_answers(Channel& channel, PathIndex path);
    Nanos next_path_watch = 0;
    Services::Timer watch_timer = 0; // runs while some path is suspect

private:
    void watch_path(Channel& channel, PathIndex path, Nanos now);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
