// The server's part of the handshake: it answers, and only the time limit of an unfinished handshake is its own.
#include <algorithm>
#include <cassert>
#include <cinttypes>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

// As many paths as the answer can carry over the rails of both sides.
std::vector<path::PathSpec> ControlPlane::Impl::plan(const Message& m, std::uint8_t& absent) const {
    std::size_t mtu = wire::kMaxMessage;
    for (const auto* rails : {&own_rails, &m.rails})
        for (const path::RemoteRail& r : *rails)
            if (r.usable()) mtu = std::min(mtu, mtu_bytes(r.mtu));
    const std::size_t fixed = wire::reply_size(own_rails.size(), gids(own_rails), 0);
    const std::size_t room = mtu > fixed ? (mtu - fixed) / sizeof(wire::Path) : 0;
    if (room == 0) return {};
    std::vector<path::PathSpec> paths =
        path::plan_paths(m.rails, own_rails, config.paths, m.num_paths, unsigned(room), m.split_reads);
    if (!paths.empty())
        absent = path::add_absent_paths(paths, m.rails, own_rails, config.paths, m.num_paths, unsigned(room));
    return paths;
}

// Copies of a message that waited in the queue together (we computed, the client repeated) get one answer.
bool ControlPlane::Impl::just_answered(const Connection& c) const {
    return c.answered && services.now() - c.answered < config.retry / 2;
}

void ControlPlane::Impl::on_request(const Target& way_back, const Message& m) {
    if (!owner.peers.hears(m.sender_uid)) {
        ++counters.late; // it will be repeated
        return;
    }
    Connection* c = owner.peers.find(m.sender_uid);
    if (c && c->peer.uid && !known_as(*c, m)) {
        ++counters.dropped;
        return;
    }
    if (c) {
        const bool late = c->seen && !newer(m.transaction, c->seen);
        if (c->state == State::established && c->parting.timer &&
            !late) { // it has agreed to our goodbye, and comes again
            stop_parting(*c);
            owner.peers.parted(*c, Answer::lost);
            ++counters.late;
            return;
        }
        if (c->state == State::accepting && c->transaction == m.transaction) {
            if (Due* const due = due_of(*c)) { // we are at it
                if (due->what == Due::What::make) due->way_back = way_back;
                ++counters.late;
            } else if (just_answered(*c)) {
                ++counters.late;
            } else {
                send_reply(*c, way_back);
            }
            return;
        }
        // Both have started: the smaller uid stays client, and the peer will learn it from our request.
        const bool ours = c->state == State::requesting && address.uid < c->peer.uid;
        if (late || ours) {
            ++counters.late;
            return;
        }
    }
    std::uint8_t absent = 0;
    std::vector<path::PathSpec> paths = plan(m, absent);
    if (paths.empty()) {
        refuse(way_back, m, wire::Reason::unreachable);
        return;
    }
    if (const std::string why = owner.peers.misfit(m.terms); !why.empty()) {
        services.say(LogLevel::error, "mp: peer %016" PRIx64 " refused: %s", m.sender_uid, why.c_str());
        refuse(way_back, m, wire::Reason::terms);
        return;
    }
    if (!c && !(c = owner.peers.accept(m.sender_uid))) {
        refuse(way_back, m, wire::Reason::limits);
        return;
    }
    if (c->state == State::established || c->state == State::failed) {
        Connection* const fresh = owner.peers.renew(*c);
        if (!fresh) {
            refuse(way_back, m, wire::Reason::settled);
            return;
        }
        c = fresh;
    }
    accept(*c, way_back, m, std::move(paths), absent);
}

