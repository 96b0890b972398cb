// The phases of paths, and what follows from them alone: the scheduler's state, counts, and which channels Replay looks
// at.
//
// Callers: any part. Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Reports;

class Phases {
public:
    Phases(Core& core, Reports& reports) : core_(core), reports_(reports) {}

    // The only function that changes a path's phase: asserts may_follow(), logs, and tells the scheduler.
    void set_phase(Channel& channel, PathIndex path, Phase phase);
    // Something has come through: the path is not suspect any more.
    void path_answers(Channel& channel, PathIndex path);
    // Replay::recover() looks at the channel in the next round of progress.
    void list_recovering(Channel& channel);

    // -- What others read
    std::vector<Channel*> recovering; // Replay::recover() is called for them in each round of progress
    int paths_away = 0;               // paths on their way back; while there are any, `alert` stays set
    unsigned kept = 0;                // RC paths on demand that are neither absent nor ended

private:
    Core& core_;
    Reports& reports_;
};

} // namespace ucx_mp::recover
