// The key of a message: communicator, source and tag (MPI-3.1 3.2.3, 3.2.4), free of MPI's own types.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ucx_mp::glue {

// MPI_ANY_SOURCE and MPI_ANY_TAG in the pattern of a receive; no message has them. No process has this rank or tag.
inline constexpr std::int32_t kAnySource = INT32_MIN;
inline constexpr std::int32_t kAnyTag = INT32_MIN;

// A message's sender, tag and communicator. A receive's pattern, with
// wildcards. Tags below 0 are the library's own: kAnyTag does not match them.
struct Envelope {
    std::uint32_t context; // of the communicator
    std::int32_t source;   // rank in the communicator (of the remote group, if it has one)
    std::int32_t tag;

    friend bool operator==(const Envelope&, const Envelope&) = default;
    // Whether a receive with this pattern takes `message`.
    [[nodiscard]] bool takes(const Envelope& message) const {
        return context == message.context && (source == kAnySource || source == message.source) &&
               (tag == kAnyTag ? message.tag >= 0 : tag == message.tag);
    }
};

// 64 bits in which every bit of the envelope has a say: for hash
// tables. The sending process does not cause collisions by accident.
[[nodiscard]] inline std::uint64_t hash(const Envelope& key) {
    std::uint64_t x = (std::uint64_t{key.context} << 32 | static_cast<std::uint32_t>(key.source)) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) + static_cast<std::uint32_t>(key.tag);
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

} // namespace ucx_mp::glue
