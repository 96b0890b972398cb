// A completed write may not be visible yet (PROTOCOL.md). This part knows which writes must be marked or read back
// before the peer may be told of them.
//
// A marker goes before a message, a read back before everything else. Peers with one adapter need neither, unless
// UCX_MP_READ_BACK=always says so.
//
// Callers: Sender before messages; Epochs before flushes and RDMA behind fences; recovery after a replay.
// A read back counts in the epoch in which it was asked for. If it finds no room, a later round of progress posts it.
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Visibility {
public:
    explicit Visibility(Core& core) : core_(core) {}

    // -- The peer's adapters
    // Call it after a change of the peer's rails, or of our paths.
    void note_devices(Channel& channel);
    // `path` if it is up, else another one to the same adapter of the peer; kNoPath: none is up.
    [[nodiscard]] PathIndex beside(const Channel& channel, PathIndex path) const;

    // -- Markers
    // The next message becomes a fenced one, if there are writes that it could overtake.
    void mark_unseen(Channel& channel);
    // All writes have completed. If the peer has one adapter, no message needs markers for them any more.
    void settle_fence(Channel& channel) const;
    // True: awaiting the completions of the writes before the fence is quicker than sending markers for them.
    [[nodiscard]] bool better_await(const Channel& channel) const;
    // All that went over `path` has completed: another path to the same adapter takes over its part in fences.
    void hand_over(Channel& channel, PathIndex path);
    // False: no other path can, or a fence that names the path is not over.
    [[nodiscard]] bool can_hand_over(const Channel& channel, PathIndex path) const;
    // True: a fenced message that is not acknowledged names this path.
    [[nodiscard]] bool awaits_marker_of(const Channel& channel, PathIndex path) const;

    // -- Reads
    void read_back(Channel& channel);     // over paths with writes since the last one; in the present epoch
    void read_back_all(Channel& channel); // over all paths; for recovery
    void end_read_backs(Channel& channel, Status status); // the channel fails
    void read_backs_due_again();                          // for Progress: Lists::read_backs

private:
    [[nodiscard]] PathIndex twin_of(const Channel& channel, PathIndex path) const;
    [[nodiscard]] PathMask one_per_device(const Channel& channel, PathMask paths) const;
    void add_read_back(Channel& channel, PathMask paths, Completion* completion);
    void post_read_backs(Channel& channel);
    [[nodiscard]] bool post_read_back(Channel& channel, Work& work); // false: not all of it could be posted now

    Core& core_;
};

} // namespace ucx_mp::channel
