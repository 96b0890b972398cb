#include "uct_mp/ucx/services.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::face {

namespace {

ucs_log_level_t to_ucs(LogLevel level) {
    switch (level) {
    case LogLevel::error:
        return UCS_LOG_LEVEL_ERROR;
    case LogLevel::warn:
        return UCS_LOG_LEVEL_WARN;
    case LogLevel::info:
        return UCS_LOG_LEVEL_INFO;
    case LogLevel::debug:
        return UCS_LOG_LEVEL_DEBUG;
    case LogLevel::trace:
        return UCS_LOG_LEVEL_TRACE;
    }
    return UCS_LOG_LEVEL_DEBUG;
}

} // namespace

UcxServices::UcxServices()
    : ns_per_tick_(static_cast<std::uint64_t>(1e9 / ucs_time_sec_value() * double(1ull << kFraction) + 0.5)) {}

Services::Timer UcxServices::at(Nanos t, std::function<void()> fn) {
    const Timer id = ++last_;
    functions_.emplace(id, std::move(fn));
    heap_.push_back({t, id});
    std::push_heap(heap_.begin(), heap_.end(), later);
    return id;
}

void UcxServices::cancel(Timer timer) {
    functions_.erase(timer);
    drop_cancelled();
}

void UcxServices::drop_cancelled() {
    while (!heap_.empty() && !functions_.contains(heap_.front().id)) {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
    }
}

unsigned UcxServices::run_due() {
    // One look at the clock: a function that sets a timer for "now" must not keep us here.
    const Nanos limit = now();
    const Timer newest = last_;
    unsigned count = 0;
    while (!heap_.empty() && heap_.front().time <= limit && heap_.front().id <= newest) {
        const Timer id = heap_.front().id;
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

Nanos UcxServices::next_timer() {
    drop_cancelled();
    return heap_.empty() ? 0 : heap_.front().time;
}

bool UcxServices::logs(LogLevel level) const { return ucs_log_is_enabled(to_ucs(level)); }

void UcxServices::log(LogLevel level, const char* line) {
    ucs_log(to_ucs(level), "%s%s", std::strncmp(line, "mp", 2) == 0 ? "" : "mp: ", line);
}

} // namespace ucx_mp::face
