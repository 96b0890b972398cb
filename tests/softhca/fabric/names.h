// What things are called on the command line and in messages: ports NODE:DEVICE:PORT, switches and cables by the names
// of the fabric file.
#pragma once
#include "softhca/image.h"

#include <string>
#include <vector>

namespace softhca {

std::string port_name(const FabricImage& image, uint32_t port);               // "node0:softhca_1:1"
std::string end_name(const FabricImage& image, EndKind kind, uint32_t index); // of a port or a switch
std::string link_name(const FabricImage& image, uint32_t link);               // "leaf1:13 -> spine2:1"

// NODE is a name of the file or a number, DEVICE softhca_1 or 1, PORT the IB port number. DEVICE and PORT may be left
// out where the node or the device has only one. Throws FabricError naming what there is.
uint32_t find_port(const FabricImage& image, const std::string& text);

// kNone if no switch has that name.
uint32_t find_switch(const FabricImage& image, const std::string& name);

// All cables between two ends, each a switch ("leaf1" or, for one of several parallel cables, "leaf1:13") or a port (as
// for find_port; a bare node stands for all its ports). Never empty: throws FabricError if there is none.
std::vector<uint32_t> find_cables(const FabricImage& image, const std::string& a, const std::string& b);

} // namespace softhca
