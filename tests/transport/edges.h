// Channels whose numbers are near the end of their round, as after hours of a job: moved there while all is quiet, or
// carried around in steps, with a real operation at each.
#pragma once

#include <cstring>

#include "simulator/cluster.h"
#include "uct_mp/channel/core.h"

namespace ucx_mp::sim {

// Everything is acknowledged and has come back, from `a` to `b`. False: it takes too long.
inline bool quiet(Cluster& cluster, unsigned a, unsigned b) {
    Channel& from = cluster.channel(a, b);
    const auto all_back = [&] {
        for (unsigned i = 0; i < from.wiring.path_count; ++i)
            if (const auto& queue = from.wiring.paths[i].own[0]; queue && !queue->idle()) return false;
        return from.epochs_empty();
    };
    return cluster.until([&] {
        if (from.in_flight() == 0 && all_back()) return true;
        cluster.world.select(a);
        if (from.in_flight()) (void)from.core->acks.send_ack(from, channel::Kind::ack_request);
        (void)from.core->epochs.push_out(from);
        return false;
    });
}

// The next message from `a` to `b` has about this number; at least, and for as long as nothing is on its way.
inline void set_sequence(Cluster& cluster, unsigned a, unsigned b, std::uint32_t to) {
    Channel &from = cluster.channel(a, b), &at = cluster.channel(b, a);
    const std::uint32_t by = (to - from.next_sequence) & ~from.window_mask; // places by number stay the same
    for (std::uint32_t* const number : {&from.next_sequence, &from.acked, &from.ack_seen, &at.expected, &at.ack_sent})
        *number += by;
    at.ack_until = at.expected;
}

// Messages from `a` to `b` until the next one has this number. False: they do not get through.
inline bool send_until(Cluster& cluster, unsigned a, unsigned b, std::uint32_t number) {
    Channel& to = cluster.channel(a, b);
    return cluster.until([&] {
        cluster.world.select(a);
        while (to.next_sequence != number && channel::Interface::am_short(to, 30, 0, nullptr, 0) == Status::ok) {}
        return to.next_sequence == number;
    });
}

// Numbers of node `a` alone are about to wrap: records of queues, writes, tags of atomics, looks. While all is quiet.
inline void set_own_numbers(Cluster& cluster, unsigned a, unsigned b) {
    Channel& from = cluster.channel(a, b);
    constexpr std::uint32_t kEdge = 0xffffff80;
    for (unsigned i = 0; i < from.wiring.path_count; ++i) {
        from.wiring.paths[i].puts = kEdge;
        if (const auto& queue = from.wiring.paths[i].own[0]; queue && queue->idle()) {
            queue->close();
            queue->head = queue->tail = kEdge;
        }
    }
    from.moving.atomic_tag = 0x7fffff80; // 31 bits
    from.core->rounds.looks = kEdge;
}

// A message behind a fence and a small write from `a` to `b`. False: it does not get through.
inline bool fenced_message(Cluster& cluster, unsigned a, unsigned b, const Node::Memory& memory) {
    Channel& to = cluster.channel(a, b);
    const std::uint64_t value = 0;
    const auto sent = [&](auto call) {
        return cluster.until([&] { return cluster.world.select(a), call() == Status::ok; });
    };
    if (!sent([&] { return channel::Interface::put_short(to, &value, sizeof value, memory.address(), memory.keys); }))
        return false;
    (void)channel::Interface::fence(to);
    return sent([&] { return channel::Interface::am_short(to, 30, 0, nullptr, 0); }) && quiet(cluster, a, b);
}

// Fences from `a` to `b` until one has about the number `to`, a few of each 2^28.
inline bool pass_fences(Cluster& cluster, unsigned a, unsigned b, std::uint32_t to, const Node::Memory& memory) {
    channel::Fences& fences = cluster.channel(a, b).fences;
    constexpr std::uint32_t kStep = 1u << 28;
    while (to - fences.fence_number > kStep) {
        fences.fence_number += kStep;
        if (!fenced_message(cluster, a, b, memory)) return false;
    }
    fences.fence_number = to;
    return fenced_message(cluster, a, b, memory);
}

} // namespace ucx_mp::sim
