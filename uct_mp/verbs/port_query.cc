#include "uct_mp/verbs/port_query.h"

#include <endian.h>
#include <ifaddrs.h>
#include <infiniband/mlx5dv.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::verbs {
namespace {

// The clock fit is renewed every second or so and follows a counter by half its range: a shorter one is of no use.
constexpr double kShortestWrap = 4e9; // ns

unsigned at_least_0(int value) { return static_cast<unsigned>(std::max(value, 0)); }

// The capability says that the device stamps. Whether such a queue can be made and the clock be read is tried.
bool try_timestamps(ibv_context* context) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 1;
    init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* made = ibv_create_cq_ex(context, &init);
    if (!made) return false;
    const CompletionQueue cq(ibv_cq_ex_to_cq(made));
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    return ibv_query_rt_values_ex(context, &values) == 0 && (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
}

void query_timestamps(Device& device, const ibv_device_attr_ex& a) {
    if (a.completion_timestamp_mask == 0 || a.hca_core_clock == 0) return;
    const auto bits = static_cast<unsigned>(std::bit_width(a.completion_timestamp_mask));
    const double ns_per_tick = 1e6 / static_cast<double>(a.hca_core_clock); // it is in kHz
    if (ns_per_tick * static_cast<double>(a.completion_timestamp_mask) < kShortestWrap) return;
    if (!try_timestamps(device.context.get())) return;
    device.has_timestamps = true;
    device.timestamp_bits = bits;
    device.ns_per_tick = ns_per_tick;
}

// The length of the prefix of an IPv4 address of this host; 0: no interface has it.
unsigned prefix_length_of(std::uint32_t address) {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return 0;
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
    for (const ifaddrs* i = first; i; i = i->ifa_next) {
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET) continue;
        sockaddr_in own, mask;
        std::memcpy(&own, i->ifa_addr, sizeof own);
        std::memcpy(&mask, i->ifa_netmask, sizeof mask);
        if (be32toh(own.sin_addr.s_addr) == address) return static_cast<unsigned>(std::popcount(mask.sin_addr.s_addr));
    }
    return 0;
}

constexpr unsigned kMostGids = 256; // an index has eight bits
constexpr unsigned kManyFree = 16;  // entries lie in front; tables are long, and every look is a command

// One entry; false: it is free, or not RoCE.
bool read_gid(ibv_context* context, std::uint8_t port, unsigned index, GidEntry& out) {
    ibv_gid_entry raw{};
    if (ibv_query_gid_ex(context, port, index, &raw, 0) != 0) return false;
    if (raw.gid_type != IBV_GID_TYPE_ROCE_V1 && raw.gid_type != IBV_GID_TYPE_ROCE_V2) return false;
    std::memcpy(out.gid.data(), raw.gid.raw, out.gid.size());
    out.index = static_cast<std::uint8_t>(index);
    out.version_2 = raw.gid_type == IBV_GID_TYPE_ROCE_V2;
    return is_set(out.gid);
}

std::vector<GidEntry> roce_gids(ibv_context* context, std::uint8_t port) {
    std::vector<GidEntry> out;
    GidEntry entry;
    for (unsigned i = 0, free = 0; i < kMostGids && free < kManyFree; ++i) {
        const bool there = read_gid(context, port, i, entry);
        free = there ? 0 : free + 1;
        if (!there) continue;
        entry.prefix_length = is_ipv4(entry.gid) ? prefix_length_of(ipv4_of(entry.gid)) : 0;
        out.push_back(entry);
    }
    return out;
}

constexpr std::uint16_t kFullMember = 0x8000;

// As UCX's own transports: keys with the number 0 are free entries. Tables are long, and every look is a command.
// If no key is wanted, the one in use goes before the first one: the subnet manager may put others in front of it.
void choose_pkey(ibv_context* context, unsigned entries, Rail& out) {
    out.pkey = 0;
    out.pkey_index = 0;
    for (unsigned i = 0; i < entries; ++i) {
        __be16 raw;
        if (ibv_query_pkey(context, out.port, static_cast<int>(i), &raw) != 0) return;
        const std::uint16_t key = be16toh(raw), number = key & ~kFullMember;
        const bool full = key & kFullMember;
        if (number == 0 || (out.partition ? number != out.partition : !full)) continue;
        const bool best = full && (out.partition || !out.in_use || number == out.in_use);
        if (out.pkey && !best) continue;
        out.pkey = key;
        out.pkey_index = static_cast<std::uint16_t>(i);
        if (best) return;
    }
}

