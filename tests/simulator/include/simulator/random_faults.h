// Faults of all kinds, at random moments, for tests of switches under traffic.
#pragma once

#include <random>
#include <string>

#include "simulator/cluster.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::sim {

// Over all ports and adapters, one after the other and some at once, for as long as the traffic lasts.
class Faults {
public:
    Faults(Cluster& cluster, std::uint64_t seed, unsigned adapters = 2)
        : cluster_(cluster), random_(seed * 7919), adapters_(adapters) {
        cluster_.world.at(cluster_.world.now() + 300'000, [this] { next(); });
    }
    unsigned begun = 0;
    bool over = false;

private:
    static channel::Interface::Statistics statistics_of(Node& node) {
        channel::Interface::Statistics out;
        node.iface().statistics(out);
        return out;
    }
    void next() {
        if (over) return;
        // One after the other: the order of calls within an expression is the compiler's choice.
        const std::string node = std::to_string(random_() % cluster_.size());
        const std::string adapter = node + ":softhca_" + std::to_string(random_() % adapters_);
        const std::string port = adapter + ":1";
        switch (random_() % (dead_ || adapters_ == 1 ? 4 : 5)) { // the only one takes the interface with it
        case 0:
        case 1:
            during("port down " + port, "port up " + port);
            break;
        case 2:
            during("drop 100% " + port, "drop 0% " + port); // silent
            break;
        case 3:
            during("drop " + std::to_string(1 + random_() % 20) + "% " + port, "drop 0% " + port);
            break;
        default:
            dead_ = true;
            during("adapter-death " + adapter, "adapter-revive " + adapter);
        }
        cluster_.world.at(cluster_.world.now() + 1 + random_() % 600'000, [this] { next(); });
    }
    void during(const std::string& begin, const std::string& end) {
        ++begun;
        cluster_.world.fault(begin);
        cluster_.world.at(cluster_.world.now() + 1 + random_() % 800'000, [this, end] {
            cluster_.world.fault(end);
            if (end.starts_with("adapter")) wait_for_lists();
        });
    }
    // One adapter at a time: two interfaces that lose all, one after the other, and hear nothing between, do not find
    // each other (PROTOCOL.md, U5).
    void wait_for_lists() {
        cluster_.world.at(cluster_.world.now() + 3'000'000, [this] {
            bool known = true;
            for (unsigned i = 0; i < cluster_.size(); ++i)
                for (const auto& channel : statistics_of(cluster_.node(i)).channels) known &= channel.rails_known;
            known ? void(dead_ = false) : wait_for_lists();
        });
    }
    Cluster& cluster_;
    std::mt19937_64 random_;
    const unsigned adapters_; // of each node
    bool dead_ = false;
};

} // namespace ucx_mp::sim
