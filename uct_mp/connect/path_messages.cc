// News of single paths: carried here, understood by uct_mp/recover.
#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {
wire::Kind kind_of(PathKind kind) {
    switch (kind) {
    case PathKind::down:
        return wire::Kind::path_down;
    case PathKind::open:
        return wire::Kind::path_open;
    case PathKind::opened:
        return wire::Kind::path_opened;
    case PathKind::probe:
        return wire::Kind::path_probe;
    case PathKind::probed:
        return wire::Kind::path_probed;
    }
    return wire::Kind::path_down;
}
PathKind kind_of(wire::Kind kind) {
    switch (kind) {
    case wire::Kind::path_open:
        return PathKind::open;
    case wire::Kind::path_opened:
        return PathKind::opened;
    case wire::Kind::path_probe:
        return PathKind::probe;
    case wire::Kind::path_probed:
        return PathKind::probed;
    default:
        return PathKind::down;
    }
}
} // namespace

void ControlPlane::Impl::on_path_news(const Target& way_back, const Message& m) {
    Connection* c = connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation || m.news.path >= c->paths.size()) {
        ++counters.late;
        return;
    }
    if (m.kind == wire::Kind::path_probe && m.news.home)
        send(way_back, news_to(*c, PathKind::probed, {.path = m.news.path, .home = true, .end = {}}));
    else if (m.kind == wire::Kind::path_probe)
        tell_over_route(*c, c->paths[m.news.path], PathKind::probed, {.path = m.news.path, .end = {}});
    owner.news.path_news(*c, kind_of(m.kind), m.news);
}

Message ControlPlane::Impl::news_to(const Connection& c, PathKind kind, const PathNews& news) const {
    Message m = message_to(kind_of(kind), c);
    m.news = news;
    return m;
}

void ControlPlane::tell(const Connection& connection, PathKind kind, const PathNews& news, unsigned attempt) {
    impl_->mend();
    if (const auto to = impl_->route(connection, attempt))
        impl_->send(*to, impl_->news_to(connection, kind, news));
    else
        ++impl_->counters.unsent;
}

bool ControlPlane::Impl::tell_over_route(const Connection& connection, const path::PathSpec& route, PathKind kind,
                                         const PathNews& news) {
    const bool server = connection.server;
    const unsigned rail = server ? route.server_rail : route.client_rail;
    const path::RemoteRail& remote = connection.remote_rails[server ? route.client_rail : route.server_rail];
    mend();
    if (!datagrams.works(rail) || !own_rails[rail].usable() || !remote.usable()) {
        ++counters.unsent;
        return true; // waiting would not help
    }
    return send({.rail = rail,
                 .to = {std::uint16_t(remote.lid + (server ? route.client_bits : route.server_bits)),
                        server ? route.server_bits : route.client_bits, remote.gid},
                 .qp_number = remote.control_qpn,
                 .q_key = connection.peer.q_key},
                news_to(connection, kind, news));
}

bool ControlPlane::tell_over_path(const Connection& connection, unsigned path, PathKind kind, const PathNews& news) {
    return impl_->tell_over_route(connection, connection.paths[path], kind, news);
}

bool ControlPlane::tell_over_route(const Connection& connection, const path::PathSpec& route, PathKind kind,
                                   const PathNews& news) {
    return impl_->tell_over_route(connection, route, kind, news);
}

std::uint32_t ControlPlane::random_psn() { return std::uint32_t(impl_->random() >> 40); }

} // namespace ucx_mp::connect
