#include "core/heap.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

namespace softhca {

// Two classes per power of two: 64, 128, 192, 256, 384, 512, ..., 24 Ki, 32 Ki.
uint64_t Heap::class_bytes(unsigned index) {
    if (index < 2) return 64u << index;
    const uint64_t base = 64u << (index / 2);
    return index % 2 ? base * 2 : base + base / 2;
}

unsigned Heap::class_of(uint64_t bytes) {
    unsigned index = 0;
    while (class_bytes(index) < bytes) ++index;
    return index;
}

Off Heap::alloc(uint64_t bytes) {
    if (bytes == 0) bytes = 1;
    if (bytes > kSegmentBytes) return 0;
    std::lock_guard guard(mutex_);
    if (bytes > kLargest) return claim_pages((bytes + kHeapPage - 1) / kHeapPage);
    Class& c = classes_[class_of(bytes)];
    const uint64_t size = class_bytes(class_of(bytes));
    if (!c.free.empty()) {
        const Off at = c.free.back();
        c.free.pop_back();
        return at;
    }
    if (c.end - c.next < size) {
        c.next = claim_pages(1);
        c.end = c.next ? c.next + kHeapPage : 0;
        if (!c.next) return 0;
    }
    const Off at = c.next;
    c.next += size;
    return at;
}

void Heap::free(Off at, uint64_t bytes) {
    if (at == 0) return;
    if (bytes == 0) bytes = 1;
    if (bytes > kLargest) {
        const uint64_t count = (bytes + kHeapPage - 1) / kHeapPage;
        zero_pages(seg_, at, count * kHeapPage);
        std::lock_guard guard(mutex_);
        release_pages((at - seg_.heap) / kHeapPage, count);
        return;
    }
    std::memset(seg_.at<char>(at), 0, bytes);
    std::lock_guard guard(mutex_);
    classes_[class_of(bytes)].free.push_back(at);
}

Off Heap::claim_pages(uint64_t count) {
    auto* owners = seg_.at<std::atomic<uint32_t>>(seg_.heap_owner);
    const uint64_t total = seg_.heap_pages;
    if (count > total) return 0;
    const uint64_t start = seg_.heap_hint.load(std::memory_order_relaxed) % total;
    uint64_t run = 0; // pages claimed that end before `page`
    uint64_t page = start;
    for (uint64_t step = 0; step < total + count; ++step, ++page) {
        if (page == total) { // runs don't wrap
            release_pages(page - run, run);
            run = 0;
            page = 0;
        }
        // The mark first, as in IndexPool.
        uint64_t top = seg_.heap_top.load(std::memory_order_relaxed);
        while (top < page + 1 && !seg_.heap_top.compare_exchange_weak(top, page + 1)) {}
        uint32_t free = 0;
        if (owners[page].load(std::memory_order_relaxed) != 0 || !owners[page].compare_exchange_strong(free, owner_)) {
            release_pages(page - run, run);
            run = 0;
            continue;
        }
        if (++run < count) continue;
        const uint64_t first = page + 1 - count;
        uint64_t hint = start;
        if (first == start || count == 1) seg_.heap_hint.compare_exchange_strong(hint, page + 1);
        return seg_.heap + first * kHeapPage;
    }
    release_pages(page - run, run);
    return 0;
}

void Heap::release_pages(uint64_t first, uint64_t count) {
    if (count == 0) return;
    auto* owners = seg_.at<std::atomic<uint32_t>>(seg_.heap_owner);
    for (uint64_t i = first; i < first + count; ++i) owners[i].store(0, std::memory_order_release);
    uint64_t hint = seg_.heap_hint.load(std::memory_order_relaxed);
    while (hint > first && !seg_.heap_hint.compare_exchange_weak(hint, first)) {}
}

void Heap::zero_pages(Segment& seg, Off at, uint64_t bytes) {
    char* p = seg.at<char>(at);
    if (madvise(p, bytes, MADV_REMOVE) != 0) std::memset(p, 0, bytes); // memory that can't be punched out
}

} // namespace softhca
