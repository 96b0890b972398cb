// A channel takes over the paths that the handshake has made. It carries traffic from then on.
//
// Callers: Peers, when the handshake is complete; Receiver and Endings, when the peer's data or goodbye was faster.
// Threads: the interface's. It takes the lock, except connect_self().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Takeover {
public:
    explicit Takeover(Core& core) : core_(core) {}
    void establish(Channel& channel); // does nothing if it is too early or too late
    // The channel to ourselves needs no handshake, since we know both ends. With the lock held.
    void connect_self(Channel& channel);
    void describe_self(connect::Connection& connection) const;

private:
    Core& core_;
};

} // namespace ucx_mp::channel
