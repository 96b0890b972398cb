// Kinds of messages and reasons of refusals, for people.
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

using wire::Kind;

const char* name(wire::Kind kind) {
    switch (kind) {
    case Kind::request:
        return "request";
    case Kind::reply:
        return "reply";
    case Kind::confirm:
        return "confirm";
    case Kind::ready:
        return "ready";
    case Kind::refuse:
        return "refuse";
    case Kind::path_down:
        return "path_down";
    case Kind::path_open:
        return "path_open";
    case Kind::path_opened:
        return "path_opened";
    case Kind::path_probe:
        return "path_probe";
    case Kind::path_probed:
        return "path_probed";
    case Kind::rails:
        return "rails";
    case Kind::rails_known:
        return "rails_known";
    case Kind::service:
        return "service";
    case Kind::service_known:
        return "service_known";
    case Kind::ring:
        return "ring";
    case Kind::ring_known:
        return "ring_known";
    case Kind::keys:
        return "keys";
    case Kind::keys_told:
        return "keys_told";
    case Kind::ended:
        return "ended";
    case Kind::ended_known:
        return "ended_known";
    case Kind::ping:
        return "ping";
    case Kind::pong:
        return "pong";
    }
    return "?";
}

const char* name(wire::Reason reason) {
    switch (reason) {
    case wire::Reason::version:
        return "it speaks other versions of the handshake";
    case wire::Reason::transport:
        return "it uses the other transport (mp_rc, mp_dc)";
    case wire::Reason::unreachable:
        return "it has no rail in a subnet of ours";
    case wire::Reason::limits:
        return "it accepts no more connections";
    case wire::Reason::resources:
        return "it could not make its queue pairs";
    case wire::Reason::settled:
        return "it holds an older connection with us";
    case wire::Reason::unknown:
        return "it has given up this handshake";
    case wire::Reason::terms:
        return "its SEG_SIZE and TX_WINDOW and ours do not go together (its log names them)";
    case wire::Reason::closing:
        return "it closes";
    }
    return "?";
}

} // namespace ucx_mp::connect
