// A path fails: nothing more is posted there, its queue is drained, and each lost request is recorded.
//
// These are steps 2 to 6 in PROTOCOL.md: path_failed(), drain(), end(), lost() for each record, drained(). Then
// Exchange asks the peer, and Replay settles what was lost.
//
// Callers: Observer (send errors, refused posts), RailEvents, Watchdog, Exchange; JobRunner for commands.
// path_failed() may be called at any moment. It does nothing if the path is down already, except that over mp_dc a path
// may lose more.
// Threads: the interface's. The user's callbacks may run inside, and may fail the channel.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Failure {
public:
    Failure(Core& core, Members& all) : core_(core), all_(all) {}

    // -- A path
    // The only function that changes a path's phase: asserts may_follow(), logs, and tells the scheduler.
    void set_phase(Channel& channel, PathIndex path, Phase phase);
    // `cause` is for people; it is not copied, so it must be a literal. `stays`: mp_dc, what was posted is lost, but
    // the path goes on carrying traffic. For an RC path that nobody wants (PathRecovery::retired) this is not counted
    // as a failure.
    void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays);
    // Something has come through: the path is not suspect any more.
    void path_answers(Channel& channel, PathIndex path);
    // Everything posted to the path has come back, so our truth is complete. Tells it to the peer, or asks for theirs.
    void drained(Channel& channel, PathIndex path);
    // The adapter reads no buffer that was posted to this path any more: they return to their own pool.
    void end_detours(Channel& channel, PathIndex path);

    // -- Its queue
    // Closes the queue for new requests, and adds the job that moves it to the error state.
    void drain(SendQueue& queue, Channel& channel, PathIndex path);
    // That job: moves the queue pair to the error state.
    void end(SendQueue& queue, Channel& channel, PathIndex path);
    // Posts one last request. When its flush comes back, everything before it is back, too.
    void end_queue(SendQueue& queue, Channel& channel, PathIndex path);
    // The adapter is gone: takes everything posted as lost now, since no completion will come.
    void drop_posted(SendQueue& queue);
    // A request has completed without success. Its channel must be recoverable.
    void lost(SendQueue& queue, const Posted& posted);
    // Queues these bytes of a write or read as a work of their own, before works that have never been sent.
    void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes);
    // mp_dc: if nothing is posted on the initiator any more, adds the job that makes it usable again.
    void restart_later(SendQueue& queue);
    // That job.
    void restart(SendQueue& queue);

    // -- A channel
    // The channel has failed: every path is `ended`, and all works that recovery holds end with `status`.
    void abandon_recovery(Channel& channel, Status status);
    // The channel has failed, and some requests do not come back: ends the queues that hold them.
    void abandon(Channel& channel);
    // Replay::recover() looks at the channel in the next round of progress.
    void list_recovering(Channel& channel);

    // -- What others read
    std::vector<Channel*> recovering; // Replay::recover() is called for them in each round of progress
    int paths_away = 0;               // paths on their way back (is_away()); while there are any, `alert` stays set

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
