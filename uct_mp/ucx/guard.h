// No exception crosses into C: set-up code runs inside guard(), which turns any exception into a status.
#pragma once

#include <exception>
#include <new>

#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {

template <class F> ucs_status_t guard(const char* what, F&& body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        ucs_error("mp: out of memory in %s", what);
        return UCS_ERR_NO_MEMORY;
    } catch (const std::exception& e) {
        ucs_error("mp: %s failed: %s", what, e.what());
        return UCS_ERR_IO_ERROR;
    }
}

} // namespace ucx_mp::face
