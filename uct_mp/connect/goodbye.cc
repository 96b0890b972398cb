#include "uct_mp/connect/goodbye.h"

#include <algorithm>
#include <utility>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kPatient = 1'000'000'000; // between attempts, when the peer seems to compute
constexpr unsigned kAttempts = 10;        // before that: about a second

} // namespace

Message Goodbyes::goodbye_to(const Connection& c, const Goodbye& goodbye) const {
    Message m = plane_.outbox.message_to(wire::Kind::ended, c);
    m.goodbye = goodbye;
    m.nonce = c.parting.nonce;
    return m;
}

void Goodbyes::repeat(Connection& c) {
    // Again and again: the peer may have agreed long ago, and then hears nothing of us any more.
    plane_.outbox.send_to(c, c.parting.sent, goodbye_to(c, c.parting.goodbye));
    const Nanos pause = c.parting.sent >= kAttempts
                            ? kPatient
                            : std::min(plane_.config.retry << c.parting.sent, plane_.config.max_retry);
    if (++c.parting.sent > 1000 * kAttempts) c.parting.sent = kAttempts; // it only counts routes
    parting_.insert(&c);
    c.parting.timer = plane_.services.at_in_background(plane_.services.now() + pause, [this, &c] {
        c.parting.timer = 0;
        repeat(c);
    });
}

void Goodbyes::stop(Connection& c) {
    if (c.parting.timer) plane_.services.cancel_in_background(c.parting.timer);
    c.parting.timer = 0;
    c.parting.goodbye = {};
    parting_.erase(&c);
}

void Goodbyes::stop_all() {
    while (!parting_.empty()) stop(**parting_.begin());
}

// The same answer to every copy of a question, and none to older ones. The peer takes the first
// answer: another answer to a later copy would end a connection that the peer goes on with.
void Goodbyes::answer(Connection& c) {
    Message m = plane_.outbox.message_to(wire::Kind::ended_known, c);
    m.yes = !c.parting.heard_is_needed;
    m.goodbye.number = c.parting.heard;
    plane_.outbox.send_to(c, c.telling.answers++, m); // repetitions take other ways
}

// An unknown connection has ended here as well.
void Goodbyes::on_ended(const Target& way_back, const Message& m) {
    Connection* c = plane_.connections.connection_of(m);
    if (c && (c->incarnation != m.incarnation || (c->state != State::established && c->state != State::confirming)))
        c = nullptr;
    if (!c && !m.goodbye.idle) c = plane_.connections.parked_of(m);
    if (c && m.goodbye.idle) {
        const std::uint16_t number = m.goodbye.number, heard = c->parting.heard;
        if (!(c->features & feature::park)) // it might take two answers to one question
            say_known(*c, number, false);
        else if (number == 0)
            ++plane_.counters.dropped;
        else if (heard == 0 || newer(number, heard))
            plane_.owner.peers.ended(*c, m.goodbye); // the owner answers
        else if (number == heard)
            answer(*c);
        else
            ++plane_.counters.late;
        return;
    }
    if (c) plane_.owner.peers.ended(*c, m.goodbye);
    Message known = plane_.outbox.answer_to(m, wire::Kind::ended_known);
    known.goodbye.number = m.goodbye.number;
    known.yes = true;
    plane_.outbox.send(way_back, known);
}

void Goodbyes::on_ended_known(const Message& m) {
    Connection* const c = plane_.connections.addressed(m);
    if (c && !shows_secret(*c, m) && !same_secret(m.shown, c->parting.nonce)) {
        ++plane_.counters.dropped;
        return;
    }
    const bool closing = c && c->incarnation == m.incarnation && c->parting.closing;
    // An older question, or one that has been answered, is late.
    const bool asked =
        c && c->incarnation == m.incarnation && c->parting.timer && m.goodbye.number == c->parting.goodbye.number;
    if (closing) {
        c->parting.known = m.yes;
    } else if (asked) {
        stop(*c);
        plane_.owner.peers.parted(*c, m.yes ? Answer::lost : Answer::alive);
    } else {
        ++plane_.counters.late;
    }
}

void Goodbyes::say_idle(Connection& connection, std::uint32_t delivered) {
    if (connection.parting.timer) return;
    if (++connection.parting.asked == 0) ++connection.parting.asked;
    connection.parting.goodbye = {.idle = true, .delivered = delivered, .number = connection.parting.asked};
    connection.parting.sent = 0;
    connection.parting.nonce = plane_.identity.random_tag();
    plane_.outbox.mend();
    repeat(connection);
}

bool Goodbyes::say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt) {
    if (connection.parting.timer) stop(connection);
    if (!std::exchange(connection.parting.closing, true)) connection.parting.nonce = plane_.identity.random_tag();
    plane_.outbox.mend();
    return plane_.outbox.send_to(connection, attempt, goodbye_to(connection, {.delivered = delivered}));
}

void Goodbyes::say_known(Connection& connection, std::uint16_t number, bool agreed) {
    connection.parting.heard = number;
    connection.parting.heard_is_needed = !agreed;
    answer(connection);
}

} // namespace ucx_mp::connect
