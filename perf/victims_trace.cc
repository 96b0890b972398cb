// Whose connection ends, on traces: bench_victims_trace POLICY FILE MAX_CONN [MAX_CONN ...]
//
// Each line of FILE is one process: the peers that it wants, in order, as numbers (mp_sim --trace writes such lines).
// POLICY is lru, lru_m or own, as in mp_sim --victims: the transport's code (uct_mp/adapt/victims.h). It hears what it
// hears there: once per search for a victim, who was used since the last one. Prints a line per limit: the limit, and
// tear-downs of a process (mean).
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "uct_mp/adapt/victims.h"

using ucx_mp::adapt::VictimPolicy;
using ucx_mp::adapt::Victims;

namespace {

using Trace = std::vector<Victims::Key>;

[[noreturn]] void die(const std::string& what) {
    std::fprintf(stderr, "bench_victims_trace: %s\n", what.c_str());
    std::exit(2);
}

std::vector<Trace> read(const char* path) {
    std::ifstream file(path);
    if (!file) die(std::string(path) + ": cannot be read");
    std::vector<Trace> traces;
    std::string line;
    for (unsigned number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line);
        Trace trace;
        for (Victims::Key peer = 0; words >> peer;) trace.push_back(peer);
        if (!words.eof()) die(std::string(path) + ":" + std::to_string(number) + ": numbers of peers are allowed only");
        if (!trace.empty()) traces.push_back(std::move(trace));
    }
    if (traces.empty()) die(std::string(path) + ": no process has a peer");
    return traces;
}

std::uint64_t tear_downs(const Trace& trace, VictimPolicy policy, unsigned places) {
    Victims victims(policy, places);
    std::set<Victims::Key> held, used;
    std::uint64_t torn = 0;
    for (const Victims::Key peer : trace) {
        used.insert(peer);
        if (held.contains(peer)) continue;
        if (held.size() == places) {
            used.erase(peer); // it has no connection yet
            for (const Victims::Key one : used) victims.used(one);
            used = {peer};
            const std::vector<Victims::Key> idle(held.begin(), held.end());
            const Victims::Key victim = idle[victims.choose(idle)];
            victims.torn_down(victim);
            held.erase(victim);
            ++torn;
        }
        held.insert(peer);
    }
    return torn;
}

unsigned limit_of(const std::string& word) {
    unsigned limit = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), limit);
    if (error != std::errc() || end != word.data() + word.size() || limit == 0)
        die("MAX_CONN '" + word + "': a number of connections is allowed, 1 or more");
    return limit;
}

} // namespace

int main(int argc, char** argv) {
    const std::map<std::string, VictimPolicy> policies = {
        {"lru", VictimPolicy::lru}, {"lru_m", VictimPolicy::lru_m}, {"own", VictimPolicy::leader}};
    if (argc < 4) die("usage: bench_victims_trace lru|lru_m|own FILE MAX_CONN [MAX_CONN ...]");
    const auto policy = policies.find(argv[1]);
    if (policy == policies.end()) die(std::string("policy '") + argv[1] + "'; allowed: lru, lru_m, own");
    const std::vector<Trace> traces = read(argv[2]);
    for (int i = 3; i < argc; ++i) {
        const unsigned limit = limit_of(argv[i]);
        std::uint64_t torn = 0;
        for (const Trace& trace : traces) torn += tear_downs(trace, policy->second, limit);
        std::printf("%u %.2f\n", limit, static_cast<double>(torn) / static_cast<double>(traces.size()));
    }
}
