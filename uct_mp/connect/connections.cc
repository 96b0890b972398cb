#include "uct_mp/connect/connections.h"

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

Connection* Connections::addressed(const Message& m) {
    Connection* const c = plane_.owner.peers.find_local(m.destination);
    return c && known_as(*c, m) ? c : nullptr;
}

Connection* Connections::connection_of(const Message& m) {
    Connection* const c = addressed(m);
    return c && shows_secret(*c, m) ? c : nullptr;
}

Connection* Connections::parked_of(const Message& m) {
    Connection* const c = plane_.owner.peers.find_parked(m.sender_uid);
    if (!c || !known_as(*c, m) || !shows_secret(*c, m)) return nullptr;
    if (c->state == State::closed || c->state == State::requesting)
        return c->incarnation == m.incarnation ? c : nullptr;
    // Its request has made the next connection here, and it may know of that or not.
    const bool fits = m.incarnation == c->incarnation || next_number(m.incarnation) == c->incarnation;
    return c->state == State::accepting && fits ? c : nullptr;
}

} // namespace ucx_mp::connect
