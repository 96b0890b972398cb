// Atomic operations, executed at the target by its transport or by the adapter.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Atomics {
public:
    explicit Atomics(Core& core) : core_(core) {}
    Status atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                  void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                  bool fetch);
    void serve_atomic(Channel& channel, const AtomicRequest& request);
    void serve_replies(); // replies that found no room
    void take_reply(Channel& channel, const AtomicReply& reply);
    struct PendingReply {
        Channel* channel;
        AtomicReply reply;
    };
    std::vector<PendingReply> replies;

private:
    Status adapter_atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                          void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                          bool fetch);
    Core& core_;
};

} // namespace ucx_mp::channel
