// Changes of UCX 1.19.
#pragma once

#include "uct_mp/ucx/abi/v1_18.h"

namespace ucx_mp::face::abi {

struct V1_19 : V1_18 {
    static constexpr unsigned kMinor = 19;

    struct MdOperations { // uct_md_ops, up to 1.20
        void (*close)(uct_md_h md);
        ucs_status_t (*query)(uct_md_h md, MdAttributes* attr);
        ucs_status_t (*mem_alloc)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type,
                                  ucs_sys_device_t device, unsigned flags, const char* name, uct_mem_h* memh);
        ucs_status_t (*mem_free)(uct_md_h md, uct_mem_h memh);
        ucs_status_t (*mem_advise)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length,
                                   uct_mem_advice_t advice);
        ucs_status_t (*mem_reg)(uct_md_h md, void* address, std::size_t length, const RegParameters* parameters,
                                uct_mem_h* memh);
        ucs_status_t (*mem_dereg)(uct_md_h md, const DeregParameters* parameters);
        ucs_status_t (*mem_query)(uct_md_h md, const void* address, std::size_t length, void* attr);
        ucs_status_t (*mkey_pack)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length,
                                  const PackParameters* parameters, void* out);
        ucs_status_t (*mem_attach)(uct_md_h md, const void* key, void* parameters, uct_mem_h* memh);
        ucs_status_t (*detect_memory_type)(uct_md_h md, const void* address, std::size_t length,
                                           ucs_memory_type_t* type);
    };

    struct PerfAttributes { // uct_perf_attr_t
        std::uint64_t field_mask;
        int operation;
        ucs_memory_type_t local_memory_type;
        ucs_memory_type_t remote_memory_type;
        ucs_sys_device_t local_sys_device;
        ucs_sys_device_t remote_sys_device;
        double send_pre_overhead;
        double send_post_overhead;
        double recv_overhead;
        uct_ppn_bandwidth_t bandwidth;
        uct_ppn_bandwidth_t path_bandwidth;
        ucs_linear_func_t latency;
        std::size_t max_inflight_eps;
        std::uint64_t flags;
    };
    static constexpr std::uint64_t kPerfPathBandwidth = 1 << 9, kPerfInFlight = 1 << 11;
    using InternalOperations = InternalOperationsOf<PerfAttributes>;

    struct Component { // uct_component
        char name[UCT_COMPONENT_NAME_MAX];
        ucs_status_t (*query_md_resources)(void* component, uct_md_resource_desc_t** out, unsigned* count);
        ucs_status_t (*md_open)(void* component, const char* name, const uct_md_config_t* options, uct_md_h* out);
        ucs_status_t (*cm_open)(void* component, uct_worker_h worker, const void* options, uct_cm_h* out);
        ucs_status_t (*rkey_unpack)(void* component, const void* buffer, const void* parameters, uct_rkey_t* key,
                                    void** handle);
        ucs_status_t (*rkey_ptr)(void* component, uct_rkey_t key, void* handle, std::uint64_t remote, void** local);
        ucs_status_t (*rkey_release)(void* component, uct_rkey_t key, void* handle);
        ucs_status_t (*rkey_compare)(void* component, uct_rkey_t first, uct_rkey_t second, const void* parameters,
                                     int* result);
        ConfigEntry md_config;
        ConfigEntry cm_config;
        ucs_list_link_t tl_list;
        ucs_list_link_t list;
        std::uint64_t flags;
        void (*md_vfs_init)(uct_md_h md);
    };

    struct CacheOptions { // ucs_rcache_config
        unsigned event_prio;
        std::uint64_t overhead;
        unsigned long max_regions;
        std::size_t max_size;
        std::size_t max_unreleased;
        int purge_on_fork;
    };
};

} // namespace ucx_mp::face::abi
