// How busy the links of two nodes are in virtual time.
#pragma once

#include <cstdint>
#include <vector>

#include "softhca/world.h"

namespace ucx_mp::perf {

class LinkUse {
public:
    // The links that leave the nodes' adapters: of `a` first, each in order of its rails.
    LinkUse(softhca::sim::World& world, unsigned a, unsigned b) : world_(world) {
        const softhca::FabricImage& image = world.image();
        for (const unsigned node : {a, b})
            for (std::uint32_t i = 0; i < image.ports; ++i)
                if (image.device(image.port(i).device).node == node && image.port(i).link != softhca::kNone)
                    links_.push_back({image.port(i).link, static_cast<double>(image.link(image.port(i).link).rate)});
        begin();
    }
    void begin() {
        begun_ = world_.now();
        for (Link& link : links_) link.before = world_.link(link.index).bytes;
    }
    // Share of each link's capacity since begin().
    [[nodiscard]] std::vector<double> shares() const {
        std::vector<double> out;
        const double seconds = static_cast<double>(world_.now() - begun_) / 1e9;
        for (const Link& link : links_)
            out.push_back(static_cast<double>(world_.link(link.index).bytes - link.before) / (link.rate * seconds));
        return out;
    }

private:
    struct Link {
        std::uint32_t index;
        double rate; // bytes/s
        std::uint64_t before = 0;
    };
    softhca::sim::World& world_;
    std::vector<Link> links_;
    softhca::Nanos begun_ = 0;
};

} // namespace ucx_mp::perf
