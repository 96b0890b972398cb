#include "fabric/units.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace softhca {
namespace {

struct Unit {
    const char* name;
    double factor;
};

struct SpeedName {
    const char* name;
    uint8_t code;       // ibv_port_attr.active_speed
    double lane_gbit_s; // data rate of one lane
};
constexpr SpeedName kSpeeds[] = {
    {"SDR", 1, 2},   {"DDR", 2, 4},   {"QDR", 4, 8},     {"FDR10", 8, 10}, {"FDR", 16, 14.0625 * 64 / 66},
    {"EDR", 32, 25}, {"HDR", 64, 50}, {"NDR", 128, 100},
};

struct WidthName {
    const char* name;
    uint8_t code; // ibv_port_attr.active_width
    int lanes;
};
constexpr WidthName kWidths[] = {{"1x", 1, 1}, {"4x", 2, 4}, {"8x", 4, 8}, {"12x", 8, 12}, {"2x", 16, 2}};

std::string_view trim(std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
    return s;
}

bool same_letters(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i])))
            return false;
    return true;
}

// "<number> <unit>"; a bare number is allowed when it is 0 or when `bare` is set (factor 1).
template <size_t N> std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[N], bool bare) {
    text = trim(text);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
    const std::string_view unit = trim(text.substr(static_cast<size_t>(end - text.data())));
    if (unit.empty()) return bare || value == 0 ? std::optional(value) : std::nullopt;
    for (const Unit& u : units)
        if (unit == u.name) return value * u.factor;
    return std::nullopt;
}

std::optional<Rate> parse_infiniband_speed(std::string_view text) {
    const SpeedName* speed = nullptr;
    const WidthName* width = nullptr;
    while (!(text = trim(text)).empty()) {
        const size_t end = text.find(' ');
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(word.size());
        bool known = false;
        for (const SpeedName& s : kSpeeds)
            if (!speed && same_letters(word, s.name)) speed = &s, known = true;
        for (const WidthName& w : kWidths)
            if (!width && same_letters(word, w.name)) width = &w, known = true;
        if (!known) return std::nullopt;
    }
    if (!speed) return std::nullopt;
    if (!width) width = &kWidths[1];
    return Rate{static_cast<uint64_t>(std::llround(speed->lane_gbit_s * width->lanes * 1e9 / 8)), speed->code,
                width->code};
}

} // namespace

std::optional<uint16_t> parse_pkey(std::string_view text) {
    const bool hexadecimal = text.starts_with("0x");
    if (hexadecimal) text.remove_prefix(2);
    uint16_t key = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), key, hexadecimal ? 16 : 10);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || (key & 0x7fff) == 0) return {};
    return key;
}

std::optional<int64_t> parse_time_ns(std::string_view text, bool negative) {
    static constexpr Unit units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    const auto v = parse_quantity(text, units, false);
    if (!v || (*v < 0 && !negative) || std::fabs(*v) > 9e18) return std::nullopt;
    return std::llround(*v);
}

std::optional<uint64_t> parse_size(std::string_view text) {
    static constexpr Unit units[] = {{"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
    const auto v = parse_quantity(text, units, true);
    if (!v || *v < 0 || *v > 1e18 || *v != std::floor(*v)) return std::nullopt;
    return static_cast<uint64_t>(*v);
}

std::optional<Rate> parse_rate(std::string_view text) {
    text = trim(text);
    if (text == "unlimited") return Rate{};
    if (auto r = parse_infiniband_speed(text)) return r;
    static constexpr Unit units[] = {{"b/s", 0.125},    {"kb/s", 125},     {"Mb/s", 125e3}, {"Gb/s", 125e6},
                                     {"Mbit/s", 125e3}, {"Gbit/s", 125e6}, {"Mbps", 125e3}, {"Gbps", 125e6},
                                     {"B/s", 1},        {"kB/s", 1e3},     {"MB/s", 1e6},   {"GB/s", 1e9}};
    const auto v = parse_quantity(text, units, false);
    if (!v || *v < 1 || *v > 1e15) return std::nullopt;
    Rate rate{static_cast<uint64_t>(std::llround(*v)), 0, 0};
    double best = 1e300; // distance as a ratio; widths in kWidths order, so 4x wins over an equal 1x of a newer speed
    for (const WidthName& w : kWidths) {
        for (const SpeedName& s : kSpeeds) {
            const double d = std::fabs(std::log(s.lane_gbit_s * w.lanes * 125e6 / *v)) + (w.lanes == 4 ? 0 : 1e-6);
            if (d < best) best = d, rate.speed = s.code, rate.width = w.code;
        }
    }
    return rate;
}

std::string rate_text(uint64_t bytes_per_second) {
    if (bytes_per_second == 0) return "unlimited";
    char text[32];
    std::snprintf(text, sizeof text, "%.4g Gb/s", static_cast<double>(bytes_per_second) * 8e-9);
    return text;
}

std::string time_text(uint64_t ns) {
    char text[32];
    if (ns < 1000)
        std::snprintf(text, sizeof text, "%llu ns", static_cast<unsigned long long>(ns));
    else
        std::snprintf(text, sizeof text, "%.4g us", static_cast<double>(ns) * 1e-3);
    return text;
}

} // namespace softhca
