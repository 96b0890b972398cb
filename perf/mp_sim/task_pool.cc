// A pool of tasks as NWChem has one (the application of ACTS, reduced to what it does to connections): each
// process takes a number from one counter, reads two blocks from servers, computes, and writes a block back to one of
// them. Of four processes one is a data server: there are as many servers as the paper's nodes of four processes.
//
// Half of the reads go to eight servers of the process's own (the paper's "partial regularity"), the rest to its
// working set: 3/16 of all servers, drawn by Zipf, and drawn anew seven times in a run. These two numbers are
// calibrated by what the text tells of 2048 processes: 0.11 s of tear-downs with 128 connections and 0.70 s with 32, at
// 300 us each. Which task a process gets is drawn before, so that all runs do the same; the counter is asked all the
// same.
#include <algorithm>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

constexpr unsigned kRegular = 8, kProcessesPerServer = 4, kPhases = 7;

// Whether they share a node or not, ranks 0, 4, 8, ... serve.
unsigned server(unsigned number) { return number * kProcessesPerServer; }

// Whom one process reads from.
class Owners {
public:
    Owners(const std::vector<unsigned>& popular, double skew, std::uint64_t seed)
        : popular_(popular), zipf_(static_cast<unsigned>(popular.size()), skew), random_(seed) {
        for (unsigned& r : regular_) r = below(random_, static_cast<unsigned>(popular.size()));
        new_phase();
    }
    void new_phase() {
        const auto wanted = std::max<std::size_t>(std::min<std::size_t>(4, popular_.size()), popular_.size() * 3 / 16);
        working_set_.clear();
        while (working_set_.size() < wanted) {
            const unsigned one = popular_[zipf_(random_)];
            if (std::find(working_set_.begin(), working_set_.end(), one) == working_set_.end())
                working_set_.push_back(one);
        }
    }
    [[nodiscard]] unsigned operator()() {
        return server(below(random_, 2) ? regular_[below(random_, kRegular)]
                                        : working_set_[below(random_, static_cast<unsigned>(working_set_.size()))]);
    }
    [[nodiscard]] std::uint64_t random() { return random_(); }

private:
    const std::vector<unsigned>& popular_; // servers, the most popular first
    const Zipf zipf_;
    std::mt19937_64 random_;
    unsigned regular_[kRegular];
    std::vector<unsigned> working_set_;
};

// `dedicated`: servers do nothing but serve. In the paper a server is a thread of its own, which is always awake.
Job pool(const KernelOptions& o, bool dedicated) {
    Job job(o.ranks);
    const unsigned servers = std::max(1u, o.ranks / kProcessesPerServer);
    const std::uint64_t tasks = o.messages ? o.messages : 50, work = o.compute ? o.compute : 500'000;
    // Which servers are the popular ones is the same for all.
    std::mt19937_64 shared(o.seed);
    std::vector<unsigned> popular(servers);
    for (unsigned i = 0; i < servers; ++i) popular[i] = i;
    for (unsigned i = servers; i > 1; --i) std::swap(popular[i - 1], popular[below(shared, i)]);
    for (unsigned i = 0; i < o.ranks; ++i) {
        if (dedicated && i % kProcessesPerServer == 0) continue;
        Owners owner(popular, o.skew, o.seed * 1'000'003 + i);
        const auto bytes = [&] { return 32'768 + owner.random() % (262'144 - 32'768); };
        for (std::uint64_t task = 0; task < tasks; ++task) {
            if (task != 0 && task * kPhases / tasks != (task - 1) * kPhases / tasks) owner.new_phase();
            if (i != 0) job[i].push_back({Step::Kind::add, 0, 1});
            complete(job, i);
            unsigned last = 0;
            for (unsigned k = 0; k < 2; ++k) {
                last = owner();
                if (last != i) job[i].push_back({Step::Kind::get, last, bytes()}); // its own blocks it has
            }
            complete(job, i);
            compute(job, i, work / 2 + owner.random() % work); // tasks differ
            if (last != i) job[i].push_back({Step::Kind::put, last, bytes()});
            complete(job, i);
        }
    }
    return job;
}

Job task_pool(const KernelOptions& o) { return pool(o, false); }
Job data_servers(const KernelOptions& o) { return pool(o, true); }

} // namespace

std::vector<Kernel> task_pools() {
    return {{"taskpool", "counter, two reads, computation, a write; --messages tasks per process (ACTS)", task_pool},
            {"dataservers", "the same, but every fourth process does nothing but serve", data_servers}};
}

} // namespace ucx_mp::sim
