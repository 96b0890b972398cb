// The order in which handshakes make ends, connect them, or send.
//
// Commands to the adapter (queue pairs, address handles) take the process about 100 us each, and
// a handshake needs several for every path. A thousand peers that connect at once must not stop
// everything else. So handshakes wait in order and work for a while; then as much time belongs
// to the others, or less if they have nothing to do. A step is half a path or a message.
#pragma once

#include <map>

#include "uct_mp/connect/control_plane.h"
#include "uct_mp/connect/datagrams.h"

namespace ucx_mp::connect {

// The task of a handshake when its turn comes.
struct Due {
    enum class What : std::uint8_t {
        send,    // the message that its state repeats
        make,    // our ends; client: and connect them
        connect, // our ends
    } what = What::send;
    Connection* connection = nullptr;
    Target way_back{};             // of the newest copy of the message that this is about
    std::size_t path = 0;          // next one
    Nanos since = 0;               // when it was put there
    Nanos tried = 0;               // send: first time that there was no room
    std::uint32_t incarnation = 0; // client, make: the earlier one, restored if nothing can be done now
};

class Turns {
public:
    explicit Turns(Plane& plane) : plane_(plane) {}
    void send(Connection& c);                       // at once, if nobody waits
    void send_soon(Connection& c, Nanos tried = 0); // when there is room
    void make(Connection& c, Due due);
    void connect(Connection& c, const Target& way_back);
    // Its task; nullptr: it does not wait.
    [[nodiscard]] Due* due_of(const Connection& c);
    void drop(Connection& c);
    // `occupied`: the others have had something to do. Returns the number of steps.
    unsigned go_on(bool occupied);
    void stop();

private:
    void add(Connection& c, Due due, bool first);
    bool send_due(Connection& c, Nanos tried); // false: there is no room now
    unsigned work();                           // until the turn is over; number of steps
    void step();
    void rest_if_due();
    void begin_rest();
    void set_rest(Nanos time);
    bool has_rested();
    void end_rest_if_over();

    Plane& plane_;
    std::map<std::uint64_t, Due> waiting_; // by Connection::place. Not empty: `rest_`, or go_on() goes on with it
    std::uint64_t newest_place_ = 0;
    Nanos worked_ = 0;         // our work since the others had their turn, ns
    Services::Timer rest_ = 0; // runs while the others have their turn, and ends it
    Nanos rested_ = 0, rest_until_ = 0;
    bool others_busy_ = false; // since the timer was set
};

} // namespace ucx_mp::connect
