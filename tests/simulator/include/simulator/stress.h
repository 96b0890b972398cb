// Random traffic of every kind between all nodes of a Cluster, every byte, order and sum checked. Used by the stress
// test and, with faults, by the fault campaigns.
//
// Per ordered pair of nodes: numbered messages of all kinds whose content follows from their number; puts of random
// size into a slot of the target, each with a sequence behind it (stress_sequences.h) that ends with a message that
// makes the target check the slot at once (and give it back); gets of a constant region; fetch-adds of one to the
// target's counter, whose results must all differ. Sequences of several slots mix with each other and with all other
// traffic.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "simulator/stress_sequences.h"

namespace ucx_mp::sim {

struct StressOptions {
    std::uint64_t seed = 1;
    unsigned operations = 300;      // per ordered pair
    std::size_t slot = 1 << 20;     // largest put
    std::size_t constant = 1 << 20; // region that gets read
    bool with_self = true;
    unsigned sequences = kAllSequences; // bit: Sequence
    bool mixed = true;                  // other traffic of the pair may come between a put and what follows it
    // Data appear this long after their acknowledgment, at one adapter of each node: another one at each, by the seed.
    Nanos late = 0;
    // All adapters of each node place late by up to this, and in order for each queue pair only.
    Nanos late_queue_pairs = 0;
    // Now and then nobody starts anything for about this long. All the time channels are parked, at random moments and
    // by either side: most are busy, but not in a lull. It ends for one pair of nodes after the other.
    Nanos lull = 0;
};

class Stress {
public:
    Stress(Cluster& cluster, StressOptions options);
    ~Stress();
    Stress(const Stress&) = delete;
    Stress& operator=(const Stress&) = delete;

    // Everything started, completed and checked within `limit` of virtual time.
    bool run(Nanos limit = 100'000'000'000);
    [[nodiscard]] bool finished() const;
    // Empty: no mistake.
    [[nodiscard]] std::string verdict() const;
    std::uint64_t bytes = 0;
    unsigned asked_to_park = 0; // times

private:
    struct Side;   // what a node has for it (stress_flow.h)
    class Flow;    // an ordered pair of nodes
    struct Polled; // a flag that a target polls for

    // What a message refers to. Handlers get `this` only, so its receiver is the node whose progress runs.
    Flow* flow_to_receiver(unsigned from);
    static Status take_numbered(void* self, void* data, std::size_t length, unsigned flags);
    static Status take_check(void* self, void* data, std::size_t length, unsigned flags);
    // Flags that targets poll for: the put before is there when its flag is.
    void poll_flags();
    // Flows that wait for a slot go on (from outside of handlers).
    void repump();
    void park_and_rest(); // StressOptions::lull

    Cluster& cluster_;
    const StressOptions options_;
    std::vector<Side> sides_;
    std::vector<std::unique_ptr<Flow>> flows_;
    std::vector<Flow*> repump_;
    std::vector<Polled> polled_;
    std::string mistakes_;
    std::mt19937_64 random_{options_.seed};
    Nanos next_park_ = 0, lull_ends_ = 0;
    std::size_t resting_ = 0; // flows
    std::size_t woken_ = 0;   // whose turn it is
};

} // namespace ucx_mp::sim
