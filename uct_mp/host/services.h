// What the transport needs of its surroundings: time, timers, a log. UCX gives them in real life (uct_mp/ucx), the
// virtual clock of the emulated fabric in simulation and in tests (perf/, tests/transport).
//
// Threads: now() from anywhere. Timers and log: from the thread that progresses the interface; a timer's function runs
// inside Interface::progress(), never from another thread.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <functional>

namespace ucx_mp {

using Nanos = std::uint64_t;

enum class LogLevel : std::uint8_t { error, warn, info, debug, trace };

class Services {
public:
    virtual ~Services() = default;

    // Nanoseconds, never 0, never backwards. A call costs a few tens of cycles: once per poll or stripe, not per message.
    [[nodiscard]] virtual Nanos now() = 0;

    // Calls `fn` once, at or after `t`. 0 is never a timer. Slow path.
    using Timer = std::uint64_t;
    virtual Timer at(Nanos t, std::function<void()> fn) = 0;
    virtual void cancel(Timer timer) = 0; // of one that has fired: allowed, no effect

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
