// Messages of the data path, version 1: little endian, packed. They travel over reliable queue pairs (RC, or DC with an
// access key) that a handshake (connect/) has made. Still nothing in them is believed without a check.
//
// The contents of a message do not prove its sender. mp_rc: the queue pair that it came by must be one of the
// channel's. mp_dc: 8 bytes come before the MessageHeader, connect::Connection::dc_tag, which only this sender has been
// told.
//
// Every message begins with a MessageHeader. The kinds am, atomic and atomic_reply are *sequenced*: they share one
// count per channel and direction, over all paths, and the receiver delivers each number once, in order. All other
// kinds are outside the sequence. A fenced message (flag::fenced) ends with a FenceTrailer.
#pragma once

#include <cstdint>

#include "uct_mp/channel/types.h"
#include "uct_mp/link/sizes.h"

namespace ucx_mp::channel {

inline constexpr std::uint8_t kWireVersion = 1;

enum class Kind : std::uint8_t {
    am = 1,           // sequenced. am_id, then payload
    atomic = 2,       // sequenced. AtomicRequest
    atomic_reply = 3, // sequenced. AtomicReply
    ack = 4,          // only the header's `ack` matters
    ack_request = 5,  // the receiver answers with an ack at once
    marker = 6,       // MarkerBody: all puts before it on the path that the header names are visible
    path_up = 7,      // PathUpBody: the first message on a queue pair that has been made anew, from the client
};

namespace flag {
inline constexpr std::uint8_t ack_request = 1; // the sender waits: acknowledge at the end of this round of progress
inline constexpr std::uint8_t fenced = 2;      // a FenceTrailer ends the message: deliver when its markers have come
inline constexpr std::uint8_t part = 4; // am: part of a message larger than the receiver's segment (feature::parts)
inline constexpr std::uint8_t more = 8; // with `part`: the next number is the next part; the whole is delivered
} // namespace flag

using link::kTagBytes; // mp_dc: bytes before the header

struct __attribute__((packed)) MessageHeader {
    std::uint8_t kind : 4;
    std::uint8_t version : 4;
    std::uint8_t flags;
    std::uint8_t am_id;     // 0..31
    std::uint8_t path;      // index of the path that it took first; of a marker: the path that it is about
    std::uint32_t channel;  // the receiver's id of the channel: slot | generation << 20
    std::uint32_t sequence; // its number; of other kinds: the sender's next number
    std::uint32_t ack;      // next number that the sender expects from the receiver: all before have been delivered
};
static_assert(sizeof(MessageHeader) == 16);

// The first two bytes of a usual message: an active message without flags, or with ack_request.
inline constexpr std::uint16_t kPlainAm = static_cast<std::uint16_t>(Kind::am) | kWireVersion << 4;
inline constexpr std::uint16_t kUrgentAm = kPlainAm | flag::ack_request << 8;

inline constexpr unsigned kSlotBits = 20;
inline constexpr std::uint32_t kSlotMask = (1u << kSlotBits) - 1;

// The paths that have carried puts since the last fence. A marker with this number follows the puts on each of them.
struct __attribute__((packed)) FenceTrailer {
    std::uint64_t paths;    // bit i: the marker of path i must have come before the message is delivered
    std::uint32_t number;   // of the fence: 1, 2, ... per channel and direction
    std::uint32_t reserved; // 0
};
static_assert(sizeof(FenceTrailer) == 16);

struct __attribute__((packed)) MarkerBody {
    std::uint32_t number; // of the fence
    std::uint32_t puts;   // writes posted to this path so far; wraps
};
static_assert(sizeof(MarkerBody) == 8);

struct __attribute__((packed)) PathUpBody {
    std::uint32_t life; // of the path
};

struct __attribute__((packed)) AtomicRequest {
    std::uint8_t op;    // AtomicOp
    std::uint8_t width; // 4 or 8
    std::uint8_t fetch; // 1: reply with the old value; 0: reply only if it is refused
    std::uint8_t reserved;
    std::uint32_t tag; // the reply carries it
    std::uint64_t address;
    std::uint64_t value;   // operand; new value of swap and compare_swap
    std::uint64_t compare; // compare_swap
    std::uint64_t region;  // MemoryKeys::id: must contain the address
};
static_assert(sizeof(AtomicRequest) == 40);

struct __attribute__((packed)) AtomicReply {
    std::uint64_t value; // before the operation
    std::uint32_t tag;
    std::uint32_t status; // 0: done; 1: refused (key, range, alignment, operation)
};
static_assert(sizeof(AtomicReply) == 16);

} // namespace ucx_mp::channel
