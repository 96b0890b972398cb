// Topology + routes -> the block of image.h.
#pragma once
#include "fabric/image.h"
#include "fabric/topology.h"

#include <cstddef>
#include <string>
#include <vector>

namespace softhca {

struct Routes; // routes.h

// Owns one FabricImage block. Copy image().bytes bytes from data() to place it elsewhere (it is relocatable).
class FabricBlock {
public:
    explicit FabricBlock(size_t bytes) : words_((bytes + 7) / 8) {}
    [[nodiscard]] FabricImage& image() { return *reinterpret_cast<FabricImage*>(words_.data()); }
    [[nodiscard]] const FabricImage& image() const { return *reinterpret_cast<const FabricImage*>(words_.data()); }
    [[nodiscard]] const std::byte* data() const { return reinterpret_cast<const std::byte*>(words_.data()); }
    [[nodiscard]] size_t size() const { return words_.size() * 8; }

private:
    std::vector<uint64_t> words_; // 8-byte aligned, zeroed
};

// Lays the topology out. Without routes (nullptr) the image has no LIDs and empty forwarding tables: what
// compute_routes needs. An ideal topology is stripped of its costs (strip_costs).
FabricBlock build_image(const Topology& topology, const Routes* routes);

// `--ideal`: everything as fast as memory; LIDs, routes, capabilities (DC, timestamps, APM), clocks and reported speeds
// stay.
void strip_costs(FabricImage& image);

// The whole way: find_fabric, load_topology, compute_routes (cached), build_image. Throws FabricError.
FabricBlock load_fabric(const std::string& path_or_name, bool ideal = false);

} // namespace softhca
