// The layout of UCX 1.13: everything that has changed since.
#pragma once

#include "uct_mp/ucx/abi/base.h"

namespace ucx_mp::face::abi {

// ConfigEntry: of the layout
template <class ConfigEntry> struct ComponentOf { // uct_component, up to 1.15
    char name[UCT_COMPONENT_NAME_MAX];
    ucs_status_t (*query_md_resources)(void* component, uct_md_resource_desc_t** out, unsigned* count);
    ucs_status_t (*md_open)(void* component, const char* name, const uct_md_config_t* options, uct_md_h* out);
    ucs_status_t (*cm_open)(void* component, uct_worker_h worker, const void* options, uct_cm_h* out);
    ucs_status_t (*rkey_unpack)(void* component, const void* buffer, uct_rkey_t* key, void** handle);
    ucs_status_t (*rkey_ptr)(void* component, uct_rkey_t key, void* handle, std::uint64_t remote, void** local);
    ucs_status_t (*rkey_release)(void* component, uct_rkey_t key, void* handle);
    ConfigEntry md_config;
    ConfigEntry cm_config;
    ucs_list_link_t tl_list;
    ucs_list_link_t list;
    std::uint64_t flags;
    void (*md_vfs_init)(uct_md_h md);
};

// uct_md_ops
using Alloc = ucs_status_t (*)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type, unsigned flags,
                               const char* name, uct_mem_h* memh);
using RegisterByFlags = ucs_status_t (*)(uct_md_h md, void* address, std::size_t length, unsigned flags,
                                         uct_mem_h* memh);
using Pack = ucs_status_t (*)(uct_md_h md, uct_mem_h memh, const PackParameters* parameters, void* out);
using IsAccessible = int (*)(uct_md_h md, const ucs_sock_addr_t* address, uct_sockaddr_accessibility_t mode);
using DetectType = ucs_status_t (*)(uct_md_h md, const void* address, std::size_t length, ucs_memory_type_t* type);
template <class Attributes, class Alloc, class Register, class Pack> struct MdFunctions { // the first ones
    void (*close)(uct_md_h md);
    ucs_status_t (*query)(uct_md_h md, Attributes* attr);
    Alloc mem_alloc;
    ucs_status_t (*mem_free)(uct_md_h md, uct_mem_h memh);
    ucs_status_t (*mem_advise)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length, uct_mem_advice_t advice);
    Register mem_reg;
    ucs_status_t (*mem_dereg)(uct_md_h md, const DeregParameters* parameters);
    ucs_status_t (*mem_query)(uct_md_h md, const void* address, std::size_t length, void* attr);
    Pack mkey_pack;
};

// uct_iface_internal_ops
template <class Perf> struct IfaceFunctions {
    ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, Perf* attr);
    void (*iface_vfs_refresh)(uct_iface_h iface);
};
template <class How> struct EpFunctions {
    ucs_status_t (*ep_query)(uct_ep_h ep, uct_ep_attr_t* attr);
    ucs_status_t (*ep_invalidate)(uct_ep_h ep, How how);
};
using ConnectToEp = ucs_status_t (*)(uct_ep_h ep, const uct_device_addr_t* device, const uct_ep_addr_t* address,
                                     const void* parameters);

struct PerfCosts { // uct_perf_attr_t, its first members
    std::uint64_t field_mask;
    int operation; // UCT_EP_OP_..., the same everywhere
    ucs_memory_type_t local_memory_type;
    ucs_memory_type_t remote_memory_type;
    ucs_sys_device_t local_sys_device;
    ucs_sys_device_t remote_sys_device;
    double send_pre_overhead;
    double send_post_overhead;
    double recv_overhead;
    uct_ppn_bandwidth_t bandwidth;
};
struct PerfLatency { // and those behind
    ucs_linear_func_t latency;
    std::size_t max_inflight_eps;
};

struct V1_13 {
    static constexpr unsigned kMinor = 13;

    // ---- Configuration: ucs/config/parser.h

    struct Parser { // ucs_config_parser
        int (*read)(const char* text, void* to, const void* arg);
        int (*write)(char* text, std::size_t max, const void* from, const void* arg);
        ucs_status_t (*clone)(const void* from, void* to, const void* arg);
        void (*release)(void* value, const void* arg);
        void (*help)(char* text, std::size_t max, const void* arg);
        const void* arg;
    };
    struct ConfigEntry { // ucs_config_global_list_entry
        const char* name;
        const char* prefix;
        void* table;
        std::size_t size;
        ucs_list_link_t list;
    };

    // ---- Memory domains: uct/base/uct_md.h

    using MdAttributes = uct_md_attr_t;
    static constexpr std::uint64_t kMdInvalidates = 1 << 8; // UCT_MD_FLAG_INVALIDATE
    static constexpr unsigned kPackRevocable = 1;           // UCT_MD_MKEY_PACK_FLAG_INVALIDATE

    struct MdOperations : MdFunctions<uct_md_attr_t, Alloc, RegisterByFlags, Pack> {
        IsAccessible is_sockaddr_accessible;
        DetectType detect_memory_type;
    };

    // ---- Interfaces: uct/base/uct_iface.h, uct/api/v2/uct_v2.h

    struct PerfAttributes : PerfCosts, PerfLatency {};
    // UCT_PERF_ATTR_FIELD_...
    static constexpr std::uint64_t kPerfOperation = 1 << 0, kPerfPostOverhead = 1 << 6, kPerfBandwidth = 1 << 8,
                                   kPerfInFlight = 1 << 10;

    struct InternalOperations : IfaceFunctions<PerfAttributes>, EpFunctions<unsigned> {};

    struct Worker { // uct_priv_worker
        struct {
            struct {
                ucs_callback_t callback;
                void* arg;
                unsigned flags;
                int id;
            } fast[8];
            char priv[72];
        } progress;
        ucs_async_context_t* async;
    };

    // ---- Components: uct/base/uct_component.h

    using Component = ComponentOf<ConfigEntry>;

    // ---- The registration cache: ucs/memory/rcache.h

    struct Region { // ucs_rcache_region
        std::uintptr_t start, end;
        ucs_list_link_t lru_list, tmp_list, comp_list;
        volatile std::uint32_t refcount;
        ucs_status_t status;
        std::uint8_t prot, flags, lru_flags;
        union {
            std::uint64_t priv;
            unsigned long* pfn;
        };
    };
    struct CacheOperations { // ucs_rcache_ops
        ucs_status_t (*mem_reg)(void* context, void* cache, void* arg, void* region, std::uint16_t flags);
        void (*mem_dereg)(void* context, void* cache, void* region);
        void (*dump_region)(void* context, void* cache, void* region, char* text, std::size_t max);
    };
    struct CacheParameters { // ucs_rcache_params
        std::size_t region_struct_size;
        std::size_t alignment;
        std::size_t max_alignment;
        int ucm_events;
        int ucm_event_priority;
        const void* ops;
        void* context;
        int flags;
        unsigned long max_regions;
        std::size_t max_size;
        std::size_t max_unreleased;
    };
    struct CacheOptions { // uct_md_rcache_config, ucs_rcache_config
        std::size_t alignment;
        unsigned event_prio;
        std::uint64_t overhead;
        unsigned long max_regions;
        std::size_t max_size;
        std::size_t max_unreleased;
        int purge_on_fork;
    };
    static constexpr const char* kCacheTable = "uct_md_config_rcache_table"; // of CacheOptions
    using FindFunction = ucs_status_t (*)(void* cache, void* address, std::size_t length, int prot, void* arg,
                                          void** region); // ucs_rcache_get
};

} // namespace ucx_mp::face::abi
