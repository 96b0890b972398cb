// The sections `links` and `subnets`: who is cabled to whom, and which ports thereby share a subnet.
#include "fabric/name_pattern.h"
#include "fabric/topology_parser.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace softhca {

struct TopologyParser::LinkEntry {
    YamlValue value;                                            // for messages
    Topology::Cable cable;                                      // rate, latency, buffer, line
    std::vector<std::pair<Topology::End, Topology::End>> pairs; // the cables to make of it
};

namespace {

enum class Wiring { pairwise, blocks, all };

void read_cable(const YamlMap& map, Topology::Cable& cable) {
    if (const auto v = map.find("rate")) cable.rate = v->rate();
    if (const auto v = map.find("latency")) cable.latency_ns = v->time_ns();
    if (const auto v = map.find("buffer")) cable.buffer = static_cast<uint32_t>(v->size(UINT32_MAX));
}

std::optional<uint32_t> small_number(std::string_view text) {
    uint32_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || n > 255) return std::nullopt;
    return n;
}

} // namespace

std::string TopologyParser::end_name(const Topology::End& end) const {
    if (end.kind == EndKind::sw)
        return topology_.switches[end.index].name + (end.port ? ":" + std::to_string(end.port) : "");
    const Topology::Port& p = topology_.ports[end.index];
    const Topology::Device& d = topology_.devices[p.device];
    return topology_.nodes[d.node].name + ":" + std::to_string(d.index) + ":" + std::to_string(p.number);
}

void TopologyParser::ends_of_node(const YamlValue& value, uint32_t node, const std::vector<std::string>& parts,
                                  std::vector<Topology::End>& out) const {
    const Topology::Node& n = topology_.nodes[node];
    if (parts.size() == 1 &&
        (n.devices != 1 || topology_.adapter_types[topology_.devices[n.first_device].type].ports != 1))
        value.refuse("node:adapter or node:adapter:port ('" + n.name + "' has several ports; adapters count from 0)");
    for (std::string& device_text : parts.size() > 1 ? expand_names(parts[1]) : std::vector<std::string>{"0"}) {
        if (device_text.starts_with("softhca_")) device_text.erase(0, 8);
        const auto device = small_number(device_text);
        if (!device || *device >= n.devices)
            value.refuse("an adapter of '" + n.name + "': 0 to " + std::to_string(n.devices - 1));
        const Topology::Device& d = topology_.devices[n.first_device + *device];
        const uint32_t ports = topology_.adapter_types[d.type].ports;
        for (const std::string& port_text : parts.size() > 2 ? expand_names(parts[2]) : std::vector<std::string>{"1"}) {
            const auto port = small_number(port_text);
            if (!port || *port < 1 || *port > ports)
                value.refuse("a port of that adapter: 1" + std::string(ports > 1 ? " or 2" : ""));
            out.push_back({EndKind::port, d.first_port + *port - 1, *port});
        }
    }
}

std::vector<Topology::End> TopologyParser::ends(const YamlValue& value) const {
    std::vector<Topology::End> out;
    for (const YamlValue& element : value.elements()) {
        for (const std::string& item : split_outside_brackets(element.text(), ',')) {
            try {
                const std::vector<std::string> parts = split_outside_brackets(item, ':');
                for (const std::string& name : expand_names(parts[0])) {
                    if (const auto node = node_index_.find(name); node != node_index_.end() && parts.size() <= 3) {
                        ends_of_node(element, node->second, parts, out);
                    } else if (const auto sw = switch_index_.find(name);
                               sw != switch_index_.end() && parts.size() <= 2) {
                        const uint32_t ports = topology_.switches[sw->second].ports;
                        for (const std::string& text :
                             parts.size() > 1 ? expand_names(parts[1]) : std::vector<std::string>{"0"}) {
                            const auto port = small_number(text);
                            if (!port || *port > ports || (*port == 0 && parts.size() > 1))
                                element.refuse("a port of '" + name + "': 1 to " + std::to_string(ports));
                            out.push_back({EndKind::sw, sw->second, *port});
                        }
                    } else {
                        element.refuse("names of this file, as node:adapter:port or switch:port ('" + name +
                                       "' is no node or switch)");
                    }
                }
            } catch (const std::invalid_argument& reason) {
                element.refuse(std::string("a pattern like node[0-15]:0:1 or leaf[1-4] (") + reason.what() + ")");
            }
        }
    }
    if (out.empty()) value.refuse("names of this file, as node:adapter:port or switch:port");
    return out;
}

