// Goodbye: an interface that closes tells its peers, and one that has a connection which nobody uses there asks whether
// it may end. Who is told that the other side has gone need not wait for adapters to give up.
#include <algorithm>

#include "uct_mp/connect/control_plane_impl.h"

namespace ucx_mp::connect {

namespace {
constexpr Nanos kPatient = 1'000'000'000; // between attempts, when the peer seems to compute
constexpr unsigned kAttempts = 10;        // before that: about a second
} // namespace

Message ControlPlane::Impl::goodbye_to(const Connection& c, const Goodbye& goodbye) const {
    Message m = message_to(wire::Kind::ended, c);
    m.goodbye = goodbye;
    return m;
}

void ControlPlane::Impl::say_idle(Connection& c) {
    // Again and again: the peer may have agreed long ago, and hears nothing of us any more then.
    if (const auto to = route(c, c.parting.sent))
        send(*to, goodbye_to(c, c.parting.goodbye));
    else
        ++counters.unsent;
    const Nanos pause =
        c.parting.sent >= kAttempts ? kPatient : std::min(config.retry << c.parting.sent, config.max_retry);
    if (++c.parting.sent > 1000 * kAttempts) c.parting.sent = kAttempts; // it only counts routes
    parting.insert(&c);
    c.parting.timer = services.at_in_background(services.now() + pause, [this, &c] {
        c.parting.timer = 0;
        say_idle(c);
    });
}

void ControlPlane::Impl::stop_parting(Connection& c) {
    if (c.parting.timer) services.cancel_in_background(c.parting.timer);
    c.parting.timer = 0;
    c.parting.goodbye = {};
    parting.erase(&c);
}

// The same answer to every copy of a question, and none to older ones. Who asks takes the first answer: another one to
// a later copy would end a connection that the peer goes on with.
void ControlPlane::Impl::answer_goodbye(Connection& c) {
    Message m = message_to(wire::Kind::ended_known, c);
    m.holds = c.parting.heard_is_needed;
    m.goodbye.number = c.parting.heard;
    if (const auto to = route(c, c.telling.answers++)) // repetitions take other ways
        send(*to, m);
    else
        ++counters.unsent;
}

// Of a connection that both sides have ended, and not replaced yet. Names are void by then.
Connection* ControlPlane::Impl::parked_of(const Message& m) {
    Connection* const c = owner.peers.find_parked(m.sender_uid);
    if (!c || !known_as(*c, m) || c->incarnation != m.incarnation) return nullptr;
    return c->state == State::closed || c->state == State::requesting ? c : nullptr;
}

// A connection that we do not know has ended here as well.
void ControlPlane::Impl::on_ended(const Target& way_back, const Message& m) {
    Connection* c = connection_of(m);
    if (c && (c->incarnation != m.incarnation || (c->state != State::established && c->state != State::confirming)))
        c = nullptr;
    if (!c && !m.goodbye.idle) c = parked_of(m);
    if (c && m.goodbye.idle) {
        const std::uint16_t number = m.goodbye.number, heard = c->parting.heard;
        if (number == 0 || heard == 0 || newer(number, heard))
            owner.peers.ended(*c, m.goodbye); // who answers
        else if (number == heard)
            answer_goodbye(*c);
        else
            ++counters.late;
        return;
    }
    if (c) owner.peers.ended(*c, m.goodbye);
    Message known = message(wire::Kind::ended_known, m.sender_cookie, m.transaction);
    known.version = m.version;
    known.destination = m.source;
    known.source = m.destination;
    known.incarnation = m.incarnation;
    known.goodbye.number = m.goodbye.number;
    send(way_back, known);
}

void ControlPlane::Impl::on_ended_known(const Message& m) {
    Connection* const c = connection_of(m);
    if (!c || c->incarnation != m.incarnation) {
        ++counters.late;
    } else if (c->parting.closing) {
        c->parting.known = !m.holds;
    } else if (c->parting.timer && (m.goodbye.number == c->parting.goodbye.number || m.goodbye.number == 0)) {
        stop_parting(*c);
        owner.peers.parted(*c, m.holds ? Answer::alive : Answer::lost);
    } else {
        ++counters.late; // an older question, or it has been answered
    }
}

void ControlPlane::say_idle(Connection& connection, std::uint32_t delivered) {
    if (connection.parting.timer) return;
    if (++connection.parting.asked == 0) ++connection.parting.asked;
    connection.parting.goodbye = {true, delivered, connection.parting.asked};
    connection.parting.sent = 0;
    impl_->mend();
    impl_->say_idle(connection);
}

bool ControlPlane::say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt) {
    if (connection.parting.timer) impl_->stop_parting(connection);
    connection.parting.closing = true;
    impl_->mend();
    const auto to = impl_->route(connection, attempt);
    if (!to) {
        ++impl_->counters.unsent;
        return true;
    }
    return impl_->send(*to, impl_->goodbye_to(connection, {false, delivered}));
}

void ControlPlane::say_known(Connection& connection, std::uint16_t number, bool agreed) {
    connection.parting.heard = number;
    connection.parting.heard_is_needed = !agreed;
    impl_->answer_goodbye(connection);
}

} // namespace ucx_mp::connect
