#include "fabric/names.h"

#include "fabric/name_pattern.h"
#include "fabric/topology.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace softhca {
namespace {

std::optional<uint32_t> number(std::string_view text) {
    uint32_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return n;
}

std::optional<uint32_t> find_node(const FabricImage& image, const std::string& text) {
    for (uint32_t n = 0; n < image.nodes; ++n)
        if (text == image.node(n).name) return n;
    const auto n = number(text);
    return n && *n < image.nodes ? n : std::nullopt;
}

std::string node_names(const FabricImage& image) {
    const std::string first = image.node(0).name;
    return image.nodes == 1 ? first : first + " ... " + image.node(image.nodes - 1).name;
}

// One end of a cable as the user names it: every (kind, index, IB port or 0 = any) that it may stand for.
struct NamedEnd {
    EndKind kind;
    uint32_t index, port;
};

std::vector<NamedEnd> find_ends(const FabricImage& image, const std::string& text) {
    const std::vector<std::string> parts = split_outside_brackets(text, ':');
    if (const uint32_t s = find_switch(image, parts[0]); s != kNone) {
        const auto port = parts.size() == 2 ? number(parts[1]) : std::optional<uint32_t>(0);
        if (parts.size() > 2 || !port || *port > image.sw(s).ports || (parts.size() == 2 && *port == 0))
            throw FabricError("'" + text + "': switch " + parts[0] + " has the ports 1 to " +
                              std::to_string(image.sw(s).ports));
        return {{EndKind::sw, s, *port}};
    }
    std::vector<NamedEnd> all;
    if (const auto node = find_node(image, parts[0]); node && parts.size() == 1) {
        for (uint32_t p = 0; p < image.ports; ++p)
            if (image.device(image.port(p).device).node == *node) all.push_back({EndKind::port, p, 0});
        return all;
    }
    return {{EndKind::port, find_port(image, text), 0}};
}

} // namespace

std::string port_name(const FabricImage& image, uint32_t port) {
    const PortImage& p = image.port(port);
    const DeviceImage& d = image.device(p.device);
    return std::string(image.node(d.node).name) + ":softhca_" + std::to_string(d.index) + ":" +
           std::to_string(p.number);
}

std::string end_name(const FabricImage& image, EndKind kind, uint32_t index) {
    return kind == EndKind::sw ? image.sw(index).name : port_name(image, index);
}

std::string link_name(const FabricImage& image, uint32_t link) {
    const LinkImage& l = image.link(link);
    const auto name = [&](EndKind kind, uint32_t index, uint32_t port) {
        return end_name(image, kind, index) + (kind == EndKind::sw ? ":" + std::to_string(port) : "");
    };
    return name(l.from_kind, l.from, l.from_port) + " -> " + name(l.to_kind, l.to, l.to_port);
}

uint32_t find_port(const FabricImage& image, const std::string& text) {
    const std::vector<std::string> parts = split_outside_brackets(text, ':');
    const auto node = find_node(image, parts[0]);
    if (!node || parts.size() > 3)
        throw FabricError("'" + text + "' is not a port NODE:DEVICE:PORT, e.g. 0:softhca_0:1; nodes: " +
                          node_names(image) + " (or their numbers from 0)");
    const NodeImage& n = image.node(*node);
    std::string device_text = parts.size() > 1 ? parts[1] : n.devices == 1 ? "0" : "";
    if (device_text.starts_with("softhca_")) device_text.erase(0, 8);
    const auto device = number(device_text);
    if (!device || *device >= n.devices)
        throw FabricError("'" + text + "': node " + n.name + " has the devices softhca_0" +
                          (n.devices > 1 ? " to softhca_" + std::to_string(n.devices - 1) : ""));
    const DeviceImage& d = image.device(n.first_device + *device);
    const auto port = parts.size() > 2 ? number(parts[2]) : d.ports == 1 ? std::optional<uint32_t>(1) : std::nullopt;
    if (!port || *port < 1 || *port > d.ports)
        throw FabricError("'" + text + "': softhca_" + std::to_string(*device) + " of " + n.name + " has " +
                          (d.ports > 1 ? "the ports 1 and 2" : "only port 1"));
    return d.first_port + *port - 1;
}

uint32_t find_switch(const FabricImage& image, const std::string& name) {
    for (uint32_t s = 0; s < image.switches; ++s)
        if (name == image.sw(s).name) return s;
    return kNone;
}

std::vector<uint32_t> find_cables(const FabricImage& image, const std::string& a, const std::string& b) {
    const std::vector<NamedEnd> left = find_ends(image, a), right = find_ends(image, b);
    const auto meets = [](const std::vector<NamedEnd>& ends, EndKind kind, uint32_t index, uint32_t port) {
        return std::any_of(ends.begin(), ends.end(), [&](const NamedEnd& e) {
            return e.kind == kind && e.index == index && (e.port == 0 || e.port == port);
        });
    };
    std::vector<uint32_t> cables;
    for (uint32_t l = 0; l < image.links; ++l) {
        const LinkImage& link = image.link(l);
        if (meets(left, link.from_kind, link.from, link.from_port) && meets(right, link.to_kind, link.to, link.to_port))
            cables.push_back(link.cable);
    }
    std::sort(cables.begin(), cables.end());
    cables.erase(std::unique(cables.begin(), cables.end()), cables.end());
    if (cables.empty()) throw FabricError("no cable joins '" + a + "' and '" + b + "' in fabric '" + image.name + "'");
    return cables;
}

} // namespace softhca
