// Parts of a group that adapters put: the other engine beside the host's. A put that needs nothing but the parts before
// it (plan/triggered.h) is given to a queue that waits (core/task_port.h) when its operation begins. Then no processor
// has to look before somebody wants to know whether the operation is over.
//
// The arena is registered memory of a group: a word for each slot and edge, and the work of the operation that has the
// slot. A part is its data in the slot, and the word behind them. The rules of slots (plan/slot_rules.h) see to it that
// both are free. An operation ends here when its words are there and its own puts are complete, so a WAIT never misses
// its value.
//
// How a part comes is its sender's choice: by the queue of the edge if there is one, else by a message. Whoever takes a
// message writes the word himself, so that his own queues go on. All members have to agree only on which
// operations have their work in the arena: all those that may, from a number on that `grant` tells.
//
//     ask -->           the sender's half has been made. After some operations of the group
//     <-- grant         from an operation on, of the receiver's numbers
//     task, task ...
//     ended -->         the queue has failed, and the sender's half is dead
//     <-- dead          so is the receiver's: what is not complete goes by messages now. A part that had come all the
//                       same is dropped there: its bytes are the same
//
// A queue is tried again later, over the next rail.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pml_glue/core/collect/messages.h"
#include "pml_glue/core/mp_collect.h"
#include "pml_glue/core/plan/triggered.h"

namespace ucx_mp::glue {

class Group;
struct GroupOperation;

class Triggered {
public:
    struct Counts {
        std::uint64_t operations = 0; // whose parts all go by adapters
        std::uint64_t tasks = 0, waits = 0, queues = 0, ended = 0, resent = 0;
    };
    static constexpr std::size_t kMostSmall = (std::size_t{1} << 17) - 1; // bytes of an operation: a word names them
    static constexpr unsigned kMostEdges = 20;

    Triggered(Group& group, TaskPort& port, Counts& counts);
    Triggered(const Triggered&) = delete;
    ~Triggered();

    // The next operation to begin has this number. Asks for queues, if it is time to.
    void prepare(std::uint64_t number);
    // Whether its work is in the arena: work().
    [[nodiscard]] bool has(Collective collective, std::uint64_t number) const {
        return arena_ && number >= from_ && may_trigger(collective);
    }
    [[nodiscard]] std::byte* work(std::uint64_t number) const;
    // Its work is set, and what it gives is there.
    void begin(GroupOperation& operation);
    void advance(GroupOperation& operation);
    // The action whose part is missing.
    [[nodiscard]] const Action* waits_for(const GroupOperation& operation) const;
    // Looks after queues that have failed.
    void serve();
    // False: it makes no sense.
    [[nodiscard]] bool take(const wire::QueueHeader& header, std::span<const std::byte> keys);
    void stop(); // the group is broken: no queue has anything under way any more
    [[nodiscard]] bool has_arena() const { return arena_ != nullptr; }

private:
    enum class Stage : std::uint8_t { none, asking, ready, ended };
    struct Out {
        std::unique_ptr<TaskQueue> queue;
        Stage stage = Stage::none;
        unsigned tries = 0, later = 0;       // rails; times that one could not be tried
        std::uint64_t next = 0;              // operation from which on it is tried again
        std::uint64_t address = 0, from = 0; // there
    };
    // The operation that has a slot. Bits are edges.
    struct Slot {
        std::uint64_t posted = 0;        // given to queues, and not complete
        std::uint64_t owed = 0;          // puts that are the host's, and have not left
        const Action* sending = nullptr; // of them: part of it has left
        std::uint32_t at = 0;            // actions before it are over, but for puts
        std::uint64_t task[kMostEdges];  // its number among the queue's
    };
    [[nodiscard]] Slot& slot_of(const GroupOperation& operation);
    [[nodiscard]] std::size_t word_at(std::uint64_t number, unsigned edge) const;
    [[nodiscard]] std::size_t work_at(std::uint64_t number) const;
    [[nodiscard]] std::size_t arena_bytes() const;
    [[nodiscard]] std::uint64_t* word(std::uint64_t number, unsigned edge) const;
    [[nodiscard]] static std::uint64_t value_of(const GroupOperation& operation);
    [[nodiscard]] bool is_here(GroupOperation& operation, unsigned edge);
    void post(GroupOperation& operation, Slot& slot, const TriggeredPut& put);
    void settle(Slot& slot);
    [[nodiscard]] bool put(GroupOperation& operation, Slot& slot, const Action& action);
    // triggered_queues.cc
    [[nodiscard]] bool make_arena(std::uint64_t from);
    [[nodiscard]] std::unique_ptr<TaskQueue> make_queue(unsigned rail, unsigned depth, std::uint64_t from,
                                                        TaskPort::Can& can);
    void ask(unsigned edge, std::uint64_t number);
    void pause(Out& out);
    void again_soon(Out& out);
    void fail(unsigned edge);
    void dead(unsigned edge, bool gone);
    void answer(const wire::QueueHeader& ask);
    [[nodiscard]] bool connect(Out& out, const wire::QueueHeader& grant, std::span<const std::byte> keys);
    [[nodiscard]] wire::QueueHeader header(unsigned edge, wire::QueueSays says) const;
    [[nodiscard]] std::uint64_t neighbour(unsigned edge, bool out) const;

    Group& group_;
    TaskPort& port_;
    Counts& counts_;
    const unsigned edges_;
    const std::size_t slot_bytes_; // of work
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
    };
    std::unique_ptr<std::byte, Free> arena_;
    std::unique_ptr<TaskMemory> memory_; // before the queues
    std::uint64_t from_ = 0;             // the first operation whose work is there
    std::uint64_t begun_ = 0;            // the next operation to begin
    std::uint64_t next_ = 0;             // when queues are looked at again
    unsigned open_ = 0;                  // operations whose work is there
    std::vector<Out> outs_;
    std::vector<std::unique_ptr<TaskQueue>> ins_;
    std::vector<Slot> slots_;
};

} // namespace ucx_mp::glue
