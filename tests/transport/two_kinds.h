// Channels in which paths of both kinds may be: a small set-up in which they soon come back, and sums over them.
#pragma once

#include <string>

#include "both_transports.h"
#include "simulator/cluster.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::sim {

// Few requests at a time and few initiators, so that they run out; paths are tried again after milliseconds.
inline channel::Config quick_config(connect::Transport transport) {
    channel::Config config = config_of(transport);
    config.send_depth = 32;
    config.dci_count = 2;
    config.recovery.hold_down = 1'000'000;
    config.recovery.max_hold_down = 4'000'000;
    config.recovery.watch_interval = 100'000;
    config.recovery.max_open_interval = 2'000'000;
    config.recovery.reopen_interval = 200'000;
    config.recovery.max_reopen_interval = 400'000;
    return config;
}

inline channel::Interface::Statistics statistics(Node& node) {
    channel::Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

// Of all paths of one kind, in all channels of a node to others.
struct OfKind {
    unsigned paths = 0, up = 0, absent = 0, spare = 0, failures = 0, returns = 0;
    std::uint64_t written = 0, read = 0;
    void add(Node& node, path::Kind kind) {
        const channel::Interface::Statistics now = statistics(node);
        for (const auto& channel : now.channels)
            for (const auto& path : channel.paths) {
                if (path.kind != kind || channel.peer_uid == now.uid) continue;
                ++paths;
                up += path.state == schedule::PathState::up;
                absent += path.recovery == std::string("absent");
                spare += path.carries == std::string("spare");
                failures += path.failures;
                returns += path.returns;
                written += path.written;
                read += path.read;
            }
    }
};
inline OfKind of_kind(Node& node, path::Kind kind) {
    OfKind sum;
    sum.add(node, kind);
    return sum;
}
inline OfKind of_kind(Cluster& cluster, path::Kind kind) {
    OfKind sum;
    for (unsigned i = 0; i < cluster.size(); ++i) sum.add(cluster.node(i), kind);
    return sum;
}

} // namespace ucx_mp::sim
