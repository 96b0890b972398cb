// How many messages came from whom, and when: slices of time, which become coarser with age (AQPS 3.4 and figure 8;
// its table has a column for every process).
//
// A slice lists the sources that have sent in it. There are at most kLevel slices of each length. When there
// is one more, the two oldest become one of twice the length. So memory grows with active sources times the
// logarithm of time. A window is known as exactly as a slice of its age is long: to about 1/kLevel of it.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "uct_mp/adapt/map.h"

namespace ucx_mp::adapt {

class Counts {
public:
    static constexpr unsigned kLevel = 8;

    // A float, because sums over hours must not wrap. Below 2^24 it is exact.
    struct Entry {
        std::uint32_t id;
        float count;
    };

    // Adds the messages since the end of the slice before, until `end` (ns). By id, each once.
    void add(Nanos end, std::vector<Entry> entries);
    // Messages since about `begin`. A slice that began before counts if more than half of it lies behind.
    [[nodiscard]] std::vector<Source> since(Nanos begin) const;
    // Forgets older slices: nobody will ask for a window that begins before.
    void forget(Nanos before);
    void restart(Nanos now) { slices_.clear(), end_ = now; }

    [[nodiscard]] std::size_t bytes() const; // memory in all
    [[nodiscard]] std::size_t slices() const { return slices_.size(); }
    [[nodiscard]] Nanos end() const { return end_; }

private:
    struct Slice {
        Nanos begin;
        unsigned level; // it covers 2^level slices of add()
        std::vector<Entry> entries;
    };
    void merge();

    std::deque<Slice> slices_; // the oldest first: levels never rise
    Nanos end_ = 0;
};

} // namespace ucx_mp::adapt
