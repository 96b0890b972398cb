// What the fuzzers and the mutation test do with bytes from nowhere: parse them; what is accepted must be in range and
// must be written back as the same bytes. And good samples to start from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "uct_mp/connect/message.h"

namespace ucx_mp::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Not assert: release builds must check as well.
inline void must(bool holds) {
    if (!holds) std::abort();
}

inline std::vector<path::RemoteRail> sample_rails(unsigned n) {
    std::vector<path::RemoteRail> rails;
    for (unsigned i = 0; i < n; ++i)
        rails.push_back({.lid = std::uint16_t(16 + 4 * i),
                         .lmc = 2,
                         .device = std::uint8_t(i),
                         .mtu = IBV_MTU_4096,
                         .subnet_prefix = 0xfe80000000000000u,
                         .rate = 1.25,
                         .dct_number = 0,
                         .control_qpn = 70 + i,
                         .probe_key = 0xfffffff0 + i,
                         .gid = {}});
    return rails;
}

// The same with every second rail RoCE.
inline std::vector<path::RemoteRail> mixed_rails(unsigned n) {
    std::vector<path::RemoteRail> rails = sample_rails(n);
    for (unsigned i = 1; i < n; i += 2) {
        rails[i].lid = rails[i].lmc = 0;
        rails[i].gid = verbs::gid_of_ipv4(0x0a000001 + i);
        rails[i].subnet_prefix = verbs::network_of(rails[i].gid, 24);
    }
    return rails;
}

