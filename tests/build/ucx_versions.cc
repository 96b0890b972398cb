// Compiled by ucx_versions.py once for each version of UCX, with that version's own headers (internal ones included)
// and -DLAYOUT=V1_NN: fails where uct_mp/ucx/abi says something else. As a program it prints what the packaged headers
// say, of which libuct_mp.so is compiled with one version's.
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdio>
#include <type_traits>

extern "C" {
#include <config.h>

#include <ucm/api/ucm.h>
#include <ucs/async/async.h>
#include <ucs/config/parser.h>
#include <ucs/memory/rcache.h>
#include <ucs/sys/string.h>
#include <ucs/sys/uid.h>
#include <ucs/time/time.h>
#include <ucs/vfs/base/vfs_obj.h>
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>
#include <uct/base/uct_component.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_worker.h>
}

#include "uct_mp/ucx/abi/v1_22.h"

using namespace ucx_mp::face::abi;
using V = LAYOUT;

namespace {

// Called alike: as many arguments, pointers where pointers are, numbers of one size where numbers are.
template <class A, class B> struct Like
    : std::bool_constant<std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B)> {};
template <> struct Like<void, void> : std::true_type {};
template <class R, class... A, class S, class... B> struct Like<R (*)(A...), S (*)(B...)> {
    static constexpr bool all() {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return Like<R, S>::value && (Like<A, B>::value && ...);
    }
    static constexpr bool value = all();
};

} // namespace

