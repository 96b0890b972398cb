// mp_sim: the real transport on many nodes in one process, in virtual time. Runs a communication pattern of the papers
// under several scheduling policies on one fabric and compares the times. A number from it is a ratio of two runs that
// differ in one thing; the same seed gives the same times, twice.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>

#include "patterns.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Result {
    std::string policy;
    double time_us = 0, connect_us = 0, wall = 0;
    std::uint64_t bytes = 0, fingerprint = 0, messages = 0, queue_pairs = 0, control = 0;
    double spread = 0; // busiest link / mean of the links that carried something
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Communication patterns over mp_rc / mp_dc in virtual time, one run per policy.\n"
        "Example: mp_sim --fabric fattree-144 --nodes 64 --pattern alltoall --size 64K --policy binding,hsam,spray"};
    std::string fabric = "fattree-144", transport = "mp_rc", pattern = "alltoall", mapping = "block", csv;
    std::vector<std::string> policies{"binding", "hsam", "bss:n_paths=4,n_batch=2", "spray", "default"};
    std::vector<std::string> faults;
    unsigned nodes = 64, paths = 0, repeat = 1, warm_up = 1;
    std::uint64_t size = 65536, seed = 1;
    softhca::sim::HostCosts host;
    app.add_option("--fabric", fabric, "fabric file, or a name of config/fabrics")->capture_default_str();
    app.add_option("--nodes", nodes, "nodes that take part")->capture_default_str()->check(CLI::Range(2, 1024));
    app.add_option("--transport", transport, "mp_rc or mp_dc")
        ->capture_default_str()
        ->check(CLI::IsMember({"mp_rc", "mp_dc"}));
    app.add_option("--pattern", pattern, pattern_names())->capture_default_str();
    app.add_option("--size", size, "bytes per message (K, M: powers of 1024)")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--policy", policies, "policies to compare, separated by spaces or ';'\n" + schedule::policy_names())
        ->delimiter(';');
    app.add_option("--paths", paths, "routes per pair of rails; 0: what the transport takes by itself")
        ->capture_default_str();
    app.add_option("--repeat", repeat, "times the pattern is run and measured")->capture_default_str();
    app.add_option("--warm-up", warm_up, "runs before, not measured: connections, learning policies")
        ->capture_default_str();
    app.add_option("--mapping", mapping, "ranks to nodes: block, or random (the papers' default mapping)")
        ->capture_default_str()
        ->check(CLI::IsMember({"block", "random"}));
    app.add_option("--host-post", host.post, "ns of a node's processor for each request that it posts")
        ->capture_default_str();
    app.add_option("--host-completion", host.completion, "ns for each completion that it collects")
        ->capture_default_str();
    app.add_option("--fault", faults, "fault command before the run, e.g. 'rate 2Gb/s leaf1 spine1' (repeatable)");
    app.add_option("--seed", seed, "of everything random")->capture_default_str();
    app.add_option("--csv", csv, "also write the table to this file");
    CLI11_PARSE(app, argc, argv);

    std::vector<Result> results;
    for (const std::string& name : policies) {
        const auto choice = schedule::make_policy(name, "--policy");
        if (!choice.config) {
            std::fprintf(stderr, "mp_sim: %s\n", choice.error.c_str());
            return 2;
        }
        try {
            const double begin = seconds();
            channel::Config config;
            config.transport = transport == "mp_rc" ? connect::Transport::rc : connect::Transport::dc;
            config.policy = *choice.config;
            config.paths.num_paths = paths;
            // Small: what a simulation needs, not what a node has. Payload is not carried, so the segment may be short.
            config.segment = 1024;
            config.send_depth = 32;
            config.receive_depth = 128;
            config.window = 64;
            config.completion_depth = 1024;
            Cluster cluster(fabric, nodes, config, {.seed = seed, .payload_limit = 512, .host = host});
            for (const std::string& fault : faults) cluster.world.fault(fault);
            std::vector<unsigned> ranks(nodes);
            std::iota(ranks.begin(), ranks.end(), 0u);
            if (mapping == "random") {
                std::mt19937_64 random(seed);
                for (unsigned i = nodes; i > 1; --i)
                    std::swap(ranks[i - 1], ranks[random() % i]); // std::shuffle varies
            }
            PatternRun run(cluster, pattern, size, ranks);
            std::fprintf(stderr, "%-28s connecting...", name.c_str());
            Result result;
            result.policy = name;
            result.connect_us = static_cast<double>(run.connect()) / 1e3;
            for (unsigned i = 0; i < warm_up; ++i) {
                std::fprintf(stderr, "\r%-28s warm-up %u of %u   ", name.c_str(), i + 1, warm_up);
                (void)run.once();
            }
            for (unsigned i = 0; i < repeat; ++i) {
                std::fprintf(stderr, "\r%-28s run %u of %u       ", name.c_str(), i + 1, repeat);
                result.time_us += static_cast<double>(run.once()) / 1e3 / repeat;
            }
            std::fprintf(stderr, "\r%60s\r", "");
            result.bytes = run.bytes_per_run();
            result.fingerprint = cluster.world.fingerprint();
            for (unsigned i = 0; i < nodes; ++i) {
                channel::Interface::Statistics statistics;
                cluster.node(i).iface().statistics(statistics);
                result.queue_pairs += statistics.queue_pairs;
                result.control += statistics.control.sent;
                for (const auto& peer : statistics.channels) result.messages += peer.sent;
            }
            result.wall = seconds() - begin;
            results.push_back(result);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "mp_sim: %s\n", error.what());
            return 1;
        }
    }

    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%s, %u nodes, %s, %s, %llu bytes per message, %s mapping, seed %llu\n", fabric.c_str(), nodes,
                transport.c_str(), pattern.c_str(), static_cast<unsigned long long>(size), mapping.c_str(),
                static_cast<unsigned long long>(seed));
    std::printf("%-28s %12s %8s %10s %12s %10s %8s  %s\n", "policy", "time us", "ratio", "GB/s/node", "connect us",
                "QPs/node", "wall s", "fingerprint");
    for (const Result& r : results)
        std::printf("%-28s %12.1f %8.3f %10.3f %12.1f %10.1f %8.1f  %016llx\n", r.policy.c_str(), r.time_us,
                    r.time_us / results[0].time_us, static_cast<double>(r.bytes) / 1e3 / r.time_us / nodes,
                    r.connect_us, static_cast<double>(r.queue_pairs) / nodes, r.wall,
                    static_cast<unsigned long long>(r.fingerprint));
    std::printf("peak memory %.0f MB\n", static_cast<double>(usage.ru_maxrss) / 1024);
    if (!csv.empty()) {
        std::ofstream out(csv);
        out << "policy,time_us,ratio,connect_us\n";
        for (const Result& r : results)
            out << '"' << r.policy << "\"," << r.time_us << ',' << r.time_us / results[0].time_us << ',' << r.connect_us
                << '\n';
    }
}
