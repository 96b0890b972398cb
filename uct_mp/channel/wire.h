// Messages of the data path, version 1. Little endian, packed, checked sizes. They travel over reliable queue pairs
// (RC, or DC with an access key) that a handshake (connect/) has made. Still nothing in them is believed without a
// check.
//
// The contents of a message do not decide about its sender. mp_rc: the queue pair that it came by must be one of the
// channel's. mp_dc: 8 bytes stand before the MessageHeader, connect::Connection::dc_tag, which this sender alone has
// been told.
//
// Every message begins with a MessageHeader. `am` and `atomic` kinds are *sequenced*: one number per channel and
// direction, over all paths; the receiver delivers each number once, in order. All other kinds are outside the
// sequence. A fenced message (flag::fenced) ends with a FenceTrailer.
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
    ack = 4,          // only `ack` counts
    ack_request = 5,  // answer with an ack at once
    marker = 6,       // MarkerBody: all puts before it on the path that the header names are visible
    path_up = 7,      // PathUpBody: the first message on a queue pair that has been made anew, from the client
};

namespace flag {
inline constexpr std::uint8_t ack_request = 1; // the sender waits: acknowledge at the end of this progress
inline constexpr std::uint8_t fenced = 2;      // a FenceTrailer ends the message: deliver when its markers are in
inline constexpr std::uint8_t part = 4; // am: of a message that is larger than the receiver's segment (feature::parts)
inline constexpr std::uint8_t more = 8; // with `part`: the next number brings the next part. Joined, they are delivered
} // namespace flag

using link::kTagBytes; // mp_dc: bytes before the header

struct __attribute__((packed)) MessageHeader {
    std::uint8_t kind : 4;
    std::uint8_t version : 4;
    std::uint8_t flags;
    std::uint8_t am_id;     // 0..31
    std::uint8_t path;      // index of the path that carried it first (statistics, markers)
    std::uint32_t channel;  // the receiver's id of the channel: slot | generation << 20; says who sent it
    std::uint32_t sequence; // of sequenced kinds
    std::uint32_t ack;      // next number that the sender expects from the receiver: all before have been delivered
};
static_assert(sizeof(MessageHeader) == 16);

// The first two bytes of the usual message: an active one without flags, or with ack_request.
inline constexpr std::uint16_t kPlainAm = static_cast<std::uint16_t>(Kind::am) | kWireVersion << 4;
inline constexpr std::uint16_t kUrgentAm = kPlainAm | flag::ack_request << 8;

inline constexpr unsigned kSlotBits = 20;
inline constexpr std::uint32_t kSlotMask = (1u << kSlotBits) - 1;

// All paths of `paths` have carried puts since the fence before; each sends a marker with this number behind them.
struct __attribute__((packed)) FenceTrailer {
    std::uint64_t paths;    // bit i: path i must have brought its marker
    std::uint32_t number;   // of the fence: 1, 2, ... per channel and direction
    std::uint32_t reserved; // 0
};
static_assert(sizeof(FenceTrailer) == 16);

struct __attribute__((packed)) MarkerBody {
    std::uint32_t number; // of the fence
    std::uint32_t puts;   // writes posted to this path so far (wraps); what recovery asks for
};
static_assert(sizeof(MarkerBody) == 8);

struct __attribute__((packed)) PathUpBody {
    std::uint32_t life; // of the path
};

struct __attribute__((packed)) AtomicRequest {
    std::uint8_t op;    // AtomicOp
    std::uint8_t width; // 4 or 8
    std::uint8_t fetch; // 1: send a reply; else only if it is refused
    std::uint8_t reserved;
    std::uint32_t tag; // of the reply
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
