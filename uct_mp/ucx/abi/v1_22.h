// Changes of UCX 1.22.
#pragma once

#include "uct_mp/ucx/abi/v1_21.h"

namespace ucx_mp::face::abi {

struct V1_22 : V1_21 {
    static constexpr unsigned kMinor = 22;

    struct MdAttributes { // uct_md_attr_v2_t
        std::uint64_t field_mask;
        std::uint64_t max_alloc;
        std::size_t max_reg;
        std::uint64_t flags;
        std::uint64_t reg_mem_types;
        std::uint64_t reg_nonblock_mem_types;
        std::uint64_t cache_mem_types;
        std::uint64_t gva_mem_types;
        std::uint64_t detect_mem_types;
        std::uint64_t alloc_mem_types;
        std::uint64_t access_mem_types;
        std::uint64_t dmabuf_mem_types;
        ucs_linear_func_t reg_cost;
        char component_name[UCT_COMPONENT_NAME_MAX];
        std::size_t rkey_packed_size;
        ucs_cpu_set_t local_cpus;
        std::size_t exported_mkey_packed_size;
        char global_id[256];
        std::size_t reg_alignment;
        std::uint8_t required_mem_flags;
    };
    struct RegParameters { // uct_md_mem_reg_params
        std::uint64_t field_mask;
        std::uint64_t flags;
        int dmabuf_fd;
        std::size_t dmabuf_offset;
        ucs_memory_type_t mem_type;
    };
    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations { // uct_iface_internal_ops
        ucs_status_t (*iface_query_v2)(uct_iface_h iface, void* attr);
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, PerfAttributes* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, const void* parameters);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
        int (*iface_is_reachable_v2)(uct_iface_h iface, const ReachableParameters* parameters);
        int (*ep_is_connected)(uct_ep_h ep, const ConnectedParameters* parameters);
        ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void** out);
        ucs_status_t (*ep_put_sgl_zcopy)(uct_ep_h ep, void* const* buffers, const std::size_t* lengths,
                                         const uct_mem_h* memhs, const std::uint64_t* remotes, const uct_rkey_t* keys,
                                         const std::size_t* counts, const std::size_t* strides, std::size_t count,
                                         uct_completion_t* completion);
    };
};

} // namespace ucx_mp::face::abi
