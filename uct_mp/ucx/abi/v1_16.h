// Changes of UCX 1.16.
#pragma once

#include "uct_mp/ucx/abi/v1_15.h"

namespace ucx_mp::face::abi {

struct V1_16 : V1_15 {
    static constexpr unsigned kMinor = 16;

    struct MdAttributes : V1_15::MdAttributes {
        std::size_t reg_alignment;
    };

    using PackPart = ucs_status_t (*)(uct_md_h md, uct_mem_h memh, void* address, std::size_t length,
                                      const PackParameters* parameters, void* out);
    template <class Attributes, class Parameters = RegParameters, class Alloc = abi::Alloc> struct MdOperationsOf
        : MdFunctions<Attributes, Alloc, Register<Parameters>, PackPart> {
        Attach mem_attach;
        DetectType detect_memory_type;
    };
    using MdOperations = MdOperationsOf<MdAttributes>;

    struct ConnectedParameters { // uct_ep_is_connected_params
        std::uint64_t field_mask;
        const uct_device_addr_t* device_addr;
        const uct_iface_addr_t* iface_addr;
        const uct_ep_addr_t* ep_addr;
    };
    static constexpr std::uint64_t kConnectedDevice = 1, kConnectedIface = 2; // UCT_EP_IS_CONNECTED_FIELD_...

    template <class How> struct EpOperations : EpFunctions<How> {
        ConnectToEp ep_connect_to_ep_v2;
        IsReachable iface_is_reachable_v2;
        int (*ep_is_connected)(uct_ep_h ep, const ConnectedParameters* parameters);
    };
    // uct_iface_internal_ops, up to 1.19
    template <class Perf> struct InternalOperationsOf : IfaceFunctions<Perf>, EpOperations<unsigned> {};
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

    using Unpack = ucs_status_t (*)(void* component, const void* buffer, uct_rkey_t* key, void** handle);
    template <class UnpackKey> struct ComponentOf { // uct_component
        char name[UCT_COMPONENT_NAME_MAX];
        ucs_status_t (*query_md_resources)(void* component, uct_md_resource_desc_t** out, unsigned* count);
        ucs_status_t (*md_open)(void* component, const char* name, const uct_md_config_t* options, uct_md_h* out);
        ucs_status_t (*cm_open)(void* component, uct_worker_h worker, const void* options, uct_cm_h* out);
        UnpackKey rkey_unpack;
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
    using Component = ComponentOf<Unpack>;

    static constexpr const char* kCacheTable = "ucs_config_rcache_table";
};

} // namespace ucx_mp::face::abi
