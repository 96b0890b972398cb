// What the transport says through UCX's log, from a level on.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
}

namespace uct_test {

class Ears {
public:
    static ucs_log_func_rc_t hear(const char*, unsigned, const char*, ucs_log_level_t level,
                                  const ucs_log_component_config_t*, const char* message, va_list arguments) {
        char line[256];
        std::vsnprintf(line, sizeof line, message, arguments);
        const std::lock_guard guard(lock);
        if (std::string(line).find(wanted) != std::string::npos) heard.emplace_back(line);
        return level <= UCS_LOG_LEVEL_ERROR ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
    }
    explicit Ears(ucs_log_level_t level, std::string only = "") {
        forget();
        wanted = std::move(only);
        ucs_global_opts.log_component.log_level = level;
        ucs_log_push_handler(hear);
    }
    Ears(const Ears&) = delete;
    ~Ears() {
        ucs_log_pop_handler();
        ucs_global_opts.log_component.log_level = before;
    }
    [[nodiscard]] static std::vector<std::string> all() {
        const std::lock_guard guard(lock);
        return heard;
    }
    static void forget() {
        const std::lock_guard guard(lock);
        heard.clear();
    }
    [[nodiscard]] static long lines_with(const std::string& text) {
        return std::ranges::count_if(all(),
                                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }

private:
    static inline std::mutex lock; // UCX's thread speaks as well
    static inline std::vector<std::string> heard;
    static inline std::string wanted; // only lines with this
    ucs_log_level_t before = ucs_global_opts.log_component.log_level;
};

} // namespace uct_test
