// What mp_sim is asked for, and what follows from it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"
#include "simulator/cluster.h"

namespace ucx_mp::sim {

struct SimOptions {
    std::string fabric = "fattree-144", kernel = "alltoall", mapping = "block", rendezvous = "put",
                module = "transport", csv, trace, transfers, links, kinds;
    std::vector<std::string> transports{"mp_rc"},
        policies{"binding", "hsam", "bss:n_paths=4,n_batch=2", "spray", "default"};
    std::vector<std::string> faults;
    std::vector<std::string> later_faults; // "NS COMMAND"
    unsigned nodes = 64, of_nodes = 0, unlimited = 0, per_node = 1, ranks = 0, paths = 0, repeat = 1, warm_up = 1,
             seeds = 1, window = 64;
    unsigned initiators = 0, targets = 0, receives = 0;
    std::string dci_policy, victims = "own";
    std::uint64_t size = 65536, eager = 1024, messages = 0, compute = 0, seed = 1, max_conn = 0, adapt_interval = 0;
    double skew = 0.6, mops = 243;
    std::string problem = "A";
    unsigned max_rc = 0, rings = 0, ring_slots = 0;
    softhca::Nanos kinds_every = 100'000, late = 0;
    std::string ring_costs, rc_costs;
    bool apm = false, on_demand = false, background = true, bound = false, quiet = false;
    // Of HostCosts, where it differs from what the fabric says.
    std::optional<softhca::Nanos> post, completion, receive, poll_miss, poll_hit;
    std::optional<double> copy;
    std::optional<bool> commands;
};

// Exits with what CLI11 says if the words are wrong.
[[nodiscard]] SimOptions parse(int argc, char** argv);

// The node of each rank, with this seed. Throws std::runtime_error with one line.
[[nodiscard]] std::vector<unsigned> hosts_of(const SimOptions& o, std::uint64_t seed);
// The rails that each rank uses: empty, or with policy `bound` one of its node's, ranks of a node in turn.
[[nodiscard]] std::vector<verbs::DeviceConfig> rails_of(const SimOptions& o, const std::string& policy,
                                                        const std::vector<unsigned>& hosts);
// Of --fault-at: when, from the begin of a measured run on, and what. Throws likewise.
[[nodiscard]] std::vector<std::pair<softhca::Nanos, std::string>> later_faults(const SimOptions& o);
[[nodiscard]] KernelOptions kernel_options(const SimOptions& o, std::uint64_t seed);
// Throws likewise.
[[nodiscard]] channel::Config config_of(const SimOptions& o, const std::string& transport, const std::string& policy);
[[nodiscard]] softhca::sim::HostCosts host_costs(const SimOptions& o, const softhca::sim::HostCosts& fabric);

} // namespace ucx_mp::sim
