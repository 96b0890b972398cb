#include "uct_mp/connect/server.h"

#include <algorithm>
#include <cinttypes>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {
// Copies of a request are younger, and no peer has used up half of all numbers by then.
constexpr Nanos kRemembered = Nanos{12} * 3600 * 1'000'000'000;
// A peer cannot fill the log by requests.
constexpr std::size_t kMostSaid = 16;
} // namespace

// As many paths as fit into the answer, over the rails of both sides.
std::vector<path::PathSpec> Server::plan(const Message& m, std::uint8_t& absent) const {
    const std::vector<path::RemoteRail> own = plane_.identity.rails_to(0);
    std::size_t mtu = wire::kMaxMessage;
    for (const auto* rails : {&own, &m.rails})
        for (const path::RemoteRail& r : *rails)
            if (r.usable()) mtu = std::min(mtu, mtu_bytes(r.mtu));
    const std::size_t fixed = wire::reply_size(own.size(), gids(own), 0);
    const std::size_t room = mtu > fixed ? (mtu - fixed) / sizeof(wire::Path) : 0;
    if (room == 0) return {};
    const path::Kinds kinds = plane_.identity.common_kinds(m);
    const path::PathConfig& config = plane_.config.paths;
    // All paths are DC, with places for RC. A side that does not know such places has DC alone.
    const bool on_demand = config.rc_on_demand && kinds == path::Kinds::both;
    const bool known = m.terms.features & plane_.config.terms.features & feature::on_demand;
    const path::Kinds planned = on_demand ? path::Kinds::dc : kinds;
    const auto most = unsigned(on_demand && known ? path::room_beside_on_demand(config, unsigned(room)) : room);
    std::vector<path::PathSpec> paths =
        path::plan_paths(m.rails, own, config, m.num_paths, most, m.split_reads, planned);
    if (paths.empty()) return paths;
    absent = path::add_absent_paths(paths, m.rails, own, config, m.num_paths, most, planned);
    if (on_demand && known) absent += path::add_on_demand(paths, config, unsigned(room));
    return paths;
}

// Copies of a message that waited in the queue together (this process computed, the client repeated) get one
// answer. It may be lost on a way that works only towards us: a copy that came by another way gets a second answer.
bool Server::just_answered(const Connection& c, const Target& way_back) const {
    const bool same = c.answered_from == way_back.rail && c.answered_to == way_back.to;
    return c.answered && plane_.services.now() - c.answered < plane_.config.retry / 2 && (same || c.answered_again);
}

void Server::note_answer(Connection& c, const Target& way_back) const {
    const Nanos now = plane_.services.now();
    c.answered_again = c.answered && now - c.answered < plane_.config.retry / 2;
    if (!c.answered_again) c.answered = now;
    c.answered_from = way_back.rail;
    c.answered_to = way_back.to;
}

// A handshake of the first comer voids no others before it is over. The peer's numbers go on with all its
// handshakes, also those with others: after long they may have gone half of the round. No copy is as old as that.
bool Server::is_late(const Connection& c, const Message& request) const {
    const bool anybody = c.state == State::accepting && !c.before.by_peer;
    const std::uint32_t seen = anybody ? c.before.seen : c.seen;
    const Nanos at = anybody ? c.before.seen_at : c.seen_at;
    return seen && !newer(request.transaction, seen) && plane_.services.now() - at < kRemembered;
}

// The peer holds the connection that this is to replace, or has answered that it no longer does.
Server::Proof Server::proof_of(const Connection& c, const Message& request) {
    if (same_secret(request.shown, c.held.own_secret) || same_secret(request.nonce, c.awaited)) return Proof::peer;
    const bool again =
        c.state == State::accepting && same_secret(request.nonce, c.peer_secret) && newer(request.transaction, c.seen);
    return again ? Proof::same_client : Proof::none;
}

// A request without a secret may not be the peer's. So the peer is asked by the known way whether it
// still holds the connection that is to be replaced, and which request is its own. True: there is none,
// or no way to ask. False: not now; the request will be repeated, and the peer's has a proof then.
bool Server::lets_go(Connection& c) {
    const bool under_way = c.state == State::confirming || c.state == State::accepting;
    if (!c.held.own_secret && !under_way) return true; // the first comer (PROTOCOL.md, U1)
    if (c.gives_way) return true;
    plane_.questions.ask_for_request(c);
    ++plane_.counters.late;
    return false;
}

