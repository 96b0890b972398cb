// The members of a communicator that execute one schedule again and again, on queues that wait (uct_mp/tasks): the
// adapter by WAITs that are posted when an operation starts, or the host, which polls for words and puts without WAITs.
// Both over the same queues, so that only the engine differs.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "process.h"
#include "schedule.h"

namespace ucx_mp::collect_sim {

enum class Engine : std::uint8_t { host, adapter };

// What a call costs its processor beside what the fabric says of requests (`host`); ns.
struct Costs {
    Nanos start = 0;                  // adapter: what tells it of an operation
    Nanos finish = 0;                 // adapter: until its end is seen
    Nanos send = 0, receive = 0;      // host: of a put, of a word that is taken
    double byte_out = 0, byte_in = 0; // per byte of small data: host at each put and word, adapter once
    std::uint64_t small = 0;          // bytes of such data, which a host need not wait for once it is put
    Nanos pin = 0;                    // of larger data: host at each put, adapter once
    unsigned slow_from = UINT32_MAX;  // ranks from this one on take `slow` times as long for all of it
    double slow = 1;
};

class Group {
public:
    // `processes`: by rank; outlive it. Takes time of the world.
    Group(Cluster& cluster, const std::vector<Process*>& processes, Schedule schedule, Engine engine,
          const Costs& costs, unsigned in_flight = 4);
    Group(const Group&) = delete;
    // Of a member: its operation before must be over() if the schedule has words that free.
    void start(unsigned rank);
    // Whether a call of the member's operation `number` (0, 1, ...) may return.
    [[nodiscard]] bool done(unsigned rank, std::uint64_t number);
    [[nodiscard]] bool over(unsigned rank, std::uint64_t number) const;
    [[nodiscard]] std::uint64_t started(unsigned rank) const { return members_[rank].started; }
    // What the host has to do; look_only: whether there is something.
    bool progress(unsigned rank, bool look_only);

private:
    struct Operation {
        std::uint64_t number = 0;
        std::vector<bool> put, taken;                                         // by put, by word
        unsigned left = 0;                                                    // puts that have not been posted
        std::vector<std::pair<const glue::TaskQueue*, std::uint64_t>> posted; // data: the task of its queue
        bool finished = false;                                                // done() has said so
    };
    struct Member {
        Process* process = nullptr;
        unsigned rank = 0;
        const Part* part = nullptr;
        std::vector<std::uint64_t> memory; // words, 64 bytes apart; then data, of all operations together
        std::unique_ptr<glue::TaskMemory> exposed;
        std::map<unsigned, std::unique_ptr<glue::TaskQueue>> queues; // by partner
        std::vector<Operation> operations;                           // by slot
        std::uint64_t started = 0;
    };
    static constexpr std::size_t kApart = 8; // of words, in words
    void connect();
    [[nodiscard]] const std::uint64_t* word(const Member& m, std::uint64_t number, unsigned index) const {
        return &m.memory[(number % slots_ * m.part->from.size() + index) * kApart];
    }
    [[nodiscard]] bool here(const Member& m, std::uint64_t number, unsigned index) const {
        return *word(m, number, index) > number;
    }
    [[nodiscard]] bool all_here(const Member& m, std::uint64_t number, const std::vector<unsigned>& words) const;
    [[nodiscard]] Operation& operation(Member& m, std::uint64_t number) { return m.operations[number % slots_]; }
    void post(Member& m, Operation& o, unsigned put);
    bool advance(Member& m, Operation& o, bool look_only);
    void take(Member& m, Operation& o, unsigned index);
    void spend(const Member& m, Nanos cost) const {
        m.process->spend(m.rank < costs_.slow_from ? cost
                                                   : static_cast<Nanos>(costs_.slow * static_cast<double>(cost)));
    }
    [[nodiscard]] Nanos handled(std::uint64_t bytes, bool puts) const;

    Cluster& cluster_;
    const Schedule schedule_;
    const Engine engine_;
    const Costs costs_;
    const unsigned slots_;
    std::uint64_t largest_ = 0;
    std::vector<std::vector<std::uint64_t>> bytes_; // of each rank's words' data
    std::vector<std::size_t> data_at_;              // in each member's memory
    std::vector<Member> members_;
};

} // namespace ucx_mp::collect_sim
