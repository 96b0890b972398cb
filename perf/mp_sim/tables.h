// What --transfers, --links and --kinds write: a line for each write or read, for each link, for each moment.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "softhca/world.h"
#include "transport_run.h"

namespace ucx_mp::sim {

class TransferTable {
public:
    explicit TransferTable(const std::string& path);
    void add(const std::string& name, const std::vector<Transfer>& transfers);

private:
    std::ofstream out_;
    std::string path_;
};

// Bytes over each link in the measured runs, and which share of what it can carry that is.
class LinkTable {
public:
    explicit LinkTable(const std::string& path);
    void begin(softhca::sim::World& world);
    void end(softhca::sim::World& world, const std::string& name);

private:
    std::ofstream out_;
    std::string path_;
    std::vector<std::uint64_t> before_;
    Nanos begun_ = 0;
};

// How messages come, looked at again and again while a job runs: over DC or RC, into the receive queue or into rings;
// of all processes and of rank 0 alone. `pause_us`: the longest that any rank has stood still since the last line.
class KindTable {
public:
    KindTable(const std::string& path, Nanos every);
    void begin(Cluster& cluster, Run& run, const std::string& name); // until end()
    void end();

private:
    void look(Cluster& cluster, Run& run);

    std::ofstream out_;
    std::string path_, name_;
    const Nanos every_;
    Nanos begun_ = 0;
    std::shared_ptr<bool> over_; // timers may outlive the runs that they look at
};

} // namespace ucx_mp::sim
