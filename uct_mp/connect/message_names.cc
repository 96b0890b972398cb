// Kinds of messages and reasons of refusals, for people.
#include <iterator>

#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

namespace {
template <std::size_t count> const char* at(const char* const (&names)[count], unsigned i) {
    return i < count ? names[i] : "?";
}
} // namespace

const char* name(wire::Kind kind) {
    constexpr const char* kHandshake[] = {"request", "reply", "confirm", "ready", "refuse"};
    constexpr const char* kLater[] = {"ping",       "pong",        "path_down",   "path_open",   "path_opened",
                                      "path_probe", "path_probed", "rails",       "rails_known", "keys",
                                      "keys_told",  "ended",       "ended_known", "service",     "service_known",
                                      "ring",       "ring_known"};
    constexpr unsigned kFirst = unsigned(wire::Kind::request), kFirstLater = unsigned(wire::Kind::ping);
    static_assert(kFirst + std::size(kHandshake) == unsigned(wire::Kind::refuse) + 1 &&
                  kFirstLater + std::size(kLater) == unsigned(wire::Kind::ring_known) + 1);
    const auto number = unsigned(kind);
    return number < kFirstLater ? at(kHandshake, number - kFirst) : at(kLater, number - kFirstLater);
}

const char* name(wire::Reason reason) {
    constexpr const char* kNames[] = {"it speaks other versions of the handshake",
                                      "it uses the other transport (mp_rc, mp_dc)",
                                      "it has no rail in a subnet of ours",
                                      "it accepts no more connections",
                                      "it could not make its queue pairs",
                                      "it holds an older connection with us",
                                      "it has given up this handshake",
                                      "its SEG_SIZE and TX_WINDOW and ours do not go together (its log names them)",
                                      "it closes"};
    constexpr unsigned kFirst = unsigned(wire::Reason::version);
    static_assert(kFirst + std::size(kNames) == unsigned(wire::Reason::closing) + 1);
    return at(kNames, unsigned(reason) - kFirst);
}

} // namespace ucx_mp::connect
