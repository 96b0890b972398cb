// The cases of perf/failover: each runs one job in virtual time and writes one line of JSON. Times in the names' units,
// rates in GB/s (1e9 bytes per second).
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "failover_sim/job.h"

namespace ucx_mp::failover {

struct CaseOptions {
    std::string fabric = "two-rail", transport = "mp_rc", op = "put";
    std::string fault = "port down 0:softhca_0:1",
                repair = "port up 0:softhca_0:1"; // fault commands (softhca fault --help)
    std::vector<std::string> rails;               // as UCX_MP_RAILS
    unsigned paths = 0;                           // routes per pair of rails; 0: what the transport takes by itself
    unsigned from = 0, to = 1;                    // hosts
    std::size_t size = 0;                         // bytes per operation; 0: 8000 for messages, else 64 KiB
    unsigned window = 64;                         // operations under way
    double warm_up_ms = 30, down_ms = 100, after_ms = 150;
    double share = 0.5;   // of the original rate that the remaining paths can carry
    double watch_ms = 10; // as UCX_MP_WATCH_INTERVAL; 0: the adapter's time-out decides
    double poll_us = 20;  // programs poll at least that often
    double bin_us = 250;  // of the curve that is printed
    bool no_recovery = false, curve = false, loud = false;
    unsigned peers = 1;
    double command_us = 100;
    unsigned count = 1000;     // flaps
    double hold_down_ms = 100; // as UCX_MP_HOLD_DOWN
    double seconds = 10;       // that a receiver computes, that a partition lasts
    bool stopped = false, apm = false;
    bool inward = false, idle = false;
};

[[nodiscard]] channel::Config config_of(const CaseOptions& options);
[[nodiscard]] channel::Config
small_config_of(const CaseOptions& options); // what one of many peers needs, not what a process has

// One object on one line.
class Json {
public:
    Json& text(const char* key, const std::string& value) { return raw(key, "\"" + value + "\""); }
    Json& number(const char* key, double value) {
        char out[40];
        std::snprintf(out, sizeof out, "%.10g", value);
        return raw(key, out);
    }
    Json& raw(const char* key, const std::string& value) {
        line_ += (line_.empty() ? "{\"" : ", \"") + std::string(key) + "\": " + value;
        return *this;
    }
    void print() { std::printf("%s}\n", line_.c_str()), std::fflush(stdout); }

private:
    std::string line_;
};

// What recovery has counted on both sides of the job.
struct Counters {
    std::uint64_t messages_again = 0, puts_again = 0, gets_again = 0, bytes_again = 0, puts_found_done = 0,
                  duplicates = 0;
    std::uint64_t failures = 0, returns = 0, migrations = 0;
    std::uint64_t buffers = 0; // bytes, registered
    std::uint64_t queue_pairs = 0;
    std::uint64_t datagrams = 0, unsent = 0; // of the control plane; unsent: no room, they go again later
    unsigned away = 0;                       // paths that are not up
    void print(Json& out) const;
};
[[nodiscard]] Counters count(Job& job);
[[nodiscard]] std::uint64_t resident(); // bytes of this process
[[nodiscard]] std::uint64_t heap();     // bytes that are allocated

// bandwidth.cc: a stream between two hosts; nothing (`steady`) or one fault and its end (`fault`).
void steady(const CaseOptions& options);
void fault(const CaseOptions& options);
// peers.cc: a port fails that `peers` processes are connected over, commands cost time.
void peers(const CaseOptions& options);
// connect.cc: one process begins to talk to `peers`, or (`inward`) they to it; commands cost time. `idle`: without
// traffic.
void connect(const CaseOptions& options);
// jobs.cc
void receiver(const CaseOptions& options);  // one that makes no progress
void partition(const CaseOptions& options); // of four ranks in an alltoall
void flaps(const CaseOptions& options);     // of one rail

} // namespace ucx_mp::failover
