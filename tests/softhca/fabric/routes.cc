#include "fabric/routes.h"

#include "fabric/names.h"
#include "fabric/subnet_manager.h"
#include "fabric/topology.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <optional>

namespace softhca {
namespace {

using CableDown = std::function<bool(uint32_t)>;

std::string id(char kind, uint64_t guid) {
    char text[32];
    std::snprintf(text, sizeof text, "%c-%016llx", kind, static_cast<unsigned long long>(guid));
    return text;
}

class SubnetRouter {
public:
    SubnetRouter(const FabricImage& image, uint32_t subnet, const RouteOptions& options, Routes& routes)
        : image_(image), index_(subnet), options_(options), routes_(routes), out_(routes.subnets[subnet]) {
        for (uint32_t s = 0; s < image.switches; ++s)
            if (image.sw(s).subnet == subnet) switches_.push_back(s);
        for (uint32_t p = 0; p < image.ports; ++p)
            if (image.port(p).subnet == subnet && image.port(p).cabled) ports_.push_back(p);
        lmc_ = ports_.empty() ? 0 : image.port(ports_[0]).lmc;
    }

    void route() {
        const auto start = std::chrono::steady_clock::now();
        const uint64_t lids = (uint64_t{ports_.size()} << lmc_) + switches_.size() + (1U << lmc_);
        if (lids > kMaxLid)
            throw FabricError("subnet " + std::to_string(index_) + " of fabric '" + image_.name + "' needs " +
                              std::to_string(lids) + " LIDs, a subnet has " + std::to_string(kMaxLid) +
                              ": use a smaller lmc or several subnets");
        if (switches_.empty())
            count_out();
        else
            ask_subnet_manager();
        out_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

private:
    // No switch, no choice: consecutive LIDs.
    void count_out() {
        uint32_t lid = 1U << lmc_;
        out_.engine = "-";
        for (const uint32_t p : ports_) {
            if (options_.keep_lids) lid = image_.port(p).lid;
            routes_.lid[p] = static_cast<uint16_t>(lid);
            lid += 1U << lmc_;
            out_.max_lid = std::max(out_.max_lid, static_cast<uint16_t>(lid - 1));
        }
        if (!ports_.empty()) out_.sm_lid = routes_.lid[ports_[0]];
    }

    [[nodiscard]] bool works(uint32_t link) const {
        return link != kNone && !(options_.cable_down && options_.cable_down(image_.link(link).cable));
    }

    // The switch that opensm runs on: the first of the part with most ports behind it.
    [[nodiscard]] uint32_t manager_switch() const {
        std::vector<uint32_t> part(image_.switches), weight(image_.switches, 0);
        std::iota(part.begin(), part.end(), 0U);
        const auto find_root = [&](uint32_t s) {
            while (part[s] != s) s = part[s] = part[part[s]];
            return s;
        };
        for (uint32_t l = 0; l < image_.links; ++l) {
            const LinkImage& link = image_.link(l);
            if (!works(l) || link.from_kind != EndKind::sw || link.to_kind != EndKind::sw) continue;
            const uint32_t a = find_root(link.from), b = find_root(link.to);
            part[std::max(a, b)] = std::min(a, b);
        }
        for (const uint32_t p : ports_)
            if (works(image_.port(p).link)) ++weight[find_root(image_.link(image_.port(p).link).to)];
        return *std::max_element(switches_.begin(), switches_.end(),
                                 [&](uint32_t a, uint32_t b) { return weight[find_root(a)] < weight[find_root(b)]; });
    }

    [[nodiscard]] std::string far_end(uint32_t link_index) const {
        const LinkImage& link = image_.link(link_index);
        if (link.to_kind == EndKind::sw)
            return "\"" + id('S', image_.sw(link.to).guid) + "\"[" + std::to_string(link.to_port) + "]";
        return "\"" + id('H', image_.device(image_.port(link.to).device).guid) + "\"[" + std::to_string(link.to_port) +
               "]";
    }

    static std::string guid_line(const char* kind, uint64_t guid) {
        char text[64];
        std::snprintf(text, sizeof text, "%s=0x%016llx\n", kind, static_cast<unsigned long long>(guid));
        return text;
    }

    // ibsim's format: per node its GUID, "Switch|Ca <ports> "<id>"", then "[port] "<id of the far end>"[port]".
    [[nodiscard]] SubnetTask describe() const {
        SubnetTask task;
        for (const uint32_t s : switches_) {
            const SwitchImage& sw = image_.sw(s);
            task.netlist += guid_line("switchguid", sw.guid) + "Switch " + std::to_string(sw.ports) + " \"" +
                            id('S', sw.guid) + "\"\n";
            for (uint32_t p = 1; p <= sw.ports; ++p)
                if (const uint32_t link = image_.at<uint32_t>(sw.port_link)[p]; works(link))
                    task.netlist += "[" + std::to_string(p) + "] " + far_end(link) + "\n";
            task.netlist += "\n";
            task.ports += sw.ports + 1;
        }
        uint32_t last_device = kNone;
        for (const uint32_t p : ports_) { // in the order of devices; a device's ports follow each other
            const PortImage& port = image_.port(p);
            const DeviceImage& device = image_.device(port.device);
            if (!works(port.link)) continue;
            if (port.device != last_device) {
                task.netlist += "\n" + guid_line("caguid", device.guid) + "Ca " + std::to_string(device.ports) + " \"" +
                                id('H', device.guid) + "\"\n";
                ++task.nodes;
                task.ports += device.ports + 1;
                last_device = port.device;
            }
            task.netlist += "[" + std::to_string(port.number) + "] " + far_end(port.link) + "\n";
        }
        task.netlist += "\n";
        task.switches = static_cast<uint32_t>(switches_.size());
        task.nodes += task.switches;
        const SwitchImage& manager = image_.sw(manager_switch());
        task.attach_to = id('S', manager.guid);
        task.attach_guid = manager.guid;
        task.engines = image_.routing;
        task.lmc = lmc_;
        task.prefix = image_.subnet(index_).prefix;
        if (options_.keep_lids) {
            for (const uint32_t p : ports_) task.lids[image_.port(p).guid] = image_.port(p).lid;
            for (const uint32_t s : switches_)
                if (const uint16_t lid = lid_of_switch(s)) task.lids[image_.sw(s).guid] = lid;
        }
        return task;
    }

    // A switch's table sends its own LID to port 0.
    [[nodiscard]] uint16_t lid_of_switch(uint32_t s) const {
        const auto* table = image_.at<uint8_t>(image_.sw(s).lft);
        for (uint32_t lid = 1; lid <= image_.subnet(index_).max_lid; ++lid)
            if (table[lid] == 0) return static_cast<uint16_t>(lid);
        return 0;
    }

    void ask_subnet_manager() {
        const SubnetManagerPrograms programs = find_subnet_manager();
        const SubnetTask task = describe();
        const std::string key = cache_key(programs, task);
        SubnetTables tables;
        out_.cached = options_.use_cache && read_cached_tables(key, tables) && take(tables).empty();
        if (out_.cached) return;
        tables = run_subnet_manager(programs, task);
        if (const std::string reason = take(tables); !reason.empty())
            throw FabricError("opensm's tables for fabric '" + std::string(image_.name) + "' are unusable: " + reason);
        if (options_.use_cache) write_cached_tables(key, tables);
    }

    // Checks the tables and puts them into routes_. Returns what is wrong with them, or nothing.
    std::string take(const SubnetTables& tables) {
        const uint16_t old_max = image_.subnet(index_).max_lid;
        uint32_t max_lid = options_.keep_lids ? old_max : 0;
        for (const auto& [guid, table] : tables.tables)
            max_lid = std::max(max_lid, static_cast<uint32_t>(table.size()) - 1);
        std::vector<bool> taken(kMaxLid + 2);
        for (const uint32_t p : ports_) {
            const auto found = tables.lids.find(image_.port(p).guid);
            const uint32_t lid = options_.keep_lids           ? image_.port(p).lid
                                 : found == tables.lids.end() ? 0
                                                              : found->second;
            const std::string name = port_name(image_, p);
            if (lid == 0) return name + " has no LID";
            if (options_.keep_lids && found != tables.lids.end() && found->second != lid)
                return name + " got another LID";
            if (lid % (1U << lmc_) != 0)
                return "LID " + std::to_string(lid) + " of " + name + " is not aligned to its LMC";
            max_lid = std::max(max_lid, lid + (1U << lmc_) - 1);
            if (max_lid > kMaxLid) return "LID " + std::to_string(max_lid) + " is out of range";
            for (uint32_t l = lid; l < lid + (1U << lmc_); ++l) {
                if (taken[l]) return "LID " + std::to_string(l) + " is given twice";
                taken[l] = true;
            }
            routes_.lid[p] = static_cast<uint16_t>(lid);
        }
        if (options_.keep_lids && max_lid > old_max) return "it has new LIDs";
        for (const uint32_t s : switches_) {
            const auto found = tables.tables.find(image_.sw(s).guid);
            std::vector<uint8_t>& table = routes_.table[s];
            if (found != tables.tables.end()) {
                table = found->second;
            } else if (options_.keep_lids) { // out of the subnet manager's reach
                const auto* old = image_.at<uint8_t>(image_.sw(s).lft);
                table.assign(old, old + old_max + 1);
            } else {
                return std::string("switch ") + image_.sw(s).name + " has no table";
            }
            table.resize(max_lid + 1, kNoRoute);
        }
        out_.max_lid = static_cast<uint16_t>(max_lid);
        out_.sm_lid = tables.sm_lid;
        out_.engine = tables.engine;
        out_.warning = tables.warning;
        return {};
    }

    const FabricImage& image_;
    uint32_t index_;
    const RouteOptions& options_;
    Routes& routes_;
    Routes::Subnet& out_;
    std::vector<uint32_t> switches_, ports_;
    uint32_t lmc_ = 0;
};

} // namespace

Routes compute_routes(const FabricImage& image, const RouteOptions& options) {
    Routes routes;
    routes.subnets.resize(image.subnets);
    routes.lid.resize(image.ports, 0);
    routes.table.resize(image.switches);
    for (uint32_t s = 0; s < image.subnets; ++s) SubnetRouter(image, s, options, routes).route();
    return routes;
}

void apply_tables(FabricImage& image, const Routes& routes) {
    for (uint32_t s = 0; s < image.subnets; ++s)
        image.at<SubnetImage>(image.subnets_at)[s].sm_lid = routes.subnets[s].sm_lid;
    for (uint32_t s = 0; s < image.switches; ++s) {
        const SwitchImage& sw = image.sw(s);
        auto* table = image.at<uint8_t>(sw.lft);
        const size_t size = std::min<size_t>(routes.table[s].size(), image.subnet(sw.subnet).max_lid + 1U);
        for (size_t lid = 0; lid < size; ++lid) // single byte stores beside readers of other processes
            std::atomic_ref<uint8_t>(table[lid]).store(routes.table[s][lid], std::memory_order_relaxed);
    }
}

Routes reroute(FabricImage& image, const CableDown& cable_down) {
    RouteOptions options;
    options.cable_down = cable_down;
    options.keep_lids = true;
    Routes routes = compute_routes(image, options);
    apply_tables(image, routes);
    return routes;
}

} // namespace softhca