TopologyParser::LinkEntry TopologyParser::read_link(const YamlValue& value, const Topology::Cable& defaults) const {
    const YamlMap map(value, {"from", "to", "wiring", "cables", "rate", "latency", "buffer"});
    LinkEntry entry{value, defaults, {}};
    entry.cable.line = value.line();
    read_cable(map, entry.cable);
    const auto from = ends(map.need("from")), to = ends(map.need("to"));
    const size_t many = std::max(from.size(), to.size()), few = std::min(from.size(), to.size());
    Wiring wiring = from.size() == to.size() ? Wiring::pairwise : Wiring::blocks;
    if (const auto v = map.find("wiring")) {
        const std::string w = v->text();
        if (w == "pairwise")
            wiring = Wiring::pairwise;
        else if (w == "blocks")
            wiring = Wiring::blocks;
        else if (w == "all")
            wiring = Wiring::all;
        else
            v->refuse("pairwise (first to first, ...), blocks (12 nodes to 3 leaves: 4 each) or all (each to each)");
    }
    const std::string counts =
        "'from' has " + std::to_string(from.size()) + " ends and 'to' has " + std::to_string(to.size());
    if (wiring == Wiring::pairwise && many != few) value.fail(counts + "; pairwise wiring needs as many on both sides");
    if (wiring == Wiring::blocks && many % few != 0)
        value.fail(counts + "; blocks need a multiple of the smaller number (or say wiring: all)");
    const uint64_t cables = map.find("cables") ? map.find("cables")->count(1, 254) : 1;
    if (wiring == Wiring::all) {
        for (const auto& f : from)
            for (const auto& t : to) entry.pairs.insert(entry.pairs.end(), cables, {f, t});
    } else {
        for (size_t i = 0; i < many; ++i)
            entry.pairs.insert(entry.pairs.end(), cables, {from[i * from.size() / many], to[i * to.size() / many]});
    }
    return entry;
}

void TopologyParser::plug(const YamlValue& value, Topology::End& end, uint32_t cable) {
    uint32_t& slot = end.kind == EndKind::port ? topology_.ports[end.index].cable : switch_cable_[end.index][end.port];
    if (slot != kNone)
        value.fail(end_name(end) + " is already cabled (line " + std::to_string(topology_.cables[slot].line) + ")");
    slot = cable;
}

void TopologyParser::assign_switch_port(const YamlValue& value, Topology::End& end, uint32_t cable) {
    std::vector<uint32_t>& slots = switch_cable_[end.index];
    const auto free = std::find(slots.begin() + 1, slots.end(), kNone);
    if (free == slots.end())
        value.fail("switch '" + topology_.switches[end.index].name + "' has " + std::to_string(slots.size() - 1) +
                   " ports and all are in use");
    end.port = static_cast<uint32_t>(free - slots.begin());
    *free = cable;
}

void TopologyParser::read_links(const YamlMap& root) {
    for (uint32_t i = 0; i < topology_.nodes.size(); ++i) node_index_[topology_.nodes[i].name] = i;
    for (uint32_t i = 0; i < topology_.switches.size(); ++i) {
        switch_index_[topology_.switches[i].name] = i;
        switch_cable_.emplace_back(topology_.switches[i].ports + 1, kNone);
    }
    Topology::Cable defaults;
    if (const auto v = root.find("link_defaults")) read_cable(YamlMap(*v, {"rate", "latency", "buffer"}), defaults);
    const auto section = root.find("links");
    if (!section) return;
    std::vector<YamlValue> origin; // by cable
    for (const YamlValue& e : section->elements()) {
        const LinkEntry entry = read_link(e, defaults);
        for (const auto& [a, b] : entry.pairs) {
            const auto index = static_cast<uint32_t>(topology_.cables.size());
            if (a.kind == b.kind && a.index == b.index) e.fail(end_name(a) + " would be cabled to itself");
            topology_.cables.push_back(entry.cable);
            origin.push_back(e);
            topology_.cables.back().ends[0] = a;
            topology_.cables.back().ends[1] = b;
            for (Topology::End& end : topology_.cables.back().ends) // ports named in the file go first
                if (end.kind == EndKind::port || end.port != 0) plug(e, end, index);
        }
    }
    for (uint32_t c = 0; c < topology_.cables.size(); ++c)
        for (Topology::End& end : topology_.cables[c].ends)
            if (end.port == 0) assign_switch_port(origin[c], end, c);
}

void TopologyParser::read_subnets(const YamlMap& root) {
    // Components of the cabled fabric: elements are switches, then ports.
    const auto switches = static_cast<uint32_t>(topology_.switches.size());
    std::vector<uint32_t> component(switches + topology_.ports.size());
    std::iota(component.begin(), component.end(), 0U);
    const auto find_root = [&](uint32_t e) {
        while (component[e] != e) e = component[e] = component[component[e]];
        return e;
    };
    const auto element = [&](const Topology::End& end) {
        return end.kind == EndKind::sw ? end.index : switches + end.index;
    };
    for (const Topology::Cable& c : topology_.cables) {
        const uint32_t a = find_root(element(c.ends[0])), b = find_root(element(c.ends[1]));
        component[std::max(a, b)] = std::min(a, b);
    }
    for (uint32_t e = 0; e < component.size(); ++e) component[e] = find_root(e);
    assign_subnets(component, root);
}

