// A message as a plain struct, and the only functions that read and write its wire
// form (wire.h): parse.cc, pack.cc. Names of messages and reasons: message_names.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "uct_mp/connect/control_plane.h"
#include "uct_mp/connect/wire.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::connect {

// Fields that a kind does not have are 0 and empty. Field by field: wire.h.
struct Message {
    std::uint8_t version = kMaxVersion;
    wire::Kind kind = wire::Kind::request;
    std::uint64_t cookie = 0;
    std::uint64_t sender_uid = 0;
    std::uint64_t sender_cookie = 0;
    std::uint32_t sender_q_key = 0;
    std::uint32_t destination = 0, source = 0;
    std::uint32_t transaction = 0;
    std::uint8_t min_version = kMinVersion, max_version = kMaxVersion;
    Transport transport = Transport::rc;
    std::uint64_t shown = 0, nonce = 0; // wire::Proof: the receiver's secret, or the nonce that this answers; our own
    bool bare = false;                  // refuse: without a proof
    std::uint8_t reserved = 0;          // pack() writes it into reserved bytes, parse() leaves 0: for tests

    std::uint32_t incarnation = 0;
    std::uint32_t void_through = 0;
    std::uint8_t num_paths = 0;
    bool split_reads = false; // request; a reply's paths say it
    std::uint64_t dc_key = 0;
    Terms terms; // request, reply: the sender's
    std::vector<path::RemoteRail> rails;
    std::vector<path::PathSpec> paths; // reply
    std::vector<LocalEnd> ends;        // reply, confirm: the sender's
    wire::Reason reason = wire::Reason::unknown;
    wire::Kind refused = wire::Kind::request;
    PathNews news; // path_down, path_open, path_opened
    // pong: the sender holds the connection; ping: it holds it now (wire::Ping::current). keys_told: it
    // has that memory. ended_known: it agrees. service_known, ring_known: it takes the wish or the offer.
    bool yes = false;
    std::uint8_t absent = 0;        // reply
    std::uint32_t rails_number = 0; // rails, rails_known
    Goodbye goodbye;                // ended; ended_known: its number
    ServiceWish wish;               // service; service_known: its number
    RingOffer ring;                 // ring; ring_known: its number
    std::uint32_t until = 0;        // ring_known: from this message on nothing was taken
    verbs::RemoteKeys keys;         // keys: the id; keys_told: all, if `yes`
    std::vector<std::uint8_t> tail; // request, reply: parts (wire::Part), unchanged
};

enum class Parse : std::uint8_t {
    ok,
    malformed, // not a message, or some value is out of range
    version,   // the header is fine (and is in `out`, with the proof), but the version is none of `min`..`max`
};

// Checks everything that a message alone can tell: length, counts, ranges; `out` holds only values that are in range.
// Reserved fields are ignored. Rail indices and path bits of a reply refer to the client's rails: they are checked
// against `own_rails`, the receiver's.
[[nodiscard]] Parse parse(std::span<const std::uint8_t> datagram, std::span<const path::RemoteRail> own_rails,
                          Message& out, std::uint8_t min = kMinVersion, std::uint8_t max = kMaxVersion);

// Bytes written to `out` (room for wire::kMaxMessage). The message must be one that parse() accepts.
[[nodiscard]] std::size_t pack(const Message& message, std::uint8_t* out);

[[nodiscard]] const char* name(wire::Kind kind);
[[nodiscard]] const char* name(wire::Reason reason);

} // namespace ucx_mp::connect
