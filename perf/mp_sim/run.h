// Runs jobs (kernel.h) in virtual time: one process per rank, wherever it is. What carries their messages is a
// subclass's: the transport alone (transport_run.h), or pml/mp's core over it (pml_run.h).
#pragma once

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"
#include "simulator/cluster.h"

namespace ucx_mp::sim {

class Run {
public:
    // The job must outlive it.
    Run(Cluster& cluster, const Job& job);
    virtual ~Run() = default;
    Run(const Run&) = delete;
    // Opens every connection that the job uses; ns.
    virtual Nanos connect() = 0;
    // Bytes of the largest message that is surely eager.
    [[nodiscard]] virtual std::uint64_t eager() const = 0;
    // From now on ranks begin up to `ns` late, each as late as is drawn, anew for every run. 0: all at once.
    void begin_late(Nanos ns, std::uint64_t seed) { late_ = ns, random_.seed(seed); }
    // Runs the job once; ns. `progress` is told now and then how many steps of all are done.
    Nanos once(const std::function<void(double)>& progress = {});

    // The longest time for which a rank that had something left to do did no step, since the last call; ns.
    [[nodiscard]] Nanos longest_pause() { return std::exchange(pause_, 0); }

protected:
    struct Received {
        std::uint32_t data = 0, sync = 0;        // messages, ever
        std::uint32_t taken = 0, sync_taken = 0; // of them: waited for
    };
    struct Rank {
        unsigned index = 0;
        std::size_t step = 0;
        std::uint64_t done_steps = 0; // ever
        unsigned open = 0;            // operations that are not complete
        bool started = false;         // of the step at hand: computation
        bool running = false;
        Nanos stepped_at = 0;                  // last
        bool again = false;                    // the step was refused, but can be tried at once
        std::vector<Received> from;            // by rank
        std::uint64_t received = 0, taken = 0; // data, of all
    };
    virtual void begin_run() {}
    // Of steps; false: it cannot be done yet.
    [[nodiscard]] virtual bool send(Rank& rank, const Step& step) = 0; // send, sync
    [[nodiscard]] virtual bool move(Rank& rank, const Step& step) = 0; // get, put, add
    [[nodiscard]] virtual bool is_complete(Rank& rank) { return rank.open == 0; }
    // Nothing of a rank that has done all its steps waits for room.
    [[nodiscard]] virtual bool is_through(const Rank&) { return true; }

    // What the rank can do now, one step after the other, for as long as its processor is free. False: nothing.
    [[nodiscard]] bool turn(Rank& rank);
    void arrived(Rank& rank, unsigned from, bool sync);

    Cluster& cluster_;
    const Job& job_;
    std::uint64_t largest_ = sizeof(std::uint64_t); // bytes of a message or another operation
    std::vector<Rank> ranks_;

private:
    [[nodiscard]] std::string where_it_stands() const;
    [[nodiscard]] bool take(Rank& rank, const Step& step);
    [[nodiscard]] bool await(Rank& rank, const Step& step);

    std::uint64_t total_steps_ = 0;
    unsigned finished_ = 0;
    Nanos pause_ = 0, late_ = 0;
    std::mt19937_64 random_;
};

} // namespace ucx_mp::sim
