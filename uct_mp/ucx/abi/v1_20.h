// Changes of UCX 1.20.
#pragma once

#include "uct_mp/ucx/abi/v1_19.h"

namespace ucx_mp::face::abi {

struct V1_20 : V1_19 {
    static constexpr unsigned kMinor = 20;

    struct InternalOperations { // uct_iface_internal_ops
        ucs_status_t (*iface_query_v2)(uct_iface_h iface, void* attr);
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, PerfAttributes* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*iface_mem_element_pack)(uct_iface_h iface, uct_mem_h memh, uct_rkey_t key, void* element);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, unsigned flags);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
        int (*iface_is_reachable_v2)(uct_iface_h iface, const ReachableParameters* parameters);
        int (*ep_is_connected)(uct_ep_h ep, const ConnectedParameters* parameters);
        ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void** out);
    };
};

} // namespace ucx_mp::face::abi
