// UCX's headers, and checks that the core's types equal UCX's. No other file here but abi/ includes UCX headers.
//
// Only packaged headers, and of these only the parts that are the same from 1.13 to 1.22. The rest is
// declared in abi/: base.h has the parts that UCX does not package, v1_NN.h the changes of that version.
// The library is compiled against any of these versions, and runs with all of them: abi/layout.h.
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

// The most that a release build of UCX logs: its own macros ask for it.
#ifndef UCS_MAX_LOG_LEVEL
#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_DEBUG
#endif

extern "C" {
#include <ucm/api/ucm.h>
#include <ucs/datastruct/string_buffer.h>
#include <ucs/sys/uid.h>
#include <ucs/vfs/base/vfs_cb.h>
#include <ucs/vfs/base/vfs_obj.h>
}

#include "uct_mp/channel/types.h"
#include "uct_mp/host/status.h"
#include "uct_mp/ucx/abi/base.h"

namespace ucx_mp::face {

// "Reaches other nodes": UCT_IFACE_FLAG_INTER_NODE, from 1.18 on. Earlier versions ignore it.
inline constexpr std::uint64_t kInterNode = std::uint64_t{1} << 54;

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

static_assert(sizeof(channel::AmHandler) == sizeof(abi::AmHandlerEntry));
static_assert(offsetof(channel::AmHandler, callback) == offsetof(abi::AmHandlerEntry, cb));
static_assert(offsetof(channel::AmHandler, arg) == offsetof(abi::AmHandlerEntry, arg));
static_assert(offsetof(channel::AmHandler, flags) == offsetof(abi::AmHandlerEntry, flags));
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

// As uct_invoke_completion(), which no package has.
inline void complete(uct_completion_t* completion, ucs_status_t status) {
    if (completion->status == UCS_OK) completion->status = status;
    if (--completion->count == 0) completion->func(completion);
}

} // namespace ucx_mp::face
