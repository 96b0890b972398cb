#include "fabric/image_builder.h"

#include "fabric/routes.h"

#include <algorithm>
#include <bit>

namespace softhca {
namespace {

// GUIDs are made up under a locally administered OUI ("SH"): adapters 02:53:48:00, switches 02:53:48:ff. A port's GUID
// is its adapter's plus the port number, which is also how ibsim makes them.
constexpr uint64_t kAdapterGuids = 0x0253480000000000;
constexpr uint64_t kSwitchGuids = 0x025348ff00000000;

void copy_name(char* to, size_t size, const std::string& name) {
    name.copy(to, size - 1); // the block is zeroed
}

uint8_t mtu_code(uint32_t bytes) { return static_cast<uint8_t>(std::bit_width(bytes) - 8); } // 256 -> 1 ... 4096 -> 5

// Where everything goes; two passes use it: one to know the size, one to fill.
struct Layout {
    uint64_t bytes = 0;
    uint64_t take(uint64_t size) {
        const uint64_t at = bytes;
        bytes = (bytes + size + 7) & ~uint64_t{7};
        return at;
    }
};

class Builder {
public:
    Builder(const Topology& topology, const Routes* routes) : t_(topology), routes_(routes) {}

    FabricBlock build() {
        FabricImage head{};
        head.magic = kImageMagic;
        head.version = kImageVersion;
        copy_name(head.name, sizeof head.name, t_.name);
        copy_name(head.routing, sizeof head.routing, t_.routing);
        head.nodes = size(t_.nodes);
        head.devices = size(t_.devices);
        head.ports = size(t_.ports);
        head.subnets = size(t_.subnets);
        head.switches = size(t_.switches);
        head.cables = size(t_.cables);
        head.links = 2 * head.cables;
        head.chunk_mtus = t_.chunk_mtus;
        head.dynamic_nodes = t_.dynamic_nodes;
        head.host = t_.host;
        Layout layout;
        layout.take(sizeof head);
        head.nodes_at = layout.take(head.nodes * sizeof(NodeImage));
        head.devices_at = layout.take(head.devices * sizeof(DeviceImage));
        head.ports_at = layout.take(head.ports * sizeof(PortImage));
        head.subnets_at = layout.take(head.subnets * sizeof(SubnetImage));
        head.switches_at = layout.take(head.switches * sizeof(SwitchImage));
        head.links_at = layout.take(head.links * sizeof(LinkImage));
        std::vector<uint64_t> lid_at, port_link_at, lft_at;
        for (uint32_t s = 0; s < head.subnets; ++s) lid_at.push_back(layout.take((max_lid(s) + 1) * sizeof(uint32_t)));
        for (const auto& sw : t_.switches) {
            port_link_at.push_back(layout.take((sw.ports + 1) * sizeof(uint32_t)));
            lft_at.push_back(layout.take(max_lid(sw.subnet) + 1));
        }
        head.bytes = layout.bytes;

        FabricBlock block(layout.bytes);
        block.image() = head;
        FabricImage& image = block.image();
        fill_nodes(image);
        fill_ports(image);
        for (uint32_t s = 0; s < head.subnets; ++s) fill_subnet(image, s, lid_at[s]);
        for (uint32_t s = 0; s < head.switches; ++s) fill_switch(image, s, port_link_at[s], lft_at[s]);
        for (uint32_t c = 0; c < head.cables; ++c) fill_cable(image, c);
        if (t_.ideal) strip_costs(image);
        return block;
    }

private:
    template <class V> static uint32_t size(const V& v) { return static_cast<uint32_t>(v.size()); }
    [[nodiscard]] uint32_t max_lid(uint32_t subnet) const { return routes_ ? routes_->subnets[subnet].max_lid : 0; }

    void fill_nodes(FabricImage& image) const {
        for (uint32_t n = 0; n < image.nodes; ++n) {
            NodeImage& node = image.at<NodeImage>(image.nodes_at)[n];
            copy_name(node.name, sizeof node.name, t_.nodes[n].name);
            node.first_device = t_.nodes[n].first_device;
            node.devices = t_.nodes[n].devices;
        }
        for (uint32_t d = 0; d < image.devices; ++d) {
            const Topology::Device& from = t_.devices[d];
            const AdapterType& type = t_.adapter_types[from.type];
            image.at<DeviceImage>(image.devices_at)[d] = {from.node,
                                                          from.index,
                                                          from.first_port,
                                                          type.ports,
                                                          kAdapterGuids | uint64_t{from.node} << 16 | from.index << 8,
                                                          type.limits};
        }
    }

