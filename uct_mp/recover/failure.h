// A path fails: nothing more is posted there, what was posted comes back, and everything finds its list.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Failure {
public:
    Failure(Core& core, Recoverer& all) : core_(core), all_(all) {}
    Recovery& recovery_of(Channel& channel);
    // The one function that changes a path's phase: logs it, and tells the scheduler.
    void set_phase(Channel& channel, PathIndex path, Phase phase);
    void note(const Channel& channel, Transition::What what, PathIndex path, Nanos since = 0, std::uint32_t again = 0,
              const char* cause = nullptr); // in the history
    void list_recovering(Channel& channel);
    // `stays`: mp_dc, the path may go on being used, only what was posted is lost.
    void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays);
    void drain(SendQueue& queue, Channel& channel, PathIndex path);
    void end(SendQueue& queue, Channel& channel, PathIndex path);
    void end_queue(SendQueue& queue, Channel& channel, PathIndex path);
    void drop_posted(SendQueue& queue);
    void lost(SendQueue& queue, const Posted& posted);
    void end_detours(Channel& channel, PathIndex path);
    void drained(Channel& channel, PathIndex path);
    void abandon_recovery(Channel& channel, Status status);
    void abandon(Channel& channel);
    void restart_later(SendQueue& queue);
    void restart(SendQueue& queue);
    // Recovery
    std::vector<Channel*> recovering; // have something to do in every progress
    int paths_away = 0;               // that are not up: the control plane is asked all the time
    History history;

private:
    void lose(SendQueue& queue, const Posted& posted);
    void note_back(Channel& channel, PathIndex path);
    void mark_messages(Channel& channel, PathIndex path);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
