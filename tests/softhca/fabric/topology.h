// A fabric as described by its file: plain structures with everything resolved (patterns expanded, switch ports
// assigned, subnets found), but without LIDs and routes (routes.h) and not yet laid out (image_builder.h).
// The file format is documented in config/fabrics/README.md; units as in image.h: ns, bytes, bytes per second, 0 =
// free.
#pragma once
#include "fabric/units.h"
#include "softhca/fabric.h" // FabricError

#include <filesystem>
#include <string>
#include <vector>

namespace softhca {

struct AdapterType {
    std::string name;
    uint32_t ports = 1; // 1 or 2
    uint32_t mtu = 4096;
    AdapterLimits limits{};
    std::vector<uint16_t> pkeys{kDefaultPkey}; // of each port; kMaxPkeys at most
};

struct Topology {
    struct Node {
        std::string name;
        uint32_t first_device = 0, devices = 0; // range in Topology::devices
    };
    struct Device {
        uint32_t node = 0;  // in nodes
        uint32_t index = 0; // within the node: softhca_<index>
        uint32_t type = 0;  // in adapter_types
        uint32_t first_port = 0;
    };
    struct Port {
        uint32_t device = 0; // in devices
        uint32_t number = 1; // IB port number
        uint32_t subnet = kNone;
        uint32_t cable = kNone;
    };
    struct Switch {
        std::string name;
        uint32_t ports = 0;
        uint32_t latency_ns = 0; // traversal
        uint32_t subnet = kNone;
    };
    struct End {
        EndKind kind = EndKind::port;
        uint32_t index = 0; // in ports or switches
        uint32_t port = 1;  // IB port number there
    };
    struct Cable {
        End ends[2];
        Rate rate;
        uint32_t latency_ns = 0; // propagation only
        uint32_t buffer = 0;
        int line = 0; // of the file, for messages
    };
    struct Subnet {
        std::string name;
        uint64_t prefix = 0;
        bool crossbar = false;
        uint32_t lmc = 0;
        Rate rate; // crossbar: what its ports report
    };

    std::string name, file;
    bool ideal = false;
    bool dynamic_nodes = true;
    uint32_t chunk_mtus = 4;
    HostImage host{};
    std::string routing; // opensm routing engines, in order of preference, comma separated
    std::vector<AdapterType> adapter_types;
    std::vector<Node> nodes;
    std::vector<Device> devices;
    std::vector<Port> ports;
    std::vector<Switch> switches;
    std::vector<Cable> cables;
    std::vector<Subnet> subnets;
};

// Reads a fabric file. Throws FabricError.
Topology load_topology(const std::filesystem::path& file);
// The same from text; `file` only appears in messages, its stem is the default name of the fabric.
Topology parse_topology(const std::string& text, const std::string& file);

// A path to a fabric file, or the bare name of one in the directory $SOFTHCA_FABRICS (else the one compiled in:
// config/fabrics). Throws FabricError that lists the names there are.
std::filesystem::path find_fabric(const std::string& path_or_name);

} // namespace softhca
