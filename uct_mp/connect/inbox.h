// Messages that arrive: checks what is the same for all kinds, and hands each to the part that it is for.
#pragma once

#include <span>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

// Uid and cookie of the sender are that peer's.
[[nodiscard]] inline bool known_as(const Connection& c, const Message& m) {
    return c.peer.uid == m.sender_uid && c.peer.cookie == m.sender_cookie;
}

// It shows our secret of this connection; or of the one before, which parked sides go on with until there is another.
[[nodiscard]] inline bool shows_secret(const Connection& c, const Message& m) {
    return same_secret(m.shown, c.own_secret) || (c.parked && same_secret(m.shown, c.held.own_secret));
}

class Inbox {
public:
    explicit Inbox(Plane& plane) : plane_(plane) {}
    void arrived(const Target& from, std::span<const std::uint8_t> datagram);
    // By the name that it carries, from the peer that it belongs to: as every member of the job can write it.
    [[nodiscard]] Connection* addressed(const Message& m);
    // A message of one of our connections: it shows the secret as well.
    [[nodiscard]] Connection* connection_of(const Message& m);
    // Of a connection that both sides have ended by agreement, and not replaced yet. Names are void by then.
    [[nodiscard]] Connection* parked_of(const Message& m);

private:
    void dispatch(const Target& way_back, const Message& m);
    void on_refuse(const Message& m);

    Plane& plane_;
};

} // namespace ucx_mp::connect
