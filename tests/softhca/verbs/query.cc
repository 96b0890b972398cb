// Attributes of devices and ports, GID and P_Key tables, the adapter's clock.
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "verbs/face.h"

namespace softhca::face {

uint64_t adapter_time(const DeviceImage& d, Nanos host) {
    const auto drift = static_cast<__int128>(host) * d.limits.clock_drift_ppb / 1'000'000'000;
    return static_cast<uint64_t>(static_cast<__int128>(host) + drift + d.limits.clock_offset_ns) & kClockMask;
}

ibv_gid gid_of(Segment& seg, uint32_t port) {
    const PortImage& p = seg.img().port(port);
    ibv_gid gid;
    gid.global.subnet_prefix = htobe64(seg.img().subnet(p.subnet).prefix);
    gid.global.interface_id = htobe64(p.guid);
    return gid;
}

namespace {

void fill_device(const Context& c, ibv_device_attr& a) {
    const DeviceImage& d = c.image();
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "1.0.0");
    a.node_guid = a.sys_image_guid = htobe64(d.guid);
    a.max_mr_size = UINT64_MAX;
    a.page_size_cap = ~uint64_t{4095};
    // Programs use the DC interface of mlx5 only on what looks like a ConnectX-5.
    a.vendor_id = d.limits.has_dc || d.limits.has_wait ? 0x02c9 : 0x5348;
    a.vendor_part_id = d.limits.has_dc || d.limits.has_wait ? 4119 : 1;
    a.hw_ver = 0;
    a.max_qp = kMaxQps / 2;
    a.max_qp_wr = kMaxQpWr;
    a.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                         IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_CHANGE_PHY_PORT |
                         (d.limits.has_apm ? IBV_DEVICE_AUTO_PATH_MIG : 0);
    a.max_sge = a.max_sge_rd = kMaxSge;
    a.max_cq = kMaxCqs / 2;
    a.max_cqe = kMaxCqe;
    a.max_mr = kMaxMrs / 2;
    a.max_pd = 1 << 24;
    a.max_qp_rd_atom = a.max_qp_init_rd_atom = kMaxRdAtomic;
    a.max_res_rd_atom = static_cast<int>(kMaxRdAtomic) * a.max_qp;
    a.atomic_cap = IBV_ATOMIC_HCA;
    a.max_ah = INT32_MAX;
    a.max_srq = kMaxSrqs / 2;
    a.max_srq_wr = kMaxSrqWr;
    a.max_srq_sge = kMaxSge;
    a.max_pkeys = kPkeys;
    a.phys_port_cnt = static_cast<uint8_t>(d.ports);
}

bool stamped(const Context& c) { return c.has_timestamps(); }

} // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t bytes) {
    Context& c = *context_of(context);
    if (input && input->comp_mask) return fail(EINVAL);
    if (int error = command(c, query_cmd)) return error;
    ibv_device_attr_ex a{};
    fill_device(c, a.orig_attr);
    if (stamped(c)) {
        a.completion_timestamp_mask = kClockMask;
        a.hca_core_clock = 1'000'000; // kHz: a tick is a nanosecond
    }
    a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
    a.phys_port_cnt_ex = a.orig_attr.phys_port_cnt;
    std::memcpy(static_cast<void*>(attr), &a, std::min(bytes, sizeof a));
    return 0;
}