#define SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define AT(ours, a, theirs, b)                                                                                         \
    static_assert(offsetof(ours, a) == offsetof(theirs, b) && sizeof(ours::a) == sizeof(theirs::b), #theirs "." #b)
#define SAME(ours, theirs, member)                                                                                     \
    AT(ours, member, theirs, member);                                                                                  \
    static_assert(Like<decltype(ours::member), decltype(theirs::member)>::value, #theirs "." #member)
#define FUNCTION(ours, theirs) static_assert(Like<decltype(&ours), decltype(&theirs)>::value, #theirs)
#define VALUE(ours, theirs)                                                                                            \
    static_assert(static_cast<std::uint64_t>(ours) == static_cast<std::uint64_t>(theirs), #theirs)

// ---- Memory domains
SIZE(MdBase, uct_md_t);
AT(MdBase, operations, uct_md_t, ops);
AT(MdBase, component, uct_md_t, component);
SIZE(DeregParameters, uct_md_mem_dereg_params_t);
SAME(DeregParameters, uct_md_mem_dereg_params_t, field_mask);
SAME(DeregParameters, uct_md_mem_dereg_params_t, flags);
SAME(DeregParameters, uct_md_mem_dereg_params_t, memh);
SAME(DeregParameters, uct_md_mem_dereg_params_t, comp);
VALUE(kDeregMemh, UCT_MD_MEM_DEREG_FIELD_MEMH);
VALUE(kDeregFlags, UCT_MD_MEM_DEREG_FIELD_FLAGS);
VALUE(kDeregCompletion, UCT_MD_MEM_DEREG_FIELD_COMPLETION);
VALUE(kDeregInvalidate, UCT_MD_MEM_DEREG_FLAG_INVALIDATE);
SIZE(PackParameters, uct_md_mkey_pack_params_t);
SAME(PackParameters, uct_md_mkey_pack_params_t, field_mask);
SAME(PackParameters, uct_md_mkey_pack_params_t, flags);
VALUE(kPackFlags, UCT_MD_MKEY_PACK_FIELD_FLAGS);
SIZE(MdOptionsBase, uct_md_config_t);
FUNCTION(empty_md_resource, uct_md_query_empty_md_resource);
FUNCTION(single_md_resource, uct_md_query_single_md_resource);

SIZE(V::MdOperations, uct_md_ops_t);
SAME(V::MdOperations, uct_md_ops_t, close);
SAME(V::MdOperations, uct_md_ops_t, query);
SAME(V::MdOperations, uct_md_ops_t, mem_alloc);
SAME(V::MdOperations, uct_md_ops_t, mem_free);
SAME(V::MdOperations, uct_md_ops_t, mem_advise);
SAME(V::MdOperations, uct_md_ops_t, mem_reg);
SAME(V::MdOperations, uct_md_ops_t, mem_dereg);
SAME(V::MdOperations, uct_md_ops_t, mem_query);
SAME(V::MdOperations, uct_md_ops_t, mkey_pack);
SAME(V::MdOperations, uct_md_ops_t, detect_memory_type);
#if MINOR >= 14
SAME(V::MdOperations, uct_md_ops_t, mem_attach);
SIZE(V::MdAttributes, uct_md_attr_v2_t);
SAME(V::MdAttributes, uct_md_attr_v2_t, field_mask);
SAME(V::MdAttributes, uct_md_attr_v2_t, max_reg);
SAME(V::MdAttributes, uct_md_attr_v2_t, flags);
SAME(V::MdAttributes, uct_md_attr_v2_t, reg_mem_types);
SAME(V::MdAttributes, uct_md_attr_v2_t, cache_mem_types);
SAME(V::MdAttributes, uct_md_attr_v2_t, detect_mem_types);
SAME(V::MdAttributes, uct_md_attr_v2_t, access_mem_types);
SAME(V::MdAttributes, uct_md_attr_v2_t, dmabuf_mem_types);
SAME(V::MdAttributes, uct_md_attr_v2_t, reg_cost);
SAME(V::MdAttributes, uct_md_attr_v2_t, component_name);
SAME(V::MdAttributes, uct_md_attr_v2_t, rkey_packed_size);
SAME(V::MdAttributes, uct_md_attr_v2_t, local_cpus);
SAME(V::MdAttributes, uct_md_attr_v2_t, exported_mkey_packed_size);
SAME(V::MdAttributes, uct_md_attr_v2_t, global_id);
SIZE(V::RegParameters, uct_md_mem_reg_params_t);
SAME(V::RegParameters, uct_md_mem_reg_params_t, field_mask);
SAME(V::RegParameters, uct_md_mem_reg_params_t, flags);
VALUE(V::kRegFlags, UCT_MD_MEM_REG_FIELD_FLAGS);
#endif
#if MINOR < 15
VALUE(V::kMdInvalidates, UCT_MD_FLAG_INVALIDATE);
VALUE(V::kPackRevocable, UCT_MD_MKEY_PACK_FLAG_INVALIDATE);
#else
VALUE(V::kMdInvalidates, UCT_MD_FLAG_INVALIDATE | UCT_MD_FLAG_INVALIDATE_RMA | UCT_MD_FLAG_INVALIDATE_AMO);
VALUE(V::kPackRevocable, UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA | UCT_MD_MKEY_PACK_FLAG_INVALIDATE_AMO);
#endif
#if MINOR < 16
SAME(V::MdOperations, uct_md_ops_t, is_sockaddr_accessible);
#else
SAME(V::MdAttributes, uct_md_attr_v2_t, reg_alignment);
#endif
#if MINOR >= 21
SAME(V::MdOperations, uct_md_ops_t, mem_elem_pack);
#endif

// ---- Interfaces and endpoints
SIZE(IfaceBase, uct_base_iface_t);
SAME(IfaceBase, uct_base_iface_t, super);
AT(IfaceBase, internal, uct_base_iface_t, internal_ops);
SAME(IfaceBase, uct_base_iface_t, md);
SAME(IfaceBase, uct_base_iface_t, worker);
SAME(IfaceBase, uct_base_iface_t, am);
SAME(IfaceBase, uct_base_iface_t, err_handler);
SAME(IfaceBase, uct_base_iface_t, config);
AT(IfaceBase, config.failure_level, uct_base_iface_t, config.failure_level);
SIZE(AmHandlerEntry, uct_am_handler_t);
SAME(AmHandlerEntry, uct_am_handler_t, cb);
SAME(AmHandlerEntry, uct_am_handler_t, arg);
SAME(AmHandlerEntry, uct_am_handler_t, flags);
SIZE(EpBase, uct_base_ep_t);
SIZE(IfaceOptionsBase, uct_iface_config_t);
SIZE(DeviceResource, uct_tl_device_resource_t);
SAME(DeviceResource, uct_tl_device_resource_t, type);
SAME(DeviceResource, uct_tl_device_resource_t, sys_device);
FUNCTION(iface_init, uct_base_iface_t_init);
FUNCTION(ep_init, uct_base_ep_t_init);
FUNCTION(iface_query, uct_base_iface_query);
FUNCTION(iface_progress_enable, uct_base_iface_progress_enable_cb);
FUNCTION(iface_progress_disable, uct_base_iface_progress_disable);
FUNCTION(iface_estimate, uct_base_iface_estimate_perf);
FUNCTION(ep_failed, uct_iface_handle_ep_err);
FUNCTION(single_device, uct_single_device_resource);

SIZE(V::InternalOperations, uct_iface_internal_ops_t);
SAME(V::InternalOperations, uct_iface_internal_ops_t, iface_estimate_perf);
SAME(V::InternalOperations, uct_iface_internal_ops_t, iface_vfs_refresh);
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_query);
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_invalidate);
#if MINOR >= 14
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_connect_to_ep_v2);
#endif
#if MINOR >= 15
SAME(V::InternalOperations, uct_iface_internal_ops_t, iface_is_reachable_v2);
SAME(V::ReachableParameters, uct_iface_is_reachable_params_t, device_addr);
SAME(V::ReachableParameters, uct_iface_is_reachable_params_t, iface_addr);
SAME(V::ReachableParameters, uct_iface_is_reachable_params_t, info_string);
SAME(V::ReachableParameters, uct_iface_is_reachable_params_t, info_string_length);
SAME(V::ReachableParameters, uct_iface_is_reachable_params_t, scope);
VALUE(V::kReachableDevice, UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR);
VALUE(V::kReachableIface, UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR);
VALUE(V::kReachableInfo, UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING);
VALUE(V::kReachableInfoLength, UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH);
VALUE(V::kReachableScope, UCT_IFACE_IS_REACHABLE_FIELD_SCOPE);
VALUE(V::kScopeDevice, UCT_IFACE_REACHABILITY_SCOPE_DEVICE);
#endif
#if MINOR >= 16
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_is_connected);
SIZE(V::ConnectedParameters, uct_ep_is_connected_params_t);
SAME(V::ConnectedParameters, uct_ep_is_connected_params_t, iface_addr);
VALUE(V::kConnectedDevice, UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR);
VALUE(V::kConnectedIface, UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR);
#endif
#if MINOR == 20 || MINOR >= 22
SAME(V::InternalOperations, uct_iface_internal_ops_t, iface_query_v2);
static_assert(Like<decltype(V::InternalOperations::iface_query_v2), decltype(&uct_iface_base_query_v2)>::value);
#endif
#if MINOR == 20
SAME(V::InternalOperations, uct_iface_internal_ops_t, iface_mem_element_pack);
#endif
#if MINOR >= 20
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_get_device_ep);
#endif
#if MINOR >= 22
SAME(V::InternalOperations, uct_iface_internal_ops_t, ep_put_sgl_zcopy);
#endif
SIZE(V::PerfAttributes, uct_perf_attr_t);
SAME(V::PerfAttributes, uct_perf_attr_t, field_mask);
SAME(V::PerfAttributes, uct_perf_attr_t, operation);
SAME(V::PerfAttributes, uct_perf_attr_t, send_post_overhead);
SAME(V::PerfAttributes, uct_perf_attr_t, bandwidth);
SAME(V::PerfAttributes, uct_perf_attr_t, max_inflight_eps);
VALUE(V::kPerfOperation, UCT_PERF_ATTR_FIELD_OPERATION);
VALUE(V::kPerfPostOverhead, UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD);
VALUE(V::kPerfBandwidth, UCT_PERF_ATTR_FIELD_BANDWIDTH);
VALUE(V::kPerfInFlight, UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS);
#if MINOR >= 19
SAME(V::PerfAttributes, uct_perf_attr_t, path_bandwidth);
VALUE(V::kPerfPathBandwidth, UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH);
#endif
VALUE(0, UCT_EP_OP_AM_SHORT);
VALUE(1, UCT_EP_OP_AM_BCOPY);
VALUE(2, UCT_EP_OP_AM_ZCOPY);
AT(V::Worker, async, uct_priv_worker_t, async);

