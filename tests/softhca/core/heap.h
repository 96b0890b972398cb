// Memory of this process in the segment's heap. Pages (kHeapPage) belong to a process by a word per page (slot + 1),
// claimed by compare-and-swap; what is allocated inside of them is private to the process, so a killed process leaves
// nothing half-way: all its pages are returned by reap_process.
// Small blocks come from size classes, large ones are runs of pages. Memory is handed out zeroed, and pages that nobody
// has touched cost nothing.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/segment.h"

namespace softhca {

class Heap {
public:
    Heap(Segment& seg, uint32_t slot) : seg_(seg), owner_(slot + 1) {}
    Off alloc(uint64_t bytes); // 64-byte aligned; 0: full
    void free(Off at, uint64_t bytes);

    // Makes a range of whole pages read as zeroes and gives their memory back to the system.
    static void zero_pages(Segment& seg, Off at, uint64_t bytes);

private:
    static constexpr uint64_t kLargest = kHeapPage / 2; // of the size classes
    static constexpr unsigned kClasses = 18;
    struct Class {
        std::vector<Off> free;
        Off next = 0, end = 0; // rest of the newest page
    };
    static unsigned class_of(uint64_t bytes);
    static uint64_t class_bytes(unsigned index);
    Off claim_pages(uint64_t count);
    void release_pages(uint64_t first, uint64_t count);

    std::mutex mutex_;
    Segment& seg_;
    uint32_t owner_;
    std::array<Class, kClasses> classes_;
};

} // namespace softhca