// One message of each kind, small and large, RC and DC.
inline std::vector<connect::Message> sample_messages() {
    using namespace connect;
    std::vector<Message> all;
    for (const Transport transport : {Transport::rc, Transport::dc})
        for (const unsigned rails : {1u, 8u})
            for (const wire::Kind kind :
                 {wire::Kind::request, wire::Kind::reply, wire::Kind::confirm, wire::Kind::ready, wire::Kind::refuse,
                  wire::Kind::ping, wire::Kind::pong, wire::Kind::rails, wire::Kind::rails_known, wire::Kind::keys,
                  wire::Kind::keys_told, wire::Kind::ended, wire::Kind::ended_known, wire::Kind::service,
                  wire::Kind::service_known, wire::Kind::ring, wire::Kind::ring_known}) {
                Message m;
                m.kind = kind;
                m.transport = transport;
                m.cookie = 0x0123456789abcdef;
                m.sender_uid = 0xfedcba9876543210;
                m.sender_cookie = 0x1111111122222222;
                m.sender_q_key = 0x7654321;
                m.destination = kind == wire::Kind::request ? 0 : 5;
                m.source = 9;
                m.transaction = 3;
                m.shown = kind == wire::Kind::request && rails == 1 ? 0 : 0xaaaaaaaabbbbbbbb;
                m.nonce = 0xccccccccdddddddd;
                if (kind != wire::Kind::refuse) m.incarnation = 2;
                if (kind == wire::Kind::rails) m.rails = sample_rails(rails), m.rails[0].life = 255;
                if (kind == wire::Kind::keys) m.keys.id = 0x5555555566666666;
                if (kind == wire::Kind::keys_told) {
                    m.yes = rails > 1;
                    m.keys.id = 7;
                    if (m.yes) {
                        m.keys.count = verbs::kMaxDevices;
                        m.keys.lives = 0x80ff000000000001;
                        for (unsigned i = 0; i < verbs::kMaxDevices; ++i) m.keys.rkey[i] = 0xffffff00 + i;
                    }
                }
                if (kind == wire::Kind::ended) m.goodbye = {rails > 1, 0xfffffff0, 0xfedc};
                if (kind == wire::Kind::service)
                    m.wish = {0xfffffffd, rails > 1 ? adapt::Service::rc : adapt::Service::shared};
                if (kind == wire::Kind::service_known) m.wish.number = 6, m.yes = rails > 1;
                if (kind == wire::Kind::ring) {
                    m.ring.number = 0xfffffffb;
                    if (rails > 1) {
                        m.ring.shape = {16, 4096};
                        m.ring.address = 0x7f0000001000, m.ring.key = 0xabcdabcdabcdabcd;
                        m.ring.keys.count = verbs::kMaxDevices;
                        m.ring.keys.lives = 0x80ff000000000001;
                        for (unsigned i = 0; i < verbs::kMaxDevices; ++i) m.ring.keys.rkey[i] = 0xfffffe00 + i;
                    }
                }
                if (kind == wire::Kind::ring_known)
                    m.ring.number = 7, m.yes = rails > 1, m.until = rails > 1 ? 0 : 0xfffffffa;
                if (kind == wire::Kind::ping) m.yes = rails > 1;
                if (kind == wire::Kind::ended_known) m.yes = rails > 1, m.goodbye.number = 0x8001;
                if (kind == wire::Kind::rails || kind == wire::Kind::rails_known) m.rails_number = 0xfffffffe;
                if (kind == wire::Kind::request || kind == wire::Kind::reply) {
                    m.rails = sample_rails(rails);
                    m.dc_key = 0x3333333344444444;
                    m.terms = {~std::uint64_t{0}, 0x7777777788888888, 0x9999999900000000, 192, 0xffffffff, 8192};
                }
                if (kind == wire::Kind::request) m.num_paths = std::uint8_t(4 * rails), m.split_reads = rails > 1;
                if (kind == wire::Kind::reply) m.void_through = 7;
                if (kind == wire::Kind::request && rails > 1) { // names, and what is not known
                    m.tail = pack_names({.host = "host", .rank = 7, .ports = "mlx5_0:1,mlx5_1:1"}, wire::kMaxTail - 2);
                    m.tail.insert(m.tail.end(), {255, 0});
                }
                if (kind == wire::Kind::reply && rails > 1)
                    m.tail.assign(wire::kMaxTail, 0), m.tail[1] = wire::kMaxTail - 2;
                for (unsigned i = 0; i < 4 * rails; ++i) {
                    const auto rail = std::uint8_t(i % rails), bits = std::uint8_t(i / rails);
                    const path::Kind named = transport == Transport::dc ? path::Kind::dc : path::Kind::rc;
                    if (kind == wire::Kind::reply)
                        m.paths.push_back({.client_rail = std::uint8_t(rail % 2),
                                           .server_rail = rail,
                                           .client_bits = bits,
                                           .server_bits = bits,
                                           .kind = named});
                    if (kind == wire::Kind::reply || kind == wire::Kind::confirm)
                        m.ends.push_back(transport == Transport::rc ? LocalEnd{100 + i, 0xabcdef - i} : LocalEnd{});
                }
                if (kind == wire::Kind::reply && rails == 8) { // the last ones lead over a port that is down
                    m.rails[7].lid = m.rails[7].lmc = 0;
                    m.rails[7].gid = {};
                    std::erase_if(m.paths, [](const path::PathSpec& p) { return p.server_rail == 7; });
                    const path::Kind kind_there = m.paths[0].kind;
                    m.paths.insert(
                        m.paths.end(), 4,
                        {.client_rail = 0, .server_rail = 7, .client_bits = 1, .server_bits = 1, .kind = kind_there});
                    m.absent = 4;
                    for (unsigned i = 28; i < 32; ++i) m.ends[i] = {};
                }
                if (kind == wire::Kind::confirm && rails == 8) m.ends[31] = {};
                if (kind == wire::Kind::reply && rails == 8 && transport == Transport::dc) { // each half has its own
                    std::rotate(m.paths.begin() + 14, m.paths.begin() + 28, m.paths.begin() + 30);
                    m.absent = 2;
                    path::mark_split(m.paths);
                }
                if (kind == wire::Kind::refuse) {
                    m.reason = rails == 1 ? wire::Reason::version : wire::Reason::limits;
                    m.refused = wire::Kind::request;
                }
                all.push_back(m);
            }
    Message bare = all[4]; // to a release without proofs
    bare.bare = true;
    bare.shown = bare.nonce = 0;
    all.push_back(bare);
    Message roce = all[0];
    roce.rails = mixed_rails(8);
    all.push_back(roce);
    // Paths of both kinds: those that are not of the transport's own, and what belongs to them.
    for (const Transport transport : {Transport::rc, Transport::dc}) {
        const path::Kind named = transport == Transport::dc ? path::Kind::dc : path::Kind::rc;
        for (Message m : std::vector(all)) {
            if (m.transport != transport || m.rails.size() > 1 || m.kind != wire::Kind::reply) continue;
            m.terms.kinds = path::Kinds::both;
            for (std::size_t i = 0; i < m.paths.size(); ++i) {
                m.paths[i].kind = i % 2 ? path::other(named) : named;
                m.ends[i] = m.paths[i].kind == path::Kind::rc ? LocalEnd{200 + std::uint32_t(i), 5} : LocalEnd{};
            }
            all.push_back(m);
            if (transport == Transport::dc) { // and a place for one of RC
                Message place = m;
                place.paths.back().kind = path::Kind::rc;
                place.paths.back().on_demand = true;
                place.ends.back() = {};
                place.absent = 1;
                all.push_back(place);
            }
            m.kind = wire::Kind::confirm;
            m.rails.clear(), m.paths.clear(), m.terms = {}, m.dc_key = 0, m.void_through = 0;
            all.push_back(m);
        }
    }
    return all;
}

