#include "uct_mp/ucx/check/report.h"

#include <cstdarg>
#include <cstdio>

namespace ucx_mp::check {

void Report::line(const char* what, Verdict verdict, const char* format, ...) {
    std::printf("  %-46s %-4s ", what, verdict == Verdict::yes ? "yes" : verdict == Verdict::no ? "no" : "NO");
    std::va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::printf("\n");
    std::fflush(stdout);
    broken_ += verdict == Verdict::broken;
}

void Report::feature(const char* name, bool on) {
    const auto [at, first] = features_.try_emplace(name, on);
    if (!first) at->second = at->second && on;
}

void Report::features() const {
    for (const bool on : {true, false}) {
        std::string all;
        for (const auto& [name, is] : features_)
            if (is == on) all += (all.empty() ? "" : ", ") + name;
        if (!all.empty()) std::printf("%s: %s\n", on ? "on" : "off", all.c_str());
    }
}

void Report::failed(const char* what, const std::string& why) {
    line(what, Verdict::broken, "could not be tried: %s", why.c_str());
}

} // namespace ucx_mp::check
