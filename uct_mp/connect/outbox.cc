#include "uct_mp/connect/outbox.h"

#include <algorithm>
#include <cinttypes>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

Message Outbox::message(wire::Kind kind, std::uint64_t cookie, std::uint32_t transaction) const {
    const InterfaceAddress& own = plane_.identity.address;
    Message m;
    m.kind = kind;
    m.version = own.max_version;
    m.cookie = cookie;
    m.sender_uid = own.uid;
    m.sender_cookie = own.cookie;
    m.sender_q_key = own.q_key;
    m.transaction = transaction;
    m.min_version = own.min_version;
    m.max_version = own.max_version;
    m.transport = own.transport;
    m.reserved = plane_.config.reserved;
    return m;
}

Message Outbox::answer_to(const Message& m, wire::Kind kind) const {
    Message answer = message(kind, m.sender_cookie, m.transaction);
    answer.version = m.version;
    answer.destination = m.source;
    answer.source = m.destination;
    answer.incarnation = m.incarnation;
    answer.shown = m.nonce;
    return answer;
}

Message Outbox::message_to(wire::Kind kind, const Connection& c) const {
    Message m = message(kind, c.peer.cookie, c.transaction);
    m.version = plane_.identity.version_to(c.peer.max_version);
    m.destination = c.remote_id;
    m.source = c.local_id;
    m.incarnation = c.incarnation;
    m.shown = kind == wire::Kind::request ? c.held.peer_secret : c.peer_secret;
    if (kind == wire::Kind::request || kind == wire::Kind::reply || kind == wire::Kind::confirm) m.nonce = c.own_secret;
    return m;
}

void Outbox::add_tail(const Connection& c, Message& m) const {
    std::size_t room = wire::kMaxMessage;
    const std::vector<path::RemoteRail>& own = plane_.identity.rails;
    for (const auto* rails : {&own, &c.remote_rails})
        for (const path::RemoteRail& r : *rails)
            if (r.usable()) room = std::min(room, mtu_bytes(r.mtu));
    const std::size_t bytes = m.kind == wire::Kind::request
                                  ? wire::request_size(m.rails.size(), gids(m.rails))
                                  : wire::reply_size(m.rails.size(), gids(m.rails), m.paths.size());
    if (bytes + plane_.config.tail.size() > room) return;
    m.tail = plane_.config.tail;
    const std::size_t left = std::min(room - bytes, wire::kMaxTail) - m.tail.size();
    const std::vector<std::uint8_t> names = pack_names(plane_.identity.names, left);
    m.tail.insert(m.tail.end(), names.begin(), names.end());
}

// Pairs of rails that reach each other, ordered so that consecutive ones differ on both sides where they can. When
// all have been tried, the same pairs follow over the next route (path bits). The first one depends on the pair of
// peers, so that a storm of connections does not all begin on rail 0. Where there is no connection, the address that
// has come out of band follows: it may be older than the rails that the connection before has told of, or newer.
std::optional<Target> Outbox::route(const Connection& c, unsigned attempt) const {
    struct Pair {
        unsigned rail;
        std::uint16_t lid;
        std::uint8_t lmc;
        std::uint32_t qp_number;
        verbs::Gid gid;
    };
    const std::vector<path::RemoteRail>& own_rails = plane_.identity.rails;
    std::vector<Pair> pairs;
    const auto add = [&](const Pair& pair) {
        // Each adapter numbers its queue pairs for itself.
        const auto same = [&](const Pair& p) {
            return p.rail == pair.rail && p.qp_number == pair.qp_number && p.lid == pair.lid &&
                   (p.lid != 0 || p.gid == pair.gid);
        };
        if (std::ranges::none_of(pairs, same)) pairs.push_back(pair);
    };
    const auto look = [&](bool told, bool routed) {
        bool found = false;
        const std::size_t remotes = told ? c.remote_rails.size() : c.peer.count;
        for (std::size_t shift = 0; shift < remotes; ++shift)
            for (unsigned i = 0; i < own_rails.size(); ++i) {
                const path::RemoteRail& own = own_rails[i];
                if (!plane_.datagrams.works(i) || !own.usable()) continue;
                const std::size_t j = (i + shift) % remotes;
                if (told) {
                    const path::RemoteRail& r = c.remote_rails[j];
                    if (!path::reach(own, r, routed)) continue;
                    add({i, r.lid, r.lmc, r.control_qpn, r.gid});
                } else {
                    const ControlAddress& r = c.peer.control[j];
                    if (!reach(own.subnet_prefix, own.gid, r, routed)) continue;
                    add({i, r.lid, r.lmc, r.qp_number, r.gid});
                }
                found = true;
            }
        return found;
    };
    if (!look(true, false)) look(true, true);
    const std::size_t told = pairs.size();
    if (c.remote_rails.empty() || c.state == State::requesting || c.state == State::closed)
        if (!look(false, false)) look(false, true);
    if (pairs.empty()) return std::nullopt;
    const std::size_t in_turn = told ? told : pairs.size(), turn = attempt % pairs.size();
    const std::uint64_t first = mix(plane_.identity.address.uid ^ c.peer.uid) % in_turn;
    const Pair& p = pairs[turn < in_turn ? (first + turn) % in_turn : turn];
    const auto bits = unsigned(attempt / pairs.size());
    return Target{.rail = p.rail,
                  .to = {.dlid = std::uint16_t(p.lid + (bits & ((1u << p.lmc) - 1))),
                         .source_path_bits = std::uint8_t(bits & ((1u << own_rails[p.rail].lmc) - 1)),
                         .gid = p.gid},
                  .qp_number = p.qp_number,
                  .q_key = c.peer.q_key};
}

