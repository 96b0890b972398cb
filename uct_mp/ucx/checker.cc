#include "uct_mp/ucx/checker.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "uct_mp/ucx/abi/parsers.h"

namespace ucx_mp::face {

namespace {

std::string seconds(double value) {
    char text[32];
    const struct {
        double unit;
        const char* name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    const auto* unit = std::find_if(std::begin(units), std::end(units), [&](auto& u) { return value >= u.unit; });
    if (unit == std::end(units)) --unit;
    std::snprintf(text, sizeof text, "%.6g%s", value / unit->unit, unit->name);
    return text;
}

} // namespace

bool is_auto(const char* text) { return text && strcasecmp(text, "auto") == 0; }
bool is_inf(const char* text) { return text && strcasecmp(text, "inf") == 0; }

// UCX's own parsers take "-1" for the largest number, and "7x" for 7.
bool Checker::read_count(const char* name, const char* text, unsigned long min, unsigned long max, unsigned long& out) {
    const char* const end = text ? text + std::strlen(text) : text;
    const auto [at, error] = std::from_chars(text, end, out);
    const bool good = text && at == end && error == std::errc{} && out >= min && out <= max;
    if (!good) fail(name, text, std::to_string(min) + " to " + std::to_string(max));
    return good;
}

void Checker::bytes(const char* name, const char* text, std::size_t min, std::size_t max, unsigned& out) {
    std::size_t value = 0;
    if (text && abi::read_bytes(text, value) && value >= min && value <= max)
        out = static_cast<unsigned>(value);
    else
        fail(name, text, std::to_string(min) + " to " + std::to_string(max));
}

void Checker::time(const char* name, const char* text, double min, double max, double& out) {
    double value = 0;
    if (text && abi::read_time(text, value) && value >= min && value <= max)
        out = value;
    else
        fail(name, text, seconds(min) + " to " + seconds(max));
}

void Checker::time(const char* name, const char* text, double min, double max, Nanos& out) {
    double value = 0;
    time(name, text, min, max, value);
    if (good()) out = static_cast<Nanos>(std::llround(value * 1e9));
}

void Checker::refuse(const std::string& variable, const char* value, const std::string& allowed) {
    if (good()) said_.error = variable + "=" + (value ? value : "") + ": allowed is " + allowed;
}

void Checker::fail(const char* name, const char* value, const std::string& allowed) {
    refuse(prefix_ + name, value, allowed);
}

void Checker::note(const char* name, const char* value, const char* why) {
    said_.notes.push_back(prefix_ + name + "=" + value + " has no effect: " + why);
}

void Checker::note_changed(const std::vector<Variable>& variables, const void* options, const char* why,
                           std::initializer_list<const char*> names) {
    for (const char* const name : names) {
        const auto variable = std::ranges::find_if(variables, [&](const Variable& v) { return !strcmp(v.name, name); });
        const void* const value = static_cast<const char*>(options) + variable->offset;
        const char* text = nullptr;
        if (variable->syntax == Syntax::choice) {
            unsigned which = 0;
            std::memcpy(&which, value, sizeof which);
            text = variable->choices[which];
        } else {
            std::memcpy(&text, value, sizeof text);
        }
        if (text && variable->initial != text) note(name, text, why);
    }
}

} // namespace ucx_mp::face
