// The two kinds of a path. A path of RC has a queue pair of its own at each end. A path of DC
// has a target at the far end, and borrows an initiator while something is under way. A channel
// may hold paths of both kinds: each rule that says mp_rc or mp_dc goes by the kind of the path.
#pragma once

#include <cstdint>

namespace ucx_mp::path {

enum class Kind : std::uint8_t { rc, dc };

// A set of kinds.
enum class Kinds : std::uint8_t { none = 0, rc = 1, dc = 2, both = 3 };

[[nodiscard]] constexpr Kinds only(Kind kind) { return kind == Kind::dc ? Kinds::dc : Kinds::rc; }
[[nodiscard]] constexpr Kinds operator&(Kinds a, Kinds b) {
    return static_cast<Kinds>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool has(Kinds kinds, Kind kind) { return (kinds & only(kind)) != Kinds::none; }
[[nodiscard]] constexpr Kind other(Kind kind) { return kind == Kind::dc ? Kind::rc : Kind::dc; }

} // namespace ucx_mp::path
