// UCX's headers, internal ones included, and what of the core's types equals UCX's. No other file of this room includes
// UCX headers.
//
// Supported: 1.13 (abi/v1_13.cc). A newer version needs a file in abi/ that provides abi/layout.h, and the upper limit
// below raised. The other files ask for no version. What they still take from UCX's own headers, beside the public API:
// the base classes of Iface, Ep and Md, the cache's region (md.h), the async context's mode and lock (services.cc).
// What the tagged sources change, in the structures that we fill:
//   1.14  uct_md_ops: query takes uct_md_attr_v2_t, mem_reg takes uct_md_mem_reg_params_t, new mem_attach;
//         uct_iface_internal_ops: ep_connect_to_ep_v2; uct_iface_is_reachable_v2 becomes real
//   1.15  uct_iface_internal_ops: iface_is_reachable_v2
//   1.16  uct_md_ops: mkey_pack gets address and length, is_sockaddr_accessible goes; uct_iface_internal_ops:
//         ep_is_connected; uct_component: rkey_compare
//   1.19  uct_component: rkey_unpack gets uct_rkey_unpack_params_t; ucs_rcache_params: alignments go
//   1.20  uct_iface_internal_ops: iface_query_v2 and iface_mem_element_pack (1.20 only), ep_get_device_ep
//   1.22  uct_iface_internal_ops: iface_query_v2 again, ep_put_sgl_zcopy; uct_md_ops: mem_query takes an attr_v2
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {
#include <config.h>
#include <uct/api/version.h>

#include <ucm/api/ucm.h>
#include <ucs/arch/cpu.h>
#include <ucs/async/async.h>
#include <ucs/config/parser.h>
#include <ucs/datastruct/list.h>
#include <ucs/datastruct/string_buffer.h>
#include <ucs/debug/log.h>
#include <ucs/debug/memtrack_int.h>
#include <ucs/memory/rcache.h>
#include <ucs/sys/math.h>
#include <ucs/sys/string.h>
#include <ucs/sys/uid.h>
#include <ucs/time/time.h>
#include <ucs/type/class.h>
#include <ucs/vfs/base/vfs_cb.h>
#include <ucs/vfs/base/vfs_obj.h>
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>
#include <uct/base/uct_component.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_worker.h>
}

#include "uct_mp/channel/types.h"
#include "uct_mp/host/status.h"

#define UCX_MP_UCX_VERSION (UCT_VERNO_MAJOR * 100 + UCT_VERNO_MINOR)
#if UCX_MP_UCX_VERSION != 113
#error "uct_mp/ucx/compat.h does not know this version of UCX (known: 1.13)"
#endif
#ifdef ENABLE_STATS
#error "UCX built with --enable-stats is not supported: its interfaces and endpoints have other layouts"
#endif

namespace ucx_mp::face {

// "Reaches other nodes": newer versions want to be told, 1.13 asks is_reachable().
#ifdef UCT_IFACE_FLAG_INTER_NODE
inline constexpr std::uint64_t kInterNode = UCT_IFACE_FLAG_INTER_NODE;
#else
inline constexpr std::uint64_t kInterNode = 0;
#endif

// The core's types are UCX's under other names, so that pointers pass through.
static_assert(sizeof(channel::Iov) == sizeof(uct_iov_t));
static_assert(offsetof(channel::Iov, buffer) == offsetof(uct_iov_t, buffer));
static_assert(offsetof(channel::Iov, length) == offsetof(uct_iov_t, length));
static_assert(offsetof(channel::Iov, memory) == offsetof(uct_iov_t, memh));
static_assert(offsetof(channel::Iov, stride) == offsetof(uct_iov_t, stride));
static_assert(offsetof(channel::Iov, count) == offsetof(uct_iov_t, count));

static_assert(sizeof(channel::Completion) == sizeof(uct_completion_t));
static_assert(offsetof(channel::Completion, callback) == offsetof(uct_completion_t, func));
static_assert(offsetof(channel::Completion, count) == offsetof(uct_completion_t, count));
static_assert(offsetof(channel::Completion, status) == offsetof(uct_completion_t, status));
static_assert(sizeof(channel::Completion::status) == sizeof(uct_completion_t::status));

static_assert(sizeof(channel::AmHandler) == sizeof(uct_am_handler_t));
static_assert(offsetof(channel::AmHandler, callback) == offsetof(uct_am_handler_t, cb));
static_assert(offsetof(channel::AmHandler, arg) == offsetof(uct_am_handler_t, arg));
static_assert(offsetof(channel::AmHandler, flags) == offsetof(uct_am_handler_t, flags));
static_assert(channel::kAmIds == UCT_AM_ID_MAX && channel::kCallbackMayKeep == UCT_CB_PARAM_FLAG_DESC);

static_assert(sizeof(Status) == sizeof(ucs_status_t));
static_assert(int(Status::ok) == UCS_OK && int(Status::in_progress) == UCS_INPROGRESS &&
              int(Status::no_resource) == UCS_ERR_NO_RESOURCE && int(Status::io_error) == UCS_ERR_IO_ERROR &&
              int(Status::no_memory) == UCS_ERR_NO_MEMORY && int(Status::invalid_param) == UCS_ERR_INVALID_PARAM &&
              int(Status::unreachable) == UCS_ERR_UNREACHABLE && int(Status::busy) == UCS_ERR_BUSY &&
              int(Status::canceled) == UCS_ERR_CANCELED && int(Status::timed_out) == UCS_ERR_TIMED_OUT &&
              int(Status::unsupported) == UCS_ERR_UNSUPPORTED &&
              int(Status::connection_reset) == UCS_ERR_CONNECTION_RESET &&
              int(Status::endpoint_timeout) == UCS_ERR_ENDPOINT_TIMEOUT);

static_assert(int(channel::AtomicOp::add) == UCT_ATOMIC_OP_ADD &&
              int(channel::AtomicOp::bit_and) == UCT_ATOMIC_OP_AND &&
              int(channel::AtomicOp::bit_or) == UCT_ATOMIC_OP_OR &&
              int(channel::AtomicOp::bit_xor) == UCT_ATOMIC_OP_XOR &&
              int(channel::AtomicOp::swap) == UCT_ATOMIC_OP_SWAP &&
              int(channel::AtomicOp::compare_swap) == UCT_ATOMIC_OP_CSWAP);

[[nodiscard]] inline ucs_status_t to_ucs(Status status) { return static_cast<ucs_status_t>(status); }
[[nodiscard]] inline channel::Completion* to_core(uct_completion_t* completion) {
    return reinterpret_cast<channel::Completion*>(completion);
}
[[nodiscard]] inline const channel::Iov* to_core(const uct_iov_t* iov) {
    return reinterpret_cast<const channel::Iov*>(iov);
}

// At load, before anything is registered: the libraries of this process are those that we are compiled for. Otherwise
// false and one line: if we registered anyway, the first interface would crash.
[[nodiscard]] bool libraries_fit(std::string& error);

} // namespace ucx_mp::face
