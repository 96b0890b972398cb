// Messages of collective operations. Little endian, packed; a part of wire::kWireVersion.
//
// A part is what a put of a plan (core/plan/plan.h) brings. It names the take that wants it, not who sends it: the plan
// says that. Parts larger than a message go in blocks, in order.
//
//     member              member
//     part or blocks -->  to the place of its take. It may come before the operation is called here, or its group made:
//                         it is kept then
//     pair ----------->   a block of an exchange that needs no question, or a piece of one whose owner has asked for it
//     <--------- ready    the block for us may come: to an address, with a key, or in pairs if there is none
//     (put), arrived ->   it is there, in its place; or it will not come
//     <-------- cancel    of a group that is broken: what is not on its way yet must not come any more. Answered by an
//                         arrived, also by who does not have the group
//     broken --------->   a member is gone: all operations of the group fail. Passed on once, along all edges
//     queue  <-------->   to have a queue that waits along an edge, and of its end (triggered.h)
//
// MPI libraries use the numbers of communicators again. A message of a group that is broken, or has asked for queues,
// may come late: its receiver has freed the communicator, or has the next one with its number. So `check` has the
// communicator's life in it: how many with this number and these members have been before it. All members count them
// alike (Groups::next_life()). They make the next communicator together, so none has sent of it while another one still
// has the last one. That leaves three cases for a receiver:
//
//     its group has another check   the message is of an earlier life, or its sender has other parameters: dropped
//     it has no group               kept. The group takes what has its check, when it is made; the rest is dropped
//     the communicator is dropped   all that is kept for its number is of it, or earlier: dropped
//
// The last 2^14 - 1 lives of one list of members are told apart for certain, those of other lists, and other
// parameters, but for one in 2^14. A message of more than 64 lives ago is reported as one with other parameters. A
// question that is dropped is answered, as any other.
#pragma once

#include "pml_glue/core/plan/plan.h"
#include "pml_glue/core/plan/slot_rules.h"
#include "pml_glue/core/port.h"

