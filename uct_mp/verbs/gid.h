// Addresses of RoCE ports: GIDs, their IP networks, and the choice among a port's many. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ucx_mp::verbs {

using Gid = std::array<std::uint8_t, 16>; // network byte order; all zero: none (InfiniBand)

[[nodiscard]] constexpr bool is_set(const Gid& gid) { return gid != Gid{}; }
[[nodiscard]] bool is_ipv4(const Gid& gid);           // ::ffff:a.b.c.d
[[nodiscard]] Gid gid_of_ipv4(std::uint32_t address); // host byte order
[[nodiscard]] std::uint32_t ipv4_of(const Gid& gid);
// Whether a datagram can be sent there: no multicast, not unspecified, not loop-back.
[[nodiscard]] bool is_unicast(const Gid& gid);
[[nodiscard]] std::string to_string(const Gid& gid);

// The network of an address as one number, as Rail::subnet_prefix has it. IPv4: the prefix length << 32 | the network's
// address. IPv6: the upper half (networks are /64 there; all link-local addresses are in one).
[[nodiscard]] std::uint64_t network_of(const Gid& gid, unsigned prefix_length);
[[nodiscard]] bool in_network(const Gid& gid, std::uint64_t network);

// The 40 bytes in front of a datagram that has come over RoCE: an IPv6 header, or in its second half an IPv4 header.
// See IB annex A17.4.5.1; version 1 has no IPv4 headers. The sender's address; nothing if the header is of the other
// kind.
inline constexpr std::size_t kGlobalHeader = 40;
[[nodiscard]] std::optional<Gid> sender_of(std::span<const std::uint8_t, kGlobalHeader> header, bool ipv4);

// An entry of a port's GID table.
struct GidEntry {
    Gid gid{};
    std::uint8_t index = 0;
    bool version_2 = false;     // RoCE v2 (UDP, routable), else v1
    unsigned prefix_length = 0; // for IPv4; 0: unknown
};
// Both sides have to choose the same kind, so the order is fixed: RoCE v2 before v1; IPv4 before IPv6, global before
// link-local; then the lowest index. nullptr: there is none.
[[nodiscard]] const GidEntry* choose(std::span<const GidEntry> entries);

} // namespace ucx_mp::verbs
