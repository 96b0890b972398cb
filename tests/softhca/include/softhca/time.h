// Time in softhca: nanoseconds.
#pragma once
#include <cstdint>

namespace softhca {

using Nanos = uint64_t;
inline constexpr Nanos kNever = UINT64_MAX;

} // namespace softhca
