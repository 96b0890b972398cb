// A pool of tasks as NWChem has one (the ACTS paper's application, reduced to what it does to connections): each
// process takes a number from one counter, reads two blocks from servers, computes, and writes a block back to one of
// them. Of four processes one is a data server: there are as many servers as the paper's nodes of four processes. Half
// of the reads go to eight servers of the process's own, the rest is drawn by Zipf among all: the paper's "partial
// regularity". Which task a process gets is drawn before, so that all runs do the same; the counter is asked all the
// same.
#include <algorithm>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

constexpr unsigned kRegular = 8, kProcessesPerServer = 4;

// Whether they share a node or not, ranks 0, 4, 8, ... serve.
unsigned server(unsigned number) { return number * kProcessesPerServer; }

Job task_pool(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned servers = std::max(1u, o.ranks / kProcessesPerServer);
    const Zipf zipf(servers, o.skew);
    const std::uint64_t tasks = o.messages ? o.messages : 50, work = o.compute ? o.compute : 500'000;
    // Which servers are the popular ones is the same for all.
    std::mt19937_64 shared(o.seed);
    std::vector<unsigned> place(servers);
    for (unsigned i = 0; i < servers; ++i) place[i] = i;
    for (unsigned i = servers; i > 1; --i) std::swap(place[i - 1], place[below(shared, i)]);
    for (unsigned i = 0; i < o.ranks; ++i) {
        std::mt19937_64 random(o.seed * 1'000'003 + i);
        unsigned regular[kRegular];
        for (unsigned& r : regular) r = below(random, servers);
        const auto owner = [&] {
            for (;;) {
                const unsigned number = below(random, 2) ? regular[below(random, kRegular)] : place[zipf(random)];
                if (server(number) != i || servers == 1) return server(number);
            }
        };
        const auto bytes = [&] { return 32'768 + random() % (262'144 - 32'768); };
        for (std::uint64_t task = 0; task < tasks; ++task) {
            if (i != 0) job[i].push_back({Step::Kind::add, 0, 1});
            complete(job, i);
            unsigned last = 0;
            for (unsigned k = 0; k < 2; ++k) {
                last = owner();
                if (last != i) job[i].push_back({Step::Kind::get, last, bytes()});
            }
            complete(job, i);
            compute(job, i, work / 2 + random() % work); // tasks differ
            if (last != i) job[i].push_back({Step::Kind::put, last, bytes()});
            complete(job, i);
        }
    }
    return job;
}

} // namespace

std::vector<Kernel> task_pools() {
    return {{"taskpool", "counter, two reads, computation, a write; --messages tasks per process (ACTS)", task_pool}};
}

} // namespace ucx_mp::sim
