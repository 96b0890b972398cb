// The file's sections, one function each. Links and subnets, which need everything else, are in topology_links.cc.
#include "fabric/topology.h"

#include "fabric/topology_parser.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace softhca {
namespace {

AdapterType default_adapter() {
    AdapterType type;
    type.name = "hca";
    type.limits.has_dc = type.limits.has_timestamps = type.limits.has_apm = type.limits.has_wait = 1;
    return type;
}

void read_time(const YamlMap& map, const char* key, uint32_t& field) {
    if (const auto v = map.find(key)) field = v->time_ns();
}
void read_count(const YamlMap& map, const char* key, uint32_t& field) {
    if (const auto v = map.find(key)) field = static_cast<uint32_t>(v->count(0, UINT32_MAX));
}
void read_rate(const YamlMap& map, const char* key, uint64_t& field) {
    if (const auto v = map.find(key)) field = v->rate().bytes_per_second;
}
void read_flag(const YamlMap& map, const char* key, uint8_t& field) {
    if (const auto v = map.find(key)) field = v->boolean();
}

std::vector<uint16_t> read_pkeys(const YamlValue& value) {
    std::vector<uint16_t> keys;
    for (const YamlValue& e : value.elements()) {
        const auto key = parse_pkey(e.text());
        if (!key) e.refuse(allowed_pkey);
        keys.push_back(*key);
    }
    if (keys.empty() || keys.size() > kMaxPkeys)
        value.refuse("a list of 1 to " + std::to_string(kMaxPkeys) + " partition keys");
    return keys;
}

AdapterType read_adapter(const YamlValue& value, const std::string& name) {
    const YamlMap map(value, {"ports",
                              "mtu",
                              "has_dc",
                              "has_timestamps",
                              "has_apm",
                              "qp_cache_entries",
                              "qp_cache_miss",
                              "message",
                              "qp_message",
                              "engines_per_port",
                              "engine_message",
                              "engine_rate",
                              "bus_rate",
                              "dct_contexts",
                              "dc_connect",
                              "dc_disconnect",
                              "dc_busy_backoff",
                              "command_create",
                              "command_modify",
                              "command_query",
                              "command_reg",
                              "wire_header",
                              "clock_offset",
                              "clock_drift",
                              "dc_request",
                              "command_destroy",
                              "has_wait",
                              "wait",
                              "wait_poll",
                              "wait_limit",
                              "pkeys"});
    AdapterType type = default_adapter();
    type.name = name;
    if (const auto v = map.find("ports")) type.ports = static_cast<uint32_t>(v->count(1, 2));
    if (const auto v = map.find("mtu")) {
        const uint64_t mtu = v->size(UINT32_MAX);
        if (mtu != 256 && mtu != 512 && mtu != 1024 && mtu != 2048 && mtu != 4096)
            v->refuse("256, 512, 1024, 2048 or 4096");
        type.mtu = static_cast<uint32_t>(mtu);
    }
    AdapterLimits& l = type.limits;
    read_flag(map, "has_dc", l.has_dc);
    read_flag(map, "has_timestamps", l.has_timestamps);
    read_flag(map, "has_apm", l.has_apm);
    read_flag(map, "has_wait", l.has_wait);
    read_time(map, "wait", l.wait_ns);
    read_time(map, "wait_poll", l.wait_poll_ns);
    read_count(map, "wait_limit", l.wait_limit);
    read_count(map, "qp_cache_entries", l.qp_cache_entries);
    read_time(map, "qp_cache_miss", l.qp_cache_miss_ns);
    read_time(map, "message", l.message_ns);
    read_time(map, "qp_message", l.qp_message_ns);
    read_count(map, "engines_per_port", l.engines_per_port);
    read_time(map, "engine_message", l.engine_message_ns);
    read_rate(map, "engine_rate", l.engine_rate);
    read_rate(map, "bus_rate", l.bus_rate);
    read_count(map, "dct_contexts", l.dct_contexts);
    read_time(map, "dc_connect", l.dc_connect_ns);
    read_time(map, "dc_disconnect", l.dc_disconnect_ns);
    read_time(map, "dc_busy_backoff", l.dc_busy_backoff_ns);
    read_time(map, "dc_request", l.dc_request_ns);
    read_time(map, "command_create", l.command_create_ns);
    read_time(map, "command_modify", l.command_modify_ns);
    read_time(map, "command_query", l.command_query_ns);
    read_time(map, "command_reg", l.command_reg_ns);
    l.command_destroy_ns = l.command_create_ns;
    read_time(map, "command_destroy", l.command_destroy_ns);
    if (const auto v = map.find("wire_header")) l.wire_header = static_cast<uint32_t>(v->size(1024));
    if (const auto v = map.find("clock_offset")) l.clock_offset_ns = v->signed_time_ns();
    if (const auto v = map.find("clock_drift")) l.clock_drift_ppb = read_drift(*v);
    if (const auto v = map.find("pkeys")) type.pkeys = read_pkeys(*v);
    return type;
}

HostImage read_host(const YamlValue& value) {
    const YamlMap map(value, {"post", "completion", "receive", "poll_miss", "poll_hit", "copy", "commands"});
    HostImage host{};
    read_time(map, "post", host.post_ns);
    read_time(map, "completion", host.completion_ns);
    read_time(map, "receive", host.receive_ns);
    read_time(map, "poll_miss", host.poll_miss_ns);
    read_time(map, "poll_hit", host.poll_hit_ns);
    read_rate(map, "copy", host.copy_rate);
    if (const auto v = map.find("commands")) host.commands = v->boolean();
    return host;
}

} // namespace