// ---- Configuration, components
SIZE(V::Parser, ucs_config_parser_t);
SAME(V::Parser, ucs_config_parser_t, read);
SAME(V::Parser, ucs_config_parser_t, write);
SAME(V::Parser, ucs_config_parser_t, clone);
SAME(V::Parser, ucs_config_parser_t, release);
SAME(V::Parser, ucs_config_parser_t, help);
SAME(V::Parser, ucs_config_parser_t, arg);
SIZE(V::ConfigEntry, ucs_config_global_list_entry_t);
SAME(V::ConfigEntry, ucs_config_global_list_entry_t, name);
SAME(V::ConfigEntry, ucs_config_global_list_entry_t, table);
SAME(V::ConfigEntry, ucs_config_global_list_entry_t, size);
SAME(V::ConfigEntry, ucs_config_global_list_entry_t, list);
SIZE(Tl<V::ConfigEntry>, uct_tl_t);
SAME(Tl<V::ConfigEntry>, uct_tl_t, query_devices);
SAME(Tl<V::ConfigEntry>, uct_tl_t, iface_open);
SAME(Tl<V::ConfigEntry>, uct_tl_t, config);
SAME(Tl<V::ConfigEntry>, uct_tl_t, list);
SIZE(V::Component, uct_component_t);
SAME(V::Component, uct_component_t, query_md_resources);
SAME(V::Component, uct_component_t, md_open);
SAME(V::Component, uct_component_t, cm_open);
SAME(V::Component, uct_component_t, rkey_unpack);
SAME(V::Component, uct_component_t, rkey_ptr);
SAME(V::Component, uct_component_t, rkey_release);
#if MINOR >= 16
SAME(V::Component, uct_component_t, rkey_compare);
#endif
SAME(V::Component, uct_component_t, md_config);
SAME(V::Component, uct_component_t, tl_list);
SAME(V::Component, uct_component_t, list);
SAME(V::Component, uct_component_t, flags);
SAME(V::Component, uct_component_t, md_vfs_init);
VALUE(kAmountAuto, UCS_ULUNITS_AUTO);
VALUE(kAmountInf, UCS_ULUNITS_INF);
VALUE(ULONG_MAX - 1, UCS_TIME_AUTO);

