// The user's variables: names, groups, defaults and help texts, without anything of UCX.
//
// A default is written from a default-constructed channel::Config, so it stands once in the code. A layout of UCX
// (abi/) turns the descriptions into UCX's configuration tables, the prefixes UCX_MP_, UCX_MP_RC_ and UCX_MP_DC_
// included.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "uct_mp/channel/interface.h"

namespace ucx_mp::face {

// The subject of a variable. Its help text begins with that word. Users need the groups
// before `tuning`; the rest is for experiments, and comes last in every listing.
enum class Group { paths, scheduling, memory, faults, connections, tuning };
[[nodiscard]] const char* heading(Group group); // "Paths: " and so on, "Internal tuning: "

// The syntax that UCX's parser takes, and the type that it writes.
enum class Syntax {
    boolean, // int
    ternary, // int: yes, no, try
    count,   // char*: a number, as it was typed
    bytes,   // char*: as typed, with units
    amount,  // char*: as typed, or "auto", or "inf"
    time,    // char*: as typed, with units
    text,    // char*
    texts,   // char** and unsigned
    choice,  // unsigned: which of `choices`
};

struct Variable {
    Group group;
    const char* name;    // without prefix
    std::string initial; // the default, as a user would write it
    std::string help;    // with the heading; lines are broken
    Syntax syntax;
    std::size_t offset;                   // in MdOptions or IfaceOptions (config.h)
    const char* const* choices = nullptr; // ends with nullptr
};

// In the order in which they are shown. Each lives as long as the process: UCX keeps pointers into them.
[[nodiscard]] const std::vector<Variable>& domain_variables();
[[nodiscard]] const std::vector<Variable>& transport_variables(connect::Transport transport);

} // namespace ucx_mp::face
