// Internal to the fabric folder: the parser behind parse_topology, shared by topology.cc and topology_links.cc.
#pragma once
#include "fabric/topology.h"
#include "fabric/yaml_reader.h"

#include <map>
#include <optional>
#include <set>

namespace softhca {

class TopologyParser {
public:
    explicit TopologyParser(const std::string& file) { topology_.file = file; }
    Topology parse(const YAML::Node& document);

private:
    // topology.cc
    static std::string short_name(const YamlValue& value, const std::string& name);
    void add_name(const YamlValue& value, const std::string& name); // nodes and switches share one name space
    void read_adapters(const YamlMap& root);
    [[nodiscard]] std::optional<uint32_t> adapter_type(const std::string& name) const;
    void read_nodes(const YamlMap& root);
    void add_node(const std::string& name, const std::vector<uint32_t>& types);
    void read_switches(const YamlMap& root);
    void read_routing(const YamlValue& value);

    // topology_links.cc
    struct LinkEntry; // one entry of `links`, expanded
    void read_links(const YamlMap& root);
    [[nodiscard]] LinkEntry read_link(const YamlValue& value, const Topology::Cable& defaults) const;
    // Ends named by "node[0-3]:[0-1]:1" or "leaf[1-4]:7"; port 0 of a switch = any free one.
    [[nodiscard]] std::vector<Topology::End> ends(const YamlValue& value) const;
    void ends_of_node(const YamlValue& value, uint32_t node, const std::vector<std::string>& parts,
                      std::vector<Topology::End>& out) const;
    void plug(const YamlValue& value, Topology::End& end, uint32_t cable);
    void assign_switch_port(const YamlValue& value, Topology::End& end, uint32_t cable);
    [[nodiscard]] std::string end_name(const Topology::End& end) const;
    void read_subnets(const YamlMap& root);
    void assign_subnets(const std::vector<uint32_t>& component, const YamlMap& root);

    Topology topology_;
    uint32_t default_lmc_ = 0;
    std::set<std::string> names_;
    std::map<std::string, uint32_t> node_index_, switch_index_;
    std::vector<std::vector<uint32_t>> switch_cable_; // by switch and port number: cable or kNone
};

int32_t read_drift(const YamlValue& value); // "20 ppm" -> ppb

} // namespace softhca
