#include "fabric/network_route.h"

#include <infiniband/verbs.h>

#include "core/notify.h"

namespace softhca {

namespace {

constexpr uint32_t kMillion = 1000000;

bool active(const FaultKnobs& k) {
    return k.drop_ppm.load(std::memory_order_relaxed) != 0 || k.corrupt_ppm.load(std::memory_order_relaxed) != 0 ||
           k.ack_drop_ppm.load(std::memory_order_relaxed) != 0 || k.trip_at.load(std::memory_order_relaxed) != 0;
}

// One of the trip_count packets that a trip affects (0 counts as 1). The last one disarms it.
bool take_trip(FaultKnobs& k) {
    uint32_t left = k.trip_count.load(std::memory_order_relaxed);
    while (left > 1)
        if (k.trip_count.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
    return k.trip_at.exchange(0, std::memory_order_relaxed) != 0;
}

void port_down(Segment& seg, uint32_t port) {
    PortState& p = seg.port(port);
    if (p.up.exchange(0) != 0) p.transitions.fetch_add(1, std::memory_order_relaxed);
}

void announce(Segment& seg, uint32_t port) {
    if (seg.port(port).announced.exchange(0) != 0) raise_port_event(seg, port, IBV_EVENT_PORT_ERR);
}

} // namespace

void take_cable_down(Segment& seg, uint32_t link) {
    const LinkImage& cable = seg.img().link(link);
    seg.link(link).admin_down.store(1);
    if (cable.reverse != kNone) seg.link(cable.reverse).admin_down.store(1);
    if (seg.link(link).up.exchange(0) == 0) return;
    if (cable.reverse != kNone) seg.link(cable.reverse).up.store(0);
    seg.fabric.disturbed.fetch_add(1);
    if (cable.from_kind == EndKind::port) port_down(seg, cable.from);
    if (cable.to_kind == EndKind::port) port_down(seg, cable.to);
    seg.fabric.generation.fetch_add(1, std::memory_order_release);
    if (cable.from_kind == EndKind::port) announce(seg, cable.from);
    if (cable.to_kind == EndKind::port) announce(seg, cable.to);
}

NetworkBase::NetworkBase(Segment& seg, Scheduler& scheduler, uint64_t salt, bool shared)
    : seg_(seg), scheduler_(scheduler), image_(seg.img()), links_(image_.links), ports_(image_.ports), salt_(salt),
      shared_(shared), generation_(seg.fabric.generation.load() - 1) {
    refresh_slow();
}

void NetworkBase::refresh_slow() {
    generation_ = seg_.fabric.generation.load(std::memory_order_acquire);
    if (const uint64_t seed = seg_.fabric.seed.load(); random_ == 0 || seed != seed_) {
        seed_ = seed;
        random_ = (seed + 1) * 0x9e3779b97f4a7c15u ^ (salt_ << 32);
    }
    routes_.clear();
    for (uint32_t i = 0; i < image_.links; ++i) {
        const LinkImage& l = image_.link(i);
        const LinkState& s = seg_.link(i);
        const uint64_t rate = s.faults.rate_override.load(std::memory_order_relaxed);
        links_[i] = {.rate = rate != 0 ? rate : l.rate,
                     .latency = uint64_t{l.latency_ns} + s.faults.delay_ns.load(std::memory_order_relaxed),
                     .up = s.up.load(std::memory_order_relaxed) != 0,
                     .faulty = active(s.faults)};
    }
    for (uint32_t i = 0; i < image_.ports; ++i) {
        const PortState& s = seg_.port(i);
        const bool alive = seg_.device(image_.port(i).device).dead.load(std::memory_order_relaxed) == 0;
        ports_[i] = {.rate = s.faults.rate_override.load(std::memory_order_relaxed),
                     .delay = s.faults.delay_ns.load(std::memory_order_relaxed),
                     .up = alive && s.up.load(std::memory_order_relaxed) != 0,
                     .alive = alive,
                     .faulty = active(s.faults)};
    }
}

bool NetworkBase::owns_lid(uint32_t port, uint32_t lid) const {
    const PortImage& p = image_.port(port);
    const uint32_t base = seg_.port(port).lid.load(std::memory_order_relaxed);
    return lid != 0 && (lid - (base != 0 ? base : p.lid)) < (1u << p.lmc);
}

void NetworkBase::walk(uint32_t src_port, uint32_t dlid, Route& r) const {
    const PortImage& p = image_.port(src_port);
    r = {};
    if (owns_lid(src_port, dlid)) { // the adapter's own loop-back
        r.dst_port = src_port;
        r.ok = ports_[src_port].alive && (ports_[src_port].up || seg_.port(src_port).loopback_fails.load() == 0);
        return;
    }
    if (p.subnet != kNone && image_.subnet(p.subnet).crossbar != 0) {
        r.dst_port = image_.port_of_lid(p.subnet, dlid);
        r.ok = r.dst_port != kNone && ports_[src_port].up && ports_[r.dst_port].up;
        return;
    }
    bool up = ports_[src_port].up;
    for (uint32_t link = p.link; link != kNone && r.links.size() < kMaxHops;) {
        const LinkImage& l = image_.link(link);
        r.links.push_back(link);
        up = up && links_[link].up;
        if (l.to_kind == EndKind::port) {
            if (owns_lid(l.to, dlid)) r.dst_port = l.to;
            break;
        }
        link = image_.next_link(l.to, dlid);
    }
    r.ok = up && r.dst_port != kNone && ports_[r.dst_port].up;
}

const Network::Route& NetworkBase::route(uint32_t src_port, uint32_t dlid) {
    refresh();
    const auto [it, fresh] = routes_.try_emplace(uint64_t{src_port} << 32 | dlid);
    if (fresh) walk(src_port, dlid, it->second);
    return it->second;
}

Nanos NetworkBase::control(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now, bool is_ack) {
    const Route& r = route(src_port, dlid);
    if (!r.ok) return kNever;
    bool lost = false;
    uint32_t cut_link = kNone;
    uint64_t latency = uint64_t{ports_[src_port].delay} + ports_[r.dst_port].delay, serialisation = 0;
    for (const uint32_t port : {src_port, r.dst_port})
        if (ports_[port].faulty) [[unlikely]] {
            PortState& s = seg_.port(port);
            const uint64_t before =
                s.tx_packets.load(std::memory_order_relaxed) + s.rx_packets.load(std::memory_order_relaxed);
            bool cut = false;
            lost |= control_lost(s.faults, s.drops, s.corrupted, before, is_ack, cut);
            if (cut) cut_link = image_.port(port).link;
            if (lost) break;
        }
    for (const uint32_t link : r.links) {
        if (lost) break;
        const LinkView& v = links_[link];
        LinkState& s = seg_.link(link);
        const uint64_t before = add(s.packets, 1);
        add(s.bytes, bytes);
        latency += v.latency;
        serialisation = std::max(serialisation, transfer_ns(bytes, v.rate)); // cut-through: paid once, by the slowest
        if (v.faulty) [[unlikely]] {
            bool cut = false;
            lost = control_lost(s.faults, s.drops, s.corrupted, before, is_ack, cut);
            if (cut) cut_link = link;
        }
    }
    if (!lost) {
        add(seg_.port(src_port).tx_packets, 1);
        add(seg_.port(r.dst_port).rx_packets, 1);
    }
    if (cut_link != kNone) take_cable_down(seg_, cut_link); // after the last use of `r`
    return lost ? kNever : now + latency + serialisation;
}

bool NetworkBase::chance(uint32_t ppm) {
    random_ += 0x9e3779b97f4a7c15u; // splitmix64
    uint64_t x = random_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (x >> 32) * kMillion >> 32 < ppm;
}

NetworkBase::Losses NetworkBase::roll(FaultKnobs& k, uint64_t before, uint32_t packets, bool is_ack) {
    Losses result;
    const uint32_t drop = k.drop_ppm.load(std::memory_order_relaxed);
    const uint32_t corrupt = k.corrupt_ppm.load(std::memory_order_relaxed);
    const uint32_t ack_drop = is_ack ? k.ack_drop_ppm.load(std::memory_order_relaxed) : 0;
    for (uint32_t i = 0; i < packets; ++i) {
        const uint64_t bit = 1ull << i;
        if ((drop != 0 && chance(drop)) || (ack_drop != 0 && chance(ack_drop)))
            result.dropped |= bit;
        else if (corrupt != 0 && chance(corrupt))
            result.corrupted |= bit;
    }
    const uint64_t trip = k.trip_at.load(std::memory_order_relaxed);
    if (trip == 0 || before + packets < trip) return result;
    const auto first = static_cast<uint32_t>(trip > before + 1 ? trip - before - 1 : 0);
    switch (static_cast<TripAction>(k.trip_action.load(std::memory_order_relaxed))) {
    case TripAction::none:
        break;
    case TripAction::link_down:
        if (k.trip_at.exchange(0, std::memory_order_relaxed) == 0) break;
        result.cut = true;
        result.dropped |= all_packets(packets) & ~all_packets(first);
        break;
    case TripAction::ack_drop:
        if (is_ack && take_trip(k)) result.dropped |= 1;
        break;
    case TripAction::drop:
        for (uint32_t i = first; i < packets && take_trip(k); ++i) result.dropped |= 1ull << i;
        break;
    case TripAction::corrupt:
        for (uint32_t i = first; i < packets && take_trip(k); ++i) result.corrupted |= 1ull << i;
        break;
    }
    result.corrupted &= ~result.dropped;
    return result;
}

bool NetworkBase::control_lost(FaultKnobs& knobs, std::atomic<uint64_t>& drops, std::atomic<uint64_t>& corrupted,
                               uint64_t before, bool is_ack, bool& cut) {
    const Losses l = roll(knobs, before, 1, is_ack);
    if (l.dropped != 0) add(drops, 1);
    if (l.corrupted != 0) add(corrupted, 1);
    cut = l.cut;
    return (l.dropped | l.corrupted) != 0;
}

void NetworkBase::lose_on_link(uint32_t link, Chunk& chunk, uint64_t before) {
    LinkState& s = seg_.link(link);
    const Losses l = roll(s.faults, before, chunk.packets, false);
    add(s.drops, static_cast<uint64_t>(__builtin_popcountll(l.dropped & ~chunk.lost)));
    add(s.corrupted, static_cast<uint64_t>(__builtin_popcountll(l.corrupted & ~chunk.lost)));
    chunk.lost |= l.dropped | l.corrupted;
    if (l.cut) take_cable_down(seg_, link);
}

void NetworkBase::lose_all_on_link(uint32_t link, Chunk& chunk) {
    const uint64_t all = all_packets(chunk.packets);
    add(seg_.link(link).drops, static_cast<uint64_t>(__builtin_popcountll(all & ~chunk.lost)));
    chunk.lost |= all;
}

void NetworkBase::lose_on_route(const Route& route, Chunk& chunk) {
    for (const uint32_t link : route.links)
        if (!links_[link].up) {
            lose_all_on_link(link, chunk);
            break;
        }
    chunk.lost = all_packets(chunk.packets);
}

void NetworkBase::lose_at_port(uint32_t port, Chunk& chunk, uint64_t before) {
    PortState& s = seg_.port(port);
    const Losses l = roll(s.faults, before, chunk.packets, false);
    add(s.drops, static_cast<uint64_t>(__builtin_popcountll(l.dropped & ~chunk.lost)));
    add(s.corrupted, static_cast<uint64_t>(__builtin_popcountll(l.corrupted & ~chunk.lost)));
    chunk.lost |= l.dropped | l.corrupted;
    if (l.cut && image_.port(port).link != kNone) take_cable_down(seg_, image_.port(port).link);
}

void NetworkBase::leave_port(Chunk& chunk, uint32_t wire) {
    PortState& s = seg_.port(chunk.src_port);
    const uint64_t before = add(s.tx_packets, chunk.packets);
    add(s.tx_bytes, wire);
    if (ports_[chunk.src_port].faulty) [[unlikely]]
        lose_at_port(chunk.src_port, chunk, before + s.rx_packets.load(std::memory_order_relaxed));
}

void NetworkBase::enter_port(Chunk& chunk, uint32_t wire) {
    PortState& s = seg_.port(chunk.dst_port);
    const uint64_t all = all_packets(chunk.packets);
    if (chunk.lost == all) return;
    if (!ports_[chunk.dst_port].up &&
        (chunk.dst_port != chunk.src_port || !ports_[chunk.dst_port].alive || s.loopback_fails.load() != 0)) {
        add(s.drops, static_cast<uint64_t>(__builtin_popcountll(all & ~chunk.lost)));
        chunk.lost = all;
        return;
    }
    const uint64_t before = add(s.rx_packets, static_cast<uint64_t>(__builtin_popcountll(all & ~chunk.lost)));
    add(s.rx_bytes, wire);
    if (ports_[chunk.dst_port].faulty) [[unlikely]]
        lose_at_port(chunk.dst_port, chunk, before + s.tx_packets.load(std::memory_order_relaxed));
}

} // namespace softhca
