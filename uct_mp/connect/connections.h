// Finds the connection that a message is about, and checks that its sender may speak of it.
#pragma once

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

struct Plane;

[[nodiscard]] inline bool known_as(const Connection& c, const Message& m) {
    return c.peer.uid == m.sender_uid && c.peer.cookie == m.sender_cookie;
}

// Whether it shows our secret of this connection, or of the one before, which parked sides use until there is another.
[[nodiscard]] inline bool shows_secret(const Connection& c, const Message& m) {
    return same_secret(m.shown, c.own_secret) || (c.parked && same_secret(m.shown, c.held.own_secret));
}

class Connections {
public:
    explicit Connections(Plane& plane) : plane_(plane) {}
    // Finds it by the name that the message carries, and checks its peer: every member of the job can write that much.
    [[nodiscard]] Connection* addressed(const Message& m);
    // The same for a message of one of our connections: it must show the secret as well.
    [[nodiscard]] Connection* connection_of(const Message& m);
    // The same for a connection that both sides have ended by agreement, and not replaced yet. Names are void by then.
    [[nodiscard]] Connection* parked_of(const Message& m);

private:
    Plane& plane_;
};

} // namespace ucx_mp::connect
