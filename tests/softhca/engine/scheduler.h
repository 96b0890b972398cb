// Timed events, in real and in virtual time. Ordered by (time, order of scheduling): deterministic in virtual time.
// Not thread safe: everything runs under Engine::mutex.
#pragma once
#include <cstdint>
#include <queue>
#include <vector>

#include "core/clock.h"

namespace softhca {

class Scheduler {
public:
    // `when` is the nominal (model) time of the event; in real time it may fire later but is told `when`, so that
    // a late thread does not slow the model down.
    using Fn = void (*)(void* self, uint64_t arg, Nanos when);

    void at(Nanos when, Fn fn, void* self, uint64_t arg = 0) { heap_.push({when, ++order_, fn, self, arg}); }
    [[nodiscard]] Nanos next_due() const { return heap_.empty() ? kNever : heap_.top().when; }
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] size_t size() const { return heap_.size(); }
    // Fires the earliest event; the caller has checked that it is due.
    void fire_next() {
        const Entry e = heap_.top();
        heap_.pop();
        e.fn(e.self, e.arg, e.when);
    }
    void clear() { heap_ = {}; }

private:
    struct Entry {
        Nanos when;
        uint64_t order;
        Fn fn;
        void* self;
        uint64_t arg;
        bool operator<(const Entry& o) const { return when != o.when ? when > o.when : order > o.order; }
    };
    std::priority_queue<Entry, std::vector<Entry>> heap_;
    uint64_t order_ = 0;
};

} // namespace softhca
