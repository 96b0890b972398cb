// The result of a call of the transport. Values are those of UCX's ucs_status_t (checked
// in uct_mp/ucx), so that the face passes them through, but nothing here includes UCX.
#pragma once

#include <cstdint>

namespace ucx_mp {

enum class [[nodiscard]] Status : std::int8_t{
    ok = 0,           in_progress = 1,
    no_resource = -2, // try again after progress
    io_error = -3,    no_memory = -4,  invalid_param = -5, unreachable = -6,       busy = -15,
    canceled = -16,   timed_out = -20, unsupported = -22,  connection_reset = -25, endpoint_timeout = -80,
};

[[nodiscard]] constexpr bool failed(Status status) { return status < Status::ok; }

} // namespace ucx_mp