// A request of a known peer. False: it has been dealt with.
bool Server::begins_another(Connection& c, const Target& way_back, const Message& m, Proof proof) {
    const bool late = is_late(c, m);
    // It has agreed to our goodbye, and comes again.
    if (c.state == State::established && c.parting.timer && !late && proof == Proof::peer) {
        plane_.goodbyes.stop(c);
        plane_.owner.peers.parted(c, Answer::lost);
        ++plane_.counters.late;
        return false;
    }
    if (c.state == State::accepting && c.transaction == m.transaction && same_secret(m.nonce, c.peer_secret)) {
        if (Due* const due = plane_.turns.due_of(c)) { // it is under way
            if (due->what == Due::What::make) due->way_back = way_back;
            ++plane_.counters.late;
        } else if (just_answered(c, way_back)) {
            ++plane_.counters.late;
        } else {
            send_reply(c, way_back);
        }
        return false;
    }
    // Both have started: the side with the smaller uid stays client, and the peer will learn it from our request.
    const bool ours = c.state == State::requesting && plane_.identity.address.uid < c.peer.uid;
    // It knows the way to us; we may not know the way to it any more.
    if (ours && !late) {
        take_way(c, m, proof);
        if (m.destination && m.destination == c.local_id) // it had no place for our request, and has one now
            plane_.client.ask_again(c);
    }
    if (late || ours) {
        ++plane_.counters.late;
        return false;
    }
    return proof != Proof::none || lets_go(c);
}

void Server::on_request(const Target& way_back, const Message& m) {
    if (plane_.closing) return plane_.outbox.refuse(way_back, m, wire::Reason::closing);
    if (!plane_.owner.peers.hears(m.sender_uid)) {
        ++plane_.counters.late; // it will be repeated
        return;
    }
    Connection* c = plane_.owner.peers.find(m.sender_uid);
    if (c && (c->peer.count || c->held.own_secret) && !known_as(*c, m)) {
        ++plane_.counters.dropped;
        return;
    }
    const Proof proof = c ? proof_of(*c, m) : Proof::none;
    if (c && !begins_another(*c, way_back, m, proof)) return;
    std::uint8_t absent = 0;
    std::vector<path::PathSpec> paths = plan(m, absent);
    if (paths.empty()) {
        if (plane_.outbox.may_come(m.rails)) { // a port is active, but nobody has told us yet
            ++plane_.counters.late;
            return;
        }
        plane_.outbox.refuse(way_back, m, wire::Reason::unreachable);
        return;
    }
    if (const std::string why = plane_.owner.peers.misfit(m.terms); !why.empty()) {
        if (said_.size() < kMostSaid && std::ranges::find(said_, why) == said_.end()) {
            plane_.services.say(LogLevel::error, "mp: peer %016" PRIx64 " refused: %s (of others with this: no line)",
                                m.sender_uid, why.c_str());
            said_.push_back(why);
        }
        plane_.outbox.refuse(way_back, m, wire::Reason::terms);
        return;
    }
    if (!c && !(c = plane_.owner.peers.accept(m.sender_uid))) {
        plane_.outbox.refuse(way_back, m, wire::Reason::limits);
        return;
    }
    if (c->state == State::established || c->state == State::failed ||
        (c->state == State::confirming && plane_.owner.peers.carries_data(*c))) {
        Connection* const fresh = plane_.owner.peers.renew(*c);
        if (!fresh) {
            plane_.outbox.refuse(way_back, m, wire::Reason::settled);
            return;
        }
        c = fresh;
    }
    note_peer(*c, m);
    if (!plane_.owner.peers.admits(*c)) {
        take_way(*c, m, proof);
        c->features = m.terms.features & plane_.config.terms.features;
        c->server = true; // our own request, which follows, says so
        c->remote_id = m.source;
        ++plane_.counters.late;
        return;
    }
    accept(*c, way_back, m, proof, std::move(paths), absent);
}

// The way of our own requests. A request without a secret may be anybody's: it does not redirect a known way.
void Server::take_way(Connection& c, const Message& request, Proof proof) const {
    const bool has_one = c.held.own_secret || plane_.outbox.route(c, 0);
    if (proof != Proof::peer && has_one) return;
    if (c.remote_rails.empty() || c.remote_rails.size() == request.rails.size()) c.remote_rails = request.rails;
}

void Server::note_peer(Connection& c, const Message& m) {
    if (c.peer.count) return; // its address says it, and a request may be anybody's
    c.peer.uid = m.sender_uid;
    c.peer.cookie = m.sender_cookie;
    c.peer.q_key = m.sender_q_key;
    c.peer.min_version = m.min_version;
    c.peer.max_version = m.max_version;
    c.peer.transport = m.transport;
}