void TopologyParser::assign_subnets(const std::vector<uint32_t>& component, const YamlMap& root) {
    Topology& t = topology_;
    const auto switches = static_cast<uint32_t>(t.switches.size());
    std::map<uint32_t, uint32_t> subnet_of; // component -> subnet
    const auto section = root.find("subnets");
    for (const YamlValue& entry : section ? section->elements() : std::vector<YamlValue>{}) {
        const YamlMap map(entry, {"name", "prefix", "crossbar", "lmc", "switches", "ports", "rate"});
        const auto index = static_cast<uint32_t>(t.subnets.size());
        Topology::Subnet subnet;
        subnet.name = short_name(map.need("name"), map.need("name").text());
        subnet.prefix = 0xfe80000000000000 + index;
        subnet.lmc = map.find("lmc") ? static_cast<uint32_t>(map.find("lmc")->count(0, 7)) : default_lmc_;
        if (const auto v = map.find("crossbar")) subnet.crossbar = v->boolean();
        if (const auto v = map.find("rate")) {
            if (!subnet.crossbar) v->fail("only a crossbar subnet has a rate; cables have their own (links)");
            subnet.rate = v->rate();
        }
        if (const auto v = map.find("prefix")) {
            const std::string p = v->text();
            const char* first = p.data() + (p.starts_with("0x") ? 2 : 0);
            const auto [end, error] = std::from_chars(first, p.data() + p.size(), subnet.prefix, 16);
            if (error != std::errc{} || end != p.data() + p.size() || !p.starts_with("0x") || subnet.prefix == 0)
                v->refuse("64 bits in hexadecimal like 0xfe80000000000001");
        }
        for (const Topology::Subnet& s : t.subnets) {
            if (s.name == subnet.name) entry.fail("subnet '" + s.name + "' is given twice");
            if (s.prefix == subnet.prefix)
                entry.fail("subnets '" + s.name + "' and '" + subnet.name + "' have one prefix");
        }
        std::vector<Topology::End> members;
        for (const char* key : {"switches", "ports"})
            if (const auto v = map.find(key))
                for (const Topology::End& e : ends(*v)) members.push_back(e);
        if (subnet.crossbar) {
            if (members.empty()) // all that no cable and no other subnet has taken
                for (uint32_t p = 0; p < t.ports.size(); ++p)
                    if (t.ports[p].cable == kNone && t.ports[p].subnet == kNone)
                        members.push_back({EndKind::port, p, 0});
            if (members.empty()) entry.fail("no port is left for this crossbar");
            for (const Topology::End& e : members) {
                if (e.kind == EndKind::sw) entry.fail("a crossbar has ports, not switches");
                Topology::Port& port = t.ports[e.index];
                if (port.cable != kNone) entry.fail(end_name(e) + " is cabled and cannot be a port of a crossbar");
                if (port.subnet != kNone)
                    entry.fail(end_name(e) + " is already in subnet '" + t.subnets[port.subnet].name + "'");
                port.subnet = index;
            }
        } else {
            if (members.empty()) entry.fail("say which switches (or ports) it has, or crossbar: true");
            const auto element = [&](const Topology::End& e) {
                return component[e.kind == EndKind::sw ? e.index : switches + e.index];
            };
            for (const Topology::End& e : members)
                if (element(e) != element(members[0]))
                    entry.fail(end_name(members[0]) + " and " + end_name(e) + " are not connected by cables");
            const auto [where, fresh] = subnet_of.emplace(element(members[0]), index);
            if (!fresh)
                entry.fail("its switches are cabled to those of subnet '" + t.subnets[where->second].name + "'");
        }
        t.subnets.push_back(std::move(subnet));
    }
    // What is cabled but not named gets subnets in the order of the file.
    const auto subnet_for = [&](uint32_t e) {
        const auto [where, fresh] = subnet_of.emplace(component[e], static_cast<uint32_t>(t.subnets.size()));
        if (fresh) {
            Topology::Subnet subnet{"subnet" + std::to_string(t.subnets.size()),
                                    0xfe80000000000000 + t.subnets.size(),
                                    false,
                                    default_lmc_,
                                    {}};
            while (std::any_of(t.subnets.begin(), t.subnets.end(),
                               [&](const auto& s) { return s.prefix == subnet.prefix; }))
                ++subnet.prefix;
            t.subnets.push_back(std::move(subnet));
        }
        return where->second;
    };
    for (uint32_t s = 0; s < switches; ++s) {
        const auto& slots = switch_cable_[s];
        if (std::all_of(slots.begin(), slots.end(), [](uint32_t c) { return c == kNone; }))
            root.value().fail("switch '" + t.switches[s].name + "' has no cable");
        t.switches[s].subnet = subnet_for(s);
    }
    for (uint32_t p = 0; p < t.ports.size(); ++p)
        if (t.ports[p].cable != kNone) t.ports[p].subnet = subnet_for(switches + p);
    if (t.subnets.empty()) root.value().fail("no port is connected: give links, or a subnet with crossbar: true");
}

} // namespace softhca
