// Reads messages: believes nothing of a datagram unchecked.
#include "uct_mp/connect/message.h"

#include <utility>

#include "uct_mp/connect/bytes.h"

namespace ucx_mp::connect {

namespace {

using wire::Kind;
using wire::kRateUnit;

constexpr std::uint32_t k24Bits = 0xffffff;

// Takes structures off the front of a datagram.
class Reader {
public:
    explicit Reader(std::span<const std::uint8_t> bytes) : left_(bytes) {}
    template <class T> [[nodiscard]] bool take(T& out) {
        if (left_.size() < sizeof(T)) return false;
        std::memcpy(&out, left_.data(), sizeof(T));
        left_ = left_.subspan(sizeof(T));
        return true;
    }
    [[nodiscard]] std::size_t left() const { return left_.size(); }
    [[nodiscard]] std::span<const std::uint8_t> take_rest() { return std::exchange(left_, {}); }

    [[nodiscard]] bool skip(std::size_t bytes) {
        if (left_.size() < bytes) return false;
        left_ = left_.subspan(bytes);
        return true;
    }

private:
    std::span<const std::uint8_t> left_;
};

bool valid_qpn(std::uint32_t n) { return n >= 2 && n <= k24Bits; } // 0 and 1 are the subnet manager's and the GSI's

bool read_rails(Reader& in, unsigned count, Message& out) {
    if (count < 1 || count > verbs::kMaxRails || in.left() < count * sizeof(wire::Rail)) return false;
    for (unsigned i = 0; i < count; ++i) {
        wire::Rail r;
        if (!in.take(r)) return false;
        if ((r.lid ? !valid_port(r.lid, r.lmc) : r.lmc > 7) || r.mtu < IBV_MTU_256 || r.mtu > IBV_MTU_4096 ||
            r.rate == 0)
            return false;
        if (r.device >= verbs::kMaxDevices || r.dct_number > k24Bits || !valid_qpn(r.control_qpn)) return false;
        if (r.roce > 1) return false;
        verbs::Gid gid{};
        if (r.roce && (!in.take(gid) || r.lid || r.lmc || !verbs::is_unicast(gid))) return false;
        out.rails.push_back({.lid = r.lid,
                             .lmc = r.lmc,
                             .device = r.device,
                             .mtu = ibv_mtu(r.mtu),
                             .subnet_prefix = r.subnet_prefix,
                             .rate = r.rate * kRateUnit,
                             .dct_number = r.dct_number,
                             .control_qpn = r.control_qpn,
                             .life = r.life,
                             .probe_key = r.probe_key,
                             .gid = gid});
    }
    return true;
}

// The answer shows the nonce.
bool wants_answer(Kind kind) {
    return kind == Kind::request || kind == Kind::reply || kind == Kind::confirm || kind == Kind::ping ||
           kind == Kind::rails || kind == Kind::ended;
}

// An end of a path of RC that is there, or none.
bool valid_end(const wire::End& end, bool none) {
    return none ? end.qp_number == 0 && end.psn == 0 : valid_qpn(end.qp_number) && end.psn <= k24Bits;
}

bool read_end(const wire::End& end, Message& out, bool none) {
    if (!valid_end(end, none)) return false;
    out.ends.push_back({end.qp_number, end.psn});
    return true;
}

bool read_terms(const wire::Terms& t, Message& out) {
    if (t.window == 0 || t.ring == 0 || t.segment == 0) return false;
    out.terms = {.features = t.features,
                 .probe_address = t.probe_address,
                 .dc_tag = t.dc_tag,
                 .window = t.window,
                 .ring = t.ring,
                 .segment = t.segment,
                 .kinds = path::Kinds(t.kinds)};
    return true;
}

// A later library may say anything there: parts that end where the message does.
bool read_tail(Reader& in, Message& out) {
    if (in.left() > wire::kMaxTail) return false;
    const auto rest = in.take_rest();
    out.tail.assign(rest.begin(), rest.end());
    Reader parts(rest);
    while (parts.left()) {
        wire::Part part;
        if (!parts.take(part) || !parts.skip(part.length)) return false;
    }
    return true;
}

bool read_request(Reader& in, Message& out) {
    wire::Request b;
    if (!in.take(b) || b.num_paths > path::kMaxPathsPerPeer) return false;
    if (b.split_reads > 1) return false;
    if (!read_terms(b.terms, out) || !read_rails(in, b.rails, out) || !read_tail(in, out)) return false;
    out.incarnation = b.incarnation;
    out.num_paths = b.num_paths;
    out.split_reads = b.split_reads;
    out.dc_key = b.dc_key;
    return true;
}

bool read_reply(Reader& in, std::span<const path::RemoteRail> own_rails, Message& out) {
    wire::Reply b;
    if (!in.take(b) || b.paths < 1 || b.paths > path::kMaxPathsPerPeer) return false;
    if (b.split_reads > 1 || (b.split_reads && b.paths % 2)) return false;
    const unsigned part = b.split_reads ? b.paths / 2u : b.paths;
    if (b.absent >= part || !read_terms(b.terms, out)) return false;
    if (!read_rails(in, b.rails, out) || in.left() < b.paths * sizeof(wire::Path)) return false;
    const bool routed = path::must_route(own_rails, out.rails);
    for (unsigned i = 0; i < b.paths; ++i) {
        wire::Path p;
        if (!in.take(p)) return false;
        const path::Kind named = path_kind_of(out.transport);
        const path::Kind kind = p.client_rail & wire::kOtherKind ? path::other(named) : named;
        const bool on_demand = p.client_rail & wire::kOnDemand;
        p.client_rail &= std::uint8_t(~(wire::kOtherKind | wire::kOnDemand));
        if (p.client_rail >= own_rails.size() || p.server_rail >= out.rails.size()) return false;
        const path::RemoteRail &client = own_rails[p.client_rail], &server = out.rails[p.server_rail];
        const bool absent = i % part + b.absent >= part;
        if (on_demand && (!absent || kind != path::Kind::rc || !(out.terms.features & feature::on_demand)))
            return false;
        // Our port may have gone since we told of it, with its adapter: then the path counts as failed.
        const bool gone = !absent && !client.usable();
        if (absent ? (p.client_bits | p.server_bits) > 127
                   : p.client_bits >> (gone ? 7 : client.lmc) || p.server_bits >> server.lmc)
            return false;
        if (!absent && !gone && !path::reach(client, server, routed)) return false;
        if (!read_end(p.end, out, absent || kind == path::Kind::dc)) return false;
        out.paths.push_back({.client_rail = p.client_rail,
                             .server_rail = p.server_rail,
                             .client_bits = p.client_bits,
                             .server_bits = p.server_bits,
                             .kind = kind,
                             .on_demand = on_demand});
    }
    if (!read_tail(in, out)) return false;
    if (b.split_reads) path::mark_split(out.paths);
    out.incarnation = b.incarnation;
    out.void_through = b.void_through;
    out.absent = b.absent;
    out.dc_key = b.dc_key;
    return true;
}

bool read_confirm(Reader& in, Message& out) {
    wire::Confirm b;
    if (!in.take(b) || b.paths < 1 || b.paths > path::kMaxPathsPerPeer) return false;
    if (in.left() != b.paths * sizeof(wire::End)) return false;
    for (unsigned i = 0; i < b.paths; ++i)
        // Only the side that has planned the paths knows which are absent, and which are of DC.
        if (wire::End end; !in.take(end) || !read_end(end, out, !end.qp_number)) return false;
    out.incarnation = b.incarnation;
    return true;
}

bool read_ready(Reader& in, Message& out) {
    wire::Ready b;
    if (!in.take(b)) return false;
    out.incarnation = b.incarnation;
    return true;
}

bool read_refuse(Reader& in, Message& out) {
    wire::Refuse b;
    if (!in.take(b)) return false;
    if (b.of < std::uint8_t(Kind::request) || b.of > std::uint8_t(Kind::refuse)) return false;
    const bool known =
        b.reason >= std::uint8_t(wire::Reason::version) && b.reason <= std::uint8_t(wire::Reason::closing);
    out.reason = known ? wire::Reason(b.reason) : wire::Reason::resources;
    out.refused = Kind(b.of);
    return true;
}

bool read_news(Reader& in, Message& out) {
    wire::PathNews b;
    if (!in.take(b) || b.path >= path::kMaxPathsPerPeer || b.answer > 1 || b.gone > 1 || b.home > 1) return false;
    if (b.home && (out.kind == Kind::path_open || out.kind == Kind::path_opened)) return false;
    if (b.gone && out.kind != Kind::path_down) return false;
    if (b.psn > k24Bits && b.psn != kUnknownPsn) return false;
    // Only a side that knows the path knows whether there must be an end: the path is of RC.
    const bool open = out.kind == Kind::path_open || out.kind == Kind::path_opened;
    if (!valid_end(b.end, !open || !b.end.qp_number)) return false;
    out.incarnation = b.incarnation;
    out.news = {.path = b.path,
                .answer = b.answer == 1,
                .gone = b.gone == 1,
                .home = b.home == 1,
                .life = b.life,
                .psn = b.psn,
                .marker = b.marker,
                .delivered = b.delivered,
                .end = {b.end.qp_number, b.end.psn}};
    return true;
}

bool read_rails_list(Reader& in, Message& out) {
    wire::Rails b;
    if (!in.take(b) || !read_rails(in, b.rails, out)) return false;
    out.incarnation = b.incarnation;
    out.rails_number = b.number;
    return true;
}

bool read_rails_known(Reader& in, Message& out) {
    wire::RailsKnown b;
    if (!in.take(b)) return false;
    out.incarnation = b.incarnation;
    out.rails_number = b.number;
    return true;
}

bool read_keys(Reader& in, Message& out) {
    wire::Keys b;
    if (!in.take(b)) return false;
    out.incarnation = b.incarnation;
    out.keys.id = b.region;
    return true;
}

bool read_keys_told(Reader& in, Message& out) {
    wire::KeysTold b;
    if (!in.take(b) || b.found > 1) return false;
    if (b.found ? b.count < 1 || b.count > verbs::kMaxDevices : b.count != 0) return false;
    for (unsigned i = b.count; i < verbs::kMaxDevices; ++i)
        if (b.rkey[i] || (b.lives >> (8 * i) & 0xff)) return false;
    out.incarnation = b.incarnation;
    out.yes = b.found;
    out.keys.count = b.count;
    out.keys.id = b.region;
    out.keys.lives = b.lives;
    for (unsigned i = 0; i < b.count; ++i) out.keys.rkey[i] = b.rkey[i];
    return true;
}

bool read_service(Reader& in, Message& out) {
    wire::Service b;
    if (!in.take(b) || b.number == 0) return false;
    const auto service = adapt::Service(b.service);
    if (service != adapt::Service::shared && service != adapt::Service::rc) return false;
    out.incarnation = b.incarnation;
    out.wish = {.number = b.number, .service = service};
    return true;
}

bool read_service_known(Reader& in, Message& out) {
    wire::ServiceKnown b;
    if (!in.take(b) || b.number == 0 || b.taken > 1) return false;
    out.incarnation = b.incarnation;
    out.wish.number = b.number;
    out.yes = b.taken == 1;
    return true;
}

bool read_ring(Reader& in, Message& out) {
    wire::Ring b;
    if (!in.take(b) || b.number == 0) return false;
    const link::RingShape shape{.slots = b.slots, .entry = b.entry};
    out.incarnation = b.incarnation;
    out.ring.number = b.number;
    for (unsigned i = std::min<unsigned>(b.count, verbs::kMaxDevices); i < verbs::kMaxDevices; ++i)
        if (b.rkey[i] || (b.lives >> (8 * i) & 0xff)) return false;
    if (b.slots == 0) return b.entry == 0 && b.address == 0 && b.key == 0 && b.count == 0;
    if (!shape.valid() || b.count < 1 || b.count > verbs::kMaxDevices) return false;
    if (b.address == 0 || b.address % 64 || b.address + shape.bytes() < b.address) return false;
    out.ring.shape = shape;
    out.ring.address = b.address;
    out.ring.key = b.key;
    out.ring.keys.count = b.count;
    out.ring.keys.lives = b.lives;
    for (unsigned i = 0; i < b.count; ++i) out.ring.keys.rkey[i] = b.rkey[i];
    return true;
}

bool read_ring_known(Reader& in, Message& out) {
    wire::RingKnown b;
    if (!in.take(b) || b.number == 0 || b.taken > 1 || (b.taken && b.until)) return false;
    out.incarnation = b.incarnation;
    out.ring.number = b.number;
    out.until = b.until;
    out.yes = b.taken == 1;
    return true;
}

bool read_ended(Reader& in, Message& out) {
    wire::Ended b;
    if (!in.take(b) || b.idle > 1) return false;
    out.incarnation = b.incarnation;
    out.goodbye = {.idle = b.idle == 1, .delivered = b.delivered, .number = b.number};
    return true;
}

bool read_ended_known(Reader& in, Message& out) {
    wire::EndedKnown b;
    if (!in.take(b) || b.agreed > 1) return false;
    out.incarnation = b.incarnation;
    out.yes = b.agreed == 1;
    out.goodbye.number = b.number;
    return true;
}

bool read_ping(Reader& in, Message& out) {
    wire::Ping b;
    if (!in.take(b) || b.current > 1) return false;
    out.incarnation = b.incarnation;
    out.yes = b.current;
    return true;
}

bool read_pong(Reader& in, Message& out) {
    wire::Pong b;
    if (!in.take(b) || b.holds > 1) return false;
    out.incarnation = b.incarnation;
    out.yes = b.holds;
    return true;
}

bool read_body(Kind kind, Reader& in, std::span<const path::RemoteRail> own_rails, Message& out) {
    switch (kind) {
    case Kind::request:
        return read_request(in, out);
    case Kind::reply:
        return read_reply(in, own_rails, out);
    case Kind::confirm:
        return read_confirm(in, out);
    case Kind::ready:
        return read_ready(in, out);
    case Kind::refuse:
        return read_refuse(in, out);
    case Kind::path_down:
    case Kind::path_open:
    case Kind::path_opened:
    case Kind::path_probe:
    case Kind::path_probed:
        return read_news(in, out);
    case Kind::rails:
        return read_rails_list(in, out);
    case Kind::rails_known:
        return read_rails_known(in, out);
    case Kind::keys:
        return read_keys(in, out);
    case Kind::keys_told:
        return read_keys_told(in, out);
    case Kind::service:
        return read_service(in, out);
    case Kind::service_known:
        return read_service_known(in, out);
    case Kind::ring:
        return read_ring(in, out);
    case Kind::ring_known:
        return read_ring_known(in, out);
    case Kind::ended:
        return read_ended(in, out);
    case Kind::ended_known:
        return read_ended_known(in, out);
    case Kind::ping:
        return read_ping(in, out);
    case Kind::pong:
        return read_pong(in, out);
    }
    return false;
}

} // namespace

Parse parse(std::span<const std::uint8_t> datagram, std::span<const path::RemoteRail> own_rails, Message& out,
            std::uint8_t min, std::uint8_t max) {
    Reader in(datagram);
    wire::Header h;
    if (!in.take(h) || h.magic != wire::kMagic || h.length != datagram.size()) return Parse::malformed;
    if (h.min_version > h.max_version || h.version < h.min_version || h.version > h.max_version)
        return Parse::malformed;
    if (h.sender_uid == 0 || h.transaction == 0) return Parse::malformed;
    if (!is_transport(h.transport)) return Parse::malformed;
    const auto kind = Kind(h.kind);
    out = Message{.version = h.version,
                  .kind = kind,
                  .cookie = h.cookie,
                  .sender_uid = h.sender_uid,
                  .sender_cookie = h.sender_cookie,
                  .sender_q_key = h.sender_q_key,
                  .destination = h.destination,
                  .source = h.source,
                  .transaction = h.transaction,
                  .min_version = h.min_version,
                  .max_version = h.max_version,
                  .transport = Transport(h.transport),
                  .terms = {},
                  .rails = {},
                  .paths = {},
                  .ends = {},
                  .news = {},
                  .goodbye = {},
                  .wish = {},
                  .ring = {},
                  .keys = {},
                  .tail = {}};
    // Refusals are the same in all versions: so the other side learns of it.
    out.bare = kind == Kind::refuse && in.left() == sizeof(wire::Refuse);
    if (h.version < wire::kProofSince && !out.bare) return Parse::version;
    if (wire::Proof proof; !out.bare) {
        if (!in.take(proof)) return Parse::malformed;
        out.shown = proof.secret;
        out.nonce = proof.nonce;
    }
    if (kind != Kind::refuse && (h.version < min || h.version > max)) return Parse::version;
    if (wants_answer(kind) && out.nonce == 0) return Parse::malformed;
    return read_body(kind, in, own_rails, out) && in.left() == 0 ? Parse::ok : Parse::malformed;
}

} // namespace ucx_mp::connect