inline Bytes packed(const connect::Message& m) {
    Bytes bytes(connect::wire::kMaxMessage);
    bytes.resize(connect::pack(m, bytes.data()));
    return bytes;
}

inline connect::InterfaceAddress sample_address(unsigned count) {
    connect::InterfaceAddress a;
    a.uid = 0xfedcba9876543210;
    a.cookie = 0x0123456789abcdef;
    a.q_key = 0x7654321;
    a.count = std::uint8_t(count);
    for (unsigned i = 0; i < count; ++i)
        a.control[i] = {std::uint16_t(16 + 4 * i), 70 + i, 2, std::uint8_t(i), std::uint16_t(1000 + i), {}};
    return a;
}

// InfiniBand, IPv4 and, if there is room, IPv6.
inline connect::InterfaceAddress mixed_address(bool ipv6) {
    connect::InterfaceAddress a = sample_address(ipv6 ? 2 : 3);
    a.control[1] = {0, 71, 0, 1, 0, verbs::gid_of_ipv4(0x0a000005)};
    if (ipv6) a.control[1].gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
    return a;
}

inline Bytes packed(const connect::InterfaceAddress& a) {
    Bytes bytes(connect::packed_size(a));
    connect::pack(a, bytes.data());
    return bytes;
}

// Where an accepted message has reserved bytes, which are ignored, and written as 0.
inline std::vector<std::size_t> reserved_bytes(std::span<const std::uint8_t> b) {
    using namespace connect;
    std::vector<std::size_t> places;
    const auto note = [&](std::size_t at, std::size_t n) {
        while (n-- > 0) places.push_back(at++);
    };
    const bool bare = b.size() == sizeof(wire::Header) + sizeof(wire::Refuse);
    const std::size_t body = sizeof(wire::Header) + (bare ? 0 : sizeof(wire::Proof));
    note(offsetof(wire::Header, reserved), 1);
    std::size_t rails = 0, at = body;
    const auto list = [&](std::size_t count, std::size_t size) {
        rails = b[body + count];
        at = body + size;
    };
    switch (wire::Kind(b[offsetof(wire::Header, kind)])) {
    case wire::Kind::request:
        list(offsetof(wire::Request, rails), sizeof(wire::Request));
        note(body + offsetof(wire::Request, reserved), 1);
        note(body + offsetof(wire::Request, terms) + offsetof(wire::Terms, reserved), 3);
        break;
    case wire::Kind::reply:
        list(offsetof(wire::Reply, rails), sizeof(wire::Reply));
        note(body + offsetof(wire::Reply, terms) + offsetof(wire::Terms, reserved), 3);
        break;
    case wire::Kind::rails:
        list(offsetof(wire::Rails, rails), sizeof(wire::Rails));
        note(body + offsetof(wire::Rails, reserved), 3);
        break;
    case wire::Kind::confirm:
        note(body + offsetof(wire::Confirm, reserved), 3);
        break;
    case wire::Kind::refuse:
        note(body + offsetof(wire::Refuse, reserved), 2);
        break;
    case wire::Kind::keys:
        note(body + offsetof(wire::Keys, reserved), 4);
        break;
    case wire::Kind::keys_told:
        note(body + offsetof(wire::KeysTold, reserved), 2);
        break;
    case wire::Kind::service:
    case wire::Kind::service_known:
        note(body + offsetof(wire::Service, reserved), 3);
        break;
    case wire::Kind::ring:
        note(body + offsetof(wire::Ring, reserved), 7);
        break;
    case wire::Kind::ring_known:
        note(body + offsetof(wire::RingKnown, reserved), 3);
        break;
    case wire::Kind::ping:
    case wire::Kind::pong:
        note(body + offsetof(wire::Pong, reserved), 3);
        break;
    case wire::Kind::ended:
        note(body + offsetof(wire::Ended, reserved), 1);
        break;
    case wire::Kind::ended_known:
        note(body + offsetof(wire::EndedKnown, reserved), 1);
        break;
    default:
        break;
    }
    for (; rails > 0; --rails) {
        note(at + offsetof(wire::Rail, reserved), 1);
        at += sizeof(wire::Rail) + (b[at + offsetof(wire::Rail, roce)] ? wire::kGid : 0);
    }
    return places;
}

