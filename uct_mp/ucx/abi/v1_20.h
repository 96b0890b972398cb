// Changes of UCX 1.20.
#pragma once

#include "uct_mp/ucx/abi/v1_19.h"

namespace ucx_mp::face::abi {

struct V1_20 : V1_19 {
    static constexpr unsigned kMinor = 20;

    struct Query {
        ucs_status_t (*iface_query_v2)(uct_iface_h iface, void* attr);
    };
    struct PackElement {
        ucs_status_t (*iface_mem_element_pack)(uct_iface_h iface, uct_mem_h memh, uct_rkey_t key, void* element);
    };
    struct InternalOperations : Query, IfaceFunctions<PerfAttributes>, PackElement, EpOperations<unsigned> {
        ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void** out);
    };
};

} // namespace ucx_mp::face::abi
