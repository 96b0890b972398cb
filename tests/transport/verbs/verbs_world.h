// A virtual-time world with a set of devices per node, for tests of the verbs room.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <ucx_mp_places.h>

#include "softhca/fabric.h"
#include "softhca/world.h"
#include "uct_mp/host/services.h"
#include "uct_mp/verbs/device.h"

namespace verbs_test {

using namespace ucx_mp;
using namespace ucx_mp::verbs;
using softhca::sim::World;

inline std::string fabric(const std::string& name) {
    return std::string(UCX_MP_SOURCE_DIR) + "/config/fabrics/" + name + ".yaml";
}

// A fabric file given as text.
inline softhca::FabricBlock fabric_of(const std::string& text) { return softhca::parse_fabric(text, "test.yaml"); }

// Two nodes that need no subnet manager, with adapters of the given properties ("ports: 2, has_dc: false").
inline softhca::FabricBlock crossbar(const std::string& adapter, unsigned adapters = 1) {
    std::string list = "a";
    for (unsigned i = 1; i < adapters; ++i) list += ", a";
    return fabric_of("ideal: true\n"
                     "adapters:\n  a: {" +
                     adapter + "}\nnodes:\n  - {name: 'n[0-1]', adapters: [" + list +
                     "]}\nsubnets:\n  - {name: all, crossbar: true, rate: EDR 4x}\n");
}

inline DeviceSet open_devices(World& world, uint32_t node, std::vector<std::string> rails = {}) {
    world.select(node);
    DeviceSet set;
    std::string error;
    const Status status = DeviceSet::open({.rails = std::move(rails)}, set, error);
    BOOST_REQUIRE_MESSAGE(status == Status::ok, error);
    return set;
}

class WorldServices : public Services {
public:
    explicit WorldServices(World& world) : world_(world) {}
    Nanos now() override { return world_.now(); }
    Timer at(Nanos t, std::function<void()> fn) override { return world_.at(t, std::move(fn)); }
    void cancel(Timer timer) override { world_.cancel(timer); }
    bool logs(LogLevel) const override { return false; }
    void log(LogLevel, const char*) override {}

private:
    World& world_;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace verbs_test
