#include "core/locked.h"

#include <sys/resource.h>

#include <charconv>
#include <string_view>

namespace softhca {

std::optional<uint64_t> read_locked_limit(const char* value) {
    const std::string_view text = value ? value : "";
    if (text.empty() || text == "n") return UINT64_MAX;
    if (text == "y") {
        rlimit limit{};
        return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
    }
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
    const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
    if (error != std::errc{} || (shift == 0 && !unit.empty()) || size > UINT64_MAX >> (shift + 1)) return std::nullopt;
    return size << shift;
}

} // namespace softhca