    void fill_ports(FabricImage& image) const {
        for (uint32_t p = 0; p < image.ports; ++p) {
            const Topology::Port& from = t_.ports[p];
            PortImage& port = image.at<PortImage>(image.ports_at)[p];
            const bool connected = from.subnet != kNone;
            port.device = from.device;
            port.number = from.number;
            port.subnet = connected ? from.subnet : 0; // an uncabled port shows the first subnet's prefix and no LID
            port.link = kNone;
            port.guid = image.device(from.device).guid + from.number;
            port.lid = routes_ ? routes_->lid[p] : 0;
            port.lmc = connected ? static_cast<uint8_t>(t_.subnets[from.subnet].lmc) : 0;
            port.mtu = mtu_code(t_.adapter_types[t_.devices[from.device].type].mtu);
            const Rate rate = from.cable != kNone ? t_.cables[from.cable].rate
                              : connected         ? t_.subnets[from.subnet].rate
                                                  : Rate{};
            port.speed = rate.speed;
            port.width = rate.width;
            port.cabled = connected;
            std::ranges::copy(t_.adapter_types[t_.devices[from.device].type].pkeys, port.pkeys);
        }
    }

    void fill_subnet(FabricImage& image, uint32_t s, uint64_t lid_at) const {
        SubnetImage& subnet = image.at<SubnetImage>(image.subnets_at)[s];
        subnet.prefix = t_.subnets[s].prefix;
        subnet.crossbar = t_.subnets[s].crossbar;
        subnet.sm_lid = routes_ ? routes_->subnets[s].sm_lid : 0;
        subnet.max_lid = static_cast<uint16_t>(max_lid(s));
        subnet.lid_to_port = lid_at;
        auto* owner = image.at<uint32_t>(lid_at);
        std::fill_n(owner, subnet.max_lid + 1, kNone);
        for (uint32_t p = 0; p < image.ports; ++p) {
            const PortImage& port = image.port(p);
            if (port.subnet == s && port.lid != 0) std::fill_n(owner + port.lid, 1U << port.lmc, p);
        }
    }

    void fill_switch(FabricImage& image, uint32_t s, uint64_t port_link_at, uint64_t lft_at) const {
        SwitchImage& sw = image.at<SwitchImage>(image.switches_at)[s];
        copy_name(sw.name, sizeof sw.name, t_.switches[s].name);
        sw.guid = kSwitchGuids + (uint64_t{s} << 8);
        sw.subnet = t_.switches[s].subnet;
        sw.ports = t_.switches[s].ports;
        sw.port_link = port_link_at;
        sw.lft = lft_at;
        std::fill_n(image.at<uint32_t>(port_link_at), sw.ports + 1, kNone);
        auto* lft = image.at<uint8_t>(lft_at);
        if (routes_)
            std::copy(routes_->table[s].begin(), routes_->table[s].end(), lft);
        else
            *lft = kNoRoute;
    }

    void fill_cable(FabricImage& image, uint32_t c) const {
        const Topology::Cable& cable = t_.cables[c];
        for (uint32_t d = 0; d < 2; ++d) {
            const Topology::End &from = cable.ends[d], &to = cable.ends[1 - d];
            LinkImage& link = image.at<LinkImage>(image.links_at)[2 * c + d];
            link.cable = c;
            link.reverse = 2 * c + (1 - d);
            link.from = from.index;
            link.to = to.index;
            link.from_kind = from.kind;
            link.to_kind = to.kind;
            link.from_port = static_cast<uint8_t>(from.port);
            link.to_port = static_cast<uint8_t>(to.port);
            link.latency_ns = cable.latency_ns + (to.kind == EndKind::sw ? t_.switches[to.index].latency_ns : 0);
            link.rate = cable.rate.bytes_per_second;
            link.buffer = cable.buffer;
            if (from.kind == EndKind::port)
                image.at<PortImage>(image.ports_at)[from.index].link = 2 * c + d;
            else
                image.at<uint32_t>(image.sw(from.index).port_link)[from.port] = 2 * c + d;
        }
    }

    const Topology& t_;
    const Routes* routes_;
};

} // namespace

FabricBlock build_image(const Topology& topology, const Routes* routes) { return Builder(topology, routes).build(); }

void strip_costs(FabricImage& image) {
    image.ideal = 1;
    image.host = {};
    for (uint32_t d = 0; d < image.devices; ++d) {
        AdapterLimits& l = image.at<DeviceImage>(image.devices_at)[d].limits;
        AdapterLimits free{};
        free.clock_offset_ns = l.clock_offset_ns;
        free.clock_drift_ppb = l.clock_drift_ppb;
        free.has_dc = l.has_dc;
        free.has_timestamps = l.has_timestamps;
        free.has_apm = l.has_apm;
        free.has_wait = l.has_wait;
        l = free;
    }
    for (uint32_t i = 0; i < image.links; ++i) {
        LinkImage& link = image.at<LinkImage>(image.links_at)[i];
        link.latency_ns = 0;
        link.rate = 0;
        link.buffer = 0;
    }
}

namespace {

FabricBlock with_routes(const Topology& topology) {
    const Routes routes = compute_routes(build_image(topology, nullptr).image());
    return build_image(topology, &routes);
}

} // namespace

FabricBlock load_fabric(const std::string& path_or_name, bool ideal) {
    FabricBlock block = with_routes(load_topology(find_fabric(path_or_name)));
    if (ideal) strip_costs(block.image());
    return block;
}

FabricBlock parse_fabric(const std::string& text, const std::string& file) {
    return with_routes(parse_topology(text, file));
}

} // namespace softhca
