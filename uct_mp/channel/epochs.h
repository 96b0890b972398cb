// Fences, and flushes by epochs.
//
// Every operation belongs to the epoch in which it began. A flush closes the present epoch. It is done when that epoch
// and all before are empty. A fence only notes what later operations must wait for, or carry (PROTOCOL.md).
//
// Callers: Interface for the user, after Mover::pull(); Progress for requests that found no room. Works counts what is
// open in an epoch.
// Errors: flush_any() never answers no_resource. in_progress: `completion` will be called, unless it is null.
// Threads: the interface's. Completions of the user run inside flush_any().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Epochs {
public:
    explicit Epochs(Core& core) : core_(core) {}

    // -- Fences
    void fence(Channel& channel);
    // Checks what RDMA behind a fence waits for, and asks for what is missing. True: RDMA may go.
    bool clear_drain(Channel& channel);
    // Fences can no longer rely on the order of a queue pair. RDMA behind them waits for the RDMA before.
    static void stop_passing(Channel& channel) {
        channel.fences.passed = kNoPath;
        channel.fences.drain_due = true;
        channel.fences.until_told = false;
    }

    // -- Flushes
    // True: the usual case, and the flush is under way. Else flush_any() is to be called, which answers at once if
    // nothing is open.
    [[nodiscard]] bool flush_at_once(Channel& channel, Completion* completion);
    [[nodiscard, gnu::noinline]] Status flush_any(Channel& channel, Completion* completion);
    // Asks for completions and acknowledgments of everything outstanding. If there is no room, push_due() tries again.
    void push(Channel& channel);
    void push_due(); // for Progress: Lists::pushes
    // Posts an empty write, which asks for a completion, on each path whose latest request has not. False: no room.
    bool push_out(Channel& channel);
    // Posts one write of no bytes, which asks for a completion. False: no room, or the post was refused.
    bool write_nothing(Channel& channel, PathIndex path, SendQueue& queue);

private:
    // The one path that writes take now, and until something changes. kNoPath: there are several, or writes have no
    // order.
    [[nodiscard]] PathIndex sole_path(const Channel& channel) const;
    [[nodiscard]] PathIndex queue_of_all(const Channel& channel) const;
    [[nodiscard]] bool is_told(const Channel& channel, PathIndex path) const;
    static void pass(Channel& channel, PathIndex path);

    Core& core_;
};

} // namespace ucx_mp::channel
