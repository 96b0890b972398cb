// Types of the arguments of operations. Iov, Completion and AmHandler have the layouts of UCX's uct_iov_t,
// uct_completion_t and uct_am_handler_t (checked in uct_mp/ucx), so that the face passes pointers through.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct_mp/host/status.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::channel {

// The values go over the wire: wire.h, AtomicRequest.
enum class AtomicOp : std::uint8_t { add = 0, bit_and = 1, bit_or = 2, bit_xor = 3, swap = 4, compare_swap = 5 };

inline constexpr unsigned kAmIds = 32;
inline constexpr unsigned kMaxIov = 8; // entries of a zcopy operation; fewer if a device's max_sge is smaller

struct Iov {
    void* buffer;
    std::size_t length;
    verbs::MemoryKeys* memory; // contains the buffer; ignored for length 0
    std::size_t stride;        // unused: `count` is 1
    unsigned count;
};
[[nodiscard]] inline std::size_t total_length(const Iov* iov, std::size_t n) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < n; ++i) total += iov[i].length;
    return total;
}

// `callback` is called when `count` has come down to 0. `status` keeps the first failure. The caller owns it.
struct Completion {
    void (*callback)(Completion*);
    int count;
    Status status;
};
inline void complete(Completion* completion, Status status) {
    if (!completion) return;
    if (failed(status) && completion->status == Status::ok) completion->status = status;
    if (--completion->count == 0) completion->callback(completion);
}

// in_progress: the callee keeps `data` (only with kCallbackMayKeep) until Interface::release().
struct AmHandler {
    Status (*callback)(void* arg, void* data, std::size_t length, unsigned flags);
    void* arg;
    std::uint32_t flags;
};
inline constexpr unsigned kCallbackMayKeep = 1u << 0; // UCT_CB_PARAM_FLAG_DESC

using PackFn = std::size_t (*)(void* dest, void* arg);
using UnpackFn = void (*)(void* arg, const void* data, std::size_t length);

} // namespace ucx_mp::channel
