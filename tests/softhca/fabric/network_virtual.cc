#include "fabric/network_virtual.h"

#include <algorithm>
#include <utility>

namespace softhca {

namespace {

constexpr uint32_t kBlockSize = 256;              // chunk objects are made in blocks of this many
constexpr uint64_t kUncabledRate = 1'000'000'000; // what a port without a wire is thought to lose data at

template <class T> T* pointer(uint64_t arg) { return reinterpret_cast<T*>(arg); }
VirtualNetwork& net(void* self) { return *static_cast<VirtualNetwork*>(self); }

} // namespace

VirtualNetwork::VirtualNetwork(Segment& seg, Scheduler& scheduler)
    : NetworkBase(seg, scheduler, 0, false), state_(image_.links), port_state_(image_.ports), engines_(image_) {
    devices_.reserve(image_.devices);
    for (uint32_t i = 0; i < image_.devices; ++i)
        devices_.push_back({.cache = QpCache(image_.device(i).limits.qp_cache_entries)});
    for (uint32_t i = 0; i < image_.ports; ++i) {
        const PortImage& p = image_.port(i);
        const uint64_t packet = (128u << p.mtu) + image_.device(p.device).limits.wire_header;
        largest_chunk_ = std::max(largest_chunk_, packet * std::max(1u, image_.chunk_mtus));
    }
    size_buffers();
}

VirtualNetwork::~VirtualNetwork() = default;

void VirtualNetwork::size_buffers() {
    for (uint32_t i = 0; i < image_.links; ++i) {
        const uint64_t buffer = image_.link(i).buffer;
        const uint64_t on_the_wire = links_[i].rate * links_[i].latency / 1000000000u;
        state_[i].buffer = buffer == 0 ? 0 : std::max(buffer, 2 * largest_chunk_) + on_the_wire;
    }
}

void VirtualNetwork::check_fabric(Nanos now) {
    refresh();
    if (!changed_) [[likely]]
        return;
    changed_ = false;
    size_buffers();
    for (uint32_t i = 0; i < image_.links; ++i) {
        Link& l = state_[i];
        if (!links_[i].up && image_.link(i).from_kind == EndKind::sw) {
            while (Transit* t = l.first) {
                l.first = t->next;
                lose_all_on_link(i, *t);
                discard(*t, now);
            }
            l.last = nullptr;
        }
        try_start(i, now);
    }
}

// ---- the adapter
// -----------------------------------------------------------------------------------------------------

void VirtualNetwork::schedule_pull(SendEngine& e, Nanos when) {
    e.busy = true;
    at(when, on_pull, &e);
}

void VirtualNetwork::activate(Source& s, Nanos now) {
    if (s.net_ready) return;
    s.net_ready = true;
    SendEngine& e = engines_.of(s);
    e.append(s);
    // Not at once: the caller may be in the middle of its own work.
    if (!e.busy) schedule_pull(e, std::max(now, e.free_at));
}

void VirtualNetwork::on_pull(void* self, uint64_t engine, Nanos when) {
    net(self).check_fabric(when);
    net(self).pull(*pointer<SendEngine>(engine), when);
}

void VirtualNetwork::on_paced(void* self, uint64_t source, Nanos when) {
    Source& s = *pointer<Source>(source);
    SendEngine& e = net(self).engines_.of(s);
    e.append(s);
    if (!e.busy) net(self).schedule_pull(e, std::max(when, e.free_at));
}

void VirtualNetwork::pull(SendEngine& e, Nanos now) {
    e.busy = false;
    while (Source* s = e.take()) {
        if (s->net_between && s->net_not_before > now) {
            at(s->net_not_before, on_paced, s);
            continue;
        }
        Transit& t = *transits_.take();
        if (!next_from(*s, e, t, now)) {
            transits_.give(&t);
            if (engines_.leave(e, *s)) return;
            continue;
        }
        e.append(*s);
        t.from = kNone;
        t.hops = 0;
        t.lead = 0;
        Nanos ready = now;
        if (t.first_of_message) {
            const uint32_t device = image_.port(t.src_port).device;
            const uint64_t cost = begin_message(*s, device, devices_[device].cache.touch(s->source_qpn), now);
            if (cost != 0) {
                t.lead = cost;
                ready = occupy_unit(device, cost, now);
            }
            const uint64_t own = image_.device(device).limits.engine_message_ns;
            t.lead += own;
            ready += own;
        }
        if (ready > now)
            at(ready, on_fetch, &t);
        else
            fetch(t, now);
        return;
    }
}

void VirtualNetwork::on_fetch(void* self, uint64_t transit, Nanos when) {
    net(self).check_fabric(when);
    net(self).fetch(*pointer<Transit>(transit), when);
}

void VirtualNetwork::fetch(Transit& t, Nanos now) {
    const PortImage& port = image_.port(t.src_port);
    const AdapterLimits& limits = image_.device(port.device).limits;
    Nanos fetched = now + transfer_ns(t.wire, limits.engine_rate);
    if (limits.bus_rate != 0) {
        Device& d = devices_[port.device];
        d.tx_until = std::max(now, d.tx_until) + transfer_ns(t.wire, limits.bus_rate);
        fetched = std::max(fetched, d.tx_until);
    }
    const bool crossbar = port.subnet != kNone && image_.subnet(port.subnet).crossbar != 0;
    if (crossbar || port.link == kNone || owns_lid(t.src_port, t.dlid)) {
        t.engine->fetched_at = std::max(fetched, now + transfer_ns(t.wire, ports_[t.src_port].rate));
        if (!crossbar && port.link == kNone) t.engine->fetched_at = now + transfer_ns(t.wire, kUncabledRate);
        if (t.engine->fetched_at > now)
            at(t.engine->fetched_at, on_direct, &t);
        else
            on_direct(this, reinterpret_cast<uint64_t>(&t), now);
        return;
    }
    t.engine->fetched_at = fetched;
    t.tail_at = fetched;
    t.link = port.link;
    const uint64_t serialisation = transfer_ns(t.wire, links_[port.link].rate);
    t.head_at = fetched > now + serialisation ? fetched - serialisation : now;
    t.lead += t.head_at - now;
    if (t.head_at > now)
        at(t.head_at, on_head, &t);
    else
        queue(t, now);
}

void VirtualNetwork::on_direct(void* self, uint64_t transit, Nanos now) {
    VirtualNetwork& n = net(self);
    Transit& t = *pointer<Transit>(transit);
    SendEngine& e = *t.engine;
    n.leave_port(t, t.wire);
    const Route& r = n.route(t.src_port, t.dlid);
    t.dst_port = r.ok && r.links.empty() ? r.dst_port : kNone;
    t.injected = t.tail_at = now;
    n.at(now + n.ports_[t.src_port].delay, on_port, &t);
    n.schedule_pull(e, now);
    t.source->chunk_injected(t);
}

// ---- links
// -----------------------------------------------------------------------------------------------------------

void VirtualNetwork::on_head(void* self, uint64_t transit, Nanos when) {
    VirtualNetwork& n = net(self);
    n.check_fabric(when);
    Transit& t = *pointer<Transit>(transit);
    if (!n.links_[t.link].up && t.from != kNone) {
        n.lose_all_on_link(t.link, t);
        n.discard(t, when);
    } else
        n.queue(t, when);
}

void VirtualNetwork::queue(Transit& t, Nanos now) {
    Link& l = state_[t.link];
    t.next = nullptr;
    (l.first ? l.last->next : l.first) = &t;
    l.last = &t;
    try_start(t.link, now);
}

void VirtualNetwork::try_start(uint32_t link, Nanos now) {
    Link& l = state_[link];
    if (l.on_wire || !l.first) return;
    const bool room = l.buffer == 0 || l.held + l.first->wire <= l.buffer;
    // An adapter keeps sending into a dead cable, at its usual pace.
    if (room || !links_[link].up) start(link, now);
}

void VirtualNetwork::start(uint32_t link, Nanos now) {
    Link& l = state_[link];
    const LinkView& v = links_[link];
    Transit& t = *l.first;
    l.first = t.next;
    if (!l.first) l.last = nullptr;
    const Nanos begin = std::max(now, l.taken_until);
    Nanos end = begin;
    if (v.rate != 0) {
        const uint64_t work = (t.wire + std::exchange(l.owed, 0)) * 1000000000u + l.remainder;
        end += work / v.rate;
        l.remainder = work % v.rate;
    }
    end = std::max(end, t.tail_at);
    uint64_t latency = v.latency;
    l.on_wire = &t;
    l.wire_bytes = t.wire;
    l.credit_link = t.from;
    l.held += t.wire;
    l.engine = nullptr;
    l.from_adapter = t.from == kNone;
    at(end, on_tail, reinterpret_cast<void*>(uint64_t{link}));
    if (l.from_adapter) {
        SendEngine& e = *t.engine;
        const Nanos next = std::max({now, e.fetched_at, end > t.lead ? end - t.lead : 0});
        if (next == end)
            l.engine = &e;
        else
            schedule_pull(e, next);
        t.injected = end;
        latency += ports_[t.src_port].delay;
        leave_port(t, t.wire);
    }
    t.from = link;
    cross_link(link, t, t.wire, now - t.head_at);
    if (!v.up) lose_all_on_link(link, t);
    l.cut = (v.faulty || (l.from_adapter && ports_[t.src_port].faulty)) &&
            seg_.link(link).up.load(std::memory_order_relaxed) == 0;
    note(0, now, link, t);
    l.last_head = std::max(begin + latency, l.last_head);
    forward(t, l.last_head, std::max(end + latency, l.last_head));
}

// The head of the chunk will be at the far end of its link at `head`, the tail at `tail`.
void VirtualNetwork::forward(Transit& t, Nanos head, Nanos tail) {
    const LinkImage& link = image_.link(t.from);
    t.tail_at = tail;
    if (link.to_kind == EndKind::port) {
        t.dst_port = owns_lid(link.to, t.dlid) ? link.to : kNone;
        at(tail, on_port, &t);
        return;
    }
    t.link = image_.next_link(link.to, t.dlid);
    if (t.link == kNone || ++t.hops >= kMaxHops || t.lost == all_packets(t.packets)) {
        discard(t, tail);
        return;
    }
    const uint64_t serialisation = transfer_ns(t.wire, links_[t.link].rate);
    t.head_at = tail > head + serialisation ? tail - serialisation : head;
    at(t.head_at, on_head, &t);
}

void VirtualNetwork::on_tail(void* self, uint64_t link, Nanos when) {
    VirtualNetwork& n = net(self);
    n.check_fabric(when);
    Link& l = n.state_[link];
    Transit& t = *l.on_wire;
    if (!n.links_[link].up && !l.cut) n.lose_all_on_link(static_cast<uint32_t>(link), t);
    SendEngine* const engine = l.engine;
    const bool injected = l.from_adapter;
    l.on_wire = nullptr;
    if (l.credit_link != kNone) n.give_credit(l.credit_link, l.wire_bytes, when);
    n.try_start(static_cast<uint32_t>(link), when);
    if (injected) t.source->chunk_injected(t);
    if (engine) n.pull(*engine, when);
}

void VirtualNetwork::give_credit(uint32_t link, uint32_t bytes, Nanos now) {
    state_[link].held -= bytes;
    try_start(link, now);
}

// ---- the end
// ---------------------------------------------------------------------------------------------------------

// All that is left of the chunk is lost; it stays in the buffer until its tail has come.
void VirtualNetwork::discard(Transit& t, Nanos now) {
    t.lost = all_packets(t.packets);
    t.dst_port = kNone;
    at(std::max(now, t.tail_at), on_deliver, &t);
}

// ---- requests of the adapters' own
// -----------------------------------------------------------------------------------------------------------------

Nanos VirtualNetwork::request(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now) {
    const uint32_t device = image_.port(src_port).device;
    // It waits for what the unit has to do before it, and what is sent behind it comes later.
    const Nanos sent = occupy_unit(device, image_.device(device).limits.dc_request_ns, now);
    const Nanos arrival = control(src_port, dlid, bytes, sent, false);
    if (arrival == kNever) return kNever;
    const Route& r = route(src_port, dlid);
    const uint64_t wire = bytes + image_.device(device).limits.wire_header;
    Nanos head = sent;
    for (const uint32_t link : r.links) {
        scheduler_.at(head, on_request_head, this, wire << 32 | link);
        head += links_[link].latency + transfer_ns(wire, links_[link].rate);
    }
    scheduler_.at(arrival, on_request, this, r.dst_port);
    // As far as can be said now: others may come before it.
    const uint32_t target = image_.port(r.dst_port).device;
    return std::max(arrival, devices_[target].unit_until) + image_.device(target).limits.dc_request_ns;
}

void VirtualNetwork::on_request_head(void* self, uint64_t link_and_bytes, Nanos when) {
    VirtualNetwork& n = net(self);
    const auto link = static_cast<uint32_t>(link_and_bytes);
    const uint64_t wire = link_and_bytes >> 32;
    Link& l = n.state_[link];
    n.add(n.seg_.link(link).bytes, wire);
    n.add(n.seg_.link(link).packets, 1);
    if (l.on_wire)
        l.owed += wire;
    else
        l.taken_until = std::max(when, l.taken_until) + transfer_ns(wire, n.links_[link].rate);
}

// What comes by that port later is taken later.
void VirtualNetwork::on_request(void* self, uint64_t port, Nanos when) {
    VirtualNetwork& n = net(self);
    const uint32_t device = n.image_.port(static_cast<uint32_t>(port)).device;
    Nanos& last = n.port_state_[port].last_arrival;
    last = std::max(last, n.occupy_unit(device, n.image_.device(device).limits.dc_request_ns, when));
}

// The adapter has one message unit; what it does is done one thing after the other.
Nanos VirtualNetwork::occupy_unit(uint32_t device, Nanos cost, Nanos now) {
    Device& d = devices_[device];
    return d.unit_until = std::max(now, d.unit_until) + cost;
}

// When the context that the chunk needs here is there.
Nanos VirtualNetwork::fetch_context(const Transit& t, uint32_t device, Nanos now) {
    if (!t.first_of_message || t.dst_qpn == 0 || t.lost == all_packets(t.packets)) return now;
    if (devices_[device].cache.touch(t.dst_qpn)) return now;
    add(seg_.device(device).cache_misses, 1);
    return occupy_unit(device, image_.device(device).limits.qp_cache_miss_ns, now);
}

void VirtualNetwork::on_port(void* self, uint64_t transit, Nanos now) {
    VirtualNetwork& n = net(self);
    n.check_fabric(now);
    Transit& t = *pointer<Transit>(transit);
    if (t.dst_port == kNone) {
        n.discard(t, now);
        return;
    }
    Nanos done = now;
    const uint32_t device = n.image_.port(t.dst_port).device;
    if (const uint64_t rate = n.image_.device(device).limits.bus_rate; rate != 0) {
        Device& d = n.devices_[device];
        const uint64_t needed = transfer_ns(t.wire, rate);
        d.rx_until = std::max(now > needed ? now - needed : 0, d.rx_until) + needed;
        done = std::max(now, d.rx_until);
    }
    done = std::max(done, n.fetch_context(t, device, now));
    Nanos& last = n.port_state_[t.dst_port].last_arrival;
    last = done = std::max(done + n.ports_[t.dst_port].delay, last);
    if (done > now)
        n.at(done, on_deliver, &t);
    else
        n.deliver(t, now);
}

void VirtualNetwork::on_deliver(void* self, uint64_t transit, Nanos when) {
    net(self).check_fabric(when);
    net(self).deliver(*pointer<Transit>(transit), when);
}

void VirtualNetwork::deliver(Transit& t, Nanos now) {
    if (t.from != kNone) give_credit(t.from, t.wire, now);
    if (t.dst_port != kNone) enter_port(t, t.wire);
    note(1, now, t.src_port, t);
    t.arrived = now;
    --t.source->in_flight;
    t.source->chunk_arrived(t);
    transits_.give(&t);
}

std::unique_ptr<Network> make_virtual_network(Segment& seg, Scheduler& scheduler) {
    return std::make_unique<VirtualNetwork>(seg, scheduler);
}

} // namespace softhca
