// Messages between two engines. Little endian, packed; version of all of it: kWireVersion, which travels with the
// port's address.
//
// Eager: one message, or `first` and then `more` until all is there. Small ones that would wait for each other leave in
// one `bundle`. A synchronous one is answered by `done` when its
// receive is found.
//
//     sender                  receiver                        rendezvous by
//     request ------------->  matches a receive
//                             reads the data
//             <-------------  done                            get
//     request ------------->  matches a receive
//             <-------------  clear (with a key)
//     writes, fence
//     finish  ------------->                                  put
//     request ------------->  matches a receive
//             <-------------  clear (without)
//     fragment, ... ------->                                  fragments
//
// Requests are named by ids (slots.h), which neither side believes: an id that is not known, or in another state, drops
// the message.
#pragma once

#include "pml_glue/core/match/envelope.h"
#include "pml_glue/core/mp_core.h"
#include "pml_glue/core/port.h"

namespace ucx_mp::glue::wire {

inline constexpr std::uint8_t kWireVersion = 11;

enum Kind : MessageKind {
    kCompact = 1, // 8 bytes header (compact()), then the data
    kEager,       // EagerHeader, then the data
    kEagerSync,   // SyncHeader, then the data
    kRequest,     // RequestHeader, then the key
    kClear,       // ClearHeader, then the key
    kFragment,    // FragmentHeader, then the data
    kFinish,      // DoneHeader
    kDone,        // DoneHeader
    kFirst,       // FirstHeader, then data
    kMore,        // MoreHeader, then data
    kBundle,      // small eager messages, in their order: for each BundleEntry, then its data
    kHello,       // 8 bytes: the process that comes back after its goodbye (others.cc); 0: it waits for us (watch.cc)
    kBye,         // 8 bytes: the process that leaves; no message of it follows, unless it comes back (others.cc)
};

// The envelope of most messages in 64 bits: mp_core.h.
inline constexpr unsigned kSourceBits = MP_SOURCE_BITS, kTagBits = MP_TAG_BITS;
static_assert(MP_CONTEXT_BITS == MP_SOURCE_BITS && MP_CONTEXT_BITS + MP_SOURCE_BITS + MP_TAG_BITS == 64);
[[nodiscard]] inline bool fits_compact(const Envelope& envelope) {
    return mp_fits_compact(envelope.context, envelope.source, envelope.tag);
}
[[nodiscard]] inline std::uint64_t compact(const Envelope& envelope) {
    return mp_compact(envelope.context, envelope.source, envelope.tag);
}
[[nodiscard]] inline Envelope expand(std::uint64_t header) {
    return {.context = static_cast<std::uint32_t>(header >> (kSourceBits + kTagBits)),
            .source = static_cast<std::int32_t>(header >> kTagBits & ((1u << kSourceBits) - 1)),
            .tag = static_cast<std::int32_t>(static_cast<std::uint32_t>(header) << (32 - kTagBits)) >> (32 - kTagBits)};
}

struct [[gnu::packed]] EagerHeader {
    std::uint32_t context;
    std::int32_t source, tag;
    std::uint32_t zero;
};
static_assert(sizeof(EagerHeader) == 16);

struct [[gnu::packed]] BundleEntry {
    std::uint64_t compact; // envelope
    std::uint32_t bytes;   // follow
};
static_assert(sizeof(BundleEntry) == 12);

struct [[gnu::packed]] SyncHeader {
    EagerHeader envelope;
    std::uint64_t sender;  // the process, for the answer
    std::uint64_t request; // its id there
};
static_assert(sizeof(SyncHeader) == 32);

// An eager message in pieces.
struct [[gnu::packed]] FirstHeader {
    EagerHeader envelope;
    std::uint64_t sender; // the process
    std::uint64_t bytes;  // of the message, at most kMostPieces; the first piece has less
    std::uint32_t number; // names it, among those of this sender that are not complete
    std::uint32_t zero;
};
static_assert(sizeof(FirstHeader) == 40);
struct [[gnu::packed]] MoreHeader {
    std::uint64_t sender;
    std::uint32_t number;
    std::uint32_t offset; // in the packed message; pieces come in order
};
static_assert(sizeof(MoreHeader) == 16);
inline constexpr std::size_t kMostPieces = std::size_t{16} << 20;

enum RequestFlags : std::uint8_t { kCanGet = 1 }; // the key is there
struct [[gnu::packed]] RequestHeader {
    EagerHeader envelope;
    std::uint64_t sender, request;
    std::uint64_t bytes;   // of the message
    std::uint64_t address; // of the data, with kCanGet
    std::uint8_t flags;
    std::uint8_t hint;       // of the sending call
    std::uint16_t key_bytes; // follow
    std::uint32_t zero;
};
static_assert(sizeof(RequestHeader) == 56);

enum class Way : std::uint8_t { fragments = 1, put = 2 };
struct [[gnu::packed]] ClearHeader {
    std::uint64_t request; // the sender's
    std::uint64_t receive; // the receiver's, for fragments and finish
    std::uint64_t bytes;   // how much it wants, from the beginning
    std::uint64_t address; // its destination, with Way::put
    Way way;
    std::uint8_t hint;       // of the receiving call
    std::uint16_t key_bytes; // follow
    std::uint32_t zero;
};
static_assert(sizeof(ClearHeader) == 40);

struct [[gnu::packed]] FragmentHeader {
    std::uint64_t receive;
    std::uint64_t offset; // in the packed message; fragments come in order
};
static_assert(sizeof(FragmentHeader) == 16);

struct [[gnu::packed]] DoneHeader {
    std::uint64_t id; // done: the sender's request; finish: the receiver's
    std::uint32_t ok; // 0: the data could not be moved
    std::uint32_t zero;
};
static_assert(sizeof(DoneHeader) == 16);

inline constexpr std::size_t kMaxKey = 255;

} // namespace ucx_mp::glue::wire
