#include "fabric/trace.h"

#include "fabric/names.h"
#include "fabric/units.h"

#include <algorithm>

namespace softhca {

Trace trace(const FabricImage& image, uint32_t source, uint32_t lid, bool (*works)(uint32_t, void*), void* argument) {
    Trace t;
    t.source = source;
    t.lid = lid;
    const PortImage& port = image.port(source);
    const uint32_t owner = image.port_of_lid(port.subnet, lid);
    const auto arrive = [&](uint32_t at) {
        t.arrived = at;
        t.end = at == owner ? Trace::End::delivered : Trace::End::wrong_port;
        return t;
    };
    if (!port.cabled) {
        t.end = Trace::End::not_cabled;
        return t;
    }
    if (owner == source) return arrive(source); // loop-back inside the adapter
    if (port.link == kNone) {                   // crossbar
        if (owner == kNone) return t;
        return arrive(owner);
    }
    std::vector<uint32_t> met; // switches
    for (uint32_t link = port.link;;) {
        if (link == kNone) {
            t.end = Trace::End::no_route;
            return t;
        }
        if (works && !works(link, argument)) {
            t.end = Trace::End::cable_down;
            return t;
        }
        t.links.push_back(link);
        const LinkImage& l = image.link(link);
        if (l.to_kind == EndKind::port) return arrive(l.to);
        if (std::find(met.begin(), met.end(), l.to) != met.end() || met.size() >= kMaxHops) {
            t.end = Trace::End::loop;
            return t;
        }
        met.push_back(l.to);
        link = image.next_link(l.to, lid);
    }
}

const char* end_text(Trace::End end) {
    switch (end) {
    case Trace::End::delivered:
        return "delivered";
    case Trace::End::not_cabled:
        return "the source port has no cable";
    case Trace::End::no_route:
        return "dead end: no route to this LID";
    case Trace::End::wrong_port:
        return "arrived at a port that does not answer on this LID";
    case Trace::End::loop:
        return "routing loop";
    case Trace::End::cable_down:
        return "stopped: the next cable is down";
    }
    return "?";
}

void print(std::ostream& out, const FabricImage& image, const Trace& t) {
    uint64_t latency = 0, slowest = 0;
    out << "LID " << t.lid << " from " << port_name(image, t.source) << "\n";
    for (const uint32_t link : t.links) {
        const LinkImage& l = image.link(link);
        latency += l.latency_ns;
        if (l.rate != 0 && (slowest == 0 || l.rate < slowest)) slowest = l.rate;
        out << "  [" << unsigned{l.from_port} << "] -> " << (l.to_kind == EndKind::sw ? "switch " : "port ")
            << end_name(image, l.to_kind, l.to) << "[" << unsigned{l.to_port} << "]  " << rate_text(l.rate) << ", "
            << time_text(l.latency_ns) << "\n";
    }
    if (t.links.empty() && t.arrived != kNone)
        out << "  -> port " << port_name(image, t.arrived) << (t.arrived == t.source ? "  (loop-back)" : "  (crossbar)")
            << "\n";
    out << "  " << end_text(t.end);
    if (t.end == Trace::End::delivered)
        out << " after " << t.links.size() << (t.links.size() == 1 ? " link, " : " links, ") << time_text(latency)
            << ", slowest link " << rate_text(slowest);
    out << "\n";
}

} // namespace softhca
