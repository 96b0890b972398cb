// Lists of names in the notation of Slurm and pdsh: "node[0-15]", "leaf[1-3,7]", "rack[1-2]n[00-31]", "a,b[1-2]".
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace softhca {

inline constexpr size_t kMaxNames = 65536; // one pattern; a typo must not eat the machine

// All names of `pattern`, the last bracket running fastest. A leading zero in a range keeps the width of the number.
// Throws std::invalid_argument with the reason, e.g. "unbalanced [".
std::vector<std::string> expand_names(std::string_view pattern);

// Splits at `separator`, but not inside brackets: "node[0-3]:[0-1]:1" -> three parts.
std::vector<std::string> split_outside_brackets(std::string_view text, char separator);

} // namespace softhca
