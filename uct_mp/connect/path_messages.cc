#include "uct_mp/connect/path_messages.h"

#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

wire::Kind kind_of(NewsKind kind) {
    switch (kind) {
    case NewsKind::down:
        return wire::Kind::path_down;
    case NewsKind::open:
        return wire::Kind::path_open;
    case NewsKind::opened:
        return wire::Kind::path_opened;
    case NewsKind::probe:
        return wire::Kind::path_probe;
    case NewsKind::probed:
        return wire::Kind::path_probed;
    }
    return wire::Kind::path_down;
}
NewsKind kind_of(wire::Kind kind) {
    switch (kind) {
    case wire::Kind::path_open:
        return NewsKind::open;
    case wire::Kind::path_opened:
        return NewsKind::opened;
    case wire::Kind::path_probe:
        return NewsKind::probe;
    case wire::Kind::path_probed:
        return NewsKind::probed;
    default:
        return NewsKind::down;
    }
}

} // namespace

void PathMessages::on_path_news(const Target& way_back, const Message& m) {
    Connection* c = plane_.connections.connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation || m.news.path >= c->paths.size()) {
        ++plane_.counters.late;
        return;
    }
    // A message alone does not tell the kind of its path, and whether it has come over it.
    const bool rc = c->paths[m.news.path].kind == path::Kind::rc;
    const bool open = m.kind == wire::Kind::path_open || m.kind == wire::Kind::path_opened;
    const bool retired = m.kind == wire::Kind::path_down && m.news.home; // nobody wants it: only for paths on demand
    const bool probe = m.kind == wire::Kind::path_probe || m.kind == wire::Kind::path_probed;
    const bool anyhow = m.kind == wire::Kind::path_down || m.news.home;
    const bool over_it =
        way_back.rail == c->local_rail(m.news.path) && way_back.qp_number == c->remote_rail(m.news.path).control_qpn;
    // One side migrates before the other (APM), and meanwhile they probe over different routes.
    const auto is_theirs = [&](const path::RemoteRail& r) { return r.control_qpn == way_back.qp_number; };
    const bool perhaps = rc && probe && std::ranges::any_of(c->remote_rails, is_theirs);
    // Only a queue pair of RC has packet numbers that both ends count.
    if ((!anyhow && !over_it && !perhaps) || (m.news.gone && rc) || (m.news.psn != kUnknownPsn && !rc) ||
        (open && rc != (m.news.end.qp_number != 0)) || (retired && !c->paths[m.news.path].on_demand)) {
        ++plane_.counters.dropped;
        return;
    }
    if (m.kind == wire::Kind::path_probe && m.news.home)
        plane_.outbox.send(way_back, news_to(*c, NewsKind::probed, {.path = m.news.path, .home = true, .end = {}}));
    else if (m.kind == wire::Kind::path_probe)
        tell_over_route(*c, c->paths[m.news.path], NewsKind::probed, {.path = m.news.path, .end = {}});
    plane_.owner.news.path_news(*c, kind_of(m.kind), m.news);
}

Message PathMessages::news_to(const Connection& c, NewsKind kind, const PathNews& news) const {
    Message m = plane_.outbox.message_to(kind_of(kind), c);
    m.news = news;
    return m;
}

void PathMessages::tell(const Connection& connection, NewsKind kind, const PathNews& news, unsigned attempt) {
    plane_.outbox.mend();
    plane_.outbox.send_to(connection, attempt, news_to(connection, kind, news));
}

bool PathMessages::tell_over_route(const Connection& connection, const path::PathSpec& route, NewsKind kind,
                                   const PathNews& news) {
    const bool server = connection.server;
    const unsigned rail = server ? route.server_rail : route.client_rail;
    const path::RemoteRail& remote = connection.remote_rails[server ? route.client_rail : route.server_rail];
    plane_.outbox.mend();
    if (!plane_.datagrams.works(rail) || !plane_.identity.rails[rail].usable() || !remote.usable()) {
        ++plane_.counters.unsent;
        return true; // waiting would not help
    }
    return plane_.outbox.send({.rail = rail,
                               .to = {std::uint16_t(remote.lid + (server ? route.client_bits : route.server_bits)),
                                      server ? route.server_bits : route.client_bits, remote.gid},
                               .qp_number = remote.control_qpn,
                               .q_key = connection.peer.q_key},
                              news_to(connection, kind, news));
}

} // namespace ucx_mp::connect