// ---- Asynchronous contexts: the mode comes behind the locks
static_assert(offsetof(ucs_async_context_t, mode) == sizeof(ucs_async_thread_mutex_t));
FUNCTION(async_create, ucs_async_context_create);
FUNCTION(async_watch, ucs_async_set_event_handler);
FUNCTION(async_forget, ucs_async_remove_handler);

// ---- The registration cache
SIZE(V::Region, ucs_rcache_region_t);
AT(V::Region, start, ucs_rcache_region_t, super.start);
AT(V::Region, end, ucs_rcache_region_t, super.end);
SIZE(V::CacheOperations, ucs_rcache_ops_t);
SAME(V::CacheOperations, ucs_rcache_ops_t, mem_reg);
SAME(V::CacheOperations, ucs_rcache_ops_t, mem_dereg);
SAME(V::CacheOperations, ucs_rcache_ops_t, dump_region);
#if MINOR >= 18
SAME(V::CacheOperations, ucs_rcache_ops_t, merge);
#endif
SIZE(V::CacheParameters, ucs_rcache_params_t);
SAME(V::CacheParameters, ucs_rcache_params_t, region_struct_size);
SAME(V::CacheParameters, ucs_rcache_params_t, ucm_events);
SAME(V::CacheParameters, ucs_rcache_params_t, ucm_event_priority);
SAME(V::CacheParameters, ucs_rcache_params_t, ops);
SAME(V::CacheParameters, ucs_rcache_params_t, context);
SAME(V::CacheParameters, ucs_rcache_params_t, flags);
SAME(V::CacheParameters, ucs_rcache_params_t, max_regions);
SAME(V::CacheParameters, ucs_rcache_params_t, max_size);
SAME(V::CacheParameters, ucs_rcache_params_t, max_unreleased);
#if MINOR < 16
using CacheOptions = uct_md_rcache_config_t;
#else
using CacheOptions = ucs_rcache_config_t;
#endif
SIZE(V::CacheOptions, CacheOptions);
SAME(V::CacheOptions, CacheOptions, event_prio);
SAME(V::CacheOptions, CacheOptions, overhead);
SAME(V::CacheOptions, CacheOptions, max_regions);
SAME(V::CacheOptions, CacheOptions, max_size);
SAME(V::CacheOptions, CacheOptions, max_unreleased);
SAME(V::CacheOptions, CacheOptions, purge_on_fork);
static_assert(Like<V::FindFunction, decltype(&ucs_rcache_get)>::value);
FUNCTION(cache_create, ucs_rcache_create);
FUNCTION(cache_destroy, ucs_rcache_destroy);
FUNCTION(cache_put, ucs_rcache_region_put);
FUNCTION(cache_invalidate, ucs_rcache_region_invalidate);
VALUE(kCacheHideErrors, UCS_RCACHE_MEM_REG_HIDE_ERRORS);
VALUE(kCachePurgeOnFork, UCS_RCACHE_FLAG_PURGE_ON_FORK);
FUNCTION(clocks_per_second, ucs_get_cpu_clocks_per_sec);

