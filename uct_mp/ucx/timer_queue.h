// Timers in order of time. Not thread-safe.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "uct_mp/host/services.h"

namespace ucx_mp::face {

class TimerQueue {
public:
    // 0 is never a timer.
    Services::Timer add(Nanos t, std::function<void()> fn);
    void cancel(Services::Timer timer); // a timer that has fired: no effect
    // Calls timers that are due at `limit`, but none that these calls add; number of calls.
    unsigned run(Nanos limit);
    // When the next timer is due; 0: none.
    [[nodiscard]] Nanos next();
    [[nodiscard]] bool empty() const { return heap_.empty(); } // may be false with cancelled timers only
    [[nodiscard]] Nanos first() const { return heap_.front().time; }

private:
    struct Entry {
        Nanos time;
        Services::Timer id;
    };
    static bool later(const Entry& a, const Entry& b) { return a.time != b.time ? a.time > b.time : a.id > b.id; }
    void drop_cancelled();

    // A heap, earliest first. A cancelled timer stays in it without an entry in functions_.
    std::vector<Entry> heap_;
    std::unordered_map<Services::Timer, std::function<void()>> functions_;
    Services::Timer last_ = 0;
};

} // namespace ucx_mp::face
