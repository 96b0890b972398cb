// The interface address that travels out of band (UCP's worker address: at most 63 bytes), and the device address (at
// most 31). The interface address carries an identity and a few control addresses; everything else is exchanged in the
// handshake.
//
// Wire format, little endian, packed:
//   u8 min_version, u8 max_version   of the handshake protocol that the owner speaks
//   u8 transport                     1 = mp_rc, 2 = mp_dc
//   u8 count                         control addresses that follow, 1..kMaxControlAddresses
//   u64 uid                          random, one per interface: the peer's name
//   u64 cookie                       random: a sender that knows it has the address; every message must carry it
//   u32 q_key                        of the owner's control queue pairs
//   count x { u16 lid; u24 qp_number; u8 lmc | rail << 4; u16 subnet tag }
//
// The number of bytes of an address never grows; their contents may change: a port that is down has a place with LID 0.
// At least one works. An entry may be a RoCE port:
//   lmc 8: IPv4, whose address stands in place of lid (first two bytes) and subnet tag
//   lmc 9: IPv6, lid and tag are 0, u8 gid[16] follows
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::connect {

inline constexpr std::uint8_t kMinVersion = 6, kMaxVersion = 6; // earlier ones have no secrets (wire.h: Proof)
inline constexpr unsigned kMaxControlAddresses = 4;
inline constexpr std::size_t kMaxInterfaceAddress = 24 + 8 * kMaxControlAddresses; // 56, so at most one is IPv6
inline constexpr std::size_t kDeviceAddress = 8;                                   // u64 host id

enum class Transport : std::uint8_t { rc = 1, dc = 2 };
[[nodiscard]] constexpr bool is_transport(std::uint8_t t) {
    return t == std::uint8_t(Transport::rc) || t == std::uint8_t(Transport::dc);
}
[[nodiscard]] constexpr const char* name(Transport transport) { return transport == Transport::dc ? "mp_dc" : "mp_rc"; }
// How the names of its variables begin.
[[nodiscard]] constexpr const char* variable_prefix(Transport transport) {
    return transport == Transport::dc ? "UCX_MP_DC_" : "UCX_MP_RC_";
}

struct ControlAddress {
    std::uint16_t lid = 0;       // 0: not to be used
    std::uint32_t qp_number = 0; // 24 bits
    std::uint8_t lmc = 0;
    std::uint8_t rail = 0;
    std::uint16_t subnet_tag = 0; // InfiniBand
    verbs::Gid gid{};             // RoCE
};
// Unicast LIDs end at 0xbfff (IB 4.1.3), a base LID is aligned to its 2^LMC, and LMC has three bits.
[[nodiscard]] constexpr bool valid_port(std::uint16_t lid, std::uint8_t lmc) {
    return lmc <= 7 && lid != 0 && lid + (1u << lmc) <= 0xc000 && (lid & ((1u << lmc) - 1)) == 0;
}
[[nodiscard]] std::uint16_t subnet_tag(std::uint64_t subnet_prefix); // a hash: equal prefixes have equal tags

struct InterfaceAddress {
    std::uint8_t min_version = kMinVersion, max_version = kMaxVersion;
    Transport transport = Transport::rc;
    std::uint64_t uid = 0, cookie = 0;
    std::uint32_t q_key = 0;
    std::uint8_t count = 0;
    ControlAddress control[kMaxControlAddresses];
    [[nodiscard]] bool meets(Transport other) const { return other == transport; } // else neither connects
};

[[nodiscard]] std::size_t packed_size(const ControlAddress& entry);
[[nodiscard]] std::size_t packed_size(const InterfaceAddress& address);
void pack(const InterfaceAddress& address, void* out); // packed_size bytes
// Trusts nothing: false if the count, a LID, LMC, rail or queue pair number is out of range. UCT does
// not know the length, so at most kMaxInterfaceAddress bytes are read, and only `count` entries of them.
[[nodiscard]] bool unpack(const void* in, InterfaceAddress& out);

// Whether our rail may send there; its subnet is `prefix`, its own address `gid`
// (unset: InfiniBand). path::reach() is the same where more is known of the other side.
[[nodiscard]] bool reach(std::uint64_t prefix, const verbs::Gid& gid, const ControlAddress& to, bool routed);
// Whether it may send there when both ports are active; one of them is down now. A port that
// is down keeps its subnet; RoCE may be routed anywhere. `ethernet`, `active`: our rail.
[[nodiscard]] bool may_reach(std::uint64_t prefix, bool ethernet, bool active, const ControlAddress& to);
// Whether some control address can be reached from one of our rails, now or when their
// ports are active, and the transports and versions fit.
[[nodiscard]] bool reachable(const InterfaceAddress& address, std::span<const verbs::Rail> rails,
                             const InterfaceAddress& own);
// If their versions and ours (`min` to `max`) have none in common:
// a line that says which, and which side is too old. Else empty.
[[nodiscard]] std::string version_misfit(const InterfaceAddress& address, std::uint8_t min, std::uint8_t max);

} // namespace ucx_mp::connect
