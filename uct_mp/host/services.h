// The transport's needs of its surroundings: time, timers, a log. UCX gives them in real life (uct_mp/ucx), the virtual
// clock of the emulated fabric in simulation and in tests (tests/simulator).
//
// Threads: now() and log from anywhere. Two sides share an interface: the thread that progresses it, and an
// asynchronous one (UCX's) that answers peers while the application computes. lock() keeps them apart; the data path
// never takes it. Simulations have no asynchronous side: everything runs in progress, and the lock is nothing.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <utility>

namespace ucx_mp {

using Nanos = std::uint64_t;

enum class LogLevel : std::uint8_t { error, warn, info, debug, trace };

class Services {
public:
    virtual ~Services() = default;

    // Nanoseconds, never 0, never backwards. A call costs a few tens of cycles: once per poll or stripe, not per
    // message.
    [[nodiscard]] virtual Nanos now() = 0;

    // Calls `fn` once, at or after `t`, inside Interface::progress(). 0
    // is never a timer. Called by the thread that progresses. Slow path.
    using Timer = std::uint64_t;
    virtual Timer at(Nanos t, std::function<void()> fn) = 0;
    virtual void cancel(Timer timer) = 0; // a timer that has fired may be cancelled, without effect

    // The same for calls that must not wait until the application progresses. `fn`
    // runs on either side, with the lock held. Set and cancelled with the lock held.
    virtual Timer at_in_background(Nanos t, std::function<void()> fn) { return at(t, std::move(fn)); }
    virtual void cancel_in_background(Timer timer) { cancel(timer); }

    // Recursive. For std::lock_guard and std::unique_lock.
    virtual void lock() {}
    virtual bool try_lock() { return true; }
    virtual void unlock() {}
    // The asynchronous side has work for progress: the thread may be asleep (Interface::event_fd).
    virtual void wake() {}

    // For a caller that closes and can only wait. It lets about `t` ns pass, with everything that
    // happens meanwhile elsewhere. False: waiting makes no time pass (a simulation that nobody steps).
    virtual bool wait(Nanos) { return false; }

    // Runs `fn`, which may take long, on a thread of its own; in simulations at once. False: `fn` was not taken,
    // since an earlier one is still under way. `fn` uses nothing that ends before these services. Slow path.
    virtual bool aside(std::function<void()> work) {
        const auto now = std::move(work);
        now();
        return true;
    }

    // One line, without a line end.
    [[nodiscard]] virtual bool logs(LogLevel level) const = 0;
    virtual void log(LogLevel level, const char* line) = 0;

    __attribute__((format(printf, 3, 4))) void say(LogLevel level, const char* format, ...) {
        if (!logs(level)) return;
        char line[1024];
        va_list args;
        va_start(args, format);
        std::vsnprintf(line, sizeof line, format, args);
        va_end(args);
        log(level, line);
    }
};

} // namespace ucx_mp