bool Outbox::may_come(std::span<const path::RemoteRail> remote) const {
    const std::vector<path::RemoteRail>& own = plane_.identity.rails;
    for (unsigned i = 0; i < own.size(); ++i)
        for (const path::RemoteRail& r : remote)
            if (may_reach(own[i].subnet_prefix, plane_.devices.rails()[i].ethernet,
                          own[i].usable() && plane_.datagrams.works(i),
                          {.lid = r.lid, .subnet_tag = subnet_tag(r.subnet_prefix), .gid = r.gid}))
                return true;
    return false;
}

bool Outbox::may_come(const Connection& c) const {
    if (may_come(std::span(c.remote_rails))) return true;
    const std::vector<path::RemoteRail>& own = plane_.identity.rails;
    for (unsigned i = 0; i < own.size(); ++i)
        for (unsigned j = 0; j < c.peer.count; ++j)
            if (may_reach(own[i].subnet_prefix, plane_.devices.rails()[i].ethernet,
                          own[i].usable() && plane_.datagrams.works(i), c.peer.control[j]))
                return true;
    return false;
}

bool Outbox::send(const Target& to, const Message& m) {
    std::uint8_t datagram[wire::kMaxMessage];
    const std::size_t bytes = pack(m, datagram);
    const Status status = plane_.datagrams.send(to, {datagram, bytes});
    ++(failed(status) ? plane_.counters.unsent : plane_.counters.sent); // the client will repeat its message
    return status != Status::no_resource;
}

bool Outbox::send_to(const Connection& c, unsigned attempt, const Message& m) {
    if (const auto to = route(c, attempt)) return send(*to, m);
    ++plane_.counters.unsent;
    return true;
}

void Outbox::refuse(const Target& way_back, const Message& m, wire::Reason reason) {
    plane_.services.say(LogLevel::debug, "mp: %s of peer %016" PRIx64 " refused: reason %u", connect::name(m.kind),
                        m.sender_uid, unsigned(reason));
    Message answer = answer_to(m, wire::Kind::refuse);
    answer.version = plane_.identity.address.max_version; // refusals are the same in all versions
    answer.reason = reason;
    answer.refused = m.kind;
    answer.bare = m.version < wire::kProofSince;
    ++plane_.counters.refused;
    Target to = way_back;
    to.q_key = m.sender_q_key;
    send(to, answer);
}

void Outbox::refuse(const Target& way_back, const Connection& c, wire::Kind kind, wire::Reason reason) {
    Message m;
    m.kind = kind;
    m.sender_uid = c.peer.uid;
    m.sender_cookie = c.peer.cookie;
    m.sender_q_key = way_back.q_key;
    m.transaction = c.transaction;
    m.source = c.remote_id;
    m.nonce = c.peer_secret;
    refuse(way_back, m, reason);
}

// An Ethernet port that is down breaks its queue pair with the first datagram. The queue
// pair has to work again when the port does, which may be up although nobody has been told.
void Outbox::mend() {
    constexpr Nanos kPause = 50'000'000;
    Datagrams& datagrams = plane_.datagrams;
    const std::size_t rails = plane_.identity.rails.size();
    bool broken = false;
    for (unsigned rail = 0; rail < rails; ++rail) broken |= !datagrams.works(rail);
    if (!broken || plane_.polling) return;
    const Nanos now = plane_.services.now();
    if (now < next_mend_) return;
    next_mend_ = now + kPause;
    for (unsigned rail = 0; rail < rails; ++rail)
        if (!datagrams.works(rail)) datagrams.restart(rail);
}

} // namespace ucx_mp::connect
