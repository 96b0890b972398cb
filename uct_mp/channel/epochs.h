// Fences, and flushes by epochs.
//
// Every operation belongs to the epoch in which it began. A flush closes the present epoch; it is done when that epoch
// and all before are empty. A fence only notes what the next operations must wait for, or carry (PROTOCOL.md).
//
// Callers: Interface for the user; Works and Completions when operations end; Progress for requests that found no room.
// Errors: flush() is never refused. in_progress: `completion` will be called, unless it is null. Threads: the
// interface's. Completions of the user run inside epoch_done(), flush() and close_epochs().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Epochs {
public:
    explicit Epochs(Core& core) : core_(core) {}

    // -- Fences
    void fence(Channel& channel);
    // Goes on with what RDMA behind a fence waits for. True: RDMA may go.
    bool clear_drain(Channel& channel);
    // Operations behind fences that have passed by the order of a queue pair wait for those in front of them.
    static void stop_passing(Channel& channel) {
        channel.fences.passed = kNoPath;
        channel.fences.drain_due = true;
        channel.fences.until_told = false;
    }

    // -- Flushes
    Status flush(Channel& channel, Completion* completion);
    // Gets everything outstanding to tell its completion. Requests without room are tried again by push_due().
    void push(Channel& channel);
    void push_due();
    // Posts an empty write behind every request that asked for no completion. False: no room for one.
    bool push_out(Channel& channel);
    // `count` operations of this epoch have ended.
    void epoch_done(Channel& channel, std::uint8_t epoch, std::uint32_t count = 1);
    // Ends the oldest epochs that are empty, and their flushes.
    void close_epochs(Channel& channel);
    // The same for a caller that has just seen that the oldest one is over.
    void close_oldest(Channel& channel);

    // -- What others read
    std::vector<Channel*> pushes_due; // whose push() found no room

private:
    // The path that all writes take, those of now and those to come, until something changes; kNoPath: there are
    // several.
    [[nodiscard]] PathIndex sole_path(const Channel& channel) const;
    [[nodiscard]] PathIndex queue_of_all(const Channel& channel) const;
    [[nodiscard]] bool is_told(const Channel& channel, PathIndex path) const;
    static void pass(Channel& channel, PathIndex path);
    [[gnu::noinline]] Status flush_any(Channel& channel, Completion* completion);
    void attach_flush(Channel& channel, std::uint8_t epoch, Completion* completion);

    Core& core_;
};

} // namespace ucx_mp::channel
