// Control messages: acknowledgments, requests for them, and markers. They have no number, are never retained, and are
// lost with their path.
//
// Callers: Receiver and recovery owe acknowledgments; any part that needs one of the peer asks for it; Sender and
// recovery send markers. Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Acks {
public:
    explicit Acks(Core& core) : core_(core) {}

    // `marked`: the path that a marker is about, if not the one that carries it. False: no room, or it was refused.
    bool send_control(Channel& channel, Kind kind, const void* body, unsigned length, PathIndex path, SendQueue& queue,
                      PathIndex marked = kNoPath);
    bool send_ack(Channel& channel, Kind kind); // false: no room on any path
    // Lists the channel; send_due_acks() sends at the end of this round. `now`: also below the threshold.
    void owe_ack(Channel& channel, bool now);
    void send_due_acks(); // for Progress: Lists::acks

private:
    Core& core_;
};

} // namespace ucx_mp::channel