int32_t read_drift(const YamlValue& value) {
    std::istringstream text(value.text());
    double number = 0;
    std::string unit, rest;
    text >> number >> unit;
    const double ppb = unit == "ppm" ? number * 1000 : number;
    if (text.fail() || text >> rest || (unit != "ppm" && unit != "ppb") || ppb > 1e9 || ppb < -5e8)
        value.refuse("a drift like 20 ppm or -500 ppb");
    return static_cast<int32_t>(ppb);
}

std::string TopologyParser::short_name(const YamlValue& value, const std::string& name) {
    const bool plain = std::all_of(name.begin(), name.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
    if (!plain || name.size() > 31) value.fail("'" + name + "': names are 1 to 31 letters, digits, '_', '-' or '.'");
    return name;
}

void TopologyParser::read_adapters(const YamlMap& root) {
    if (const auto section = root.find("adapters")) {
        if (!section->node().IsMap()) section->refuse("a mapping of adapter type names to their properties");
        for (const auto& pair : section->node()) {
            const YamlValue key(pair.first, section->key(), &topology_.file);
            const std::string name = short_name(key, key.text());
            if (adapter_type(name)) key.fail("adapter type '" + name + "' is given twice");
            topology_.adapter_types.push_back(
                read_adapter(YamlValue(pair.second, "adapters." + name, &topology_.file), name));
        }
    }
    if (!adapter_type("hca")) topology_.adapter_types.push_back(default_adapter());
}

std::optional<uint32_t> TopologyParser::adapter_type(const std::string& name) const {
    for (uint32_t i = 0; i < topology_.adapter_types.size(); ++i)
        if (topology_.adapter_types[i].name == name) return i;
    return std::nullopt;
}

void TopologyParser::add_name(const YamlValue& value, const std::string& name) {
    if (!names_.insert(short_name(value, name)).second) value.fail("the name '" + name + "' is used twice");
}

void TopologyParser::read_nodes(const YamlMap& root) {
    for (const YamlValue& entry : root.need("nodes").elements()) {
        const YamlMap map(entry, {"name", "adapters"});
        std::vector<uint32_t> types;
        if (const auto adapters = map.find("adapters")) {
            for (const YamlValue& e : adapters->elements()) {
                const auto type = adapter_type(e.text());
                std::string known;
                for (const AdapterType& t : topology_.adapter_types) known += (known.empty() ? "" : ", ") + t.name;
                if (!type) e.refuse("adapter types of this file: " + known);
                types.push_back(*type);
            }
            if (types.empty() || types.size() > 16) adapters->refuse("a list of 1 to 16 adapter types");
        } else {
            types.push_back(*adapter_type("hca"));
        }
        for (const std::string& name : map.need("name").names()) {
            add_name(map.need("name"), name);
            add_node(name, types);
        }
    }
    if (topology_.nodes.empty()) root.need("nodes").refuse("at least one node");
}

void TopologyParser::add_node(const std::string& name, const std::vector<uint32_t>& types) {
    Topology& t = topology_;
    const auto node = static_cast<uint32_t>(t.nodes.size());
    t.nodes.push_back({name, static_cast<uint32_t>(t.devices.size()), static_cast<uint32_t>(types.size())});
    for (uint32_t i = 0; i < types.size(); ++i) {
        const auto device = static_cast<uint32_t>(t.devices.size());
        t.devices.push_back({node, i, types[i], static_cast<uint32_t>(t.ports.size())});
        for (uint32_t p = 1; p <= t.adapter_types[types[i]].ports; ++p) t.ports.push_back({device, p, kNone, kNone});
    }
}

void TopologyParser::read_switches(const YamlMap& root) {
    const auto section = root.find("switches");
    if (!section) return;
    for (const YamlValue& entry : section->elements()) {
        const YamlMap map(entry, {"name", "ports", "latency"});
        Topology::Switch sw;
        sw.ports = static_cast<uint32_t>(map.need("ports").count(1, 254));
        if (const auto v = map.find("latency")) sw.latency_ns = v->time_ns();
        for (const std::string& name : map.need("name").names()) {
            add_name(map.need("name"), name);
            sw.name = name;
            topology_.switches.push_back(sw);
        }
    }
}

Topology TopologyParser::parse(const YAML::Node& document) {
    const YamlMap root(YamlValue(document, "", &topology_.file),
                       {"name", "description", "ideal", "dynamic_nodes", "chunk_mtus", "lmc", "routing", "adapters",
                        "nodes", "switches", "link_defaults", "links", "subnets", "host"});
    topology_.name = std::filesystem::path(topology_.file).stem();
    if (const auto v = root.find("name")) topology_.name = v->text();
    if (topology_.name.size() > 63) root.need("name").fail("a fabric's name has at most 63 letters");
    if (const auto v = root.find("ideal")) topology_.ideal = v->boolean();
    if (const auto v = root.find("dynamic_nodes")) topology_.dynamic_nodes = v->boolean();
    if (const auto v = root.find("chunk_mtus")) topology_.chunk_mtus = static_cast<uint32_t>(v->count(1, 1024));
    if (const auto v = root.find("lmc")) default_lmc_ = static_cast<uint32_t>(v->count(0, 7));
    topology_.routing = "minhop";
    if (const auto v = root.find("routing")) read_routing(*v);
    if (const auto v = root.find("host")) topology_.host = read_host(*v);
    read_adapters(root);
    read_nodes(root);
    read_switches(root);
    read_links(root);
    read_subnets(root);
    return std::move(topology_);
}

void TopologyParser::read_routing(const YamlValue& value) {
    // Those of opensm that need no further input file.
    static constexpr const char* engines[] = {"minhop", "updn",   "dnup", "ftree", "lash",
                                              "dor",    "dfsssp", "sssp", "nue"};
    topology_.routing.clear();
    for (const YamlValue& e : value.elements()) {
        const std::string name = e.text();
        std::string all;
        for (const char* known : engines) all += (all.empty() ? "" : ", ") + std::string(known);
        if (std::find(std::begin(engines), std::end(engines), name) == std::end(engines))
            e.refuse("one or a list of opensm's routing engines: " + all);
        topology_.routing += (topology_.routing.empty() ? "" : ",") + name;
    }
    if (topology_.routing.empty() || topology_.routing.size() >= sizeof(FabricImage::routing))
        value.refuse("one to five routing engines");
}

Topology parse_topology(const std::string& text, const std::string& file) {
    try {
        return TopologyParser(file).parse(YAML::Load(text));
    } catch (const YAML::Exception& e) { // syntax
        throw FabricError(file + ":" + std::to_string(e.mark.line + 1) + ": not valid YAML: " + e.msg);
    }
}

Topology load_topology(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) throw FabricError(file.string() + ": cannot read this fabric file");
    return parse_topology(text.str(), file.string());
}

