// Small fabrics for tests, built by hand: nodes with one adapter each, switches, cables, shortest-path forwarding
// tables. Port i (in order of creation) has LIDs (i + 1) << lmc ...
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "core/liveness.h"
#include "core/segment.h"
#include "fabric/network.h"
#include "softhca/image.h"

namespace softhca::test {

inline constexpr uint64_t kGB = 1'000'000'000; // bytes/s: 8 Gb/s, one byte per nanosecond

struct Wire {
    uint64_t rate = kGB;
    uint32_t latency_ns = 100;
    uint32_t buffer = 32768;
};

// The AdapterLimits that tests set; the rest is free.
struct Costs {
    uint32_t qp_cache_entries = 0, qp_cache_miss_ns = 0, message_ns = 0, qp_message_ns = 0, engines_per_port = 0,
             engine_message_ns = 0;
    uint64_t engine_rate = 0, bus_rate = 0;
    uint32_t wire_header = 0;
    uint32_t dct_contexts = 0, dc_connect_ns = 0, dc_disconnect_ns = 0, dc_busy_backoff_ns = 0, dc_request_ns = 0;
    bool timestamps = false;
    uint32_t wait_ns = 0, wait_poll_ns = 0, wait_limit = 0;
    operator AdapterLimits() const {
        AdapterLimits l{};
        l.qp_cache_entries = qp_cache_entries;
        l.qp_cache_miss_ns = qp_cache_miss_ns;
        l.message_ns = message_ns;
        l.qp_message_ns = qp_message_ns;
        l.engines_per_port = engines_per_port;
        l.engine_message_ns = engine_message_ns;
        l.engine_rate = engine_rate;
        l.bus_rate = bus_rate;
        l.wire_header = wire_header;
        l.has_dc = 1;
        l.has_timestamps = timestamps;
        l.dct_contexts = dct_contexts;
        l.dc_connect_ns = dc_connect_ns;
        l.dc_disconnect_ns = dc_disconnect_ns;
        l.dc_busy_backoff_ns = dc_busy_backoff_ns;
        l.dc_request_ns = dc_request_ns;
        l.has_wait = 1;
        l.wait_ns = wait_ns;
        l.wait_poll_ns = wait_poll_ns;
        l.wait_limit = wait_limit;
        return l;
    }
};

class SmallFabric {
public:
    explicit SmallFabric(uint8_t lmc = 0, bool crossbar = false) : lmc_(lmc), crossbar_(crossbar) {}

    // A node with an adapter of `ports` ports; the index of its first port.
    uint32_t node(Costs limits = {}, uint32_t ports = 1) {
        DeviceImage d{};
        d.node = static_cast<uint32_t>(devices_.size());
        d.first_port = static_cast<uint32_t>(ports_.size());
        d.ports = ports;
        d.guid = 0x100 + devices_.size();
        d.limits = limits;
        for (uint32_t i = 0; i < ports; ++i) {
            PortImage p{};
            p.device = static_cast<uint32_t>(devices_.size());
            p.number = i + 1;
            p.link = kNone;
            p.guid = 0x1000 + ports_.size();
            p.lid = static_cast<uint16_t>((ports_.size() + 1) << lmc_);
            p.lmc = lmc_;
            p.mtu = 4; // 2048
            p.cabled = 1;
            p.pkeys[0] = kDefaultPkey;
            ports_.push_back(p);
        }
        devices_.push_back(d);
        return d.first_port;
    }
    uint32_t sw() {
        switches_.emplace_back();
        return static_cast<uint32_t>(switches_.size()) - 1;
    }
    // Links of port <-> switch, switch <-> switch, port <-> port; the index of the first end's outgoing link.
    uint32_t port_to_switch(uint32_t port, uint32_t sw, Wire w = {}) {
        return cable(EndKind::port, port, EndKind::sw, sw, w);
    }
    uint32_t switch_to_switch(uint32_t a, uint32_t b, Wire w = {}) { return cable(EndKind::sw, a, EndKind::sw, b, w); }
    uint32_t port_to_port(uint32_t a, uint32_t b, Wire w = {}) { return cable(EndKind::port, a, EndKind::port, b, w); }
    uint32_t lid(uint32_t port) const { return ports_[port].lid; }