int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t bytes) {
    Context& c = *context_of(context);
    const uint32_t index = c.port(number);
    if (index == kNone) return fail(EINVAL);
    if (int error = command(c, query_cmd)) return error;
    const PortImage& image = c.seg().img().port(index);
    const SubnetImage& subnet = c.seg().img().subnet(image.subnet);
    PortState& state = c.seg().port(index);
    const bool up = image.cabled && state.up.load();
    ibv_port_attr a{};
    a.lid = state.lid.load();
    a.state = !up ? IBV_PORT_DOWN : a.lid ? IBV_PORT_ACTIVE : IBV_PORT_INIT;
    a.phys_state = up ? 5 : image.cabled ? 3 : 2; // LinkUp, Disabled, Polling
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = static_cast<ibv_mtu>(image.mtu);
    a.gid_tbl_len = kGids;
    a.port_cap_flags = IBV_PORT_TRAP_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP | IBV_PORT_CLIENT_REG_SUP |
                       (c.image().limits.has_apm ? IBV_PORT_AUTO_MIGR_SUP : 0);
    a.max_msg_sz = kMaxMessage;
    a.pkey_tbl_len = kPkeys;
    a.sm_lid = subnet.sm_lid;
    a.lmc = image.lmc;
    a.max_vl_num = 1; // VL0 only
    a.subnet_timeout = 18;
    a.active_width = image.width;
    a.active_speed = image.speed;
    a.link_layer = IBV_LINK_LAYER_INFINIBAND;
    std::memset(static_cast<void*>(attr), 0, bytes);
    std::memcpy(static_cast<void*>(attr), &a, std::min(bytes, sizeof a));
    return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
    Context& c = *context_of(context);
    if (values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) return fail(EINVAL);
    if (!stamped(c)) return fail(EOPNOTSUPP);
    const uint64_t now = adapter_time(c.image(), c.engine->program_now(c.processor));
    // As with real adapters: ticks in tv_nsec, which may exceed a second's worth.
    values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(now)};
    values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
    return 0;
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    Context& c = *context_of(context);
    if (int error = command(c, query_cmd)) return error;
    std::memset(attr, 0, sizeof *attr);
    fill_device(c, *attr);
    return 0;
}

#undef ibv_query_port
// The structure of old programs ends before port_cap_flags2.
VERBS_API int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

VERBS_API int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                uint32_t flags, size_t bytes) {
    Context& c = *context_of(context);
    const uint32_t image = c.port(port);
    if (flags) return fail(EOPNOTSUPP);
    if (image == kNone || index >= kGids) return fail(EINVAL);
    ibv_gid_entry e{};
    e.gid = gid_of(c.seg(), image);
    e.gid_index = index;
    e.port_num = port;
    e.gid_type = IBV_GID_TYPE_IB;
    std::memcpy(static_cast<void*>(entry), &e, std::min(bytes, sizeof e));
    return 0;
}

VERBS_API ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max, uint32_t flags,
                                       size_t bytes) {
    Context& c = *context_of(context);
    if (flags) return -fail(EOPNOTSUPP);
    if (max < c.image().ports * kGids) return -fail(EINVAL);
    ssize_t n = 0;
    for (uint32_t port = 1; port <= c.image().ports; ++port)
        for (uint32_t i = 0; i < kGids; ++i, ++n) {
            auto* at =
                reinterpret_cast<ibv_gid_entry*>(reinterpret_cast<char*>(entries) + static_cast<size_t>(n) * bytes);
            if (int error = _ibv_query_gid_ex(context, port, i, at, 0, bytes)) return -error;
        }
    return n;
}

VERBS_API int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    ibv_gid_entry e;
    if (_ibv_query_gid_ex(context, port, static_cast<uint32_t>(index), &e, 0, sizeof e)) return -1;
    *gid = e.gid;
    return 0;
}

VERBS_API int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
    Context& c = *context_of(context);
    const uint32_t image = c.port(port);
    if (image == kNone || index < 0 || index >= static_cast<int>(kPkeys)) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(c.seg().port(image).pkeys[index].load());
    return 0;
}

VERBS_API int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
    __be16 found;
    for (int i = 0; ibv_query_pkey(context, port, i, &found) == 0; ++i)
        if (found == pkey) return i;
    return -1;
}

// Private to rdma-core's libraries; the type is an enumeration whose first value is "IB or RoCE v1".
VERBS_API int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
    ibv_gid gid;
    *type = 0;
    return ibv_query_gid(context, port, static_cast<int>(index), &gid);
}
