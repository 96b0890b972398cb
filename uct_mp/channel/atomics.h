// Atomic operations of both sides: asked for at the origin, executed at the target.
//
// The target's processor executes them, or the target's adapter with UCX_MP_ATOMICS=adapter. A request and its reply
// are sequenced messages, so each happens once. An adapter's operation that is lost with its path fails the channel.
//
// Callers: Interface for the origin, Receiver for the target, Progress for replies that wait.
// Errors: no_resource means that nothing has happened. A refused request ends the channel, or fails its fetch.
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Atomics {
public:
    explicit Atomics(Core& core) : core_(core) {}

    // -- Origin
    // `width` is 4 or 8 bytes. `result` is the caller's until `completion` is called; without `fetch` both are null.
    Status atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                  void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                  bool fetch);
    // The channel fails if the target has refused an operation without a result. False: nobody waits for such a reply.
    [[nodiscard]] bool take_reply(Channel& channel, const AtomicReply& reply);

    // -- Target
    // The memory is checked first: one registered region must contain all of it.
    void serve_atomic(Channel& channel, const AtomicRequest& request);
    // Sends the replies that found no room before.
    void serve_replies();

    // -- What others read
    struct PendingReply {
        Channel* channel;
        AtomicReply reply;
    };
    std::vector<PendingReply> replies; // not sent yet, in order for each channel

private:
    Status adapter_atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                          void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                          bool fetch);

    Core& core_;
};

} // namespace ucx_mp::channel
