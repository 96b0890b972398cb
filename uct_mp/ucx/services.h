// Time, timers, log and the lock of the core, from UCX.
//
// The asynchronous side is UCX's async thread, for workers of its modes "thread" (UCP's all are). The lock is the
// worker's async context. UCX holds it while it calls a handler, and UCP with several threads in every call.
//
// In modes "signal" and "poll" there is no asynchronous side. A signal's handler can't make queue pairs, since it may
// interrupt malloc(), and polling is what progress does anyway. Background timers run in progress then.
//
// Threads: as host/services.h says; run_timers() and next_timer() from the progressing thread.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "uct_mp/host/services.h"
#include "uct_mp/ucx/compat.h"
#include "uct_mp/ucx/timer_queue.h"

namespace ucx_mp::face {

class UcxServices final : public Services {
public:
    UcxServices();
    ~UcxServices() override;

    [[nodiscard]] Nanos now() override {
        return static_cast<Nanos>(static_cast<unsigned __int128>(ticks()) * ns_per_tick_ >> kFraction) + 1;
    }
    Timer at(Nanos t, std::function<void()> fn) override { return timers_.add(t, std::move(fn)); }
    void cancel(Timer timer) override { timers_.cancel(timer); }
    Timer at_in_background(Nanos t, std::function<void()> fn) override;
    void cancel_in_background(Timer timer) override;
    void lock() override;
    bool try_lock() override;
    void unlock() override;
    void wake() override;
    bool aside(std::function<void()> work) override;
    bool wait(Nanos t) override;
    [[nodiscard]] bool logs(LogLevel level) const override;
    void log(LogLevel level, const char* line) override;

    // Called first. True: there is an asynchronous side from now on.
    [[nodiscard]] bool use(ucs_async_context_t* async);
    [[nodiscard]] ucs_async_context_t* async() const { return async_; } // null: no asynchronous side
    // Readable when a background timer is due; run_background() then, with the lock held.
    [[nodiscard]] int background_fd() const { return background_fd_; }
    void run_background();

    // Made readable by the first recover_soon() after recovered(). -1: there can't be one.
    [[nodiscard]] int recover_fd();
    void recover_soon();
    void recovered() { recovering_.store(false); }

    // A descriptor that wake() makes readable until it is drained; -1: there can't be one. From the first call on.
    [[nodiscard]] int wake_fd();
    void drain_wake();

    [[nodiscard]] bool timers() const { return !timers_.empty(); }
    // Calls timers that are due; number of calls.
    unsigned run_timers() {
        if (timers_.empty()) return 0;
        const Nanos limit = now();
        return timers_.first() > limit ? 0 : timers_.run(limit);
    }
    // When the next timer is due; 0: none.
    [[nodiscard]] Nanos next_timer() { return timers_.next(); }

private:
    void set_background_fd();
    // The clock that UCX has as well, where it counts the processor's frequency.
    [[nodiscard]] std::uint64_t ticks() const {
        if (by_counter_) [[likely]] {
#if defined(__x86_64__)
            return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
            std::uint64_t count = 0;
            asm volatile("mrs %0, cntvct_el0" : "=r"(count));
            return count;
#endif
        }
        return system_clock();
    }
    [[nodiscard]] static std::uint64_t system_clock(); // ns

    static constexpr unsigned kFraction = 32;
    bool by_counter_;           // the processor's; else the system's clock
    std::uint64_t ns_per_tick_; // fixed point
    TimerQueue timers_;
    TimerQueue background_;    // under the lock
    Nanos background_set_ = 0; // the time that background_fd_ is set to; 0: off
    ucs_async_context_t* async_ = nullptr;
    int background_fd_ = -1;
    std::atomic<int> wake_fd_{-1};
    int recover_fd_ = -1;
    std::atomic<bool> recovering_{false};
    bool aside_said_ = false; // the log says that no thread could be made
    void forget_aside();      // forgets a parent's: a child of fork() does not have that thread
    std::thread aside_;
    pid_t aside_of_ = 0;
    std::atomic<bool> aside_busy_{false};
};

} // namespace ucx_mp::face
