#include "job.h"

#include <algorithm>
#include <stdexcept>

namespace ucx_mp::collect_sim {

namespace {

// Small: what these programs need. They send no message.
channel::Config small_queues() {
    channel::Config config;
    config.receive_depth = 16;
    config.send_depth = 16;
    config.background = false;
    return config;
}

} // namespace

Processes::Processes(const Options& o, unsigned count) {
    std::vector<unsigned> hosts;
    for (unsigned i = 0; i < count; ++i) hosts.push_back(i / o.per_node);
    // Data beyond 1 KiB is not carried.
    cluster = std::make_unique<Cluster>(o.fabric, hosts, small_queues(),
                                        softhca::sim::Options{.seed = 1, .payload_limit = 1024});
    // Processors are free where no cost is set. The commands' own costs would not count then.
    softhca::sim::HostCosts costs = cluster->world.host_costs();
    if (!costs.any()) costs.poll_miss = 1;
    cluster->world.host_costs(costs);
    for (unsigned i = 0; i < count; ++i) all_.push_back(std::make_unique<Process>(*cluster, i));
}

std::vector<Process*> Processes::some(unsigned first, unsigned step, unsigned count) {
    std::vector<Process*> out;
    for (unsigned i = 0; i < count; ++i) out.push_back(all_[first + i * step].get());
    return out;
}

Nanos Processes::run(const std::function<Program(Process&, unsigned)>& program) {
    const Nanos begin = cluster->world.now();
    for (unsigned i = 0; i < size(); ++i) all_[i]->run([&, i](Process& process) { return program(process, i); });
    const auto ended = [this] { return std::ranges::all_of(all_, [](const auto& one) { return one->ended(); }); };
    if (!cluster->until(ended, 1'000'000'000'000)) throw std::runtime_error("the programs do not end");
    Nanos end = cluster->world.now();
    for (const auto& one : all_) end = std::max(end, one->now());
    return end - begin;
}

} // namespace ucx_mp::collect_sim
