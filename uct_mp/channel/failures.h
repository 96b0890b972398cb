// Failed requests, and channels that fail as a whole.
//
// A failed request gives its path up, and Observer hears of every record that came back with it. Without recovery, or
// where the operation itself is at fault, the channel fails instead: everything outstanding ends with one status.
//
// Callers: Completions for failed sends; whoever finds a channel beyond repair for fail_channel().
// Threads: the interface's. Completions of the user run inside; Events::peer_failed only inside tell_failures().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Failures {
public:
    explicit Failures(Core& core) : core_(core) {}

    // -- Operations
    // The completion at `position` is an error: all records up to it are lost, or settled if that can't be repaired.
    void send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error);
    // The first status stays. Buffers stay where they are until everything posted is back.
    void fail_channel(Channel& channel, Status status);
    [[nodiscard]] Status refusal(Channel& channel); // of an operation on a channel that has failed
    // For Progress: tells the face of channels that have failed and are back, and lists them as ending.
    void tell_failures();
    // Everything that has been posted is back.
    [[nodiscard]] static bool all_back(const Channel& channel);
    // Recovery is on, and the channel is connected and has not failed.
    [[nodiscard]] bool recoverable(const Channel& channel) const;

    // -- What others read
    std::vector<Channel*> list; // failed, and something is still posted or to be told

private:
    void bury(Channel& channel);
    void free_retained(Channel& channel);

    Core& core_;
};

} // namespace ucx_mp::channel
