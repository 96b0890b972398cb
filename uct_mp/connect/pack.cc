// Writes messages.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

namespace {

using wire::Kind;
using wire::kRateUnit;

class Writer {
public:
    explicit Writer(std::uint8_t* out) : begin_(out), at_(out) {}
    template <class T> void put(const T& value) {
        std::memcpy(at_, &value, sizeof value);
        at_ += sizeof value;
    }
    void put_bytes(const std::vector<std::uint8_t>& bytes) { at_ = std::ranges::copy(bytes, at_).out; }
    [[nodiscard]] std::size_t size() const { return std::size_t(at_ - begin_); }

private:
    std::uint8_t *begin_, *at_;
};

wire::Terms written(const Terms& t, std::uint8_t reserved) {
    return {.features = t.features,
            .probe_address = t.probe_address,
            .dc_tag = t.dc_tag,
            .window = t.window,
            .ring = t.ring,
            .segment = t.segment,
            .kinds = std::uint8_t(t.kinds),
            .reserved = {reserved, reserved, reserved}};
}

} // namespace

std::size_t pack(const Message& m, std::uint8_t* buffer) {
    Writer out(buffer);
    out.put(wire::Header{.magic = wire::kMagic,
                         .version = m.version,
                         .kind = std::uint8_t(m.kind),
                         .length = 0, // below
                         .cookie = m.cookie,
                         .sender_uid = m.sender_uid,
                         .sender_cookie = m.sender_cookie,
                         .sender_q_key = m.sender_q_key,
                         .destination = m.destination,
                         .source = m.source,
                         .transaction = m.transaction,
                         .min_version = m.min_version,
                         .max_version = m.max_version,
                         .transport = std::uint8_t(m.transport),
                         .reserved = m.reserved});
    if (!m.bare) out.put(wire::Proof{.secret = m.shown, .nonce = m.nonce});
    const auto rails = std::uint8_t(m.rails.size()), paths = std::uint8_t(m.ends.size());
    const auto put_rails = [&] {
        for (const path::RemoteRail& r : m.rails) {
            const bool roce = verbs::is_set(r.gid);
            out.put(wire::Rail{.subnet_prefix = r.subnet_prefix,
                               .rate = std::uint32_t(std::clamp(std::round(r.rate / kRateUnit), 1.0, 4294967295.0)),
                               .dct_number = r.dct_number,
                               .control_qpn = r.control_qpn,
                               .lid = r.lid,
                               .lmc = r.lmc,
                               .mtu = std::uint8_t(r.mtu),
                               .device = r.device,
                               .roce = roce,
                               .life = r.life,
                               .reserved = m.reserved,
                               .probe_key = r.probe_key});
            if (roce) out.put(r.gid);
        }
    };
    const std::uint8_t z = m.reserved;
    switch (m.kind) {
    case Kind::request:
        out.put(wire::Request{m.incarnation, rails, m.num_paths, m.split_reads, m.reserved, m.dc_key,
                              written(m.terms, m.reserved)});
        put_rails();
        break;
    case Kind::reply:
        assert(m.paths.size() == m.ends.size());
        out.put(wire::Reply{m.incarnation, m.void_through, rails, paths, m.absent, path::is_split(m.paths), m.dc_key,
                            written(m.terms, m.reserved)});
        put_rails();
        for (std::size_t i = 0; i < m.paths.size(); ++i) {
            const path::PathSpec& p = m.paths[i];
            const std::uint8_t kind = p.kind == path_kind_of(m.transport) ? 0 : wire::kOtherKind;
            const std::uint8_t on_demand = p.on_demand ? wire::kOnDemand : 0;
            out.put(wire::Path{.client_rail = std::uint8_t(p.client_rail | kind | on_demand),
                               .server_rail = p.server_rail,
                               .client_bits = p.client_bits,
                               .server_bits = p.server_bits,
                               .end = {m.ends[i].qp_number, m.ends[i].psn}});
        }
        break;
    case Kind::confirm:
        out.put(wire::Confirm{m.incarnation, paths, {z, z, z}});
        for (const LocalEnd& e : m.ends) out.put(wire::End{e.qp_number, e.psn});
        break;
    case Kind::ready:
        out.put(wire::Ready{m.incarnation});
        break;
    case Kind::refuse:
        out.put(wire::Refuse{std::uint8_t(m.reason), std::uint8_t(m.refused), {z, z}});
        break;
    case Kind::path_down:
    case Kind::path_open:
    case Kind::path_opened:
    case Kind::path_probe:
    case Kind::path_probed:
        out.put(wire::PathNews{.incarnation = m.incarnation,
                               .path = m.news.path,
                               .answer = m.news.answer,
                               .gone = m.news.gone,
                               .home = m.news.home,
                               .life = m.news.life,
                               .psn = m.news.psn,
                               .marker = m.news.marker,
                               .delivered = m.news.delivered,
                               .end = {m.news.end.qp_number, m.news.end.psn}});
        break;
    case Kind::rails:
        out.put(wire::Rails{m.incarnation, m.rails_number, rails, {z, z, z}});
        put_rails();
        break;
    case Kind::rails_known:
        out.put(wire::RailsKnown{m.incarnation, m.rails_number});
        break;
    case Kind::keys:
        out.put(wire::Keys{m.incarnation, {z, z, z, z}, m.keys.id});
        break;
    case Kind::keys_told: {
        wire::KeysTold body{m.incarnation, std::uint8_t(m.yes), 0, {z, z}, m.keys.id, 0, {}};
        if (m.yes) {
            body.count = m.keys.count;
            body.lives = m.keys.lives;
            for (unsigned i = 0; i < m.keys.count; ++i) body.rkey[i] = m.keys.rkey[i];
        }
        out.put(body);
        break;
    }
    case Kind::service:
        out.put(wire::Service{m.incarnation, m.wish.number, std::uint8_t(m.wish.service), {z, z, z}});
        break;
    case Kind::service_known:
        out.put(wire::ServiceKnown{m.incarnation, m.wish.number, m.yes, {z, z, z}});
        break;
    case Kind::ring: {
        wire::Ring body{.incarnation = m.incarnation,
                        .number = m.ring.number,
                        .slots = m.ring.shape.slots,
                        .entry = m.ring.shape.entry,
                        .address = m.ring.address,
                        .key = m.ring.key,
                        .lives = m.ring.keys.lives,
                        .count = m.ring.keys.count,
                        .reserved = {z, z, z, z, z, z, z},
                        .rkey = {}};
        for (unsigned i = 0; i < m.ring.keys.count; ++i) body.rkey[i] = m.ring.keys.rkey[i];
        out.put(body);
        break;
    }
    case Kind::ring_known:
        out.put(wire::RingKnown{m.incarnation, m.ring.number, m.until, m.yes, {z, z, z}});
        break;
    case Kind::ended:
        out.put(wire::Ended{.incarnation = m.incarnation,
                            .delivered = m.goodbye.delivered,
                            .idle = m.goodbye.idle,
                            .reserved = 0,
                            .number = m.goodbye.number});
        break;
    case Kind::ended_known:
        out.put(
            wire::EndedKnown{.incarnation = m.incarnation, .agreed = m.yes, .reserved = 0, .number = m.goodbye.number});
        break;
    case Kind::ping:
        out.put(wire::Ping{m.incarnation, std::uint8_t(m.yes), {z, z, z}});
        break;
    case Kind::pong:
        out.put(wire::Pong{m.incarnation, std::uint8_t(m.yes), {z, z, z}});
        break;
    }
    out.put_bytes(m.tail);
    assert(out.size() <= wire::kMaxMessage);
    store(buffer + offsetof(wire::Header, length), std::uint16_t(out.size()));
    return out.size();
}

} // namespace ucx_mp::connect
