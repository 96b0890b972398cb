// Messages on their way out: their headers, the routes that they take, refusals. It restarts control queue pairs that
// have failed.
#pragma once

#include <optional>

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class Outbox {
public:
    explicit Outbox(Plane& plane) : plane_(plane) {}
    [[nodiscard]] Message message(wire::Kind kind, std::uint64_t cookie, std::uint32_t transaction) const;
    [[nodiscard]] Message message_to(wire::Kind kind, const Connection& c) const;
    // To the sender of `m`, known or not: shows the nonce of that message, and no secret.
    [[nodiscard]] Message answer_to(const Message& m, wire::Kind kind) const;

    [[nodiscard]] std::optional<Target> route(const Connection& c, unsigned attempt) const;
    // There is no route now, but there may be when ports that are down are active.
    [[nodiscard]] bool may_come(const Connection& c) const;
    [[nodiscard]] bool may_come(std::span<const path::RemoteRail> remote) const;
    void add_tail(const Connection& c, Message& m) const; // if it fits
    bool send(const Target& to, const Message& m);        // false: there is no room now
    // By route(). Without any route the message is counted as unsent, and the result is true: waiting would not help.
    bool send_to(const Connection& c, unsigned attempt, const Message& m);

    void refuse(const Target& way_back, const Message& m, wire::Reason reason);
    void refuse(const Target& way_back, const Connection& c, wire::Kind kind,
                wire::Reason reason); // its latest message

    void mend();                         // control queue pairs that have failed, now and then
    void mend_soon() { next_mend_ = 0; } // by the next call

private:
    Plane& plane_;
    Nanos next_mend_ = 0;
};

} // namespace ucx_mp::connect
