// What the commands of bench_sim_collect share: a cluster with its processes, and options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "group.h"

namespace ucx_mp::collect_sim {

struct Options {
    std::string fabric = "hdr-2rail", algorithm = "dissemination", engine = "host", measure = "latency",
                progress = "adapter", local = "copies";
    unsigned ranks = 8, per_node = 1, times = 100, tests = 0, variables = 4, rows = 8, peers = 8, size = 512,
             late_rank = 1, latency = 1000, overhead = 200, local_latency = 250, local_overhead = 100;
    std::uint64_t bytes = 0;
    bool acknowledged = false, thread = false, interior = false, by_hosts = true;
    Nanos before = 0, late = 0, compute = 0, wake = 5000;
    double mops = 1000, copy = 2, flops = 100; // per us, GB/s, per point and component
    Costs costs;
    [[nodiscard]] Engine engine_used() const { return engine == "adapter" ? Engine::adapter : Engine::host; }
};

class Processes {
public:
    // `per_node` of them on each of the fabric's nodes, in order.
    Processes(const Options& o, unsigned count);
    [[nodiscard]] Process& operator[](unsigned i) { return *all_[i]; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(all_.size()); }
    [[nodiscard]] std::vector<Process*> some(unsigned first, unsigned step, unsigned count);
    // Runs a program in each until all have ended; ns.
    Nanos run(const std::function<Program(Process&, unsigned)>& program);
    std::unique_ptr<Cluster> cluster;

private:
    std::vector<std::unique_ptr<Process>> all_;
};

// Each prints lines of words and numbers.
void barrier(const Options& o);
void bcast(const Options& o);
void late(const Options& o);
void p3dfft(const Options& o);
void awp(const Options& o);
void core(const Options& o);

} // namespace ucx_mp::collect_sim
