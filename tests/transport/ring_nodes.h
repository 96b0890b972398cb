// Nodes whose small messages may come by rings: a small set-up, sums over them, and messages that are checked.
#pragma once

#include <cstring>

#include "simulator/traffic.h"
#include "two_kinds.h"
#include "uct_mp/channel/core.h"

namespace ucx_mp::sim {

using adapt::Service;
using channel::Interface;
using path::Kind;

inline constexpr Nanos kMs = 1'000'000;
inline constexpr std::uint8_t kNote = 7;

inline channel::Config config(link::RingShape shape = {16, 4096}, unsigned rings = 64) {
    channel::Config config = quick_config(connect::Transport::dc);
    config.adapt.mode = channel::AdaptConfig::Mode::manual;
    config.adapt.max_rings = rings;
    config.adapt.ring = shape;
    config.recovery.partition_timeout = 0;
    return config;
}

// Of all channels of a node.
struct OfRings {
    unsigned in = 0, out = 0, offered = 0;
    std::uint64_t messages = 0, again = 0, duplicates = 0, early = 0, acks = 0;
};
inline OfRings of_rings(Node& node) {
    OfRings sum;
    for (const auto& channel : statistics(node).channels) {
        sum.in += channel.ring.in == std::string("open");
        sum.offered += channel.ring.in != std::string("none");
        sum.out += channel.ring.out;
        sum.messages += channel.ring.messages_out;
        sum.again += channel.recovery.messages_again;
        sum.duplicates += channel.duplicates;
        sum.early += channel.early;
        sum.acks += channel.acks_sent;
    }
    return sum;
}
inline OfRings of_rings(Cluster& cluster) {
    OfRings sum;
    for (unsigned i = 0; i < cluster.size(); ++i) {
        const OfRings one = of_rings(cluster.node(i));
        sum.in += one.in, sum.out += one.out, sum.offered += one.offered, sum.messages += one.messages;
        sum.again += one.again, sum.duplicates += one.duplicates, sum.early += one.early;
    }
    return sum;
}
inline bool settles(Cluster& cluster, unsigned rings, Nanos limit = 1'000 * kMs) {
    return cluster.until(
        [&] {
            const OfRings now = of_rings(cluster);
            return now.in == rings && now.out == rings && now.offered == rings;
        },
        limit);
}
inline std::uint64_t written(Node& node, Kind kind) {
    std::uint64_t sum = 0;
    for (const auto& channel : statistics(node).channels)
        for (const auto& path : channel.paths) sum += path.kind == kind ? path.written : 0;
    return sum;
}

inline Status serve(Cluster& cluster, unsigned at, unsigned from, Service service) {
    return cluster.node(at).iface().serve_by(cluster.channel(at, from), service);
}

// Numbered messages from one node to others, of any length.
class Notes {
public:
    explicit Notes(Cluster& cluster) : cluster_(cluster), taken(cluster.size()) {
        for (unsigned i = 0; i < cluster.size(); ++i)
            cluster.node(i).on_am(
                kNote,
                [](void* self, void* data, std::size_t length, unsigned) {
                    return static_cast<Notes*>(self)->take(data, length), Status::ok;
                },
                this);
    }
    // False: not all have come.
    bool send(unsigned from, unsigned to, unsigned count, std::size_t length = 8) {
        channel::Channel& channel = cluster_.channel(from, to);
        std::vector<std::uint32_t> message((length + 3) / 4);
        const std::uint32_t before = taken[to];
        for (unsigned i = 0; i < count; ++i) {
            std::fill(message.begin(), message.end(), sent_ + 1);
            struct Packed {
                const void* from;
                std::size_t length;
            } packed{message.data(), length};
            const auto pack = [](void* to, void* arg) {
                const auto* p = static_cast<Packed*>(arg);
                if (p->length) std::memcpy(to, p->from, p->length);
                return p->length;
            };
            if (!cluster_.until([&] { return Interface::am_bcopy(channel, kNote, pack, &packed) >= 0; }, 1'000 * kMs))
                return false;
            ++sent_;
            if (i % burst == burst - 1 && !cluster_.until([&] { return taken[to] == before + i + 1; }, 1'000 * kMs))
                return false;
        }
        return cluster_.until([&] { return taken[to] == before + count; }, 1'000 * kMs);
    }
    bool wrong = false;
    unsigned burst = 4; // under way

private:
    void take(const void* data, std::size_t length) {
        std::vector<std::uint32_t> message((length + 3) / 4);
        if (length) std::memcpy(message.data(), data, length); // of nothing both are null
        ++taken[cluster_.progressing()];
        ++got_;
        for (std::size_t i = 0; i < length / 4; ++i) wrong |= message[i] != got_;
    }
    Cluster& cluster_;
    std::uint32_t sent_ = 0, got_ = 0;

public:
    std::vector<std::uint32_t> taken;
};

} // namespace ucx_mp::sim
