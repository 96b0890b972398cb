#include "fabric/network_real.h"

#include <algorithm>

namespace softhca {

namespace {

constexpr uint32_t kWays = 8;                     // of the context cache
constexpr uint64_t kUncabledRate = 1'000'000'000; // what a port without a wire is thought to lose data at

template <class T> T* pointer(uint64_t arg) { return reinterpret_cast<T*>(arg); }
RealNetwork& net(void* self) { return *static_cast<RealNetwork*>(self); }

} // namespace

RealNetwork::RealNetwork(Segment& seg, Scheduler& scheduler, const Nanos* clock)
    : NetworkBase(seg, scheduler, g_self_slot + 1, true), clock_(clock), slot_(g_self_slot), port_state_(image_.ports),
      engines_(image_) {}

RealNetwork::~RealNetwork() {
    for (Port& p : port_state_)
        if (p.turns) p.turns->leave_all();
}

// ---- the adapter
// -----------------------------------------------------------------------------------------------------

SendEngine& RealNetwork::engine_of(Source& s) {
    if (!s.net_state)
        if (Port& p = port_state_[s.source_port]; !p.turns)
            p.turns = std::make_unique<Turns>(seg_, slot_, s.source_port);
    return engines_.of(s);
}

void RealNetwork::schedule_pull(SendEngine& e, Nanos when) {
    e.busy = true;
    at(when, on_pull, &e);
}

void RealNetwork::activate(Source& s, Nanos now) {
    if (s.net_ready) return;
    s.net_ready = true;
    SendEngine& e = engine_of(s);
    ++port_state_[e.port].ready_sources;
    e.append(s);
    if (!e.busy) schedule_pull(e, std::max(now, e.free_at));
}

void RealNetwork::on_pull(void* self, uint64_t engine, Nanos when) {
    RealNetwork& n = net(self);
    n.refresh();
    n.pull(*pointer<SendEngine>(engine), when);
}

void RealNetwork::on_paced(void* self, uint64_t source, Nanos when) {
    Source& s = *pointer<Source>(source);
    SendEngine& e = net(self).engine_of(s);
    e.append(s);
    if (!e.busy) net(self).schedule_pull(e, std::max(when, e.free_at));
}

// Real-time approximation of an LRU: sets of kWays, most recent first.
bool RealNetwork::touch_context(uint32_t device, uint32_t qpn, uint32_t entries) {
    DeviceState& d = seg_.device(device);
    if (entries == 0 || d.qp_cache == 0) return true;
    const uint32_t ways = std::min(kWays, entries), sets = entries / ways;
    (void)d.lock.acquire(); // any content is a valid content
    uint32_t* const set = seg_.at<uint32_t>(d.qp_cache) + (qpn * 0x9e3779b1u >> 8) % sets * ways;
    uint32_t i = 0;
    while (i < ways - 1 && set[i] != qpn) ++i;
    const bool hit = set[i] == qpn;
    for (; i > 0; --i) set[i] = set[i - 1];
    set[0] = qpn;
    d.lock.release();
    return hit;
}

void RealNetwork::pull(SendEngine& e, Nanos when) {
    Port& port = port_state_[e.port];
    const Nanos now = not_too_late(when, *port.turns);
    e.busy = false;
    while (Source* s = e.take()) {
        if (s->net_between && s->net_not_before > now) {
            at(s->net_not_before, on_paced, s);
            continue;
        }
        Transit& t = *transits_.take();
        if (!next_from(*s, e, t, now)) {
            transits_.give(&t);
            if (--port.ready_sources == 0) port.turns->leave_all();
            if (engines_.leave(e, *s)) return;
            continue;
        }
        t.kept = false;
        t.blocked_by = kNone;
        const uint32_t device = image_.port(t.src_port).device;
        const AdapterLimits& limits = image_.device(device).limits;
        DeviceState& d = seg_.device(device);
        t.ready = now;
        if (t.first_of_message) {
            const bool hit = touch_context(device, s->source_qpn, limits.qp_cache_entries);
            const uint64_t cost = begin_message(*s, device, hit, now);
            if (cost != 0) t.ready = reserve(d.tx_busy_until, now, cost) + cost;
            t.ready += limits.engine_message_ns;
        }
        t.fetched = t.ready + transfer_ns(t.wire, limits.engine_rate);
        if (limits.bus_rate != 0) {
            const uint64_t needed = transfer_ns(t.wire, limits.bus_rate);
            t.fetched = std::max(t.fetched, reserve(d.bus_tx_until, t.ready, needed) + needed);
        }
        if (const uint32_t link = image_.port(t.src_port).link; link != kNone)
            t.ready = std::max(t.ready, t.fetched - std::min(t.fetched, transfer_ns(t.wire, links_[link].rate)));
        t.lead = t.ready - now;
        if (t.lead != 0)
            at(t.ready, on_retry, &t); // must not reserve the link before
        else
            send(t, now);
        return;
    }
}

// ---- the way through the fabric
// --------------------------------------------------------------------------------------

// The model time for something that should have happened at `when`.
Nanos RealNetwork::not_too_late(Nanos when, Turns& turns) const {
    const Nanos real = clock_ ? *clock_ : scaled_now(seg_.tsc);
    if (real <= when + kMaxLag) [[likely]]
        return when;
    // Link time that others have kept for us may be older.
    const Nanos oldest = std::max(std::min(real - kMaxLag, turns.oldest_bank()), real - 2 * Turns::kMaxBank);
    return std::max(when, oldest);
}

void RealNetwork::on_retry(void* self, uint64_t transit, Nanos when) {
    RealNetwork& n = net(self);
    n.refresh();
    Transit& t = *pointer<Transit>(transit);
    n.send(t, n.not_too_late(when, *n.port_state_[t.engine->port].turns));
}

void RealNetwork::send(Transit& t, Nanos now) {
    const Route& r = route(t.src_port, t.dlid);
    t.generation = seg_.fabric.generation.load(std::memory_order_relaxed);
    t.ready = std::max(t.ready, now);
    const bool direct = !r.ok || r.links.empty();
    Nanos again = 0;
    const uint32_t link = direct ? kNone : obstruction(t, r, now, again);
    if (t.blocked_by != kNone && t.blocked_by == link) {
        at(again, on_retry, &t);
        return;
    }
    if (t.blocked_by != kNone) unblock(t, now);
    if (link != kNone)
        keep(t, link, now, again);
    else if (direct)
        send_direct(t, r, now);
    else
        reserve_route(t, r, now);
}

// Queues the chunk for a link that can't take it now. The first one asks again at `again`.
void RealNetwork::keep(Transit& t, uint32_t link, Nanos now, Nanos again) {
    Port& port = port_state_[t.engine->port];
    auto b = std::find_if(port.blocked.begin(), port.blocked.end(), [=](const Blocked& x) { return x.link == link; });
    if (b == port.blocked.end()) b = port.blocked.insert(b, {link, nullptr, nullptr});
    t.next = nullptr;
    t.blocked_by = link;
    if (b->first)
        b->last->next = &t;
    else {
        b->first = &t;
        at(again, on_retry, &t);
    }
    b->last = &t;
    if (!t.kept && !t.engine->own) { // the engine goes on with other sources
        SendEngine& e = *t.engine;
        e.busy = false;
        if (e.first) schedule_pull(e, std::max(now, e.free_at));
    }
    t.kept = true;
}

// The first of the chunks that wait for a link leaves the queue: the next one may try.
void RealNetwork::unblock(Transit& t, Nanos now) {
    Port& port = port_state_[t.engine->port];
    const auto b = std::find_if(port.blocked.begin(), port.blocked.end(),
                                [&](const Blocked& x) { return x.link == t.blocked_by; });
    t.blocked_by = kNone;
    b->first = t.next;
    if (b->first)
        at(now, on_retry, b->first);
    else
        port.blocked.erase(b);
}

// The link of the route that is reserved further ahead than the buffer before it holds (`again`: when to ask again), or
// that other chunks of the port wait for; kNone: none.
uint32_t RealNetwork::obstruction(Transit& t, const Route& r, Nanos now, Nanos& again) {
    const Port& port = port_state_[t.engine->port];
    Turns& turns = *port.turns;
    Nanos head = t.ready, tail = t.fetched;
    for (size_t i = 0; i < r.links.size(); ++i) {
        const uint32_t link = r.links[i];
        const LinkView& v = links_[link];
        const uint64_t length = transfer_ns(t.wire, v.rate);
        const Nanos ready = std::max(head, tail > length ? tail - length : 0);
        const Nanos start = turns.available(link, ready, length);
        if (const uint32_t buffer = i > 0 ? image_.link(r.links[i - 1]).buffer : 0; buffer != 0) {
            const uint64_t limit = std::max<uint64_t>(transfer_ns(buffer, v.rate), 2 * length);
            if (start > ready + limit) {
                again = now + (start - ready - limit);
                t.ready = std::max(t.ready, again);
                turns.postpone(again);
                turns.wait(link, again, length);
                return link;
            }
        }
        if (t.blocked_by != link)
            for (const Blocked& b : port.blocked)
                if (b.link == link) return link;
        head = start + v.latency;
        tail = std::max(start + length, tail) + v.latency;
    }
    return kNone;
}

void RealNetwork::reserve_route(Transit& t, const Route& r, Nanos now) {
    Port& port = port_state_[t.engine->port];
    Turns& turns = *port.turns;
    Nanos first_start = 0;
    Turns::Share behind;
    Nanos head = t.ready, tail = t.fetched, next_pull = now;
    leave_port(t, t.wire);
    for (size_t i = 0; i < r.links.size(); ++i) {
        const uint32_t link = r.links[i];
        const LinkView v = links_[link];
        const uint64_t length = transfer_ns(t.wire, v.rate);
        const Nanos ready = std::max(head, tail > length ? tail - length : 0);
        const Nanos start =
            turns.take(link, ready, length, i == 0 ? Turns::Share{.part = std::max(1u, port.ready_sources)} : behind);
        cross_link(link, t, t.wire, start - ready);
        tail = std::max(start + length, tail);
        if (i == 0) {
            first_start = start;
            behind = turns.port_share(link);
            t.injected = tail;
            next_pull = std::max({now, t.fetched, tail > t.lead ? tail - t.lead : 0});
            head = ports_[t.src_port].delay;
            tail += ports_[t.src_port].delay;
        } else
            head = 0;
        head += start + v.latency;
        tail += v.latency;
    }
    if (turns.any()) {
        for (const uint32_t link : r.links) turns.next(link, next_pull, next_pull - std::min(next_pull, first_start));
        turns.sweep(now - std::min(now, kMaxLag));
    }
    t.dst_port = r.dst_port;
    if (const uint32_t device = image_.port(r.dst_port).device; image_.device(device).limits.bus_rate != 0) {
        const uint64_t needed = transfer_ns(t.wire, image_.device(device).limits.bus_rate);
        tail =
            std::max(tail, reserve(seg_.device(device).bus_rx_until, tail - std::min(tail, needed), needed) + needed);
    }
    Nanos& last = port_state_[r.dst_port].last_arrival;
    last = t.arrived = std::max(tail + ports_[r.dst_port].delay, last);
    launched(t, next_pull);
}

// Loop-back, crossbar, and what goes nowhere (at the pace of the first link, if there is one).
void RealNetwork::send_direct(Transit& t, const Route& r, Nanos now) {
    const PortImage& port = image_.port(t.src_port);
    const bool crossbar = port.subnet != kNone && image_.subnet(port.subnet).crossbar != 0;
    uint64_t pace = ports_[t.src_port].rate;
    if (!r.ok && !crossbar) pace = port.link == kNone ? kUncabledRate : links_[port.link].rate;
    t.injected = std::max(t.fetched, t.ready + transfer_ns(t.wire, pace));
    t.arrived = t.injected + ports_[t.src_port].delay;
    leave_port(t, t.wire);
    if (r.ok) {
        t.dst_port = r.dst_port;
        t.arrived += ports_[r.dst_port].delay;
        if (const uint32_t device = image_.port(r.dst_port).device; image_.device(device).limits.bus_rate != 0) {
            const uint64_t needed = transfer_ns(t.wire, image_.device(device).limits.bus_rate);
            t.arrived = std::max(
                t.arrived,
                reserve(seg_.device(device).bus_rx_until, t.arrived - std::min(t.arrived, needed), needed) + needed);
        }
    } else {
        lose_on_route(r, t);
    }
    launched(t, std::max(now, t.injected));
}

// The chunk's times are known. Its engine (or, if it was kept back, its source) may go on at `next_pull`.
void RealNetwork::launched(Transit& t, Nanos next_pull) {
    SendEngine& e = *t.engine;
    Source& s = *t.source;
    e.append(s);
    at(t.injected, on_injected, &t);
    at(t.arrived, on_arrived, &t);
    e.free_at = next_pull;
    if (t.kept && !e.own) {
        if (!e.busy) schedule_pull(e, next_pull);
        t.engine = nullptr;
    } else if (next_pull != t.injected) {
        schedule_pull(e, next_pull);
        t.engine = nullptr;
    }
}

void RealNetwork::on_injected(void* self, uint64_t transit, Nanos when) {
    RealNetwork& n = net(self);
    n.refresh();
    Transit& t = *pointer<Transit>(transit);
    SendEngine* const engine = t.engine;
    t.source->chunk_injected(t);
    if (engine) n.pull(*engine, when);
}

void RealNetwork::on_arrived(void* self, uint64_t transit, Nanos) {
    RealNetwork& n = net(self);
    n.refresh();
    Transit& t = *pointer<Transit>(transit);
    if (t.generation != n.seg_.fabric.generation.load(std::memory_order_relaxed) && t.dst_port != kNone)
        if (const Route& r = n.route(t.src_port, t.dlid); !r.ok) // the fabric changed while it was on its way
            n.lose_on_route(r, t);
    if (t.dst_port != kNone) n.enter_port(t, t.wire);
    --t.source->in_flight;
    t.source->chunk_arrived(t);
    n.transits_.give(&t);
}

std::unique_ptr<Network> make_real_network(Segment& seg, Scheduler& scheduler) {
    return std::make_unique<RealNetwork>(seg, scheduler);
}

} // namespace softhca
