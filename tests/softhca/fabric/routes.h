// LIDs and forwarding tables. Crossbar and switchless subnets need no subnet manager: LIDs are counted out here. For
// the others the real opensm runs on ibsim (subnet_manager.h), one run per subnet, with a cache of the results. Works
// on an image, not on the topology, so that a running session can re-route from what it has in memory.
#pragma once
#include "softhca/image.h"

#include <functional>
#include <string>
#include <vector>

namespace softhca {

struct Routes {
    struct Subnet {
        uint16_t sm_lid = 0, max_lid = 0;
        std::string engine;  // the routing engine that made the tables ("-": none was needed)
        bool cached = false; // read from the cache
        double seconds = 0;  // wall time that this subnet took
        std::string warning; // e.g. the engine asked for could not be used; empty = none
    };
    std::vector<Subnet> subnets;             // as in the image
    std::vector<uint16_t> lid;               // base LID by port; 0 = port not on a subnet
    std::vector<std::vector<uint8_t>> table; // by switch: out port by LID, kNoRoute = unreachable; size = max_lid + 1
};

struct RouteOptions {
    std::function<bool(uint32_t cable)> cable_down; // such cables are left out; null: all work
    bool use_cache = true;
    bool keep_lids = false; // re-route: the LIDs (and unreachable switches' tables) of the image stay
};

// Throws FabricError: too many LIDs, opensm or ibsim missing or failing.
// With keep_lids: the subnet manager sees what is still connected to the switch with most of the subnet behind it;
// ports that it cannot reach keep their LIDs and get no routes, switches that it cannot reach keep their old tables -
// as it would be on hardware.
Routes compute_routes(const FabricImage& image, const RouteOptions& options = {});

// Re-route of a live image: compute_routes with keep_lids, then overwrite the tables in place (byte by byte: a walk
// beside it sees old or new entries, never torn ones). The caller raises FabricState::generation. Returns what was
// done.
Routes reroute(FabricImage& image, const std::function<bool(uint32_t cable)>& cable_down);
void apply_tables(FabricImage& image, const Routes& routes);

} // namespace softhca