void Server::accept(Connection& c, const Target& way_back, const Message& m, Proof proof,
                    std::vector<path::PathSpec> paths, std::uint8_t absent) {
    if (c.state != State::closed && !c.ends.empty())
        plane_.states.drop_ends(c); // of an older handshake with the same peer
    if (c.state == State::accepting)
        c.incarnation = c.before.incarnation; // whichever the other client was
    else
        c.before = {.incarnation = c.incarnation,
                    .seen = c.seen,
                    .rails_number = c.rails_number,
                    .seen_at = c.seen_at,
                    .rails = std::move(c.remote_rails),
                    .names = c.names};
    if (proof != Proof::same_client) c.before.by_peer = proof == Proof::peer;
    c.incarnation = next_number(is_news(m.incarnation, c.incarnation) ? m.incarnation : c.incarnation);
    c.remote_id = m.source;
    c.remote_rails = m.rails;
    c.own_dc_tag = plane_.identity.random_tag();
    c.own_secret = plane_.identity.random_tag();
    c.peer_secret = m.nonce;
    plane_.identity.take_terms(c, m);
    c.paths = std::move(paths);
    c.absent = absent;
    c.rails_number = 0;
    c.telling.offered = plane_.identity.rails_number;
    c.server = true;
    c.transaction = c.seen = m.transaction;
    c.started = c.seen_at = plane_.services.now();
    c.attempts = 0;
    plane_.states.set(c, State::accepting, "request");
    plane_.states.set_timer(c, c.started + plane_.config.timeout, [this, &c] { silence(c); });
    plane_.turns.make(c, {.what = Due::What::make, .way_back = way_back});
    plane_.rail_lists.tell(c); // the reply may be lost, and the next request goes to our old place
}

void Server::request_done(Connection& c, const Due& due, Status status) {
    if (!ucx_mp::failed(status)) return send_reply(c, due.way_back);
    // Not now: the client repeats its request. It is not late then.
    if (status != Status::no_resource && status != Status::busy)
        plane_.outbox.refuse(due.way_back, c, wire::Kind::request, wire::Reason::resources);
    abandon(c, "no queue pairs for the peer's request");
}

void Server::send_reply(Connection& c, const Target& way_back) {
    Message m = plane_.outbox.message_to(wire::Kind::reply, c);
    m.void_through = plane_.identity.newest_transaction;
    m.dc_key = plane_.config.dc_key;
    m.terms = plane_.identity.terms_for(c);
    m.rails = plane_.identity.rails_to(c.peer.uid);
    m.paths = c.paths;
    m.absent = c.absent;
    m.ends = c.ends;
    plane_.outbox.add_tail(c, m);
    note_answer(c, way_back);
    plane_.outbox.send(way_back, m);
}

void Server::on_confirm(const Target& way_back, const Message& m) {
    Connection* c = plane_.connections.connection_of(m);
    if (!c || !c->server || c->transaction != m.transaction || c->incarnation != m.incarnation ||
        (c->state != State::accepting && c->state != State::established)) {
        plane_.outbox.refuse(way_back, m, wire::Reason::unknown);
        return;
    }
    if (c->state == State::established) {
        if (just_answered(*c, way_back))
            ++plane_.counters.late;
        else
            send_ready(*c, way_back);
        return;
    }
    if (Due* const due = plane_.turns.due_of(*c)) { // under way, or it confirms a reply that we have not sent
        if (due->what == Due::What::connect) due->way_back = way_back;
        ++plane_.counters.late;
        return;
    }
    bool fits = m.ends.size() == c->paths.size();
    for (std::size_t i = 0; fits && i < m.ends.size(); ++i) fits = (m.ends[i].qp_number != 0) == c->has_end(i);
    if (!fits) {
        ++plane_.counters.dropped;
        return;
    }
    c->remote_ends = m.ends;
    plane_.turns.connect(*c, way_back);
}

void Server::confirm_done(Connection& c, const Due& due, Status status) {
    if (ucx_mp::failed(status)) {
        plane_.outbox.refuse(due.way_back, c, wire::Kind::confirm, wire::Reason::resources);
        plane_.states.fail(c, status, "could not connect our queue pairs");
        return;
    }
    plane_.states.set(c, State::established, "confirm");
    c.telling.known = c.telling.offered;
    send_ready(c, due.way_back); // leaves before the owner's data
    plane_.owner.peers.established(c);
    plane_.rail_lists.tell(c); // changes since the reply
}

void Server::send_ready(Connection& c, const Target& way_back) {
    note_answer(c, way_back);
    plane_.outbox.send(way_back, plane_.outbox.message_to(wire::Kind::ready, c));
}

// The handshake under way fails.
void Server::undo(Connection& c) {
    c.incarnation = c.before.incarnation;
    c.seen = c.before.seen;
    c.seen_at = c.before.seen_at;
    // The peer itself has told this place. Without an address there is no other way to it.
    const bool knows_better = !c.before.rails.empty() || c.peer.count;
    if (!c.before.by_peer && knows_better) {
        c.remote_rails = std::move(c.before.rails);
        c.names = std::move(c.before.names); // anybody's request may have brought others
    }
    if (!c.before.by_peer || is_news(c.before.rails_number, c.rails_number)) c.rails_number = c.before.rails_number;
    c.before = {};
    c.server = false;
}

void Server::silence(Connection& c) { abandon(c, "the client is silent"); }

void Server::abandon(Connection& c, const char* why) {
    plane_.states.set(c, State::closed, why);
    plane_.states.drop_ends(c);
    plane_.rail_lists.tell(c);
    plane_.owner.peers.abandoned(c);
}

} // namespace ucx_mp::connect
