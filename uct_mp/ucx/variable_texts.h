// Shared by the files that describe variables: how defaults and ranges are written. Private to this folder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "uct_mp/ucx/variables.h"

namespace ucx_mp::face {

// As a user would write it.
[[nodiscard]] inline std::string time(Nanos value) {
    for (const auto& [unit, name] : {std::pair{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}})
        if (value % unit == 0) return std::to_string(value / unit) + name;
    return std::to_string(value) + "ns";
}

[[nodiscard]] inline std::string range(unsigned long min, unsigned long max) {
    return std::to_string(min) + " to " + std::to_string(max);
}

// "try" is what a program does that is not told otherwise.
[[nodiscard]] inline std::string wish(bool value) { return value ? "try" : "n"; }

template <class T> [[nodiscard]] std::string choice(const char* const* names, T value) {
    return names[static_cast<unsigned>(value)];
}

// Variables that mp_dc alone has, without headings. Their defaults.
[[nodiscard]] std::vector<Variable> dc_variables(const channel::Config& defaults);

[[nodiscard]] Variable tasks_variable();

// For tests of nodes with different releases.
[[nodiscard]] std::vector<Variable> protocol_variables();

} // namespace ucx_mp::face
