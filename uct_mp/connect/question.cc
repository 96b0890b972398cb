#include "uct_mp/connect/question.h"

#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

void Questions::ask(Connection& c, Nanos limit) {
    Question& q = c.question;
    if (q.number) return;
    if (++newest_question_ == 0) ++newest_question_;
    q = {.number = newest_question_, .until = plane_.services.now() + limit};
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

void Questions::answer(Connection& c, Answer what) {
    stop(c);
    plane_.owner.peers.answered(c, what);
}

void Questions::on_ping(const Target& way_back, const Message& m) {
    const Connection* const c = plane_.inbox.connection_of(m);
    Message pong = plane_.outbox.message(wire::Kind::pong, m.sender_cookie, m.transaction);
    pong.version = m.version;
    pong.destination = m.source;
    pong.source = m.destination;
    pong.incarnation = m.incarnation;
    // Confirming: the asker is the server, and its `ready` has not come yet.
    pong.holds =
        c && (c->state == State::established || c->state == State::confirming) && c->incarnation == m.incarnation;
    plane_.outbox.send(way_back, pong);
}

void Questions::on_pong(const Message& m) {
    Connection* const c = plane_.inbox.connection_of(m);
    if (!c || c->question.number != m.transaction || c->incarnation != m.incarnation)
        ++plane_.counters.late;
    else
        answer(*c, m.holds ? Answer::alive : Answer::lost);
}

} // namespace ucx_mp::connect
