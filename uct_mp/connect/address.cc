#include "uct_mp/connect/address.h"

#include <algorithm>
#include <cassert>

#include "uct_mp/connect/bytes.h"

namespace ucx_mp::connect {

namespace {

struct __attribute__((packed)) WireAddress { // see address.h
    std::uint8_t min_version, max_version, transport, count;
    std::uint64_t uid, cookie;
    std::uint32_t q_key;
};
static_assert(sizeof(WireAddress) == 24);

struct __attribute__((packed)) WireControl {
    std::uint16_t lid;
    std::uint8_t qp_number[3];
    std::uint8_t lmc_rail;
    std::uint16_t subnet_tag;
};
static_assert(sizeof(WireControl) == 8);
constexpr unsigned kIpv4 = 8, kIpv6 = 9; // in place of an LMC
static_assert(sizeof(WireAddress) + kMaxControlAddresses * sizeof(WireControl) == kMaxInterfaceAddress);
static_assert(kMaxInterfaceAddress <= 63, "UCP's limit");

} // namespace

std::uint16_t subnet_tag(std::uint64_t subnet_prefix) { return std::uint16_t(mix(subnet_prefix) >> 48); }

std::size_t packed_size(const ControlAddress& entry) {
    const bool ipv6 = verbs::is_set(entry.gid) && !verbs::is_ipv4(entry.gid);
    return sizeof(WireControl) + (ipv6 ? sizeof entry.gid : 0);
}

std::size_t packed_size(const InterfaceAddress& address) {
    std::size_t bytes = sizeof(WireAddress);
    for (unsigned i = 0; i < address.count; ++i) bytes += packed_size(address.control[i]);
    return bytes;
}

void pack(const InterfaceAddress& address, void* out) {
    assert(address.count >= 1 && address.count <= kMaxControlAddresses);
    auto* at = static_cast<std::uint8_t*>(out);
    const WireAddress head{address.min_version, address.max_version, std::uint8_t(address.transport),
                           address.count,       address.uid,         address.cookie,
                           address.q_key};
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (unsigned i = 0; i < address.count; ++i) {
        const ControlAddress& c = address.control[i];
        WireControl wire{c.lid,
                         {std::uint8_t(c.qp_number), std::uint8_t(c.qp_number >> 8), std::uint8_t(c.qp_number >> 16)},
                         std::uint8_t(c.lmc | c.rail << 4),
                         c.subnet_tag};
        const bool roce = verbs::is_set(c.gid), ipv4 = roce && verbs::is_ipv4(c.gid);
        if (roce) wire.lmc_rail = std::uint8_t((ipv4 ? kIpv4 : kIpv6) | c.rail << 4);
        if (ipv4) {
            std::uint16_t halves[2];
            std::memcpy(halves, &c.gid[12], sizeof halves);
            wire.lid = halves[0];
            wire.subnet_tag = halves[1];
        }
        std::memcpy(at, &wire, sizeof wire);
        at += sizeof wire;
        if (!roce || ipv4) continue;
        std::memcpy(at, c.gid.data(), c.gid.size());
        at += c.gid.size();
    }
}

namespace {

// A RoCE port; `gid_at`: the bytes behind the entry, `left`: how many there are.
bool unpack_roce(const WireControl& wire, const std::uint8_t* gid_at, std::size_t left, ControlAddress& out) {
    if (out.lmc == kIpv4) {
        out.gid[10] = out.gid[11] = 0xff;
        std::memcpy(&out.gid[12], &wire.lid, 2);
        std::memcpy(&out.gid[14], &wire.subnet_tag, 2);
    } else {
        if (out.lmc != kIpv6 || wire.lid || wire.subnet_tag || left < out.gid.size()) return false;
        std::memcpy(out.gid.data(), gid_at, out.gid.size());
        if (verbs::is_ipv4(out.gid)) return false; // IPv4 has a form of its own
    }
    out.lid = out.subnet_tag = 0;
    out.lmc = 0;
    return verbs::is_unicast(out.gid);
}

} // namespace

bool unpack(const void* in, InterfaceAddress& out) {
    const auto* at = static_cast<const std::uint8_t*>(in);
    WireAddress head;
    std::memcpy(&head, at, sizeof head);
    at += sizeof head;
    if (head.count < 1 || head.count > kMaxControlAddresses) return false;
    if (!is_transport(head.transport)) return false;
    if (head.min_version > head.max_version || head.uid == 0) return false;
    InterfaceAddress address{.min_version = head.min_version,
                             .max_version = head.max_version,
                             .transport = Transport(head.transport),
                             .uid = head.uid,
                             .cookie = head.cookie,
                             .q_key = head.q_key,
                             .count = head.count,
                             .control = {}};
    bool usable = false;
    std::size_t left = kMaxInterfaceAddress - sizeof head;
    for (unsigned i = 0; i < head.count; ++i) {
        WireControl wire;
        if (left < sizeof wire) return false;
        std::memcpy(&wire, at, sizeof wire);
        at += sizeof wire;
        left -= sizeof wire;
        ControlAddress& c = address.control[i];
        c.lid = wire.lid;
        c.qp_number =
            wire.qp_number[0] | std::uint32_t{wire.qp_number[1]} << 8 | std::uint32_t{wire.qp_number[2]} << 16;
        c.lmc = wire.lmc_rail & 15;
        c.rail = wire.lmc_rail >> 4;
        c.subnet_tag = wire.subnet_tag;
        if (c.rail >= verbs::kMaxRails || c.qp_number < 2) return false;
        if (c.lmc < kIpv4) {
            if (c.lid ? !valid_port(c.lid, c.lmc) : c.lmc != 0) return false;
            usable = usable || c.lid;
            continue;
        }
        if (!unpack_roce(wire, at, left, c)) return false;
        usable = true;
        const std::size_t behind = packed_size(c) - sizeof wire;
        at += behind;
        left -= behind;
    }
    if (!usable) return false;
    out = address;
    return true;
}

bool reach(std::uint64_t prefix, const verbs::Gid& gid, const ControlAddress& to, bool routed) {
    if (verbs::is_set(gid) != verbs::is_set(to.gid)) return false;
    if (!verbs::is_set(gid)) return to.lid && to.subnet_tag == subnet_tag(prefix);
    return verbs::is_ipv4(gid) == verbs::is_ipv4(to.gid) && (routed || verbs::in_network(to.gid, prefix));
}

bool may_reach(std::uint64_t prefix, bool ethernet, bool active, const ControlAddress& to) {
    const bool roce = verbs::is_set(to.gid), usable = to.lid || roce;
    if (active && usable) return false; // both are active: reach() is the answer
    if (ethernet) return roce || !usable;
    return !roce && to.subnet_tag == subnet_tag(prefix);
}

std::string version_misfit(const InterfaceAddress& address, std::uint8_t min, std::uint8_t max) {
    const bool here = address.min_version > max, there = address.max_version < min;
    if (!here && !there) return {};
    const auto range = [](unsigned from, unsigned to) {
        return from == to ? "version " + std::to_string(from)
                          : "versions " + std::to_string(from) + " to " + std::to_string(to);
    };
    return "it speaks " + range(address.min_version, address.max_version) + " of the handshake, we " + range(min, max) +
           ": libuct_mp.so is too old " + (here ? "here" : "there");
}

bool reachable(const InterfaceAddress& address, std::span<const verbs::Rail> rails, const InterfaceAddress& own) {
    if (!own.meets(address.transport)) return false;
    if (!version_misfit(address, own.min_version, own.max_version).empty()) return false;
    return std::ranges::any_of(rails, [&](const verbs::Rail& rail) {
        return std::ranges::any_of(std::span(address.control, address.count), [&](const ControlAddress& c) {
            return (rail.active && reach(rail.subnet_prefix, rail.gid, c, true)) ||
                   may_reach(rail.subnet_prefix, rail.ethernet, rail.active, c);
        });
    });
}

} // namespace ucx_mp::connect
