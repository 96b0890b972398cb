#include "session/faults.h"

#include <infiniband/verbs.h>

#include <atomic>

#include "core/notify.h"

namespace softhca {

namespace {

void clear_knobs(FaultKnobs& k) {
    k.drop_ppm = k.corrupt_ppm = k.ack_drop_ppm = 0;
    k.delay_ns = 0;
    k.rate_override = 0;
    k.trip_at = 0;
    k.trip_action = 0;
}

bool any_knob(const FaultKnobs& k) {
    return k.drop_ppm || k.corrupt_ppm || k.ack_drop_ppm || k.delay_ns || k.rate_override || k.trip_at;
}

// `packets`: the counter that the network compares trip_at with.
void set_trip(FaultKnobs& k, TripAction action, const FaultCommand& c, uint64_t packets) {
    k.trip_at = 0; // disarmed while it changes
    k.trip_action = static_cast<uint32_t>(action);
    k.trip_count = c.count;
    k.trip_at = packets + c.at_packet;
}

void set_knob(FaultKnobs& k, const FaultCommand& c, uint64_t packets) {
    const auto value = static_cast<uint32_t>(c.value);
    switch (c.verb) {
    case FaultVerb::drop:
        if (c.at_packet)
            set_trip(k, TripAction::drop, c, packets);
        else
            k.drop_ppm = value;
        break;
    case FaultVerb::corrupt:
        if (c.at_packet)
            set_trip(k, TripAction::corrupt, c, packets);
        else
            k.corrupt_ppm = value;
        break;
    case FaultVerb::ack_drop:
        if (c.at_packet)
            set_trip(k, TripAction::ack_drop, c, packets);
        else
            k.ack_drop_ppm = value;
        break;
    case FaultVerb::port_down:
    case FaultVerb::link_down:
        set_trip(k, TripAction::link_down, c, packets);
        break;
    case FaultVerb::delay:
        k.delay_ns = value;
        break;
    case FaultVerb::rate:
        k.rate_override = c.value;
        break;
    default:
        break;
    }
}

void clear_all(Segment& seg) {
    const FabricImage& image = seg.img();
    for (uint32_t i = 0; i < image.links; ++i) {
        clear_knobs(seg.link(i).faults);
        seg.link(i).admin_down = 0;
    }
    for (uint32_t i = 0; i < image.ports; ++i) {
        clear_knobs(seg.port(i).faults);
        seg.port(i).admin_down = 0;
        seg.port(i).loopback_fails = 0;
        seg.port(i).handles_refused = 0;
        seg.port(i).init_refused = 0;
    }
    for (uint32_t i = 0; i < image.devices; ++i) {
        DeviceState& d = seg.device(i);
        d.place_delay_ns = d.place_delay_qp_ns = d.flush_accepted = d.query_mode = d.lacks = d.max_qps = 0;
        d.wait_prefetch = d.wait_endian = 0;
        for (auto& cost : d.command_ns) cost = kNone;
    }
}

void apply_to_device(Segment& seg, uint32_t device, const FaultCommand& c) {
    DeviceState& d = seg.device(device);
    const auto value = static_cast<uint32_t>(c.value);
    switch (c.verb) {
    case FaultVerb::adapter_death:
        if (d.dead.exchange(1) == 0) {
            d.deaths.fetch_add(1);
            d.qps = 0; // those that programs still hold are none of the next one's
        }
        break;
    case FaultVerb::adapter_revive:
        d.dead = 0;
        break;
    case FaultVerb::place_delay:
        d.place_delay_ns = value;
        break;
    case FaultVerb::place_delay_qp:
        d.place_delay_qp_ns = value;
        break;
    case FaultVerb::flush_accepted:
        d.flush_accepted = value;
        break;
    case FaultVerb::wait_prefetch:
        d.wait_prefetch = value;
        break;
    case FaultVerb::wait_endian:
        d.wait_endian = value;
        break;
    case FaultVerb::query:
        d.query_mode = value;
        break;
    case FaultVerb::lacks:
        if (value)
            d.lacks.fetch_or(1u << c.which);
        else
            d.lacks.fetch_and(~(1u << c.which));
        break;
    case FaultVerb::queue_pair_limit:
        d.max_qps = value;
        break;
    case FaultVerb::command_cost:
        d.command_ns[c.which] = value;
        if (c.which == 0) d.command_ns[4] = value; // who makes queue pairs destroys them, at the same price
        break;
    default:
        break;
    }
}

// With its cable: `port down --at-packet` takes that down, too.
void bring_up(Segment& seg, uint32_t port) {
    seg.port(port).admin_down = 0;
    const uint32_t link = seg.img().port(port).link;
    if (link == kNone) return;
    seg.link(link).admin_down = 0;
    if (const uint32_t reverse = seg.img().link(link).reverse; reverse != kNone) seg.link(reverse).admin_down = 0;
}

void apply_to_port(Segment& seg, uint32_t port, const FaultCommand& c) {
    PortState& p = seg.port(port);
    if (c.verb == FaultVerb::loopback_fails)
        p.loopback_fails = static_cast<uint32_t>(c.value);
    else if (c.verb == FaultVerb::address_handles)
        p.handles_refused = static_cast<uint32_t>(c.value);
    else if (c.verb == FaultVerb::queue_pairs)
        p.init_refused = static_cast<uint32_t>(c.value);
    else if (c.verb == FaultVerb::port_up)
        bring_up(seg, port);
    else if (c.verb == FaultVerb::port_down && !c.at_packet)
        p.admin_down = 1;
    else
        set_knob(p.faults, c, p.tx_packets.load() + p.rx_packets.load());
}

void apply_to_link(Segment& seg, uint32_t link, const FaultCommand& c) {
    LinkState& l = seg.link(link);
    if (c.verb == FaultVerb::link_up)
        l.admin_down = 0;
    else if (c.verb == FaultVerb::link_down && !c.at_packet)
        l.admin_down = 1;
    else
        set_knob(l.faults, c, l.packets.load());
}

// A port is up if nothing that it needs is down. The far end of a direct cable sees the light go out, the adapters
// behind a switch don't.
bool port_should_be_up(Segment& seg, uint32_t port) {
    const PortImage& p = seg.img().port(port);
    if (!p.cabled || seg.port(port).admin_down || seg.device(p.device).dead) return false;
    if (p.link == kNone) return true;
    const LinkImage& link = seg.img().link(p.link);
    if (!seg.link(p.link).up || (link.reverse != kNone && !seg.link(link.reverse).up)) return false;
    return link.to_kind == EndKind::sw ||
           (!seg.port(link.to).admin_down && !seg.device(seg.img().port(link.to).device).dead);
}

uint32_t count_disturbances(Segment& seg) {
    const FabricImage& image = seg.img();
    uint32_t n = 0;
    for (uint32_t i = 0; i < image.links; ++i) n += !seg.link(i).up || any_knob(seg.link(i).faults);
    for (uint32_t i = 0; i < image.ports; ++i)
        n += (image.port(i).cabled && !seg.port(i).up) || any_knob(seg.port(i).faults) || seg.port(i).loopback_fails ||
             seg.port(i).handles_refused || seg.port(i).init_refused;
    for (uint32_t i = 0; i < image.devices; ++i) {
        const DeviceState& d = seg.device(i);
        n += d.dead || d.place_delay_ns || d.place_delay_qp_ns || d.flush_accepted || d.query_mode || d.lacks;
    }
    return n;
}

// Base LIDs, forwarding tables and look-up: what opensm would write if it had given the LIDs the other way round.
// Single stores beside readers of other processes; packets under way may go astray, as in a fabric that is being set
// up.
void swap_lids(Segment& seg, uint32_t a, uint32_t b) {
    auto& image = *seg.at<FabricImage>(seg.image);
    auto* ports = image.at<PortImage>(image.ports_at);
    SubnetImage& subnet = image.at<SubnetImage>(image.subnets_at)[ports[a].subnet];
    const uint16_t lid_a = ports[a].lid, lid_b = ports[b].lid;
    for (uint32_t i = 0; i < 1u << ports[a].lmc; ++i) {
        for (uint32_t s = 0; s < image.switches; ++s) {
            if (image.sw(s).subnet != ports[a].subnet) continue;
            auto* table = image.at<uint8_t>(image.sw(s).lft);
            std::atomic_ref to_a(table[lid_a + i]), to_b(table[lid_b + i]);
            to_a.store(to_b.exchange(to_a.load()));
        }
        auto* owner = image.at<uint32_t>(subnet.lid_to_port);
        std::atomic_ref(owner[lid_a + i]).store(b);
        std::atomic_ref(owner[lid_b + i]).store(a);
    }
    std::atomic_ref(ports[a].lid).store(lid_b);
    std::atomic_ref(ports[b].lid).store(lid_a);
    if (subnet.sm_lid == lid_a || subnet.sm_lid == lid_b)
        std::atomic_ref(subnet.sm_lid).store(subnet.sm_lid == lid_a ? lid_b : lid_a);
    seg.port(a).lid = lid_b;
    seg.port(b).lid = lid_a;
}

} // namespace

void refresh_states(Segment& seg) {
    const FabricImage& image = seg.img();
    for (uint32_t i = 0; i < image.links; ++i) seg.link(i).up = !seg.link(i).admin_down;
    for (uint32_t i = 0; i < image.ports; ++i) {
        const uint32_t up = port_should_be_up(seg, i);
        if (seg.port(i).up.exchange(up) != up) seg.port(i).transitions.fetch_add(1);
    }
    seg.fabric.disturbed = count_disturbances(seg);
    seg.fabric.generation.fetch_add(1); // last: who sees the new number sees the new states
    // A keeper that is killed before an event is repeated by its successor: `announced` says what has been raised.
    for (uint32_t i = 0; i < image.ports; ++i) {
        PortState& p = seg.port(i);
        const uint32_t up = p.up.load();
        if (p.announced.load() == up) continue;
        if (up) {
            raise_port_event(seg, i, IBV_EVENT_PORT_ACTIVE);
        } else if (!seg.device(image.port(i).device).dead) {
            raise_port_event(seg, i, IBV_EVENT_PORT_ERR);
        }
        p.announced = up;
    }
}

void apply_fault(Segment& seg, const FaultCommand& c) {
    std::vector<uint32_t> devices = c.devices;
    FaultCommand command = c;
    if (c.verb == FaultVerb::stop || c.verb == FaultVerb::cont || c.verb == FaultVerb::reroute) return;
    if (c.verb == FaultVerb::clear) clear_all(seg);
    if (c.verb == FaultVerb::lid_swap) swap_lids(seg, c.ports[0], c.ports[1]);
    if (c.verb == FaultVerb::pkeys)
        for (uint32_t p : c.ports)
            for (uint32_t k = 0; k < kMaxPkeys; ++k) seg.port(p).pkeys[k] = k < c.keys.size() ? c.keys[k] : 0;
    if (c.verb == FaultVerb::node_death) {
        command.verb = FaultVerb::adapter_death;
        for (uint32_t n : c.nodes)
            for (uint32_t i = 0; i < seg.img().node(n).devices; ++i)
                devices.push_back(seg.img().node(n).first_device + i);
    }
    for (uint32_t d : devices) apply_to_device(seg, d, command);
    if (c.verb != FaultVerb::lid_swap && c.verb != FaultVerb::pkeys)
        for (uint32_t p : c.ports) apply_to_port(seg, p, c);
    for (uint32_t l : c.links) apply_to_link(seg, l, c);
    refresh_states(seg);
    if (c.verb == FaultVerb::adapter_death)
        for (uint32_t d : devices) raise_device_event(seg, d, IBV_EVENT_DEVICE_FATAL);
    if (c.verb == FaultVerb::lid_swap)
        for (uint32_t p : c.ports) raise_port_event(seg, p, IBV_EVENT_LID_CHANGE);
    if (c.verb == FaultVerb::pkeys)
        for (uint32_t p : c.ports) raise_port_event(seg, p, IBV_EVENT_PKEY_CHANGE);
}

} // namespace softhca
