// Who is on the same host: processes with the same number.
#pragma once

#include <cstdint>

namespace ucx_mp::glue {

// Of the machine (boot, and namespace of shared memory). With `adapters` also the GUIDs of all InfiniBand adapters: the
// nodes of an emulated fabric (tests/softhca) share a machine and differ in them, and so may containers, which are then
// taken for different hosts. Slow: set-up.
[[nodiscard]] std::uint64_t host_identity(bool adapters);

} // namespace ucx_mp::glue
