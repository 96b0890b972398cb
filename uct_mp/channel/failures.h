// Failed requests, and channels that fail as a whole.
//
// After a failed request its path is given up, and Observer is told of each lost record. Without recovery, or if the
// operation itself is at fault, the channel fails: everything outstanding ends with one status.
//
// Callers: Completions for failed sends; any part that finds a channel beyond repair for fail_channel().
// Threads: the interface's. Completions of the user run inside; Events::peer_failed only inside tell_failures().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Failures {
public:
    explicit Failures(Core& core) : core_(core) {}

    // -- Operations
    // The completion at `position` is an error. All records up to it are lost: recovery repeats them, or they end with
    // an error.
    void send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error);
    // A second call changes nothing. Retained buffers are kept until everything posted is back. Calls the user's
    // completions.
    void fail_channel(Channel& channel, Status status);
    [[nodiscard]] Status refusal(Channel& channel); // the status of an operation on a failed channel
    // For Progress: calls Events::peer_failed for failed channels, and lists those that may be removed.
    void tell_failures();
    // Everything posted has come back.
    [[nodiscard]] static bool all_back(const Channel& channel);
    // Recovery is on, and the channel is connected and has not failed.
    [[nodiscard]] bool recoverable(const Channel& channel) const;

    // -- What others read
    std::vector<Channel*> list; // failed channels with something still posted or to be told

private:
    void bury(Channel& channel);
    void free_retained(Channel& channel);

    Core& core_;
};

} // namespace ucx_mp::channel
