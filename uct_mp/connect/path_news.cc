// News of single paths: carried here, understood by uct_mp/recover.
#include <algorithm>

#include "uct_mp/connect/control_plane_impl.h"

namespace ucx_mp::connect {

namespace {
wire::Kind kind_of(PathKind kind) {
    switch (kind) {
    case PathKind::open:
        return wire::Kind::path_open;
    case PathKind::opened:
        return wire::Kind::path_opened;
    case PathKind::down:
        break;
    }
    return wire::Kind::path_down;
}
PathKind kind_of(wire::Kind kind) {
    if (kind == wire::Kind::path_open) return PathKind::open;
    return kind == wire::Kind::path_opened ? PathKind::opened : PathKind::down;
}
} // namespace

void ControlPlane::Impl::on_path_news(const Message& m) {
    Connection* c = connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation || m.news.path >= c->paths.size()) {
        ++counters.late;
        return;
    }
    owner.path_news(*c, kind_of(m.kind), m.news);
}

Message ControlPlane::Impl::news_to(const Connection& c, PathKind kind, const PathNews& news) const {
    Message m = message_to(kind_of(kind), c);
    m.news = news;
    return m;
}

void ControlPlane::tell(const Connection& connection, PathKind kind, const PathNews& news, unsigned attempt) {
    if (const auto to = impl_->route(connection, attempt)) impl_->send(*to, impl_->news_to(connection, kind, news));
    else ++impl_->counters.unsent;
}

void ControlPlane::tell_over_path(const Connection& connection, PathKind kind, const PathNews& news) {
    const path::PathSpec& spec = connection.paths[news.path];
    const bool server = connection.server;
    const unsigned rail = server ? spec.server_rail : spec.client_rail;
    const path::RemoteRail& remote = connection.remote_rails[server ? spec.client_rail : spec.server_rail];
    if (!impl_->datagrams.works(rail)) {
        ++impl_->counters.unsent;
        return;
    }
    const auto bits = server ? spec.client_bits : spec.server_bits;
    impl_->send({.rail = rail,
                 .source_bits = server ? spec.server_bits : spec.client_bits,
                 .dlid = std::uint16_t(remote.lid + bits),
                 .qp_number = remote.control_qpn,
                 .q_key = connection.peer.q_key},
                impl_->news_to(connection, kind, news));
}

std::uint32_t ControlPlane::random_psn() { return std::uint32_t(impl_->random() >> 40); }

} // namespace ucx_mp::connect
