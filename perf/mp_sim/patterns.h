// Communication patterns of the papers as step machines: in step k every rank sends to some ranks and waits for some;
// it goes on when its own data are out and its partners' have come. A message is a put, a fence and a notification:
// what a rendezvous does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

[[nodiscard]] std::string pattern_names();

class PatternRun {
public:
    // ranks[i]: the node of rank i. Throws std::runtime_error for an unknown pattern.
    PatternRun(Cluster& cluster, const std::string& pattern, std::uint64_t size, std::vector<unsigned> ranks);
    // Opens every connection that the pattern uses; ns.
    Nanos connect();
    // Runs the pattern once; ns.
    Nanos once();
    [[nodiscard]] std::uint64_t bytes_per_run() const { return bytes_; }

private:
    struct Transfer {
        unsigned to;
        std::uint64_t bytes;
    };
    using Schedule = std::vector<std::vector<Transfer>>; // [step] of one rank: what it sends
    struct Rank {
        PatternRun* run;
        unsigned index = 0;
        Schedule sends;
        std::vector<unsigned> expects;  // [step]: messages that come in
        std::vector<unsigned> received; // [step]
        std::size_t step = 0;
        unsigned open = 0;    // puts of this step not complete
        std::size_t next = 0; // of sends[step]: put to be posted
        bool fenced = false;  // the put of `next` is posted, its fence too: the notification is missing
        bool busy = false;
    };
    struct Done : Completion {
        Rank* rank;
    };
    void pump(Rank& rank);
    static Status arrived(void* self, void* data, std::size_t length, unsigned flags);
    Channel& channel(unsigned from, unsigned to);

    Cluster& cluster_;
    std::vector<unsigned> nodes_; // of ranks
    std::vector<Rank> ranks_;
    std::vector<unsigned> rank_of_node_;
    std::vector<Node::Memory> memory_;
    std::map<std::pair<unsigned, unsigned>, Channel*> channels_;
    std::uint64_t bytes_ = 0;
    unsigned finished_ = 0;
    std::uint32_t round_ = 0;
};

} // namespace ucx_mp::sim
