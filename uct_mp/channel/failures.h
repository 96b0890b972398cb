// Failed requests, and channels that fail as a whole.
//
// After a failed request its path is given up, and Observer is told of each lost record. Without recovery, or if the
// operation itself is at fault, the channel fails: everything outstanding ends with one status.
//
// Any part may find a channel beyond repair. mark_failed() only marks it: its gate closes, messages to it are dropped,
// and a new endpoint to the peer gets another channel. Failures ends it in the next round of progress. So no caller
// finds its lists changed behind its back, unless it has called the user: his invalidate() ends the channel at once.
//
// Callers: Completions for failed sends, Progress, and Interface for the user.
// Threads: the interface's. Completions of the user run inside; Events::peer_failed only inside tell_failures().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

// A second call changes nothing.
void mark_failed(Core& core, Channel& channel, Status status);
// The peer has broken the protocol: logs `what` and `detail`, and fails the channel.
[[gnu::cold]] void broken(Core& core, Channel& channel, const char* what, std::uint64_t detail);
[[nodiscard]] Status refusal(Core& core, Channel& channel); // the status of an operation on a failed channel
// The provider has refused a post. Gives the path up, and leaves the request to recovery. Without recovery the channel
// fails.
[[gnu::cold]] void post_refused(Core& core, Channel& channel, SendQueue& queue, const Posted& posted);

class Failures {
public:
    explicit Failures(Core& core) : core_(core) {}

    // The completion at `position` is an error. All records up to it are lost: recovery repeats them, or they end with
    // an error.
    void send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error);
    // Lists::failed: ends everything outstanding there. Retained buffers are kept until everything posted is back.
    void end_failed();
    void end(Channel& channel); // one of them
    // Lists::told_later: calls Events::peer_failed, and lists the channels that may be removed.
    void tell_failures();
    // Everything posted has come back.
    [[nodiscard]] static bool all_back(const Channel& channel);

private:
    void drop_what_comes(Channel& channel);
    void free_retained(Channel& channel);

    Core& core_;
};

} // namespace ucx_mp::channel
