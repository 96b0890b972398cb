#include "uct_mp/connect/names.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "uct_mp/connect/control_plane.h"
#include "uct_mp/connect/wire.h"

namespace ucx_mp::connect {

namespace {

using wire::PartKind;
using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t kMaxPortName = 64; // IBV_SYSFS_NAME_MAX

bool is_harmless(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || std::strchr("._:-", c);
}

std::string harmless(Bytes bytes) {
    std::string text;
    for (const std::uint8_t byte : bytes) text += byte && is_harmless(char(byte)) ? char(byte) : '?';
    return text;
}

std::size_t shared_length(std::string_view a, std::string_view b) {
    const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return std::size_t(end - a.begin());
}

// Ports of a host differ in little: what a name begins with as the one before is not repeated.
void pack_ports(std::string_view ports, std::size_t room, std::vector<std::uint8_t>& out) {
    if (ports.empty() || room < sizeof(wire::Part)) return;
    const std::size_t at = out.size(), end = at + room;
    out.insert(out.end(), {std::uint8_t(PartKind::ports), 0});
    std::string_view before;
    for (std::string_view rest = ports;;) {
        const std::string_view name = rest.substr(0, rest.find(','));
        const std::size_t shared = shared_length(before, name), length = name.size() - shared;
        if (name.size() > kMaxPortName || out.size() + sizeof(wire::PortName) + length > end) break;
        out.insert(out.end(), {std::uint8_t(shared), std::uint8_t(length)});
        out.insert(out.end(), name.begin() + std::ptrdiff_t(shared), name.end());
        if (name.size() == rest.size()) break;
        rest.remove_prefix(name.size() + 1);
        before = name;
    }
    out[at + 1] = std::uint8_t(out.size() - at - sizeof(wire::Part));
}

std::string read_ports(Bytes bytes) {
    std::string ports, before;
    for (bool first = true; bytes.size() >= sizeof(wire::PortName); first = false) {
        const std::size_t shared = bytes[0], length = bytes[1];
        bytes = bytes.subspan(sizeof(wire::PortName));
        if (shared > before.size() || length > bytes.size() || shared + length > kMaxPortName) break;
        before = before.substr(0, shared) + harmless(bytes.first(length));
        bytes = bytes.subspan(length);
        if (!first) ports += ',';
        ports += before;
    }
    return ports;
}

} // namespace

std::string port_names(std::span<const verbs::Rail> rails) {
    std::string ports;
    for (const verbs::Rail& rail : rails) ports += (ports.empty() ? "" : ",") + rail.name;
    return ports;
}

std::vector<std::uint8_t> pack_names(const Names& names, std::size_t room) {
    std::vector<std::uint8_t> out;
    const auto add = [&](PartKind kind, const void* data, std::size_t length) {
        if (length == 0 || out.size() + sizeof(wire::Part) + length > room) return;
        out.insert(out.end(), {std::uint8_t(kind), std::uint8_t(length)});
        const auto* const bytes = static_cast<const std::uint8_t*>(data);
        out.insert(out.end(), bytes, bytes + length);
    };
    const auto rank = std::uint32_t(names.rank);
    if (names.rank >= 0) add(PartKind::rank, &rank, sizeof rank);
    add(PartKind::host, names.host.data(), std::min(names.host.size(), kMaxHostName));
    pack_ports(names.ports, room - out.size(), out);
    return out;
}

Names read_names(Bytes tail) {
    Names names;
    while (tail.size() >= sizeof(wire::Part)) {
        const auto kind = PartKind(tail[0]);
        const std::size_t length = tail[1];
        tail = tail.subspan(sizeof(wire::Part));
        if (length > tail.size()) break;
        const Bytes value = tail.first(length);
        tail = tail.subspan(length);
        if (kind == PartKind::host && length <= kMaxHostName) names.host = harmless(value);
        if (kind == PartKind::ports) names.ports = read_ports(value);
        std::uint32_t rank = 0;
        if (kind == PartKind::rank && length == sizeof rank) {
            std::memcpy(&rank, value.data(), sizeof rank);
            names.rank = std::max(-1, std::int32_t(rank));
        }
    }
    return names;
}

std::string_view port_name(const Names& names, std::size_t rail) {
    std::string_view rest = names.ports;
    for (; rail; --rail) {
        const std::size_t comma = rest.find(',');
        if (comma == std::string_view::npos) return {};
        rest.remove_prefix(comma + 1);
    }
    return rest.substr(0, rest.find(','));
}

std::string describe(const Connection& c) {
    std::string line = c.names.host;
    if (c.names.rank >= 0) line += (line.empty() ? "rank " : " rank ") + std::to_string(c.names.rank);
    if (!line.empty()) return line;
    char text[32];
    std::snprintf(text, sizeof text, "peer %016" PRIx64, c.peer.uid);
    line = text;
    std::uint16_t lid = 0;
    verbs::Gid gid{};
    const auto look = [&](const auto& rail) {
        if (lid || verbs::is_set(gid)) return;
        lid = rail.lid;
        gid = rail.gid;
    };
    std::ranges::for_each(std::span(c.peer.control, c.peer.count), look);
    std::ranges::for_each(c.remote_rails, look);
    if (lid) line += " (LID " + std::to_string(lid) + ")";
    if (verbs::is_set(gid)) line += " (" + verbs::to_string(gid) + ")";
    return line;
}

std::string describe_port(const Connection& c, std::size_t rail) {
    if (const std::string_view name = port_name(c.names, rail); !name.empty()) return std::string(name);
    if (rail < c.remote_rails.size()) {
        const path::RemoteRail& r = c.remote_rails[rail];
        if (verbs::is_set(r.gid)) return verbs::to_string(r.gid);
        if (r.lid) return "LID " + std::to_string(r.lid);
    }
    return "port " + std::to_string(rail);
}

} // namespace ucx_mp::connect
