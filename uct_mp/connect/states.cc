#include "uct_mp/connect/states.h"

#include <cassert>
#include <iterator>
#include <utility>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

[[maybe_unused]] bool legal(State from, State to) {
    switch (from) {
    case State::closed:
        return to == State::requesting || to == State::accepting;
    case State::requesting: // -> accepting: both had started, we are the server
        return to == State::confirming || to == State::accepting || to == State::failed || to == State::closed;
    case State::confirming: // -> requesting, accepting: the server has given up this handshake
        return to == State::established || to == State::requesting || to == State::accepting || to == State::failed ||
               to == State::closed;
    case State::accepting: // -> accepting: the client has started anew
        return to == State::established || to == State::accepting || to == State::failed || to == State::closed;
    case State::established:
    case State::failed: // -> accepting: Peers::renew
        return to == State::accepting || to == State::closed;
    }
    return false;
}

} // namespace

const char* name(State state) {
    constexpr const char* kNames[] = {"closed", "requesting", "confirming", "accepting", "established", "failed"};
    static_assert(std::size(kNames) == unsigned(State::failed) + 1);
    return kNames[unsigned(state)];
}

void States::set(Connection& c, State to, const char* why) {
    assert(legal(c.state, to));
    if (plane_.services.logs(LogLevel::debug))
        plane_.services.say(LogLevel::debug, "mp: connection %u to %s: %s -> %s: %s", c.local_id, describe(c).c_str(),
                            connect::name(c.state), connect::name(to), why);
    cancel_timer(c);
    plane_.turns.drop(c);
    if (c.question.number) plane_.questions.stop(c);
    plane_.rail_lists.stop(c);
    plane_.goodbyes.stop(c);
    if (to != State::established) c.parting = {}; // with its numbers: another connection follows
    c.awaited = 0;
    c.gives_way = false;
    if (c.state == State::accepting && (to == State::closed || to == State::failed)) Server::undo(c);
    // Data have come, so it was established without `ready`.
    const bool used = to == State::closed && c.state == State::confirming && plane_.owner.peers.carries_data(c);
    if (to == State::established || used)
        c.held = {.own_secret = c.own_secret,
                  .peer_secret = c.peer_secret,
                  .remote_id = c.remote_id,
                  .incarnation = c.incarnation};
    if (to == State::established) {
        c.parked = false;
        c.before = {};
    }
    // Neither side has more to say of a handshake that failed.
    if (to == State::closed || to == State::requesting) c.peer_secret = c.held.peer_secret;
    if (to == State::closed) c.own_secret = c.held.own_secret;
    c.state = to;
    if (is_under_way(to))
        under_way_.insert(&c);
    else
        under_way_.erase(&c);
}

void States::fail(Connection& c, Status status, const std::string& why) {
    set(c, State::failed, why.c_str());
    drop_ends(c);
    plane_.owner.peers.failed(c, status, why.c_str());
}

void States::drop_ends(Connection& c) {
    plane_.owner.ends.drop_ends(c);
    c.ends.clear();
}

void States::set_timer(Connection& c, Nanos at, std::function<void()> fn) {
    cancel_timer(c);
    c.timer = plane_.services.at_in_background(at, [&c, fn = std::move(fn)] {
        c.timer = 0;
        fn();
    });
}

void States::cancel_timer(Connection& c) {
    if (c.timer) plane_.services.cancel_in_background(c.timer);
    c.timer = 0;
}

void States::stop() {
    for (Connection* c : under_way_) cancel_timer(*c);
}

} // namespace ucx_mp::connect
