#include "uct_mp/connect/question.h"

#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kForRequest = 1'000'000'000; // the client repeats its request

// The peer may hold it by now; in other states the latest connection counts.
bool is_current(const Connection& c) {
    return c.state == State::established || c.state == State::confirming || c.state == State::accepting;
}

} // namespace

void Questions::ask(Connection& c, Nanos limit) {
    if (c.question.by_owner) return;
    c.question.by_owner = true;
    begin(c, limit);
}

void Questions::ask_for_request(Connection& c) {
    if (!c.question.number) begin(c, kForRequest);
}

void Questions::begin(Connection& c, Nanos limit) {
    Question& q = c.question;
    q.until = std::max(q.until, plane_.services.now() + limit);
    if (q.number) return; // it has been asked already
    if (++newest_question_ == 0) ++newest_question_;
    q.number = newest_question_;
    q.incarnation = is_current(c) ? c.incarnation : c.held.incarnation;
    q.nonce = plane_.identity.random_tag();
    asking_.insert(&c);
    send_ping(c);
}

void Questions::send_ping(Connection& c) {
    Question& q = c.question;
    const Nanos now = plane_.services.now();
    if (q.sent && now >= q.until) {
        answer(c, Answer::silent);
        return;
    }
    Message m = plane_.outbox.message_to(wire::Kind::ping, c);
    m.transaction = q.number;
    m.nonce = q.nonce;
    m.incarnation = q.incarnation;
    m.yes = is_current(c);
    if (!m.yes) {
        m.shown = c.held.peer_secret;
        m.destination = c.held.remote_id;
    }
    plane_.outbox.send_to(c, q.sent, m);
    const Nanos pause = std::min(plane_.config.retry << std::min(q.sent, 20u), plane_.config.max_retry);
    ++q.sent;
    q.timer = plane_.services.at_in_background(std::min(now + pause, q.until), [this, &c] {
        c.question.timer = 0;
        send_ping(c);
    });
}

void Questions::stop(Connection& c) {
    if (c.question.timer) plane_.services.cancel_in_background(c.question.timer);
    c.question = {};
    asking_.erase(&c);
}

void Questions::stop_all() {
    while (!asking_.empty()) stop(**asking_.begin());
}

// No stranger's request may make an owner act, unless the peer has ended its connection.
void Questions::answer(Connection& c, Answer what, std::uint64_t request) {
    const Question was = c.question;
    stop(c);
    const bool lost = what == Answer::lost;
    // It has agreed to our goodbye, so it no longer holds the connection, as we have asked.
    if (lost && c.state == State::established && c.parting.timer) {
        plane_.goodbyes.stop(c);
        plane_.owner.peers.parted(c, what);
        return;
    }
    // A silent peer may be cut off. But it has lost nothing if nothing was connected.
    c.gives_way = what == Answer::silent && c.state == State::accepting && !c.held.own_secret;
    c.awaited = lost ? request : 0;
    if (was.by_owner || (lost && c.state == State::established)) plane_.owner.peers.answered(c, what);
}

void Questions::on_ping(const Target& way_back, const Message& m) {
    const Connection *const c = plane_.connections.connection_of(m), *const parked =
                                                                         plane_.owner.peers.find_parked(m.sender_uid);
    Message pong = plane_.outbox.answer_to(m, wire::Kind::pong);
    // An established connection, or a handshake that goes on. Or the one that both have parked.
    pong.yes = (c && (is_current(*c) || c->state == State::requesting) && same_secret(m.shown, c->own_secret)) ||
               (!m.yes && parked && known_as(*parked, m) && shows_secret(*parked, m));
    // The peer may ask because it got our request, and doubts it. Then the answer shows the request's nonce. Only the
    // peer may see that, and the question may be a stranger's. So the answer goes to the peer's known address, as the
    // request did, and a copy of the request follows it.
    Connection* const ours = pong.yes ? nullptr : plane_.owner.peers.find_present(m.sender_uid);
    const bool asks = ours && ours->state == State::requesting && known_as(*ours, m);
    const std::optional<Target> way = asks ? plane_.outbox.route(*ours, ours->telling.answers++) : std::nullopt;
    if (way) pong.nonce = ours->own_secret;
    plane_.outbox.send(way ? *way : way_back, pong);
    if (asks) plane_.client.ask_again(*ours);
}

void Questions::on_pong(const Message& m) {
    Connection* const c = plane_.connections.addressed(m);
    if (!c || c->question.number != m.transaction || c->question.incarnation != m.incarnation)
        ++plane_.counters.late;
    else if (!same_secret(m.shown, c->question.nonce))
        ++plane_.counters.dropped;
    else
        answer(*c, m.yes ? Answer::alive : Answer::lost, m.nonce);
}

} // namespace ucx_mp::connect
