// Topology + routes -> the block of softhca/image.h.
#pragma once
#include "fabric/topology.h"
#include "softhca/fabric.h"

namespace softhca {

struct Routes; // routes.h

// Lays the topology out. Without routes (nullptr) the image has no LIDs and empty forwarding tables: what
// compute_routes needs. An ideal topology is stripped of its costs (strip_costs).
FabricBlock build_image(const Topology& topology, const Routes* routes);

// `--ideal`: everything as fast as memory; LIDs, routes, capabilities (DC, timestamps, APM), clocks and reported speeds
// stay.
void strip_costs(FabricImage& image);

} // namespace softhca
