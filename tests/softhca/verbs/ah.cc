// Address handles.
#include <endian.h>

#include <cstring>
#include <new>

#include "verbs/face.h"

namespace softhca::face {

int check_address(const Context& c, const ibv_ah_attr& a, Destination destination) {
    const uint32_t port = c.port(a.port_num);
    if (port == kNone) return EINVAL;
    if (a.dlid == 0 || (destination == Destination::unicast && a.dlid > kMaxLid)) return EINVAL;
    if (a.sl > 15 || a.src_path_bits >> c.seg().img().port(port).lmc) return EINVAL;
    return a.is_global && a.grh.sgid_index >= kGids ? EINVAL : 0;
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    Context& c = *context_of(pd->context);
    if (command(c, create_cmd)) return nullptr;
    if (int error = check_address(c, *attr, Destination::any)) return fail_null(error);
    if (c.seg().port(c.port(attr->port_num)).handles_refused.load(std::memory_order_relaxed))
        return fail_null(EHOSTUNREACH);
    auto* ah = new (std::nothrow) Ah{};
    if (!ah) return fail_null(ENOMEM);
    ah->ah.context = pd->context;
    ah->ah.pd = pd;
    ah->attr = *attr;
    ah->device = c.device;
    ++pd_of(pd)->users;
    return &ah->ah;
}

VERBS_API int ibv_destroy_ah(ibv_ah* p) {
    --pd_of(p->pd)->users;
    delete ah_of(p);
    return 0;
}

// Turns a received datagram's addresses round. The global route header comes with the data (first 40 bytes).
VERBS_API int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    std::memset(attr, 0, sizeof *attr);
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH)) return 0;

    const uint32_t version = be32toh(grh->version_tclass_flow);
    attr->is_global = 1;
    attr->grh.dgid = grh->sgid;
    attr->grh.flow_label = version & 0xfffff;
    attr->grh.traffic_class = version >> 20 & 0xff;
    attr->grh.hop_limit = grh->hop_limit;
    ibv_gid gid;
    for (uint32_t i = 0; ibv_query_gid(context, port, static_cast<int>(i), &gid) == 0; ++i)
        if (std::memcmp(&gid, &grh->dgid, sizeof gid) == 0) {
            attr->grh.sgid_index = static_cast<uint8_t>(i);
            return 0;
        }
    errno = EINVAL; // sent to a multicast group, or to somebody else
    return -1;
}

VERBS_API ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    ibv_ah_attr attr;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? nullptr : ibv_create_ah(pd, &attr);
}

// RoCE only.
VERBS_API int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) { return -EOPNOTSUPP; }
