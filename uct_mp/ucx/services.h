// Time, timers and log of the core, from UCX.
//
// Threads: as host/services.h says; run_timers() and next_timer() from the progressing thread.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "uct_mp/host/services.h"
#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {

class UcxServices final : public Services {
public:
    UcxServices();

    [[nodiscard]] Nanos now() override {
        return static_cast<Nanos>(static_cast<unsigned __int128>(ucs_get_time()) * ns_per_tick_ >> kFraction) + 1;
    }
    Timer at(Nanos t, std::function<void()> fn) override;
    void cancel(Timer timer) override;
    [[nodiscard]] bool logs(LogLevel level) const override;
    void log(LogLevel level, const char* line) override;

    [[nodiscard]] bool timers() const { return !heap_.empty(); }
    // Calls what is due; number of calls.
    unsigned run_timers() { return heap_.empty() || heap_.front().time > now() ? 0 : run_due(); }
    // When the next timer is due; 0: none.
    [[nodiscard]] Nanos next_timer();

private:
    struct Entry {
        Nanos time;
        Timer id;
    };
    static bool later(const Entry& a, const Entry& b) { return a.time != b.time ? a.time > b.time : a.id > b.id; }
    unsigned run_due();
    void drop_cancelled();

    static constexpr unsigned kFraction = 32;
    std::uint64_t ns_per_tick_; // fixed point
    // A heap, earliest first. A cancelled timer stays in it without an entry in functions_.
    std::vector<Entry> heap_;
    std::unordered_map<Timer, std::function<void()>> functions_;
    Timer last_ = 0;
};

} // namespace ucx_mp::face
