// Changes of UCX 1.16.
#pragma once

#include "uct_mp/ucx/abi/v1_15.h"

namespace ucx_mp::face::abi {

struct V1_16 : V1_15 {
    static constexpr unsigned kMinor = 16;

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
        std::size_t reg_alignment;
    };

    template <class Attributes> struct MdOperationsOf { // uct_md_ops, up to 1.18
        void (*close)(uct_md_h md);
        ucs_status_t (*query)(uct_md_h md, Attributes* attr);
        ucs_status_t (*mem_alloc)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type,
                                  unsigned flags, const char* name, uct_mem_h* memh);
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
    using MdOperations = MdOperationsOf<MdAttributes>;

    struct ConnectedParameters { // uct_ep_is_connected_params
        std::uint64_t field_mask;
        const uct_device_addr_t* device_addr;
        const uct_iface_addr_t* iface_addr;
        const uct_ep_addr_t* ep_addr;
    };
    static constexpr std::uint64_t kConnectedDevice = 1, kConnectedIface = 2; // UCT_EP_IS_CONNECTED_FIELD_...

    template <class Perf> struct InternalOperationsOf { // uct_iface_internal_ops, up to 1.19
        ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, Perf* attr);
        void (*iface_vfs_refresh)(uct_iface_h iface);
        ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
        ucs_status_t (*ep_invalidate)(uct_ep_h ep, unsigned flags);
        ucs_status_t (*ep_connect_to_ep_v2)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                            const void* parameters);
        int (*iface_is_reachable_v2)(uct_iface_h iface, const ReachableParameters* parameters);
        int (*ep_is_connected)(uct_ep_h ep, const ConnectedParameters* parameters);
    };
    using InternalOperations = InternalOperationsOf<PerfAttributes>;

    struct Worker { // uct_priv_worker
        struct {
            struct {
                ucs_callback_t callback;
                void* arg;
            } fast[8];
            void* priv;
        } progress;
        ucs_async_context_t* async;
    };

    struct Component { // uct_component, up to 1.18
        char name[UCT_COMPONENT_NAME_MAX];
        ucs_status_t (*query_md_resources)(void* component, uct_md_resource_desc_t** out, unsigned* count);
        ucs_status_t (*md_open)(void* component, const char* name, const uct_md_config_t* options, uct_md_h* out);
        ucs_status_t (*cm_open)(void* component, uct_worker_h worker, const void* options, uct_cm_h* out);
        ucs_status_t (*rkey_unpack)(void* component, const void* buffer, uct_rkey_t* key, void** handle);
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

    static constexpr const char* kCacheTable = "ucs_config_rcache_table";
};

} // namespace ucx_mp::face::abi
