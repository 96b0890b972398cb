// Processes with the same number are on the same host.
#pragma once

#include <cstdint>

namespace ucx_mp::glue {

// The machine's number (boot, and namespace of shared memory). With `adapters` also the GUIDs of
// all InfiniBand adapters. The nodes of an emulated fabric (tests/softhca) share a machine and
// differ in them. Containers may, too; they are then taken for different hosts. Slow: set-up.
[[nodiscard]] std::uint64_t host_identity(bool adapters);

} // namespace ucx_mp::glue