double lane_rate(unsigned active_speed) { // Gb/s of data
    switch (active_speed) {
    case 1: // SDR, 2.5 Gb/s, 8b/10b
        return 2;
    case 2: // DDR
        return 4;
    case 4: // QDR
        return 8;
    case 8: // FDR10, 10.3125 Gb/s, 64b/66b
        return 10;
    case 16: // FDR, 14.0625 Gb/s, 64b/66b
        return 14.0625 * 64 / 66;
    case 32: // EDR, 25.78125 Gb/s, 64b/66b
        return 25;
    case 64: // HDR: PAM4, the rate behind forward error correction
        return 50;
    case 128: // NDR
        return 100;
    default:
        return 0;
    }
}

unsigned lanes(unsigned active_width) {
    switch (active_width) {
    case 1:
        return 1;
    case 2:
        return 4;
    case 4:
        return 8;
    case 8:
        return 12;
    case 16:
        return 2;
    default:
        return 0;
    }
}

} // namespace

double link_rate(unsigned active_speed, unsigned active_width) {
    return lane_rate(active_speed) * lanes(active_width) / 8;
}

PortUse query_port(ibv_context* context, std::uint8_t port, Rail& out) {
    ibv_port_attr a{};
    if (ibv_query_port(context, port, &a) != 0) return PortUse::unknown;
    ibv_gid gid{};
    if (ibv_query_gid(context, port, 0, &gid) != 0) return PortUse::unknown;
    out.port = port;
    out.ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (out.ethernet) {
        const std::vector<GidEntry> gids = roce_gids(context, port);
        const GidEntry* const chosen = choose(gids);
        if (!chosen) return PortUse::foreign;
        out.gid = chosen->gid;
        out.gid_index = chosen->index;
        out.roce_2 = chosen->version_2;
        out.subnet_prefix = network_of(chosen->gid, chosen->prefix_length);
    } else { // kernels before RoCE said "unspecified" of InfiniBand
        out.lid = a.lid;
        out.lmc = a.lmc;
        out.subnet_prefix = be64toh(gid.global.subnet_prefix);
        choose_pkey(context, a.pkey_tbl_len, out);
    }
    out.port_guid = be64toh(gid.global.interface_id);
    out.mtu = a.active_mtu >= IBV_MTU_256 && a.active_mtu <= IBV_MTU_4096 ? a.active_mtu : IBV_MTU_1024;
    const double rate = link_rate(a.active_speed, a.active_width);
    out.rate = rate > 0 ? rate : 1;
    out.active = a.state == IBV_PORT_ACTIVE && (out.ethernet || (a.lid != 0 && out.pkey != 0));
    if (out.active && !out.ethernet) out.in_use = out.pkey & ~kFullMember;
    return out.active ? PortUse::active : PortUse::inactive;
}

std::uint8_t gid_index_now(ibv_context* context, const Rail& rail) {
    const auto is_it = [&](unsigned index) {
        GidEntry entry;
        return read_gid(context, rail.port, index, entry) && entry.gid == rail.gid && entry.version_2 == rail.roce_2;
    };
    if (is_it(rail.gid_index)) return rail.gid_index;
    for (unsigned i = 0; i < 2 * kManyFree; ++i)
        if (is_it(i)) return static_cast<std::uint8_t>(i);
    return rail.gid_index;
}

int query_limits(Device& device) {
    ibv_device_attr_ex a{};
    // Falls back to the plain query where the provider doesn't know the extended one.
    if (const int error = ibv_query_device_ex(device.context.get(), nullptr, &a)) return error > 0 ? error : errno;
    const ibv_device_attr& base = a.orig_attr;
    device.guid = be64toh(base.node_guid);
    device.max_sge = std::max(at_least_0(base.max_sge), 1u);
    device.max_qp_wr = at_least_0(base.max_qp_wr);
    device.max_cqe = at_least_0(base.max_cqe);
    device.max_srq_wr = at_least_0(base.max_srq_wr);
    // ibv_qp_attr has 8 bits for it.
    device.max_rd_atomic = std::min(at_least_0(std::min(base.max_qp_rd_atom, base.max_qp_init_rd_atom)), 255u);
    device.has_apm = base.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG;
    query_timestamps(device, a);
    return 0;
}

bool try_dc(const Device& device, const Rail& rail) {
    if (!mlx5dv_is_supported(device.context->device)) return false;
    const CompletionQueue cq(ibv_create_cq(device.context.get(), 16, nullptr, nullptr, 0));
    ibv_srq_init_attr init{};
    init.attr.max_wr = 1;
    init.attr.max_sge = 1;
    const SharedReceiveQueue srq(ibv_create_srq(device.pd.get(), &init));
    if (!cq || !srq) return false;
    const QueuePairLimits small{.send_wr = 4, .send_sge = 1, .inline_bytes = 0};
    return create_dci(device, rail, cq.get(), small, {}, nullptr) != nullptr &&
           create_dct(device, rail, cq.get(), srq.get(), 1, {}) != nullptr;
}

} // namespace ucx_mp::verbs
