// Traffic between the nodes of a Cluster, for tests of what becomes of paths.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/stress.h"

namespace ucx_mp::sim {

// Traffic of all kinds, with memory registered before; empty: no mistake.
inline std::string traffic(Cluster& cluster, std::uint64_t seed, unsigned operations = 60, bool with_self = false) {
    Stress stress(cluster, {.seed = seed,
                            .operations = operations,
                            .slot = 1 << 16,
                            .constant = 1 << 16,
                            .with_self = with_self,
                            .mixed = false});
    const bool finished = stress.run(4'000'000'000);
    cluster.after_progress = {};
    for (unsigned i = 0; i < cluster.size(); ++i) cluster.node(i).on_room = {};
    return finished ? stress.verdict() : "not finished: " + stress.verdict();
}

// Paths that are up, of all channels of a node.
inline unsigned paths_up(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    unsigned up = 0;
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths) up += path.state == schedule::PathState::up;
    return up;
}

// Every node has so many paths up within `limit`.
inline bool all_up(Cluster& cluster, unsigned count, Nanos limit = 100'000'000) {
    return cluster.until(
        [&] {
            for (unsigned i = 0; i < cluster.size(); ++i)
                if (paths_up(cluster.node(i)) != count) return false;
            return true;
        },
        limit);
}

// What node `from` puts to its peer, bytes/ns: messages of `size`, 16 under way.
inline double put_rate(Cluster& cluster, unsigned from, std::size_t size) {
    struct Done : Completion {
        Done(unsigned* n)
            : Completion{[](Completion* self) { ++*static_cast<Done*>(self)->finished; }, 1, Status::ok}, finished(n) {}
        unsigned* finished;
    };
    constexpr unsigned kWindow = 16, kAll = 200,
                       kBefore = 40; // so many to begin with: a path that has returned starts with little
    Node& node = cluster.node(from);
    Node::Memory ours = node.memory(size), theirs = cluster.node(1 - from).memory(size);
    Channel& to = cluster.channel(from, 1 - from);
    unsigned posted = 0, finished = 0;
    std::vector<Done> all(kAll, Done(&finished));
    Nanos began = 0;
    const bool done = cluster.until([&] {
        while (posted < kAll && posted < finished + kWindow) {
            const Iov iov = ours.iov(0, size);
            const Status status = node.iface().put_zcopy(to, &iov, 1, theirs.address(), theirs.keys, &all[posted]);
            if (status == Status::no_resource) break;
            if (failed(status)) throw std::runtime_error("put");
            ++posted;
            if (status == Status::ok) ++finished;
        }
        if (finished >= kBefore && !began) began = cluster.world.now();
        return finished == kAll;
    });
    if (!done) throw std::runtime_error("the puts don't end");
    return static_cast<double>((kAll - kBefore) * size) / static_cast<double>(cluster.world.now() - began);
}

} // namespace ucx_mp::sim
