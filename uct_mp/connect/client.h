// The client's part of the handshake: request until reply, confirm until ready.
#pragma once

#include <string>

#include "uct_mp/connect/message.h"
#include "uct_mp/connect/turns.h"

namespace ucx_mp::connect {

class Client {
public:
    explicit Client(Plane& plane) : plane_(plane) {}
    void start(Connection& c);
    // False: there is no room now. If not patient the message then counts as lost.
    bool send_request(Connection& c, bool patient);
    bool send_confirm(Connection& c, const Target& to, bool patient);
    void wait_for_answer(Connection& c);
    void ask_again(Connection& c); // at once, perhaps: the peer is ready for our request now

    void on_reply(const Target& way_back, const Message& m);
    void reply_done(Connection& c, const Due& due, Status status); // our ends are connected, or failed
    void on_ready(const Message& m);
    void refused(Connection& c, const Message& m);
    void refused_without_proof(const Connection& c, const Message& m);

private:
    bool send_copies(Connection& c, bool patient);
    void repeat(Connection& c);  // timer
    void give_up(Connection& c); // timer of a start that cannot succeed
    // Says in one line why a handshake cannot succeed (`why` may be null); ok: it can.
    [[nodiscard]] Status hopeless(const Connection& c, std::string* why) const;
    [[nodiscard]] Nanos back_off(const Connection& c) const;

    void say_waiting(const Connection& c);

    Plane& plane_;
    bool said_ = false;         // the log has a line that we wait for a port; until the next connection
    bool said_version_ = false; // the log has a line that a peer speaks none of our versions; until the next connection
};

} // namespace ucx_mp::connect
