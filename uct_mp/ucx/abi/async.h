// UCX's asynchronous context. It begins with a lock, whose size depends on how UCX was built (a mutex with assertions
// is larger), and then comes the mode.
//
// Threads: any.
#pragma once

#include "uct_mp/ucx/abi/base.h"

namespace ucx_mp::face::abi {

// The place of the mode, found once by making a context. False: it is at no known place.
[[nodiscard]] bool find_async_mode();

[[nodiscard]] ucs_async_mode_t mode_of(const ucs_async_context_t* async);

// As UCS_ASYNC_BLOCK and UCS_ASYNC_UNBLOCK. `async` is of a mode with threads.
void block(ucs_async_context_t* async);
[[nodiscard]] bool try_block(ucs_async_context_t* async);
void unblock(ucs_async_context_t* async);

} // namespace ucx_mp::face::abi
