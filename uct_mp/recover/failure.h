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

class Failure final : public channel::PathFaults {
public:
    Failure(Core& core, Members& all) : core_(core), all_(all) {}

    // -- channel::PathFaults. An RC path that nobody wants (PathRecovery::retired) does not count as failed
    void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) override;
    void drain(SendQueue& queue, Channel& channel, PathIndex path) override;
    void lost(SendQueue& queue, const Posted& posted) override;
    void refused(SendQueue& queue, const Posted& posted) override;
    void restart_later(SendQueue& queue) override;
    void abandon(Channel& channel) override;
    void free_detours(Channel& channel) override;

    // -- A path
    // Everything posted to the path has come back, so our truth is complete. Tells it to the peer, or asks for theirs.
    void drained(Channel& channel, PathIndex path);
    // The adapter reads no buffer that was posted to this path any more: they return to their own pool.
    void end_detours(Channel& channel, PathIndex path);

    // -- Its queue
    // The job of drain(): moves the queue pair to the error state.
    void end(SendQueue& queue, Channel& channel, PathIndex path);
    // Posts one last request. When its flush comes back, everything before it is back, too.
    void end_queue(SendQueue& queue, Channel& channel, PathIndex path);
    // The adapter is gone: takes everything posted as lost now, since no completion will come.
    void drop_posted(SendQueue& queue);
    // Queues these bytes of a write or read as a work of their own, before works that have never been sent.
    void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes);
    // The job of restart_later().
    void restart(SendQueue& queue);

    // -- A channel
    // The channel has failed: every path is `ended`, and all works that recovery holds end with `status`.
    void abandon_recovery(Channel& channel, Status status);

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