namespace ucx_mp::glue::wire {

// 14 to 23 are for collective operations.
enum CollectKind : MessageKind {
    kPart = 14,    // 8 bytes PartName, then the data
    kBlock = 15,   // BlockHeader, then data
    kPair = 16,    // PairHeader, then data
    kReady = 17,   // ReadyHeader, then the key
    kArrived = 18, // ArrivedHeader
    kCancel = 19,  // CancelHeader
    kBroken = 20,  // BrokenHeader
    kQueue = 21,   // QueueHeader, then keys
    kLane = 22,    // LaneHeader, then halves and keys
    kStripe = 23,  // StripeHeader, then data
};

// 64 bits: 32 of context, 8 of number, 6 of edge, 4 of collective, 14 of check.
struct PartName {
    std::uint32_t context = 0; // of the communicator; then 12 bits, the number of a persistent request of it from 1 on
    std::uint32_t number = 0;  // of the operation, modulo 2^8
    std::uint32_t edge = 0;    // of the take
    std::uint32_t collective = 0;
    std::uint32_t check = 0; // of members, parameters and life: check_of()
};
inline constexpr unsigned kRequestBits = 12;
inline constexpr std::uint32_t kContextMask = (1u << 20) - 1, kRequestMask = (1u << kRequestBits) - 1,
                               kNumberMask = (1u << 8) - 1, kEdgeMask = kEdges - 1, kCollectiveMask = 15,
                               kCheckMask = (1u << 14) - 1;
static_assert(kCollectives <= kCollectiveMask + 1);
static_assert(2 * SlotRules::kMostInFlight < kNumberMask); // what is over is told from what is ahead
inline constexpr unsigned kContextShift = 32, kNumberShift = 24, kEdgeShift = 18, kCollectiveShift = 14;

[[nodiscard]] inline std::uint64_t pack(const PartName& name) {
    return std::uint64_t{name.context} << kContextShift | std::uint64_t{name.number} << kNumberShift |
           std::uint64_t{name.edge} << kEdgeShift | std::uint64_t{name.collective} << kCollectiveShift | name.check;
}
[[nodiscard]] inline PartName unpack(std::uint64_t bits) {
    return {.context = static_cast<std::uint32_t>(bits >> kContextShift),
            .number = static_cast<std::uint32_t>(bits >> kNumberShift) & kNumberMask,
            .edge = static_cast<std::uint32_t>(bits >> kEdgeShift) & kEdgeMask,
            .collective = static_cast<std::uint32_t>(bits >> kCollectiveShift) & kCollectiveMask,
            .check = static_cast<std::uint32_t>(bits) & kCheckMask};
}

// A group's, as all its messages have it; and the bits of it.
[[nodiscard]] inline std::uint64_t name_of(std::uint32_t context, std::uint32_t check) {
    return pack({.context = context, .number = 0, .edge = 0, .collective = 0, .check = check});
}
inline constexpr std::uint64_t kContextBits = std::uint64_t{UINT32_MAX} << kContextShift,
                               kCommunicatorBits = kContextBits << kRequestBits, kNameBits = kContextBits | kCheckMask;

struct [[gnu::packed]] BlockHeader {
    std::uint64_t name;
    std::uint32_t total;  // bytes of the part
    std::uint32_t offset; // of this block in it; blocks come in order
};
static_assert(sizeof(BlockHeader) == 16);

// `name` of these has no edge. The rank is that of `from`, not of the plan.
struct [[gnu::packed]] PairHeader {
    std::uint64_t name;
    std::uint64_t total;  // bytes of the block
    std::uint64_t offset; // of what follows in it; in order
    std::uint32_t from;   // rank whose block it is
};
static_assert(sizeof(PairHeader) == 28);

struct [[gnu::packed]] ReadyHeader {
    std::uint64_t name;
    std::uint64_t bytes;     // that are wanted
    std::uint64_t address;   // where, if there is a key
    std::uint64_t process;   // that wants it
    std::uint32_t from;      // its rank
    std::uint32_t to;        // rank that it asks
    std::uint32_t key_bytes; // 0: pieces are wanted; kKnownKey: the place and key of this request's operation before
};
static_assert(sizeof(ReadyHeader) == 44);
inline constexpr std::uint32_t kKnownKey = UINT32_MAX;

struct [[gnu::packed]] ArrivedHeader {
    std::uint64_t name;
    std::uint64_t bytes; // of the whole block at its owner, who has put as many as were wanted
    std::uint32_t from;  // rank whose block it is
    std::uint32_t ok;    // 0: it will not come
};
static_assert(sizeof(ArrivedHeader) == 24);

struct [[gnu::packed]] CancelHeader {
    std::uint64_t name;
    std::uint64_t process; // that had said ready
    std::uint32_t from;    // its rank
};
static_assert(sizeof(CancelHeader) == 20);

struct [[gnu::packed]] BrokenHeader {
    std::uint64_t name;    // context and check
    std::uint64_t process; // that is gone; or why the group is broken
};
inline constexpr std::uint64_t kNobody = UINT64_MAX;       // members call different operations
inline constexpr std::uint64_t kNoRoom = UINT64_MAX - 1;   // for what came before its operation was called
inline constexpr std::uint64_t kNoMemory = UINT64_MAX - 2; // at a member, for its part
inline constexpr std::uint64_t kDeclined = UINT64_MAX - 3; // likewise, for its group: no process is above it
static_assert(sizeof(BrokenHeader) == 16);

enum class QueueSays : std::uint8_t {
    ask = 1, // along an out-edge: may there be a queue? With our half
    grant,   // yes: the other half, where its words and slots are, and their keys
    refuse,  // no, or not now
    ended,   // along an out-edge: our half is dead
    dead,    // so is the other one: what has not come will not come
};
struct [[gnu::packed]] QueueHeader {
    std::uint64_t name;    // context, edge and check
    std::uint64_t process; // who says it
    QueueSays says;
    std::uint8_t rail;       // ask: of ours
    std::uint16_t key_bytes; // that follow
    std::uint32_t flag;      // dead: there is no such group any more, so all has come. refuse: may be asked again soon
    std::uint64_t address;   // grant: of the arena
    std::uint64_t from;      // grant: the first operation whose parts belong there
    std::byte half[TaskQueue::kHalf];
};
static_assert(sizeof(QueueHeader) == 72);
inline constexpr std::size_t kMostKeys = 256; // bytes

// About queues between a pair of ranks of a persistent request (stripes.h). `name` has context and check.
enum class LaneSays : std::uint8_t { ask = 1, grant, refuse, failed, ended, dead };
inline constexpr unsigned kMostLanes = 8;
struct [[gnu::packed]] LaneHeader {
    std::uint64_t name;
    std::uint64_t process;  // who says it
    std::uint32_t from, to; // its rank, and whose it is told
    LaneSays says;
    std::uint8_t lanes;             // of ask and grant: so many halves follow, then the keys of words and of the place
    std::uint8_t soon;              // refuse: may be asked again soon
    std::uint8_t rails[kMostLanes]; // ask: of each lane
    std::uint8_t zero;
    std::uint16_t word_keys, place_keys; // bytes
    std::uint64_t words, place;          // ask, grant: addresses of the words for the other one, and of its block
    std::uint64_t bytes_in, bytes_out;   // ask: of that block, and of the other one
    std::uint64_t start;                 // grant: from which on adapters put; dead: no more. ended: has been begun
};
static_assert(sizeof(LaneHeader) == 80);

// Data that a failed queue has not brought.
struct [[gnu::packed]] StripeHeader {
    std::uint64_t name; // as above
    std::uint64_t process;
    std::uint64_t start;
    std::uint32_t from;   // rank
    std::uint32_t lane;   // kMostLanes: `ready`, without data
    std::uint64_t offset; // of what follows, in the stripe; in order
};
static_assert(sizeof(StripeHeader) == 40);

} // namespace ucx_mp::glue::wire
