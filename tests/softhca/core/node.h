// Which machine of the fabric a process is: what a user says of it. Set-up path.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/segment.h"

namespace softhca {

inline constexpr const char* kNodeEnv = "SOFTHCA_NODE";   // this process's, by number or name
inline constexpr const char* kPlaceEnv = "SOFTHCA_PLACE"; // of every rank: see read_places()

// The node that `text` names, by its number or its name. kNone, and `why` says what is allowed: there is no such node.
uint32_t find_node(const FabricImage& image, std::string_view text, std::string& why);

// "0,4,node1": the nodes of ranks 0, 1, 2. Empty, and `why` is one line without the variable's name, if one is no node.
std::vector<uint32_t> read_places(const FabricImage& image, std::string_view text, std::string& why);

} // namespace softhca
