// Messages of windows. Little endian, packed; a part of wire::kWireVersion. Both sides name a process by its rank in
// the window, and memory by its address at the target.
//
//     origin                              target
//     operation: put, accumulate ------>  executes it
//     operation: others ---------------->  executes it
//                <----------------------  reply, with data
//     sync flush(n) -------------------->  n operations have been executed here, since messages are in order
//                <----------------------  sync flushed(n)
//
//     ask(memory) ---------------------->  of a dynamic window: is it attached, in one piece?
//                <----------------------  keys of it, for this one operation; none: it is sent as messages
//
//     sync lock ------------------------>  waits for its turn       sync post   : the exposure epoch has begun
//                <----------------------  sync granted              sync done   : the access epoch is over, and what it
//     sync unlock ---------------------->                                         wrote is there
//
//     Behind `done` and `fence` stand small puts of the epoch, if there are any: for each HeldPut, then its data.
//
//     sync barrier, in rounds: to the next rank, the second next, the fourth next; a rank that has heard the last ones
//     of each round knows that all have come
//
//     sync fence: behind the operations on a rank. If ranks are few, each sends one to each other one
//     sync through: the fence is over at its sender, whose memory may be accessed again (fence.cc)
#pragma once

#include "pml_glue/core/port.h"

namespace ucx_mp::glue::wire {

enum WindowKind : MessageKind { kWindowOperation = 24, kWindowReply, kWindowSync, kWindowAsk, kWindowKeys };

// Then `runs` times WireRun, then `bytes` of data if the operation
// brings any. A piece of an operation has only whole elements.
struct [[gnu::packed]] OperationHeader {
    std::uint32_t window, origin;
    std::uint64_t reply;    // the operation's id at the origin
    std::uint64_t position; // of this piece in the packed data
    std::uint32_t bytes;    // packed, of the memory that the runs name
    std::uint32_t unit, extent;
    std::uint16_t op, type, runs;
    std::uint8_t kind; // mp_rma_kind_t
    std::uint8_t brings;
};
static_assert(sizeof(OperationHeader) == 44);
// The most bytes that a message asks for: its target makes room for so many.
inline constexpr std::uint32_t kMostAnswered = 1 << 20;

struct [[gnu::packed]] WireRun {
    std::uint64_t address;
    std::int64_t stride;
    std::uint32_t bytes, repeat;
};
static_assert(sizeof(WireRun) == 24);

struct [[gnu::packed]] ReplyHeader {
    std::uint64_t reply;
    std::uint64_t position; // replies of an operation come in order
    std::uint32_t bytes;
    std::uint32_t error; // mp_error_t; then there is no data
};
static_assert(sizeof(ReplyHeader) == 24);

struct [[gnu::packed]] AskHeader {
    std::uint32_t window, origin;
    std::uint64_t reply; // the operation's id at the origin
    std::uint64_t address, bytes;
};
static_assert(sizeof(AskHeader) == 32);

struct [[gnu::packed]] KeysHeader {
    std::uint64_t reply;
    std::uint32_t bytes; // of Exposed::keys(), which follow
    std::uint32_t zero;
};
static_assert(sizeof(KeysHeader) == 16);

enum class Sync : std::uint8_t {
    flush = 1,
    flushed,
    lock_shared,
    lock_exclusive,
    granted,
    unlock,
    post,
    done,
    barrier,
    fence,
    through
};
struct [[gnu::packed]] WindowSync {
    std::uint32_t window, origin;
    std::uint64_t number; // flush, flushed: of operations
    Sync what;
    std::uint8_t error; // flushed: mp_error_t; barrier: a rank is gone that the sender would have heard of
    std::uint16_t zero;
};
static_assert(sizeof(WindowSync) == 20);

struct [[gnu::packed]] HeldPut {
    std::uint64_t address;
    std::uint32_t bytes; // follow
};
static_assert(sizeof(HeldPut) == 12);

} // namespace ucx_mp::glue::wire
