// Changes of UCX 1.14.
#pragma once

#include "uct_mp/ucx/abi/v1_13.h"

namespace ucx_mp::face::abi {

template <class MdAttributes, class RegParameters> struct MdOperationsOf { // uct_md_ops, up to 1.15
    void (*close)(uct_md_h md);
    ucs_status_t (*query)(uct_md_h md, MdAttributes* attr);
    ucs_status_t (*mem_alloc)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type, unsigned flags,
                              const char* name, uct_mem_h* memh);
    ucs_status_t (*mem_free)(uct_md_h md, uct_mem_h memh);
    ucs_status_t (*mem_advise)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length, uct_mem_advice_t advice);
    ucs_status_t (*mem_reg)(uct_md_h md, void* address, std::size_t length, const RegParameters* parameters,
                            uct_mem_h* memh);
    ucs_status_t (*mem_dereg)(uct_md_h md, const DeregParameters* parameters);
    ucs_status_t (*mem_query)(uct_md_h md, const void* address, std::size_t length, void* attr);
    ucs_status_t (*mkey_pack)(uct_md_h md, uct_mem_h memh, const PackParameters* parameters, void* out);
    ucs_status_t (*mem_attach)(uct_md_h md, const void* key, void* parameters, uct_mem_h* memh);
    int (*is_sockaddr_accessible)(uct_md_h md, const ucs_sock_addr_t* address, uct_sockaddr_accessibility_t mode);
    ucs_status_t (*detect_memory_type)(uct_md_h md, const void* address, std::size_t length, ucs_memory_type_t* type);
};

struct V1_14 : V1_13 {
    static constexpr unsigned kMinor = 14;

    struct MdAttributes { // uct_md_attr_v2_t
        std::uint64_t field_mask;
        std::uint64_t max_alloc;
        std::size_t max_reg;
        std::uint64_t flags;
        std::uint64_t reg_mem_types;
        std::uint64_t cache_mem_types;
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
    };
    struct RegParameters { // uct_md_mem_reg_params
        std::uint64_t field_mask;
        std::uint64_t flags;
        int dmabuf_fd;
        std::size_t dmabuf_offset;
    };
    static constexpr std::uint64_t kRegFlags = 1; // UCT_MD_MEM_REG_FIELD_FLAGS

    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations { // uct_iface_internal_ops
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, PerfAttributes* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, unsigned flags);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
    };
};

} // namespace ucx_mp::face::abi
