// Structures and functions that UCX has, but does not package, and that a transport is built on. They are declared
// here, so that the installed headers are enough. This file has the parts that are the same in every version from
// 1.13 to 1.22; v1_NN.h have the rest. tests/build/ucx_versions.py compares both with the sources of every version.
//
// A function has a name of its own, and UCX's as its symbol.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

extern "C" {
#include <ucs/async/async_fwd.h>
#include <ucs/config/types.h>
#include <ucs/datastruct/list.h>
#include <ucs/debug/log_def.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/class.h>
#include <ucs/type/spinlock.h>
#include <uct/api/uct.h>
}

namespace ucx_mp::face::abi {

// ---- Memory domains: uct/base/uct_md.h

struct MdBase {       // uct_md
    void* operations; // MdOperations of the layout
    void* component;  // Component of the layout
};

struct DeregParameters { // uct_md_mem_dereg_params
    std::uint64_t field_mask;
    unsigned flags;
    uct_mem_h memh;
    uct_completion_t* comp;
};
inline constexpr std::uint64_t kDeregMemh = 1, kDeregFlags = 2, kDeregCompletion = 4; // UCT_MD_MEM_DEREG_FIELD_
inline constexpr unsigned kDeregInvalidate = 1;                                       // UCT_MD_MEM_DEREG_FLAG_

struct PackParameters { // uct_md_mkey_pack_params
    std::uint64_t field_mask;
    unsigned flags;
};
inline constexpr std::uint64_t kPackFlags = 1; // UCT_MD_MKEY_PACK_FIELD_

struct MdOptionsBase { // uct_md_config
    char dummy;
};

ucs_status_t empty_md_resource(uct_md_resource_desc_t** out, unsigned* count) asm("uct_md_query_empty_md_resource");
ucs_status_t single_md_resource(void* component, uct_md_resource_desc_t** out,
                                unsigned* count) asm("uct_md_query_single_md_resource");

// ---- Interfaces and endpoints: uct/base/uct_iface.h

struct AmHandlerEntry { // uct_am_handler
    uct_am_callback_t cb;
    void* arg;
    std::uint32_t flags;
};

struct IfaceBase { // uct_base_iface
    uct_iface_t super;
    void* internal; // InternalOperations of the layout
    uct_md_h md;
    void* worker; // Worker of the layout
    AmHandlerEntry am[UCT_AM_ID_MAX];
    uct_am_tracer_t am_tracer;
    void* am_tracer_arg;
    uct_error_handler_t err_handler;
    void* err_handler_arg;
    std::uint32_t err_handler_flags;
    struct {
        int id;
        std::uint32_t refcount;
    } progress;
    unsigned progress_flags;
    struct {
        unsigned num_alloc_methods;
        uct_alloc_method_t alloc_methods[UCT_ALLOC_METHOD_LAST];
        ucs_log_level_t failure_level;
        std::size_t max_num_eps;
    } config;
};

struct EpBase { // uct_base_ep, without statistics
    uct_ep_t super;
};

struct IfaceOptionsBase { // uct_iface_config
    struct {
        uct_alloc_method_t* methods;
        unsigned count;
    } alloc_methods;
    int failure;
    std::size_t max_num_eps;
};

struct DeviceResource { // uct_tl_device_resource
    char name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t type;
    ucs_sys_device_t sys_device;
};

extern ucs_class_t iface_class asm("uct_base_iface_t_class");
ucs_status_t iface_init(IfaceBase* self, ucs_class_t* type, int* count, uct_iface_ops_t* operations, void* internal,
                        uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                        const IfaceOptionsBase* options) asm("uct_base_iface_t_init");
extern ucs_class_t ep_class asm("uct_base_ep_t_class");
ucs_status_t ep_init(EpBase* self, ucs_class_t* type, int* count, IfaceBase* iface) asm("uct_base_ep_t_init");

void iface_query(IfaceBase* iface, uct_iface_attr_t* attr) asm("uct_base_iface_query");
void iface_progress_enable(IfaceBase* iface, ucs_callback_t callback,
                           unsigned flags) asm("uct_base_iface_progress_enable_cb");
void iface_progress_disable(uct_iface_h iface, unsigned flags) asm("uct_base_iface_progress_disable");
ucs_status_t iface_estimate(uct_iface_h iface, void* attr) asm("uct_base_iface_estimate_perf");
ucs_status_t ep_failed(uct_iface_h iface, uct_ep_h ep, ucs_status_t status) asm("uct_iface_handle_ep_err");
ucs_status_t single_device(uct_md_h md, const char* name, uct_device_type_t type, ucs_sys_device_t device,
                           DeviceResource** out, unsigned* count) asm("uct_single_device_resource");

// ---- Transports and components: uct/base/uct_iface.h, uct_component.h

// ConfigEntry: of the layout
template <class ConfigEntry> struct Tl { // uct_tl
    char name[UCT_TL_NAME_MAX];
    ucs_status_t (*query_devices)(uct_md_h md, DeviceResource** out, unsigned* count);
    ucs_status_t (*iface_open)(uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                               const uct_iface_config_t* options, uct_iface_h* out);
    ConfigEntry config;
    ucs_list_link_t list;
};

void component_register(void* component) asm("uct_component_register");
void tl_register(void* component, void* tl) asm("uct_tl_register");
extern ucs_list_link_t components asm("uct_components_list");

// ---- Asynchronous contexts: ucs/async/async.h. The place of the mode depends on how UCX was built, see async.h here.

ucs_status_t async_create(ucs_async_mode_t mode, ucs_async_context_t** out) asm("ucs_async_context_create");
void async_destroy(ucs_async_context_t* async) asm("ucs_async_context_destroy");
ucs_status_t async_watch(ucs_async_mode_t mode, int fd, ucs_event_set_types_t events, ucs_async_event_cb_t callback,
                         void* arg, ucs_async_context_t* async) asm("ucs_async_set_event_handler");
ucs_status_t async_forget(int id, int wait) asm("ucs_async_remove_handler");

// ---- Values of variables: ucs/sys/string.h

inline constexpr unsigned long kAmountAuto = static_cast<unsigned long>(-2); // UCS_ULUNITS_AUTO
inline constexpr unsigned long kAmountInf = static_cast<unsigned long>(-1);  // UCS_ULUNITS_INF

// ---- Time: ucs/time/time.h

double clocks_per_second() asm("ucs_get_cpu_clocks_per_sec");

// ---- The registration cache: ucs/memory/rcache.h

ucs_status_t cache_create(const void* parameters, const char* name, void* statistics,
                          void** out) asm("ucs_rcache_create");
void cache_destroy(void* cache) asm("ucs_rcache_destroy");
void cache_put(void* cache, void* region) asm("ucs_rcache_region_put");
void cache_invalidate(void* cache, void* region, void (*done)(void* arg),
                      void* arg) asm("ucs_rcache_region_invalidate");
inline constexpr std::uint16_t kCacheHideErrors = 1; // UCS_RCACHE_MEM_REG_HIDE_ERRORS
inline constexpr int kCachePurgeOnFork = 2;          // UCS_RCACHE_FLAG_PURGE_ON_FORK
// UCS_RCACHE_FLAG_NEED_LRU_LOCK: nobody else locks the cache. Needed from 1.20.1 on; earlier versions ignore it.
inline constexpr int kCacheNeedsLock = 8;

} // namespace ucx_mp::face::abi
