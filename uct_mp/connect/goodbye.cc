#include "uct_mp/connect/goodbye.h"

#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kPatient = 1'000'000'000; // between attempts, when the peer seems to compute
constexpr unsigned kAttempts = 10;        // before that: about a second

} // namespace

Message Goodbyes::goodbye_to(const Connection& c, const Goodbye& goodbye) const {
    Message m = plane_.outbox.message_to(wire::Kind::ended, c);
    m.goodbye = goodbye;
    return m;
}

void Goodbyes::repeat(Connection& c) {
    // Again and again: the peer may have agreed long ago, and hears nothing of us any more then.
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
    c.parting = {};
    parting_.erase(&c);
}

void Goodbyes::stop_all() {
    while (!parting_.empty()) stop(**parting_.begin());
}

// A connection that we do not know has ended here as well.
void Goodbyes::on_ended(const Target& way_back, const Message& m) {
    Connection* c = plane_.inbox.connection_of(m);
    if (c && (c->incarnation != m.incarnation || (c->state != State::established && c->state != State::confirming)))
        c = nullptr;
    if (c) plane_.owner.peers.ended(*c, m.goodbye);
    if (c && m.goodbye.idle) return; // the owner answers
    Message known = plane_.outbox.message(wire::Kind::ended_known, m.sender_cookie, m.transaction);
    known.version = m.version;
    known.destination = m.source;
    known.source = m.destination;
    known.incarnation = m.incarnation;
    plane_.outbox.send(way_back, known);
}

void Goodbyes::on_ended_known(const Message& m) {
    Connection* const c = plane_.inbox.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation) {
        ++plane_.counters.late;
    } else if (c->parting.timer) {
        stop(*c);
        plane_.owner.peers.parted(*c, m.holds ? Answer::alive : Answer::lost);
    } else if (c->parting.closing) {
        c->parting.known = !m.holds;
    }
}

void Goodbyes::say_idle(Connection& connection, std::uint32_t delivered) {
    if (connection.parting.timer) return;
    connection.parting = {.goodbye = {true, delivered}};
    plane_.outbox.mend();
    repeat(connection);
}

bool Goodbyes::say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt) {
    if (connection.parting.timer) stop(connection);
    connection.parting.closing = true;
    plane_.outbox.mend();
    return plane_.outbox.send_to(connection, attempt, goodbye_to(connection, {false, delivered}));
}

void Goodbyes::say_known(Connection& connection, bool agreed) {
    Message m = plane_.outbox.message_to(wire::Kind::ended_known, connection);
    m.holds = !agreed;
    if (const auto to = plane_.outbox.route(connection, connection.telling.answers++)) // repetitions take other ways
        plane_.outbox.send(*to, m);
    else
        ++plane_.counters.unsent;
}

} // namespace ucx_mp::connect
