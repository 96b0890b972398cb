// One run of the real subnet manager: opensm, attached to ibsim, sweeps a described subnet once and leaves its tables.
// Several runs at once do not meet: each has its own folder and its own abstract socket names.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace softhca {

// What opensm is to route. `netlist` is in ibsim's format (that of ibnetdiscover).
struct SubnetTask {
    std::string netlist;
    std::string attach_to;    // node of the netlist where opensm runs; a switch, as in a managed switch
    uint64_t attach_guid = 0; // its GUID
    std::string engines;      // -R
    uint32_t lmc = 0;         // -l
    uint64_t prefix = 0;
    uint32_t nodes = 0, switches = 0, ports = 0; // for ibsim's table sizes
    std::map<uint64_t, uint16_t> lids;           // base LIDs by GUID that are to stay; empty = opensm chooses
};

struct SubnetTables {
    uint16_t sm_lid = 0;
    std::string engine, warning;
    std::map<uint64_t, uint16_t> lids;               // base LID by port GUID (switches: port 0)
    std::map<uint64_t, std::vector<uint8_t>> tables; // out port by LID, by switch GUID; 0xff = no route; may be short
};

// Where opensm and ibsim are. Throws FabricError naming the package of what is missing.
struct SubnetManagerPrograms {
    std::string opensm, ibsim, umad2sim, version;
};
SubnetManagerPrograms find_subnet_manager();

// Throws FabricError if a program fails or `timeout` passes (everything is killed then).
SubnetTables run_subnet_manager(const SubnetManagerPrograms& programs, const SubnetTask& task,
                                std::chrono::seconds timeout = std::chrono::seconds(60));

// Results of former runs, ${XDG_CACHE_HOME:-~/.cache}/softhca/<key>.routes. A file that is missing, torn or of another
// version counts as not there; a cache that cannot be written is no error.
std::string cache_key(const SubnetManagerPrograms& programs, const SubnetTask& task);
bool read_cached_tables(const std::string& key, SubnetTables& tables);
void write_cached_tables(const std::string& key, const SubnetTables& tables);

} // namespace softhca
