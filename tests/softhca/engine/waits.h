// WAIT on data: a send queue whose next request is a WAIT stands until a word of its process's registered memory has a
// value. What is behind it waits, other queue pairs go on. The request comes by mlx5dv_wr_raw_wqe (verbs/raw_wqe.cc).
//
// When words are looked at:
//  - When the WAIT becomes the next request, and at every poll of a completion queue of its adapter.
//  - When an adapter has written to memory of the process (Process::write_to). In virtual time the word itself is
//  looked
//    up; in real time the writer, another process as a rule, wakes the helper thread.
//  - In real time every kLookAgain besides. In virtual time that would be events without an end: what the program
//  itself
//    has stored is seen at its next poll.
// AdapterLimits::wait_poll_ns makes this later, to a multiple of it since the queue stands there. wait_limit: the
// queues of an adapter (in real time: of one process) that have stood there for the longest are looked at, no others.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "engine/objects.h"

namespace softhca {

class Engine;
class Requester;

// "the word is ...": how a WAIT compares. kWaitInverted: ... not. As the public mlx5 interface numbers them.
enum class WaitOp : uint8_t { always, equal, bigger, smaller, cyclic_bigger, cyclic_smaller };
inline constexpr uint32_t kWaitInverted = 0x10;
[[nodiscard]] bool wait_op_known(uint32_t op);
// `word`, `value` and `mask` as they lie in memory, read as numbers of either byte order. Which side of "bigger" the
// value is on is as DPDK uses it for times (cyclic smaller: until the value is behind the clock): the value is the
// left.
[[nodiscard]] bool wait_holds(uint32_t op, uint64_t word, uint64_t value, uint64_t mask, bool big_endian);

// Everybody that stands, of one engine. Engine::mutex.
class Waits {
public:
    explicit Waits(Engine& engine);
    ~Waits();
    Waits(const Waits&) = delete;
    enum class Seen : uint8_t { holds, not_yet, gone /* the memory */ };
    // Of the requester's next request, whose turn it is. not_yet: it stands from now on, and is woken.
    Seen turn(Requester& requester, Nanos now);
    void leave(Requester& requester, Nanos now);
    void look(uint32_t device, Nanos now);
    void look_all(Nanos now);

private:
    struct Standing {
        Requester* requester;
        uint64_t position; // of the WAIT
        uint64_t address;  // of the word
        Nanos since;
        Nanos due; // when it is to be looked at; kNever: not known
    };
    using Row = std::vector<Standing>;
    Seen test(Requester& requester, uint64_t position);
    [[nodiscard]] Nanos next_look(const Standing& s, Nanos now) const; // at `now` or after
    void ask(Standing& s, Nanos now);
    void written(uint64_t address, uint64_t length);
    void look_again(Nanos now);
    Row& row_of(const Requester& requester);
    [[nodiscard]] size_t looked_at(uint32_t device, const Row& row) const;

    Engine& engine_;
    std::vector<Row> rows_;                     // by device; who stands there for the longest is the first
    std::multimap<uint64_t, Requester*> words_; // virtual time: by address
    bool timer_on_ = false;
};

} // namespace softhca
