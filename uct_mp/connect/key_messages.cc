#include "uct_mp/connect/key_messages.h"

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

void KeyMessages::ask(const Connection& c, std::uint64_t region, unsigned attempt) {
    plane_.outbox.mend();
    Message m = plane_.outbox.message_to(wire::Kind::keys, c);
    m.keys.id = region;
    plane_.outbox.send_to(c, attempt, m);
}

void KeyMessages::on_keys(const Target& way_back, const Message& m) {
    const Connection* const c = plane_.connections.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation) {
        ++plane_.counters.late;
        return;
    }
    Message answer = plane_.outbox.message_to(wire::Kind::keys_told, *c);
    answer.yes = plane_.owner.news.find_keys(m.keys.id, answer.keys);
    answer.keys.id = m.keys.id;
    plane_.outbox.send(way_back, answer);
}

void KeyMessages::on_keys_told(const Message& m) {
    Connection* const c = plane_.connections.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation)
        ++plane_.counters.late;
    else
        plane_.owner.news.keys_told(*c, m.yes, m.keys);
}

} // namespace ucx_mp::connect
