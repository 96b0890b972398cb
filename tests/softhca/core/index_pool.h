// Indices of one record table for this process. Whole blocks of kBlock indices belong to a process: a word per block in
// the segment names the owner (slot + 1), claimed by compare-and-swap. Which of them are in use is private, so that a
// killed process can't leave the table in a half-way state: its blocks are returned as a whole by reap_process.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>

#include "core/segment.h"

namespace softhca {

class IndexPool {
public:
    // Never hands out an index below `first` or the last one of the table.
    IndexPool(Segment& seg, Off owners, std::atomic<uint32_t>& top, uint32_t count, uint32_t first, uint32_t slot)
        : owners_(seg.at<std::atomic<uint32_t>>(owners)), top_(top), count_(count), first_(first), owner_(slot + 1) {}

    uint32_t claim(); // kNone: table full
    void free(uint32_t index);

private:
    bool claim_block();

    // A freed index waits until this many others have been freed: late packets for its last use have died out.
    static constexpr size_t kReuseDistance = 1024;
    std::mutex mutex_;
    std::atomic<uint32_t>* owners_;
    std::atomic<uint32_t>& top_;
    uint32_t count_, first_, owner_;
    uint32_t next_ = 0, end_ = 0; // never used rest of the newest block
    uint32_t search_ = 0;         // block
    std::deque<uint32_t> freed_;  // oldest first
};

} // namespace softhca
