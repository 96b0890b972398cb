// How much memory a process may register: the variable SOFTHCA_MEMLOCK.
#pragma once

#include <cstdint>
#include <optional>

namespace softhca {

inline constexpr const char* kLockedEnv = "SOFTHCA_MEMLOCK";
inline constexpr const char* kLockedAllowed = "y (the limit of `ulimit -l`), n, or a size like 60000K, 60M, 2G";

// Bytes; UINT64_MAX: as much as it likes. nullopt: not a value of the variable. Null and "": as "n".
std::optional<uint64_t> read_locked_limit(const char* text);

} // namespace softhca
