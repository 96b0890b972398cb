#include "uct_mp/verbs/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace ucx_mp::verbs {

namespace {

constexpr std::size_t kMapped = 12; // bytes before the IPv4 address

std::uint64_t upper_half(const Gid& gid) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 8; ++i) out = out << 8 | gid[i];
    return out;
}

bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

constexpr std::uint32_t mask(unsigned prefix_length) {
    return prefix_length == 0 ? 0 : ~std::uint32_t{0} << (32 - std::min(prefix_length, 32u));
}

} // namespace

bool is_ipv4(const Gid& gid) {
    constexpr std::uint8_t prefix[kMapped] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.data(), prefix, kMapped) == 0;
}

Gid gid_of_ipv4(std::uint32_t address) {
    Gid gid{};
    gid[10] = gid[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) gid[kMapped + i] = static_cast<std::uint8_t>(address >> (24 - 8 * i));
    return gid;
}

std::uint32_t ipv4_of(const Gid& gid) {
    std::uint32_t out = 0;
    for (std::size_t i = kMapped; i < gid.size(); ++i) out = out << 8 | gid[i];
    return out;
}

bool is_unicast(const Gid& gid) {
    if (is_ipv4(gid)) {
        const unsigned first = gid[kMapped];
        return first != 0 && first != 127 && first < 224;
    }
    constexpr Gid loop_back = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return is_set(gid) && gid != loop_back && gid[0] != 0xff;
}

std::string to_string(const Gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    if (is_ipv4(gid))
        (void)inet_ntop(AF_INET, gid.data() + kMapped, text, sizeof text);
    else
        (void)inet_ntop(AF_INET6, gid.data(), text, sizeof text);
    return text;
}

std::uint64_t network_of(const Gid& gid, unsigned prefix_length) {
    if (!is_ipv4(gid)) return upper_half(gid);
    return std::uint64_t{prefix_length} << 32 | (ipv4_of(gid) & mask(prefix_length));
}

bool in_network(const Gid& gid, std::uint64_t network) {
    if (!is_ipv4(gid)) return upper_half(gid) == network;
    const std::uint64_t length = network >> 32;
    return length <= 32 && network_of(gid, static_cast<unsigned>(length)) == network;
}

std::optional<Gid> sender_of(std::span<const std::uint8_t, kGlobalHeader> header, bool ipv4) {
    Gid gid{};
    if (ipv4) { // 20 bytes without meaning, then the header: version and length, ..., source, destination
        if (header[20] >> 4 != 4) return std::nullopt;
        gid[10] = gid[11] = 0xff;
        std::memcpy(gid.data() + kMapped, &header[32], 4);
    } else {
        if (header[0] >> 4 != 6) return std::nullopt;
        std::memcpy(gid.data(), &header[8], gid.size());
    }
    if (!is_unicast(gid)) return std::nullopt;
    return gid;
}

const GidEntry* choose(std::span<const GidEntry> entries) {
    const auto rank = [](const GidEntry& e) {
        return std::tuple(!e.version_2, !is_ipv4(e.gid), is_link_local(e.gid), e.index);
    };
    const GidEntry* best = nullptr;
    for (const GidEntry& entry : entries)
        if (is_unicast(entry.gid) && (!best || rank(entry) < rank(*best))) best = &entry;
    return best;
}

} // namespace ucx_mp::verbs
