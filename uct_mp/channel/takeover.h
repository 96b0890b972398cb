// A channel takes over what the handshake has made of its connection: it carries traffic from then on.
//
// Callers: Peers, when the handshake says so; Receiver and Endings, when the peer's data or goodbye was faster.
// Threads: the interface's; the lock is taken inside, but for connect_self().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Takeover {
public:
    explicit Takeover(Core& core) : core_(core) {}
    void establish(Channel& channel); // nothing, if it is too early or too late
    // To ourselves: no handshake, since we know both ends. With the lock held.
    void connect_self(Channel& channel);
    void describe_self(connect::Connection& connection) const;

private:
    Core& core_;
};

} // namespace ucx_mp::channel
