// Blocks of a persistent all-to-all that adapters put, striped over the rails: for pairs of ranks, beside Exchange,
// which has the others. A start posts everything of a pair to queues that wait (core/task_port.h): on each rail
//
//     word(ready)                                   on the first one: our place for their block is free
//     wait(ready of theirs, and the stripe that comes a step before) ; put our stripe ; word(stripe)
//
// Then no processor has to look before somebody wants to know whether the operation is over. That is when the words of
// all their stripes are here, and our own puts are complete. A word's value is the number of the start, from 1 on.
//
// Both know sizes and places from the start before: they are a persistent request's. A pair has its queues from a start
// on that the higher rank tells (`grant`), and until one that it tells (`dead`); the same for both. It may, since
// nobody finishes a start without the other one: who has begun start s knows that the other one has not begun s + 2.
// That holds for pairs only whose blocks are asked for, both ways. `grant` and `dead` leave in order with all that
// follows.
//
//     ask -->           of the lower rank: its halves, words, place, keys
//     <-- grant         the same of the other one, and the start from which on adapters put
//     <-- failed        a queue of the pair has failed, says the higher rank. The lower one sees it itself
//     ended -->         all halves of the lower rank are dead
//     <-- dead          so are the others: what is not complete goes by messages now (kStripe), until the start that
//                       is told; then Exchange has the pair again, until it is tried anew
//
// Data written twice are the same bytes, before their word is here. A message behind that is dropped.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pml_glue/core/collect/messages.h"
#include "pml_glue/core/engine/engine.h"
#include "pml_glue/core/mp_collect.h"

namespace ucx_mp::glue {

class Group;
struct GroupOperation;

class Stripes {
public:
    struct Counts {
        std::uint64_t blocks = 0; // put by adapters; nothing of them by messages
        std::uint64_t tasks = 0, queues = 0, pairs = 0, ended = 0, resent = 0;
    };
    Stripes(Group& group, TaskPort& port, Counts& counts);
    Stripes(const Stripes&) = delete;
    ~Stripes();

    // Memory may have been unmapped since the start before: pairs whose blocks were end their queues at this one.
    void renew_memory();
    // A start; then put_block() for each rank whose blocks are asked for, both ways. True: they are ours.
    void begin(GroupOperation& operation);
    [[nodiscard]] bool put_block(std::uint32_t rank);
    // Whether all blocks of the present start are over.
    [[nodiscard]] bool advance();
    // Looks after queues that have failed, and messages that have found no room.
    void serve();
    // False: it makes no sense.
    [[nodiscard]] bool take(const wire::LaneHeader& header, const std::byte* more, std::size_t length);
    [[nodiscard]] bool take(const wire::StripeHeader& header, const std::byte* data, std::size_t length);
    void stop(); // the group is broken: no queue has anything under way any more
    void waits_for(std::vector<Peer*>& peers) const;

private:
    static constexpr std::uint64_t kNever = UINT64_MAX;
    enum class Stage : std::uint8_t {
        none,    // Exchange has it
        asking,  // the lower rank has asked
        ready,   // there are queues; ours from a start on
        failing, // the higher rank has said so, and waits for `ended`
        ended,   // the lower rank's halves are dead
        dead,    // all are
    };
    struct Lane {
        std::unique_ptr<TaskQueue> queue;
        std::uint8_t rail = 0;
        std::uint64_t task = 0;            // number of the stripe's among the queue's
        bool done = true, sent = true;     // our stripe: it is there, or all of it has left as messages
        std::uint64_t moved = 0, came = 0; // bytes of messages, of our stripe and of theirs
    };
    // Everything of one rank. News for it leave by serve().
    struct Pair {
        Stage stage = Stage::none;
        bool known = false, fits = false; // the blocks; they have one place each, and can be told
        bool open = false;                // of the present start, and not over
        bool stale = false;               // other memory is there now than the queues use
        bool ready_owed = false;          // as a message
        bool said = true;                 // nothing is to be said
        wire::LaneSays says{};            // else this
        mp_data_t in{}, out{};
        std::unique_ptr<TaskMemory> in_memory, out_memory; // before the lanes
        std::vector<Lane> lanes;
        std::uint64_t words = 0, place = 0;          // addresses there
        std::uint64_t from = kNever, until = kNever; // starts
        std::uint64_t next = 0;                      // start from which on it is tried again
        unsigned tries = 0;
        std::uint64_t theirs = 0; // start that they had begun when they said `ended`
        bool soon = false;        // of a refusal: they may ask again soon
    };
    static constexpr unsigned kSlots = 1 + wire::kMostLanes; // words of a rank: ready, and one for each stripe
    [[nodiscard]] std::uint64_t* word(std::uint32_t rank, unsigned slot) const;
    [[nodiscard]] bool is(std::uint32_t rank, unsigned slot) const;
    void set(std::uint32_t rank, unsigned slot);
    [[nodiscard]] bool is_ours(const Pair& pair) const { return start_ >= pair.from && start_ < pair.until; }
    [[nodiscard]] std::uint64_t value() const { return start_ + 1; }
    static std::uint64_t first(const Pair& pair, std::size_t lane, std::uint64_t bytes);
    [[nodiscard]] std::uint32_t paced_by(std::uint32_t rank) const;
    void post(std::uint32_t rank, Pair& pair);
    [[nodiscard]] bool look(std::uint32_t rank, Pair& pair);
    [[nodiscard]] bool send(std::uint32_t rank, Pair& pair);
    [[nodiscard]] bool send(std::uint32_t rank, Pair& pair, std::size_t lane);
    // stripes_queues.cc
    void know(std::uint32_t rank, Pair& pair);
    void ask(Pair& pair);
    [[nodiscard]] TaskPort::Can make_lanes(Pair& pair, std::span<const std::uint8_t> rails);
    void say(Pair& pair, wire::LaneSays says);
    [[nodiscard]] Posted tell(std::uint32_t rank, Pair& pair);
    void told(Pair& pair, const wire::LaneHeader& header);
    void fail(std::uint32_t rank, Pair& pair);
    void end(Pair& pair);
    void pause(Pair& pair, bool soon);
    [[nodiscard]] bool connect(Pair& pair, const wire::LaneHeader& header, std::span<const std::byte> more);
    [[nodiscard]] bool answer(std::uint32_t rank, Pair& pair, const wire::LaneHeader& ask,
                              std::span<const std::byte> more);

    Group& group_;
    TaskPort& port_;
    Counts& counts_;
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
    };
    std::unique_ptr<std::byte, Free> words_;
    std::unique_ptr<TaskMemory> words_memory_; // before the pairs
    std::vector<Pair> pairs_;                  // by rank
    std::uint64_t start_ = kNever;             // the present one, from 0 on; kNever: none
    std::uint32_t at_ = 0;                     // pairs before it are over, in the present start
    unsigned unsaid_ = 0;                      // pairs that have something to be told
    bool any_dead_ = false;                    // some pair has been
    GroupOperation* operation_ = nullptr;      // the present one
};

} // namespace ucx_mp::glue