void ControlPlane::Impl::accept(Connection& c, const Target& way_back, const Message& m,
                                std::vector<path::PathSpec> paths, std::uint8_t absent) {
    if (c.state != State::closed && !c.ends.empty()) drop_ends(c); // of an older handshake with the same peer
    c.peer.uid = m.sender_uid;
    c.peer.cookie = m.sender_cookie;
    c.peer.q_key = m.sender_q_key;
    c.peer.min_version = m.min_version;
    c.peer.max_version = m.max_version;
    c.peer.transport = m.transport;
    const Due due{.what = Due::What::make, .way_back = way_back, .incarnation = c.incarnation, .seen = c.seen};
    c.incarnation = (newer(m.incarnation, c.incarnation) ? m.incarnation : c.incarnation) + 1;
    c.remote_id = m.source;
    c.remote_rails = m.rails;
    c.own_dc_tag = random_tag();
    take_terms(c, m);
    c.paths = std::move(paths);
    c.absent = absent;
    c.rails_number = 0;
    c.telling.known = own_number;
    c.server = true;
    c.transaction = c.seen = m.transaction;
    c.started = services.now();
    c.attempts = 0;
    set_state(c, State::accepting, "request");
    set_timer(c, c.started + config.timeout, &Impl::silence);
    make_in_turn(c, due);
}

void ControlPlane::Impl::request_done(Connection& c, const Due& due, Status status) {
    if (!ucx_mp::failed(status)) return send_reply(c, due.way_back);
    // Not now: the client repeats its request. It is not late then.
    if (status != Status::no_resource && status != Status::busy)
        refuse(due.way_back, c, wire::Kind::request, wire::Reason::resources);
    c.incarnation = due.incarnation;
    c.seen = due.seen;
    abandon(c, "no queue pairs for the peer's request");
}

void ControlPlane::Impl::send_reply(Connection& c, const Target& way_back) {
    Message m = message_to(wire::Kind::reply, c);
    m.void_through = newest_transaction;
    m.dc_key = config.dc_key;
    m.terms = terms_of(c);
    m.rails = own_rails;
    m.paths = c.paths;
    m.absent = c.absent;
    m.ends = c.ends;
    c.answered = services.now();
    send(way_back, m);
}

void ControlPlane::Impl::on_confirm(const Target& way_back, const Message& m) {
    Connection* c = connection_of(m);
    if (!c || !c->server || c->transaction != m.transaction || c->incarnation != m.incarnation ||
        (c->state != State::accepting && c->state != State::established)) {
        refuse(way_back, m, wire::Reason::unknown);
        return;
    }
    if (c->state == State::established) {
        if (just_answered(*c))
            ++counters.late;
        else
            send_ready(*c, way_back);
        return;
    }
    if (Due* const due = due_of(*c)) { // we are at it, or it confirms what we have not said
        if (due->what == Due::What::connect) due->way_back = way_back;
        ++counters.late;
        return;
    }
    bool fits = m.ends.size() == c->paths.size();
    for (std::size_t i = 0; fits && config.transport == Transport::rc && i < m.ends.size(); ++i)
        fits = (m.ends[i].qp_number == 0) == c->is_absent(i);
    if (!fits) {
        ++counters.dropped;
        return;
    }
    c->remote_ends = m.ends;
    connect_in_turn(*c, way_back);
}

void ControlPlane::Impl::confirm_done(Connection& c, const Due& due, Status status) {
    if (ucx_mp::failed(status)) {
        refuse(due.way_back, c, wire::Kind::confirm, wire::Reason::resources);
        fail(c, status, "could not connect our queue pairs");
        return;
    }
    set_state(c, State::established, "confirm");
    send_ready(c, due.way_back); // leaves before the owner's data
    owner.peers.established(c);
    tell_rails(c); // what has changed since the reply
}

void ControlPlane::Impl::send_ready(Connection& c, const Target& way_back) {
    c.answered = services.now();
    send(way_back, message_to(wire::Kind::ready, c));
}

void ControlPlane::Impl::silence(Connection& c) { abandon(c, "the client is silent"); }

void ControlPlane::Impl::abandon(Connection& c, const char* why) {
    set_state(c, State::closed, why);
    c.server = false;
    drop_ends(c);
    owner.peers.abandoned(c);
}

} // namespace ucx_mp::connect
