// Link use over time as a CSV file: `softhca run --record`, read by `softhca heatmap`.
//   time_s,link,rate,bytes,packets,drops,wait_ns
// Counters are totals; a row is written for a link when they have changed (and once for each at the start). Ports of
// subnets without modelled links appear as "PORT tx" and "PORT rx". rate: bytes/s, 0 = unlimited.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/segment.h"

namespace softhca {

struct LinkCounters {
    uint64_t bytes = 0, packets = 0, drops = 0, wait_ns = 0;
    bool operator==(const LinkCounters&) const = default;
};

// What carries data in a fabric, under one numbering: the links, then both directions of every port without a link.
class Carriers {
public:
    explicit Carriers(Segment& seg);
    [[nodiscard]] size_t count() const { return names_.size(); }
    [[nodiscard]] const std::string& name(size_t i) const { return names_[i]; }
    [[nodiscard]] uint64_t rate(size_t i);
    [[nodiscard]] LinkCounters read(size_t i);
    [[nodiscard]] bool up(size_t i);

private:
    Segment& seg_;
    uint32_t links_;
    std::vector<std::string> names_;
    std::vector<uint32_t> ports_; // of carriers links_ + 2 k (tx) and links_ + 2 k + 1 (rx)
};

class Recorder {
public:
    Recorder(Segment& seg, const std::string& file); // throws std::runtime_error
    ~Recorder();
    Recorder(const Recorder&) = delete;
    void sample();

private:
    Carriers carriers_;
    std::FILE* out_;
    Nanos start_;
    std::vector<LinkCounters> last_;
};

} // namespace softhca
