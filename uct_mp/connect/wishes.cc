#include "uct_mp/connect/wishes.h"

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

void Wishes::tell(const Connection& c, const ServiceWish& wish, unsigned attempt) {
    plane_.outbox.mend();
    Message m = plane_.outbox.message_to(wire::Kind::service, c);
    m.wish = wish;
    plane_.outbox.send_to(c, attempt, m);
}

void Wishes::answer(const Connection& c, std::uint32_t number, bool taken, unsigned attempt) {
    plane_.outbox.mend();
    Message m = plane_.outbox.message_to(wire::Kind::service_known, c);
    m.wish.number = number;
    m.yes = taken;
    plane_.outbox.send_to(c, attempt, m);
}

void Wishes::on_wish(const Message& m) {
    Connection* const c = plane_.connections.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation)
        ++plane_.counters.late;
    else if (!(c->features & feature::on_demand))
        ++plane_.counters.dropped;
    else if (m.kind == wire::Kind::service)
        plane_.owner.news.wished(*c, m.wish);
    else
        plane_.owner.news.wish_answered(*c, m.wish.number, m.yes);
}

void Wishes::offer_ring(const Connection& c, const RingOffer& ring, unsigned attempt) {
    plane_.outbox.mend();
    Message m = plane_.outbox.message_to(wire::Kind::ring, c);
    m.ring = ring;
    plane_.outbox.send_to(c, attempt, m);
}

void Wishes::answer_ring(const Connection& c, std::uint32_t number, bool taken, std::uint32_t until, unsigned attempt) {
    plane_.outbox.mend();
    Message m = plane_.outbox.message_to(wire::Kind::ring_known, c);
    m.ring.number = number;
    m.yes = taken;
    m.until = until;
    plane_.outbox.send_to(c, attempt, m);
}

void Wishes::on_ring(const Message& m) {
    Connection* const c = plane_.connections.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation)
        ++plane_.counters.late;
    else if (!(c->features & plane_.config.terms.features & feature::rings))
        ++plane_.counters.dropped;
    else if (m.kind == wire::Kind::ring)
        plane_.owner.news.ring_offered(*c, m.ring);
    else
        plane_.owner.news.ring_answered(*c, m.ring.number, m.yes, m.until);
}

} // namespace ucx_mp::connect