// ---- What the packaged headers say
#define PRINT_SIZE(type) std::printf("size " #type " %zu\n", sizeof(type))
#define PRINT(type, member)                                                                                            \
    std::printf("member " #type "." #member " %zu %zu\n", offsetof(type, member), sizeof(type::member))
#define PRINT_VALUE(value) std::printf("value " #value " %lld\n", static_cast<long long>(value))

int main() {
    PRINT_SIZE(uct_iface_ops_t);
    PRINT(uct_iface_ops_t, ep_put_short);
    PRINT(uct_iface_ops_t, ep_get_zcopy);
    PRINT(uct_iface_ops_t, ep_am_short);
    PRINT(uct_iface_ops_t, ep_am_zcopy);
    PRINT(uct_iface_ops_t, ep_atomic_cswap64);
    PRINT(uct_iface_ops_t, ep_atomic64_fetch);
    PRINT(uct_iface_ops_t, ep_pending_add);
    PRINT(uct_iface_ops_t, ep_flush);
    PRINT(uct_iface_ops_t, ep_check);
    PRINT(uct_iface_ops_t, ep_create);
    PRINT(uct_iface_ops_t, ep_destroy);
    PRINT(uct_iface_ops_t, iface_flush);
    PRINT(uct_iface_ops_t, iface_progress);
    PRINT(uct_iface_ops_t, iface_event_arm);
    PRINT(uct_iface_ops_t, iface_close);
    PRINT(uct_iface_ops_t, iface_query);
    PRINT(uct_iface_ops_t, iface_is_reachable);
    PRINT_SIZE(uct_iface_attr_t);
    PRINT(uct_iface_attr_t, cap.put);
    PRINT(uct_iface_attr_t, cap.get);
    PRINT(uct_iface_attr_t, cap.am);
    PRINT(uct_iface_attr_t, cap.atomic32);
    PRINT(uct_iface_attr_t, cap.atomic64);
    PRINT(uct_iface_attr_t, cap.flags);
    PRINT(uct_iface_attr_t, cap.event_flags);
    PRINT(uct_iface_attr_t, device_addr_len);
    PRINT(uct_iface_attr_t, iface_addr_len);
    PRINT(uct_iface_attr_t, overhead);
    PRINT(uct_iface_attr_t, bandwidth);
    PRINT(uct_iface_attr_t, latency);
    PRINT(uct_iface_attr_t, priority);
    PRINT_SIZE(uct_iface_params_t);
    PRINT(uct_iface_params_t, field_mask);
    PRINT(uct_iface_params_t, open_mode);
    PRINT(uct_iface_params_t, mode.device.dev_name);
    PRINT(uct_iface_params_t, rx_headroom);
    PRINT_SIZE(uct_ep_params_t);
    PRINT(uct_ep_params_t, field_mask);
    PRINT(uct_ep_params_t, iface);
    PRINT(uct_ep_params_t, iface_addr);
    PRINT_SIZE(uct_md_attr_t);
    PRINT(uct_md_attr_t, cap.max_reg);
    PRINT(uct_md_attr_t, reg_cost);
    PRINT(uct_md_attr_t, rkey_packed_size);
    PRINT(uct_md_attr_t, local_cpus);
    PRINT_SIZE(uct_iov_t);
    PRINT_SIZE(uct_completion_t);
    PRINT_SIZE(uct_pending_req_t);
    PRINT(uct_pending_req_t, priv);
    PRINT_SIZE(uct_md_resource_desc_t);
    PRINT_SIZE(uct_recv_desc_t);
    PRINT_SIZE(ucs_class_t);
    PRINT_SIZE(ucs_linear_func_t);
    PRINT_SIZE(ucs_recursive_spinlock_t);
    PRINT(ucm_event_t, vm_unmapped.address);
    PRINT(ucm_event_t, vm_unmapped.size);
    PRINT(ucs_global_opts_t, log_component);
    PRINT_SIZE(ucs_log_component_config_t);
    PRINT_VALUE(UCT_AM_ID_MAX);
    PRINT_VALUE(UCT_ALLOC_METHOD_LAST);
    PRINT_VALUE(UCT_DEVICE_TYPE_NET);
    PRINT_VALUE(UCT_CB_PARAM_FLAG_DESC);
    PRINT_VALUE(UCT_FLUSH_FLAG_CANCEL);
    PRINT_VALUE(UCT_MD_FLAG_REG);
    PRINT_VALUE(UCT_MD_FLAG_NEED_MEMH);
    PRINT_VALUE(UCT_MD_FLAG_NEED_RKEY);
    PRINT_VALUE(UCT_MD_MEM_FLAG_HIDE_ERRORS);
    PRINT_VALUE(UCT_IFACE_PARAM_FIELD_OPEN_MODE);
    PRINT_VALUE(UCT_IFACE_PARAM_FIELD_DEVICE);
    PRINT_VALUE(UCT_IFACE_PARAM_FIELD_RX_HEADROOM);
    PRINT_VALUE(UCT_IFACE_OPEN_MODE_DEVICE);
    PRINT_VALUE(UCT_EP_PARAM_FIELD_IFACE_ADDR);
    PRINT_VALUE(UCT_IFACE_FLAG_AM_SHORT);
    PRINT_VALUE(UCT_IFACE_FLAG_PUT_ZCOPY);
    PRINT_VALUE(UCT_IFACE_FLAG_GET_ZCOPY);
    PRINT_VALUE(UCT_IFACE_FLAG_ATOMIC_CPU);
    PRINT_VALUE(UCT_IFACE_FLAG_ATOMIC_DEVICE);
    PRINT_VALUE(UCT_IFACE_FLAG_PENDING);
    PRINT_VALUE(UCT_IFACE_FLAG_CONNECT_TO_IFACE);
    PRINT_VALUE(UCT_IFACE_FLAG_CB_SYNC);
    PRINT_VALUE(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE);
    PRINT_VALUE(UCT_IFACE_FLAG_EP_CHECK);
    PRINT_VALUE(UCT_IFACE_FLAG_EVENT_FD);
    PRINT_VALUE(UCT_IFACE_FLAG_EVENT_RECV);
    PRINT_VALUE(UCT_ATOMIC_OP_CSWAP);
    PRINT_VALUE(UCS_ERR_CANCELED);
    PRINT_VALUE(UCS_ERR_ENDPOINT_TIMEOUT);
    PRINT_VALUE(UCS_MEMORY_TYPE_HOST);
    PRINT_VALUE(UCS_ASYNC_MODE_THREAD_MUTEX);
    PRINT_VALUE(UCS_LOG_LEVEL_ERROR);
    PRINT_VALUE(UCS_LOG_LEVEL_DEBUG);
    PRINT_VALUE(UCM_EVENT_VM_UNMAPPED);
    PRINT_VALUE(UCS_SYS_DEVICE_ID_UNKNOWN);
}