// The receiver has two rails of LMC 2. True: accepted.
inline bool try_message(std::span<const std::uint8_t> bytes) {
    using namespace connect;
    static const std::vector<path::RemoteRail> own = sample_rails(2);
    Message m;
    if (parse(bytes, own, m) != Parse::ok) return false;
    const bool lists = m.kind == wire::Kind::request || m.kind == wire::Kind::reply || m.kind == wire::Kind::rails;
    must(lists ? m.rails.size() >= 1 && m.rails.size() <= verbs::kMaxRails : m.rails.empty());
    must(m.paths.size() <= path::kMaxPathsPerPeer && m.ends.size() <= path::kMaxPathsPerPeer);
    must(m.kind == wire::Kind::reply ? m.paths.size() == m.ends.size() && !m.paths.empty() : m.paths.empty());
    must(m.transaction != 0 && m.sender_uid != 0);
    must(m.nonce != 0 || m.kind == wire::Kind::ready || m.kind == wire::Kind::refuse || m.kind > wire::Kind::ping);
    must(m.tail.size() <= wire::kMaxTail && (m.tail.empty() || m.kind <= wire::Kind::reply));
    const Names names = read_names(m.tail);
    must(names.host.size() <= kMaxHostName && names.rank >= -1 && names.ports.size() <= 65 * wire::kMaxTail);
    for (const std::string* text : {&names.host, &names.ports})
        must(std::all_of(text->begin(), text->end(), [](char c) { return c > ' ' && c < 0x7f; }));
    must(!m.bare || m.kind == wire::Kind::refuse);
    for (const path::RemoteRail& r : m.rails) {
        must(!verbs::is_set(r.gid) || (r.lid == 0 && verbs::is_unicast(r.gid)));
        must(r.lmc <= 7 && r.lid + (1u << r.lmc) <= 0xc000 && r.device < verbs::kMaxDevices && r.rate > 0);
        must(r.mtu >= IBV_MTU_256 && r.mtu <= IBV_MTU_4096 && r.dct_number < 1u << 24 && r.control_qpn < 1u << 24);
    }
    const std::size_t part = path::is_split(m.paths) ? m.paths.size() / 2 : m.paths.size(); // each has its absent ones
    must(m.paths.empty() || m.absent < part);
    for (std::size_t i = 0; i < m.paths.size(); ++i) {
        const path::PathSpec& p = m.paths[i];
        must(!p.on_demand || p.kind == path::Kind::rc);
        must(p.client_rail < own.size() && p.server_rail < m.rails.size());
        const bool absent = i % part >= part - m.absent;
        must(p.client_bits < 1u << (absent ? 7 : own[p.client_rail].lmc) &&
             p.server_bits < 1u << (absent ? 7 : m.rails[p.server_rail].lmc));
    }
    must(m.keys.count <= verbs::kMaxDevices && (m.kind != wire::Kind::keys_told || m.yes == (m.keys.count != 0)));
    for (const LocalEnd& e : m.ends) must(e.qp_number < 1u << 24 && e.psn < 1u << 24);
    const Bytes again = packed(m);
    const bool renamed = m.kind == wire::Kind::refuse && m.reason == wire::Reason::resources; // of an unknown reason
    must(m.terms.window && m.terms.ring && m.terms.segment);
    Bytes expected(bytes.begin(), bytes.end());
    for (const std::size_t place : reserved_bytes(bytes)) expected[place] = 0;
    must(renamed || again == expected);
    return true;
}

// UCT does not know the length of an address: there are always kMaxInterfaceAddress readable bytes, and no more.
inline bool try_address(std::span<const std::uint8_t> bytes) {
    using namespace connect;
    const auto exact = std::make_unique<std::uint8_t[]>(kMaxInterfaceAddress); // on the heap: a sanitizer sees its end
    std::copy_n(bytes.begin(), std::min(bytes.size(), kMaxInterfaceAddress), exact.get());
    InterfaceAddress a;
    if (!unpack(exact.get(), a)) return false;
    must(a.count >= 1 && a.count <= kMaxControlAddresses && a.uid != 0);
    bool usable = false;
    for (unsigned i = 0; i < a.count; ++i) {
        must(a.control[i].lmc <= 7 && a.control[i].rail < verbs::kMaxRails && a.control[i].qp_number < 1u << 24);
        usable = usable || a.control[i].lid || verbs::is_set(a.control[i].gid);
        must(a.control[i].lid + (1u << a.control[i].lmc) <= 0xc000);
        must(!verbs::is_set(a.control[i].gid) || (a.control[i].lid == 0 && verbs::is_unicast(a.control[i].gid)));
    }
    must(usable);
    const Bytes again = packed(a);
    must(std::memcmp(again.data(), exact.get(), again.size()) == 0);
    return true;
}

} // namespace ucx_mp::fuzz
