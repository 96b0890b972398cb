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
static_assert(sizeof(WireAddress) + kMaxControlAddresses * sizeof(WireControl) == kMaxInterfaceAddress);
static_assert(kMaxInterfaceAddress <= 63, "UCP's limit");

} // namespace

std::uint16_t subnet_tag(std::uint64_t subnet_prefix) { return std::uint16_t(mix(subnet_prefix) >> 48); }

std::size_t packed_size(const InterfaceAddress& address) {
    return sizeof(WireAddress) + address.count * sizeof(WireControl);
}

void pack(const InterfaceAddress& address, void* out) {
    assert(address.count >= 1 && address.count <= kMaxControlAddresses);
    auto* at = static_cast<std::uint8_t*>(out);
    const WireAddress head{address.min_version, address.max_version, std::uint8_t(address.transport),
                           address.count,       address.uid,         address.cookie,
                           address.q_key};
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (unsigned i = 0; i < address.count; ++i, at += sizeof(WireControl)) {
        const ControlAddress& c = address.control[i];
        const WireControl wire{
            c.lid,
            {std::uint8_t(c.qp_number), std::uint8_t(c.qp_number >> 8), std::uint8_t(c.qp_number >> 16)},
            std::uint8_t(c.lmc | c.rail << 4),
            c.subnet_tag};
        std::memcpy(at, &wire, sizeof wire);
    }
}

bool unpack(const void* in, InterfaceAddress& out) {
    const auto* at = static_cast<const std::uint8_t*>(in);
    WireAddress head;
    std::memcpy(&head, at, sizeof head);
    at += sizeof head;
    if (head.count < 1 || head.count > kMaxControlAddresses) return false;
    if (head.transport != std::uint8_t(Transport::rc) && head.transport != std::uint8_t(Transport::dc)) return false;
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
    for (unsigned i = 0; i < head.count; ++i, at += sizeof(WireControl)) {
        WireControl wire;
        std::memcpy(&wire, at, sizeof wire);
        ControlAddress& c = address.control[i];
        c.lid = wire.lid;
        c.qp_number =
            wire.qp_number[0] | std::uint32_t{wire.qp_number[1]} << 8 | std::uint32_t{wire.qp_number[2]} << 16;
        c.lmc = wire.lmc_rail & 15;
        c.rail = wire.lmc_rail >> 4;
        c.subnet_tag = wire.subnet_tag;
        if (c.lid ? !valid_port(c.lid, c.lmc) : c.lmc != 0) return false;
        if (c.rail >= verbs::kMaxRails || c.qp_number < 2) return false;
        usable = usable || c.lid;
    }
    if (!usable) return false;
    out = address;
    return true;
}

bool reachable(const InterfaceAddress& address, std::span<const verbs::Rail> rails, Transport transport) {
    if (address.transport != transport) return false;
    if (address.min_version > kMaxVersion || address.max_version < kMinVersion) return false;
    return std::ranges::any_of(rails, [&](const verbs::Rail& rail) {
        const std::uint16_t tag = subnet_tag(rail.subnet_prefix);
        return rail.active && std::ranges::any_of(std::span(address.control, address.count),
                                   [&](const ControlAddress& c) { return c.lid && c.subnet_tag == tag; });
    });
}

} // namespace ucx_mp::connect