    // The image, in words so that it is aligned.
    std::vector<uint64_t> build() {
        const auto max_lid = static_cast<uint32_t>(((ports_.size() + 1) << lmc_) + (1u << lmc_));
        uint64_t bytes = sizeof(FabricImage);
        const auto take = [&](uint64_t n) {
            const uint64_t at = bytes;
            bytes += (n + 7) / 8 * 8;
            return at;
        };
        FabricImage head{};
        head.magic = kImageMagic;
        head.version = kImageVersion;
        head.nodes = head.devices = static_cast<uint32_t>(devices_.size());
        head.ports = static_cast<uint32_t>(ports_.size());
        head.subnets = 1;
        head.switches = static_cast<uint32_t>(switches_.size());
        head.links = static_cast<uint32_t>(links_.size());
        head.cables = head.links / 2;
        head.chunk_mtus = 4;
        head.nodes_at = take(sizeof(NodeImage) * devices_.size());
        head.devices_at = take(sizeof(DeviceImage) * devices_.size());
        head.ports_at = take(sizeof(PortImage) * ports_.size());
        head.subnets_at = take(sizeof(SubnetImage));
        head.switches_at = take(sizeof(SwitchImage) * switches_.size());
        head.links_at = take(sizeof(LinkImage) * links_.size());
        const uint64_t lid_table = take(sizeof(uint32_t) * (max_lid + 1));
        std::vector<std::pair<uint64_t, uint64_t>> tables; // port_link, lft
        for (const Switch& s : switches_) {
            const uint64_t port_link = take(sizeof(uint32_t) * (s.out.size() + 1));
            tables.emplace_back(port_link, take(max_lid + 1));
        }
        head.bytes = bytes;
        std::vector<uint64_t> words((bytes + 7) / 8);
        FabricImage& image = *reinterpret_cast<FabricImage*>(words.data());
        image = head;
        for (uint32_t i = 0; i < head.nodes; ++i) {
            NodeImage& n = image.at<NodeImage>(image.nodes_at)[i];
            std::snprintf(n.name, sizeof n.name, "node%u", i);
            n.first_device = i;
            n.devices = 1;
        }
        std::copy(devices_.begin(), devices_.end(), image.at<DeviceImage>(image.devices_at));
        std::copy(ports_.begin(), ports_.end(), image.at<PortImage>(image.ports_at));
        std::copy(links_.begin(), links_.end(), image.at<LinkImage>(image.links_at));
        SubnetImage& subnet = *image.at<SubnetImage>(image.subnets_at);
        subnet.prefix = 0xfe80000000000000u;
        subnet.max_lid = static_cast<uint16_t>(max_lid);
        subnet.crossbar = crossbar_;
        subnet.lid_to_port = lid_table;
        std::fill_n(image.at<uint32_t>(lid_table), max_lid + 1, kNone);
        for (uint32_t p = 0; p < head.ports; ++p)
            std::fill_n(image.at<uint32_t>(lid_table) + ports_[p].lid, 1u << lmc_, p);
        for (uint32_t s = 0; s < head.switches; ++s) {
            SwitchImage& to = image.at<SwitchImage>(image.switches_at)[s];
            std::snprintf(to.name, sizeof to.name, "switch%u", s);
            to.ports = static_cast<uint32_t>(switches_[s].out.size());
            to.port_link = tables[s].first;
            to.lft = tables[s].second;
            image.at<uint32_t>(to.port_link)[0] = kNone;
            std::copy(switches_[s].out.begin(), switches_[s].out.end(), image.at<uint32_t>(to.port_link) + 1);
            std::fill_n(image.at<uint8_t>(to.lft), max_lid + 1, kNoRoute);
        }
        for (uint32_t p = 0; p < head.ports; ++p) fill_routes(image, p);
        return words;
    }

private:
    struct Switch {
        std::vector<uint32_t> out; // links of ports 1, 2, ...
    };
    uint32_t cable(EndKind ka, uint32_t a, EndKind kb, uint32_t b, Wire w) {
        const auto first = static_cast<uint32_t>(links_.size());
        const auto plug = [&](EndKind k, uint32_t i, uint32_t link) -> uint8_t {
            if (k == EndKind::port) {
                ports_[i].link = link;
                return static_cast<uint8_t>(ports_[i].number);
            }
            switches_[i].out.push_back(link);
            return static_cast<uint8_t>(switches_[i].out.size());
        };
        LinkImage l{};
        l.cable = first / 2;
        l.latency_ns = w.latency_ns;
        l.rate = w.rate;
        l.buffer = w.buffer;
        const uint8_t pa = plug(ka, a, first), pb = plug(kb, b, first + 1);
        l.reverse = first + 1;
        l.from = a, l.from_kind = ka, l.from_port = pa;
        l.to = b, l.to_kind = kb, l.to_port = pb;
        links_.push_back(l);
        l.reverse = first;
        l.from = b, l.from_kind = kb, l.from_port = pb;
        l.to = a, l.to_kind = ka, l.to_port = pa;
        links_.push_back(l);
        return first;
    }
    // Breadth first from the destination.
    void fill_routes(FabricImage& image, uint32_t port) {
        std::vector<bool> seen(switches_.size());
        std::deque<uint32_t> todo;
        const auto reach = [&](uint32_t link) { // `link` leads towards the port
            const LinkImage& l = links_[link];
            if (l.from_kind != EndKind::sw || seen[l.from]) return;
            seen[l.from] = true;
            for (uint32_t i = 0; i < 1u << lmc_; ++i)
                image.at<uint8_t>(image.sw(l.from).lft)[ports_[port].lid + i] = l.from_port;
            todo.push_back(l.from);
        };
        if (ports_[port].link != kNone) reach(links_[ports_[port].link].reverse);
        while (!todo.empty()) {
            const uint32_t s = todo.front();
            todo.pop_front();
            for (const uint32_t out : switches_[s].out) reach(links_[out].reverse);
        }
    }
    uint8_t lmc_;
    bool crossbar_;
    std::vector<DeviceImage> devices_;
    std::vector<PortImage> ports_;
    std::vector<Switch> switches_;
    std::vector<LinkImage> links_;
};

// A segment of this process alone, or shared with its children.
class TestSegment {
public:
    TestSegment(const std::vector<uint64_t>& image, bool virtual_time) : memory_(map_private_segment()) {
        format_segment(memory_, *reinterpret_cast<const FabricImage*>(image.data()), "test", virtual_time);
    }
    ~TestSegment() { unmap_segment(memory_); }
    TestSegment(const TestSegment&) = delete;
    Segment& operator*() { return *static_cast<Segment*>(memory_); }
    Segment* operator->() { return static_cast<Segment*>(memory_); }

private:
    void* memory_;
};

// Sends `messages` messages of `bytes` to one LID, as fast as the network pulls them.
class Flow : public Source {
public:
    Flow(uint32_t port, uint32_t dlid, uint64_t bytes, uint64_t messages, uint32_t qpn = 100)
        : bytes_(bytes), dlid_(dlid), messages_left(messages) {
        source_port = port;
        source_qpn = qpn;
    }
    bool next_chunk(Chunk& c, Nanos) override {
        if (messages_left == 0) return false;
        c.source = this;
        c.src_port = source_port;
        c.dlid = dlid_;
        c.first_of_message = offset_ == 0;
        c.payload = static_cast<uint32_t>(std::min<uint64_t>(bytes_ - offset_, 4 * kMtu));
        c.packets = static_cast<uint16_t>(std::max<uint32_t>(1, (c.payload + kMtu - 1) / kMtu));
        c.item = sequence_++;
        offset_ += c.payload;
        c.last_of_message = offset_ == bytes_;
        if (c.last_of_message) {
            offset_ = 0;
            --messages_left;
        }
        return true;
    }
    void chunk_injected(Chunk& c) override {
        ++injected_chunks;
        last_injected = c.injected;
    }
    void chunk_arrived(Chunk& c) override {
        const auto lost = static_cast<uint32_t>(__builtin_popcountll(c.lost));
        lost_packets += lost;
        packets += c.packets;
        if (lost == 0) bytes += c.payload;
        if (c.item != arrived_chunks) in_order = false;
        if (injected_chunks <= arrived_chunks || c.arrived < c.injected) injected_first = false;
        ++arrived_chunks;
        if (arrived_chunks == 1) first_arrival = c.arrived;
        last_arrival = c.arrived;
        if (lost == 0) last_good = c.arrived;
    }
    [[nodiscard]] bool done() const { return messages_left == 0 && in_flight == 0; }

    static constexpr uint32_t kMtu = 2048, kChunk = 4 * kMtu;
    uint64_t bytes_;
    uint32_t dlid_;
    uint64_t messages_left;
    uint64_t bytes = 0, packets = 0, lost_packets = 0, injected_chunks = 0, arrived_chunks = 0;
    Nanos first_arrival = 0, last_arrival = 0, last_good = 0, last_injected = 0;
    bool in_order = true, injected_first = true;

private:
    uint64_t offset_ = 0, sequence_ = 0;
};

} // namespace softhca::test