// ../share/ucx-mp/fabrics beside the executable: build trees and installations look alike.
static std::filesystem::path fabric_folder() {
    namespace fs = std::filesystem;
    std::error_code none;
    return fs::read_symlink("/proc/self/exe", none).parent_path().parent_path() / "share" / "ucx-mp" / "fabrics";
}

std::filesystem::path find_fabric(const std::string& path_or_name) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const bool looks_like_path = path_or_name.find('/') != std::string::npos || path_or_name.ends_with(".yaml");
    if (fs::is_regular_file(path_or_name, ignored)) return path_or_name;
    if (looks_like_path) throw FabricError(path_or_name + ": no such fabric file");
    const char* variable = std::getenv("SOFTHCA_FABRICS");
    const fs::path folder = variable && *variable ? fs::path(variable) : fabric_folder();
    fs::path file = folder / (path_or_name + ".yaml");
    if (fs::is_regular_file(file, ignored)) return file;
    std::vector<std::string> known;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".yaml") known.push_back(entry.path().stem());
    std::sort(known.begin(), known.end());
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    throw FabricError("fabric '" + path_or_name + "' is neither a file nor one of those in " + folder.string() + " (" +
                      (list.empty() ? "none there; set SOFTHCA_FABRICS" : list) + ")");
}

} // namespace softhca
