// Changes of UCX 1.21.
#pragma once

#include "uct_mp/ucx/abi/v1_20.h"

namespace ucx_mp::face::abi {

struct V1_21 : V1_20 {
    static constexpr unsigned kMinor = 21;

    template <class Attributes, class Registration> struct MdOperationsOf { // uct_md_ops
        void (*close)(uct_md_h md);
        ucs_status_t (*query)(uct_md_h md, Attributes* attr);
        ucs_status_t (*mem_alloc)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type,
                                  ucs_sys_device_t device, unsigned flags, const char* name, uct_mem_h* memh);
        ucs_status_t (*mem_free)(uct_md_h md, uct_mem_h memh);
        ucs_status_t (*mem_advise)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length,
                                   uct_mem_advice_t advice);
        ucs_status_t (*mem_reg)(uct_md_h md, void* address, std::size_t length, const Registration* parameters,
                                uct_mem_h* memh);
        ucs_status_t (*mem_dereg)(uct_md_h md, const DeregParameters* parameters);
        ucs_status_t (*mem_query)(uct_md_h md, const void* address, std::size_t length, void* attr);
        ucs_status_t (*mkey_pack)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length,
                                  const PackParameters* parameters, void* out);
        ucs_status_t (*mem_attach)(uct_md_h md, const void* key, void* parameters, uct_mem_h* memh);
        ucs_status_t (*detect_memory_type)(uct_md_h md, const void* address, std::size_t length,
                                           ucs_memory_type_t* type);
        ucs_status_t (*mem_elem_pack)(uct_md_h md, uct_mem_h memh, uct_rkey_t key, void* element);
    };
    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations { // uct_iface_internal_ops
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, PerfAttributes* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, const void* parameters);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
        int (*iface_is_reachable_v2)(uct_iface_h iface, const ReachableParameters* parameters);
        int (*ep_is_connected)(uct_ep_h ep, const ConnectedParameters* parameters);
        ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void** out);
    };
};

} // namespace ucx_mp::face::abi
