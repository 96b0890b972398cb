#include "uct_mp/connect/inbox.h"

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

void Inbox::arrived(const Target& from, std::span<const std::uint8_t> datagram) {
    ++plane_.counters.received;
    Message m;
    const InterfaceAddress& own = plane_.identity.address;
    const Parse parsed = parse(datagram, plane_.identity.rails, m, own.min_version, own.max_version);
    if (parsed == Parse::malformed || m.cookie != own.cookie || m.sender_uid == own.uid) {
        ++plane_.counters.dropped;
        return;
    }
    Target way_back = from;
    way_back.q_key = m.sender_q_key;
    if (parsed == Parse::version || (!own.meets(m.transport) && m.kind != wire::Kind::refuse)) {
        ++plane_.counters.dropped;
        // Only a request is worth an answer: the other kinds follow one that was understood.
        if (m.kind == wire::Kind::request)
            plane_.outbox.refuse(way_back, m,
                                 parsed == Parse::version ? wire::Reason::version : wire::Reason::transport);
        return;
    }
    dispatch(way_back, m);
}

void Inbox::dispatch(const Target& way_back, const Message& m) {
    switch (m.kind) {
    case wire::Kind::request:
        return plane_.server.on_request(way_back, m);
    case wire::Kind::reply:
        return plane_.client.on_reply(way_back, m);
    case wire::Kind::confirm:
        return plane_.server.on_confirm(way_back, m);
    case wire::Kind::ready:
        return plane_.client.on_ready(m);
    case wire::Kind::refuse:
        return on_refuse(m);
    case wire::Kind::ping:
        return plane_.questions.on_ping(way_back, m);
    case wire::Kind::pong:
        return plane_.questions.on_pong(m);
    case wire::Kind::path_down:
    case wire::Kind::path_open:
    case wire::Kind::path_opened:
    case wire::Kind::path_probe:
    case wire::Kind::path_probed:
        return plane_.path_messages.on_path_news(way_back, m);
    case wire::Kind::rails:
        return plane_.rail_lists.on_rails(way_back, m);
    case wire::Kind::rails_known:
        return plane_.rail_lists.on_rails_known(m);
    case wire::Kind::keys:
        return plane_.key_messages.on_keys(way_back, m);
    case wire::Kind::keys_told:
        return plane_.key_messages.on_keys_told(m);
    case wire::Kind::service:
    case wire::Kind::service_known:
        return plane_.wishes.on_wish(m);
    case wire::Kind::ring:
    case wire::Kind::ring_known:
        return plane_.wishes.on_ring(m);
    case wire::Kind::ended:
        return plane_.goodbyes.on_ended(way_back, m);
    case wire::Kind::ended_known:
        return plane_.goodbyes.on_ended_known(m);
    }
}

void Inbox::on_refuse(const Message& m) {
    Connection* const c = m.bare ? plane_.connections.addressed(m) : plane_.connections.connection_of(m);
    if (!c || !is_under_way(c->state) || c->transaction != m.transaction) {
        ++plane_.counters.late;
    } else if (m.bare) {
        plane_.client.refused_without_proof(*c, m);
    } else if (c->state != State::accepting) {
        plane_.client.refused(*c, m);
    } else {
        plane_.server.abandon(*c, "the client gave up");
    }
}

} // namespace ucx_mp::connect
