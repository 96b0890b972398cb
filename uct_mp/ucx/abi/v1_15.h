// Changes of UCX 1.15.
#pragma once

#include "uct_mp/ucx/abi/v1_14.h"

namespace ucx_mp::face::abi {

struct V1_15 : V1_14 {
    static constexpr unsigned kMinor = 15;

    struct ConfigEntry { // ucs_config_global_list_entry
        const char* name;
        const char* prefix;
        void* table;
        std::size_t size;
        ucs_list_link_t list;
        std::uint8_t flags; // UCX's own
    };

    struct MdAttributes { // uct_md_attr_v2_t
        std::uint64_t field_mask;
        std::uint64_t max_alloc;
        std::size_t max_reg;
        std::uint64_t flags;
        std::uint64_t reg_mem_types;
        std::uint64_t reg_nonblock_mem_types;
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
    // UCT_MD_FLAG_INVALIDATE, and for remote access and atomics apart
    static constexpr std::uint64_t kMdInvalidates = 1 << 8 | 1 << 11 | 1 << 12;
    static constexpr unsigned kPackRevocable = 1 | 2; // UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA, _AMO

    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct ReachableParameters { // uct_iface_is_reachable_params; later versions have more behind it
        std::uint64_t field_mask;
        const uct_device_addr_t* device_addr;
        const uct_iface_addr_t* iface_addr;
        char* info_string;
        std::size_t info_string_length;
        int scope;
    };
    // UCT_IFACE_IS_REACHABLE_FIELD_..., UCT_IFACE_REACHABILITY_SCOPE_DEVICE
    static constexpr std::uint64_t kReachableDevice = 1, kReachableIface = 2, kReachableInfo = 4,
                                   kReachableInfoLength = 8, kReachableScope = 16;
    static constexpr int kScopeDevice = 0;

    struct InternalOperations { // uct_iface_internal_ops
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, PerfAttributes* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, unsigned flags);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
        int (*iface_is_reachable_v2)(uct_iface_h iface, const ReachableParameters* parameters);
    };

    using Component = ComponentOf<ConfigEntry>;
};

} // namespace ucx_mp::face::abi
