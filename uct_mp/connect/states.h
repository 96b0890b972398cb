// States of connections, the timers of their handshakes, and how a handshake fails.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>

#include "uct_mp/connect/control_plane.h"

namespace ucx_mp::connect {

[[nodiscard]] constexpr bool is_under_way(State s) { // whether a handshake is
    return s == State::requesting || s == State::confirming || s == State::accepting;
}

class States {
public:
    explicit States(Plane& plane) : plane_(plane) {}
    // The only place where states change. It asserts, logs, keeps the set of
    // handshakes under way, and stops all that has begun in the old state.
    void set(Connection& c, State to, const char* why);
    // Ends a handshake: drops the ends, says why. The last thing done with a connection.
    void fail(Connection& c, Status status, const std::string& why);
    void drop_ends(Connection& c); // ours, if any, made or not

    void set_timer(Connection& c, Nanos at, std::function<void()> fn);
    void cancel_timer(Connection& c);
    void stop(); // all timers

    [[nodiscard]] bool any_under_way() const { return !under_way_.empty(); }

private:
    Plane& plane_;
    std::unordered_set<Connection*> under_way_; // those with timers
};

} // namespace ucx_mp::connect
