// What --transfers and --links write: a line for each write or read, and for each link.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "run.h"
#include "softhca/world.h"

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

} // namespace ucx_mp::sim
