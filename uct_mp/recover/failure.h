// A path fails: nothing more is posted there, what was posted comes back, and everything finds its list.
//
// That is steps 2 to 6 in PROTOCOL.md: path_failed(), drain(), end(), lost() for each record, drained(). Then Exchange
// asks the peer and Replay settles.
//
// Callers: Observer (send errors, refused posts), RailEvents, Watchdog, Exchange; Jobs calls back for commands.
// path_failed() may be called at any moment. It does nothing where the path is down already, but for more losses over
// mp_dc.
// Threads: the interface's. Completions of the user may run inside, and may fail the channel.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Failure {
public:
    Failure(Core& core, Members& all) : core_(core), all_(all) {}

    // -- A path
    // Recovery's memory of the channel; made at the first call.
    Recovery& recovery_of(Channel& channel);
    // The one function that changes a path's phase: asserts may_follow(), logs, and tells the scheduler.
    void set_phase(Channel& channel, PathIndex path, Phase phase);
    // `cause` is for people and lives for ever. `stays`: mp_dc, only what was posted is lost, the path is used on.
    // Over a path of RC that nobody wants (PathRecovery::retired) it is no failure.
    void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays);
    // Everything posted has come back: our truth is complete.
    void drained(Channel& channel, PathIndex path);
    // Nothing posted to the path is read any more: its buffers go home.
    void end_detours(Channel& channel, PathIndex path);

    // -- Its queue
    // Nothing goes through it any more. A job moves it to the error state.
    void drain(SendQueue& queue, Channel& channel, PathIndex path);
    void end(SendQueue& queue, Channel& channel, PathIndex path); // of Jobs: to the error state
    // Posts the last request, whose flush says that all before it is back.
    void end_queue(SendQueue& queue, Channel& channel, PathIndex path);
    // The adapter is gone: everything posted is lost now, without completions.
    void drop_posted(SendQueue& queue);
    // One record that has come back without success, of a channel that is recoverable.
    void lost(SendQueue& queue, const Posted& posted);
    // These bytes of a write or read become a work of their own, in front of what has never been sent.
    void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes);
    // mp_dc: an initiator is used again as soon as nothing is on it.
    void restart_later(SendQueue& queue);
    void restart(SendQueue& queue); // of Jobs

    // -- A channel
    // It has failed: every path is `ended`, and what recovery holds ends with `status`.
    void abandon_recovery(Channel& channel, Status status);
    // It has failed, and its adapter gives nothing back: what is posted is taken from it.
    void abandon(Channel& channel);
    // Replay::recover() is to look at it in the next progress.
    void list_recovering(Channel& channel);
    // For the history. `since` in ns: the time it took counts from there; 0: none.
    void note(const Channel& channel, Transition::What what, PathIndex path, Nanos since = 0, std::uint32_t again = 0,
              const char* cause = nullptr);

    // -- What others read
    std::vector<Channel*> recovering; // have something to do in every progress
    int paths_away = 0;               // that are not up: the control plane is asked all the time
    History history;

private:
    [[nodiscard]] unsigned room_for_ends(const SendQueue& queue) const;
    void lose(SendQueue& queue, const Posted& posted);
    void note_back(Channel& channel, PathIndex path);
    void mark_messages(Channel& channel, PathIndex path);
    [[nodiscard]] static PathMask perhaps_unseen(const Channel& channel);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
