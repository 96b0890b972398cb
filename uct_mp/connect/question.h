// Questions whether a peer lives: ping until pong, over every pair of rails and every route in turn. The peer's control
// plane answers, also while its application computes. A dead, stopped or unreachable process does not.
#pragma once

#include <unordered_set>

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class Questions {
public:
    explicit Questions(Plane& plane) : plane_(plane) {}
    void ask(Connection& c, Nanos limit);
    // Somebody asks in the peer's name for another connection. Asks whether
    // the peer still holds the present or earlier one: Connection::awaited.
    void ask_for_request(Connection& c);
    void stop(Connection& c);
    void stop_all();
    void on_ping(const Target& way_back, const Message& m);
    void on_pong(const Message& m);

private:
    void begin(Connection& c, Nanos limit);
    void send_ping(Connection& c);                                      // and timer
    void answer(Connection& c, Answer what, std::uint64_t request = 0); // the peer's nonce, if it makes one

    Plane& plane_;
    std::uint32_t newest_question_ = 0;      // 0: none yet
    std::unordered_set<Connection*> asking_; // those with a question
};

} // namespace ucx_mp::connect
