// Questions whether a peer lives: ping until pong, over every pair of rails and every route in turn. The peer's control
// plane answers, also while its application computes; a dead, stopped or unreachable process does not.
#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

void ControlPlane::Impl::ask(Connection& c, Nanos limit) {
    Question& q = c.question;
    if (q.number) return;
    if (++newest_question == 0) ++newest_question;
    q = {.number = newest_question, .until = services.now() + limit};
    asking.insert(&c);
    send_ping(c);
}

void ControlPlane::Impl::send_ping(Connection& c) {
    Question& q = c.question;
    const Nanos now = services.now();
    if (q.sent && now >= q.until) {
        answer(c, Answer::silent);
        return;
    }
    Message m = message_to(wire::Kind::ping, c);
    m.transaction = q.number;
    if (const auto to = route(c, q.sent))
        send(*to, m);
    else
        ++counters.unsent;
    const Nanos pause = std::min(config.retry << std::min(q.sent, 20u), config.max_retry);
    ++q.sent;
    q.timer = services.at_in_background(std::min(now + pause, q.until), [this, &c] {
        c.question.timer = 0;
        send_ping(c);
    });
}

void ControlPlane::Impl::stop_asking(Connection& c) {
    if (c.question.timer) services.cancel_in_background(c.question.timer);
    c.question = {};
    asking.erase(&c);
}

void ControlPlane::Impl::answer(Connection& c, Answer what) {
    stop_asking(c);
    owner.peers.answered(c, what);
}

void ControlPlane::Impl::on_ping(const Target& way_back, const Message& m) {
    const Connection* const c = connection_of(m);
    Message pong = message(wire::Kind::pong, m.sender_cookie, m.transaction);
    pong.version = m.version;
    pong.destination = m.source;
    pong.source = m.destination;
    pong.incarnation = m.incarnation;
    // Confirming: the asker is the server, and its `ready` has not come yet.
    pong.holds =
        c && (c->state == State::established || c->state == State::confirming) && c->incarnation == m.incarnation;
    send(way_back, pong);
}

void ControlPlane::Impl::on_pong(const Message& m) {
    Connection* const c = connection_of(m);
    if (!c || c->question.number != m.transaction || c->incarnation != m.incarnation)
        ++counters.late;
    else
        answer(*c, m.holds ? Answer::alive : Answer::lost);
}

} // namespace ucx_mp::connect
