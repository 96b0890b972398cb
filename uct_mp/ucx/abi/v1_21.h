// Changes of UCX 1.21.
#pragma once

#include "uct_mp/ucx/abi/v1_20.h"

namespace ucx_mp::face::abi {

struct V1_21 : V1_20 {
    static constexpr unsigned kMinor = 21;

    template <class Attributes, class Parameters> struct MdOperationsOf
        : V1_20::MdOperationsOf<Attributes, Parameters, AllocNear> {
        ucs_status_t (*mem_elem_pack)(uct_md_h md, uct_mem_h memh, uct_rkey_t key, void* element);
    };
    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations : IfaceFunctions<PerfAttributes>, EpOperations<const void*> {
        ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void** out);
    };
};

} // namespace ucx_mp::face::abi
