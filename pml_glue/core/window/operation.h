// Objects that are under way between one window and one rank of it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "pml_glue/core/engine/engine.h"
#include "pml_glue/core/mp_window.h"
#include "pml_glue/core/window/messages.h"

namespace ucx_mp::glue {

class Window;
struct Target;

// A write or read of the port that is under way.
struct Move {
    Completion completion;
    struct Operation* operation; // null: a read of Window::get_now()
    Target* target;              // then
    std::size_t bytes;
    unsigned generation; // of a Target's operations; of Window::get_now()
    Move* next;
};

// Goes through the target's memory block by block.
class Cursor {
public:
    struct Piece {
        std::uint64_t address;
        std::size_t bytes;
    };
    void reset(const mp_run_t* runs, std::uint32_t unit, std::uint32_t extent) {
        run_ = runs;
        repeat_ = byte_ = 0;
        unit_ = unit;
        extent_ = extent;
    }
    // Whole elements of one block, `most` bytes at most; nothing if not one fits.
    [[nodiscard]] Piece peek(std::size_t most) const {
        const std::size_t left = run_->bytes - byte_;
        return {address(), left <= most ? left : most - most % unit_};
    }
    // As many blocks of the same run as fit, or a part of one.
    [[nodiscard]] wire::WireRun peek_run(std::size_t most) const;
    void skip(std::size_t bytes);

private:
    [[nodiscard]] std::uint64_t address() const {
        return run_->address + repeat_ * static_cast<std::uint64_t>(run_->stride) + byte_ / unit_ * extent_;
    }
    const mp_run_t* run_ = nullptr;
    std::uint64_t repeat_ = 0, byte_ = 0;
    std::uint32_t unit_ = 1, extent_ = 1;
};

// An operation of the program, or a message that has to stay in the order of operations.
struct Operation {
    Operation* next;
    Target* target;
    mp_rma_t rma;
    mp_run_t run; // if there is one only
    std::unique_ptr<mp_run_t[]> runs;
    Cursor cursor;
    std::size_t position, total; // packed bytes: sent so far, in all
    std::size_t settled;         // packed bytes that have been answered
    std::uint64_t id;            // in Windows::ids_; 0: wants no answer
    unsigned outstanding;        // moves
    unsigned generation;         // of the target's operations
    Memory* memory;
    RemoteKey* key; // of a dynamic window; else the target's
    mp_error_t error;
    bool is_sync, by_moves;
    bool asks;   // for a key, first
    bool held;   // is being posted: nobody else ends it
    bool queued; // in a line of the target
    wire::Sync sync;
    std::byte small[64]; // a copy of what MP_COMPARE_SWAP brings, or a put that was held

    [[nodiscard]] bool wants_reply() const { return rma.kind != MP_PUT && rma.kind != MP_ACCUMULATE; }
};

struct Line {
    Operation *first = nullptr, *last = nullptr;
    unsigned count = 0;
    [[nodiscard]] bool empty() const { return !first; }
    void push(Operation& operation) {
        operation.queued = true;
        ++count;
        operation.next = nullptr;
        (first ? last->next : first) = &operation;
        last = &operation;
    }
    void push_front(Operation& operation) {
        operation.queued = true;
        ++count;
        operation.next = first;
        if (!first) last = &operation;
        first = &operation;
    }
    Operation& pop() {
        Operation& operation = *first;
        --count;
        first = operation.next;
        operation.queued = false;
        return operation;
    }
};

// A message that has no order among operations, and found no room.
struct Answer {
    MessageKind kind;
    std::vector<std::byte> bytes;
};

enum class Lock : std::uint8_t { none, wanted, shared, exclusive };

// The operations that calls of flush wait for: those started before. One
// round at a time, for all calls so far; later calls wait for the next.
struct Round {
    std::uint64_t call = 0, done = 0; // the last call that it is for; the last call that is over
    std::uint64_t writes = 0, started = 0;
    unsigned generation = 0;
    bool counted = false; // it is in `writes` and `started`; an operation that asks for keys gets there later
};

// A rank of a window, seen from us. Made when it is first needed.
struct Target {
    Window* window = nullptr;
    std::uint32_t rank = 0;
    Peer* peer = nullptr;
    RemoteKey* key = nullptr; // null: its memory is reached by messages
    bool failed = false, listed = false;
    mp_error_t error = MP_OK; // for mp_window_error()
    unsigned asking = 0;      // operations that have no keys yet, from their start on
    unsigned open = 0;        // operations whose memory is not yet the program's again
    // The same by generations: each round ends one. Two rounds are under way at most, so three have members.
    unsigned generation = 0, opened[4] = {};
    Round rounds[2]; // of flushes that look there as well; of local ones

    std::deque<Answer> answers; // go first
    Line messages;              // in order
    Line moves[2];              // puts and gets: each has its share of the way
    std::size_t in_flight[2] = {};
    unsigned moving[2] = {};
    std::size_t unanswered = 0; // bytes

    // Operations by message without a reply: started, asked about, executed.
    std::uint64_t started = 0, asked = 0, executed = 0;
    bool loose = false; // it has been told of an end without an answer
    // Writes: started; before the last fence; before the flush that is under way; flushed.
    std::uint64_t writes = 0, fenced = 0, flushing = 0, flushed = 0;
    Completion flush{};
    bool flush_posted = false;
    // Small puts of this epoch that travel with its end: for each HeldPut,
    // then its data. Only in an epoch whose end is told, not waited for.
    std::vector<std::byte> held_puts;

    Lock lock = Lock::none;                   // our lock there: wanted, or held (shared)
    Lock held = Lock::none;                   // its own lock here
    mp_error_t owed = MP_OK;                  // an operation of its own has failed here: told with the next flush
    std::uint64_t received = 0;               // operations of its own without a reply
    std::uint64_t starts = 0, posts_seen = 0; // our access epochs, and its exposure epochs
    std::uint64_t posts = 0, dones_seen = 0;  // our exposure epochs, and its access epochs that are over
    bool done_told = false, unlock_told = false;
    std::uint64_t barriers_seen = 0, fences_seen = 0;
    bool barrier_lost = false; // a rank is gone that it would have told of in a barrier: said in all later barriers
    std::uint64_t throughs_seen = 0, throughs_due = 0; // fences that it has passed, and that we have

    [[nodiscard]] bool may_go() const {
        return posts_seen >= starts && lock != Lock::wanted && throughs_seen >= throughs_due;
    }
    [[nodiscard]] bool holds() const { return held == Lock::shared || held == Lock::exclusive; }
    [[nodiscard]] unsigned begin() {
        ++open;
        ++opened[generation % 4];
        return generation;
    }
    void end(unsigned its) {
        --open;
        --opened[its % 4];
    }
    [[nodiscard]] bool over(unsigned last) const { // all up to this generation
        for (unsigned back = generation - last; back < 4; ++back)
            if (opened[(generation - back) % 4]) return false;
        return true;
    }
    [[nodiscard]] bool quiet(bool local) const {
        return open == 0 && (local || (executed >= started && flushed == writes));
    }
    [[nodiscard]] bool waits() const {
        return !answers.empty() || !messages.empty() || !moves[0].empty() || !moves[1].empty();
    }
};

} // namespace ucx_mp::glue
