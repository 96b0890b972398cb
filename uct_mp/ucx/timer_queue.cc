#include "uct_mp/ucx/timer_queue.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::face {

Services::Timer TimerQueue::add(Nanos t, std::function<void()> fn) {
    const Services::Timer id = ++last_;
    functions_.emplace(id, std::move(fn));
    heap_.push_back({t, id});
    std::push_heap(heap_.begin(), heap_.end(), later);
    return id;
}

void TimerQueue::cancel(Services::Timer timer) {
    functions_.erase(timer);
    drop_cancelled();
}

void TimerQueue::drop_cancelled() {
    while (!heap_.empty() && !functions_.contains(heap_.front().id)) {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
    }
}

unsigned TimerQueue::run(Nanos limit) {
    const Services::Timer newest = last_; // a function that sets a timer for "now" must not keep us here
    unsigned count = 0;
    while (!heap_.empty() && heap_.front().time <= limit && heap_.front().id <= newest) {
        const Services::Timer id = heap_.front().id;
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
        if (auto node = functions_.extract(id)) { // may set or cancel timers, also this one
            node.mapped()();
            ++count;
        }
    }
    drop_cancelled();
    return count;
}

Nanos TimerQueue::next() {
    drop_cancelled();
    return heap_.empty() ? 0 : heap_.front().time;
}

} // namespace ucx_mp::face
