// Names that people use for a process and its ports: host, rank, "mlx5_0:1". For lines and tables, never for a
// decision: a peer's words of itself are anybody's, and everything works without them.
//
// A request or a reply tells them in its tail (wire.h, PartKind), where there is room. A peer of an earlier release
// tells none, and is called by its number then.
// Threads: any, on what the caller holds. Slow path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::connect {

struct Connection;

inline constexpr std::size_t kMaxHostName = 32; // characters that are told; the rest is cut off

struct Names {
    std::string host;       // without its domain; empty: not known
    std::int32_t rank = -1; // in its job; -1: not known
    std::string ports;      // "mlx5_0:1,mlx5_1:1", in the order of its rails; a name that was not told is empty
    bool operator==(const Names&) const = default;
};

[[nodiscard]] std::string port_names(std::span<const verbs::Rail> rails);

// As parts of a tail, host and rank first, as far as they fit into `room` bytes.
[[nodiscard]] std::vector<std::uint8_t> pack_names(const Names& names, std::size_t room);
// From a tail whose parts end where it does. Parts without sense are left out, and a character that could do harm in a
// terminal or a line is a '?'.
[[nodiscard]] Names read_names(std::span<const std::uint8_t> tail);

// "mlx5_0:1"; empty: not known.
[[nodiscard]] std::string_view port_name(const Names& names, std::size_t rail);

// "node7 rank 12", "rank 12", "node7"; without any of them "peer 0123456789abcdef (LID 4)".
[[nodiscard]] std::string describe(const Connection& connection);
// The peer's port: "mlx5_0:1", else "LID 4" or its address, else "port 2".
[[nodiscard]] std::string describe_port(const Connection& connection, std::size_t rail);

} // namespace ucx_mp::connect
