// Checks a message of the data path, before anything in it is believed.
//
// Receiver calls it once, before the message changes any state. Plain active messages are an exception: only their
// length matters, and their receiver checks that itself. Pure code: the fuzzer calls it, too.
#pragma once

#include <cstddef>
#include <cstring>

#include "uct_mp/channel/wire.h"

namespace ucx_mp::channel {

inline constexpr unsigned kAmIdsOnWire = 32;

// A text that says what is wrong with a message of `length` bytes (at least a header); null: nothing. `paths`: bit i is
// set if the channel has path i.
[[nodiscard]] inline const char* flaw_of(const std::byte* message, std::uint32_t length, std::uint64_t paths) {
    MessageHeader header;
    std::memcpy(&header, message, sizeof header);
    if (header.version != kWireVersion) return "a message of another version";
    std::uint32_t least = sizeof header;
    bool sequenced = false;
    switch (static_cast<Kind>(header.kind)) {
    case Kind::am:
        if (header.am_id >= kAmIdsOnWire) return "an active message of an impossible id";
        sequenced = true;
        break;
    case Kind::atomic:
        least += sizeof(AtomicRequest);
        sequenced = true;
        break;
    case Kind::atomic_reply:
        least += sizeof(AtomicReply);
        sequenced = true;
        break;
    case Kind::ack:
    case Kind::ack_request:
        break;
    case Kind::marker:
        least += sizeof(MarkerBody);
        break;
    case Kind::path_up:
        least += sizeof(PathUpBody);
        break;
    default:
        return "a message of an unknown kind";
    }
    const bool fenced = sequenced && header.flags & flag::fenced;
    if (fenced) least += sizeof(FenceTrailer);
    if (length < least) return "a message that is too short for its kind";
    if (sequenced && header.flags & (flag::part | flag::more) &&
        (static_cast<Kind>(header.kind) != Kind::am || !(header.flags & flag::part)))
        return "a part of what has none";
    if (fenced) {
        FenceTrailer trailer;
        std::memcpy(&trailer, message + length - sizeof trailer, sizeof trailer);
        if (trailer.paths & ~paths) return "a fence over paths that do not exist";
    }
    return nullptr;
}

// The length of the part of a well-formed active message that its handler gets.
[[nodiscard]] inline std::uint32_t payload_bytes(const MessageHeader& header, std::uint32_t length) {
    return length - static_cast<std::uint32_t>(sizeof header) -
           (header.flags & flag::fenced ? static_cast<std::uint32_t>(sizeof(FenceTrailer)) : 0);
}

} // namespace ucx_mp::channel
