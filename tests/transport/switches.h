// Wishes of random sides for random services, as fast as they can be made: for tests of switches under traffic.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

class Switches {
public:
    // Of `services` each is as likely as it is often there.
    Switches(Cluster& cluster, std::uint64_t seed, Nanos pause, std::vector<adapt::Service> services)
        : cluster_(cluster), random_(seed * 104'729), pause_(pause), services_(std::move(services)) {
        next();
    }
    unsigned made = 0;
    bool over = false;

private:
    void next() {
        if (over) return;
        cluster_.world.at(cluster_.world.now() + 1 + random_() % pause_, [this] {
            if (over) return;
            const unsigned at = random_() % cluster_.size(),
                           from = (at + 1 + random_() % (cluster_.size() - 1)) % cluster_.size();
            cluster_.world.select(at);
            const adapt::Service service = services_[random_() % services_.size()];
            made += cluster_.node(at).iface().serve_by(cluster_.channel(at, from), service) == Status::ok;
            next();
        });
    }
    Cluster& cluster_;
    std::mt19937_64 random_;
    const Nanos pause_;
    const std::vector<adapt::Service> services_;
};

} // namespace ucx_mp::sim
