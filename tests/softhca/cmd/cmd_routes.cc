#include "cmd/cmd_routes.h"

#include "fabric/image_builder.h"
#include "fabric/names.h"
#include "fabric/routes.h"
#include "fabric/trace.h"
#include "session/client.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>

namespace softhca {
namespace {

struct RoutesArguments {
    std::string fabric, session;
    std::vector<std::string> down; // pairs of cable ends
    bool dump = false, no_cache = false;
};

struct TraceArguments {
    std::string fabric, session, source, destination, lid;
    std::vector<std::string> down;
};

std::string default_fabric() {
    const char* variable = std::getenv("SOFTHCA_FABRIC");
    return variable && *variable ? variable : "ideal-2rail";
}

// Routes with all cables, then, if some are taken down, the re-route that follows: LIDs stay.
FabricBlock route(const std::string& fabric, const std::vector<std::string>& down, bool use_cache, Routes& routes) {
    const Topology topology = load_topology(find_fabric(fabric));
    RouteOptions options;
    options.use_cache = use_cache;
    routes = compute_routes(build_image(topology, nullptr).image(), options);
    FabricBlock block = build_image(topology, &routes);
    if (down.empty()) return block;
    std::set<uint32_t> cables;
    for (size_t i = 0; i + 1 < down.size(); i += 2)
        for (const uint32_t c : find_cables(block.image(), down[i], down[i + 1])) cables.insert(c);
    options.keep_lids = true;
    options.cable_down = [&](uint32_t cable) { return cables.contains(cable); };
    routes = compute_routes(block.image(), options);
    apply_tables(block.image(), routes);
    return block;
}

void print_summary(const FabricImage& image, const Routes& routes) {
    std::printf("fabric %s: %u nodes, %u adapters, %u ports, %u switches, %u cables, %u subnet%s%s\n", image.name,
                image.nodes, image.devices, image.ports, image.switches, image.cables, image.subnets,
                image.subnets == 1 ? "" : "s", image.ideal ? ", ideal" : "");
    for (uint32_t s = 0; s < image.subnets; ++s) {
        const SubnetImage& subnet = image.subnet(s);
        uint32_t ports = 0, switches = 0, lids = 0;
        for (uint32_t p = 0; p < image.ports; ++p) {
            const PortImage& port = image.port(p);
            if (port.subnet != s || port.lid == 0) continue;
            ++ports;
            lids += 1U << port.lmc;
        }
        for (uint32_t w = 0; w < image.switches; ++w) switches += image.sw(w).subnet == s;
        std::printf("  subnet %u prefix 0x%016llx: %u ports with %u LIDs (%u each), %u switches, LIDs up to %u, ", s,
                    static_cast<unsigned long long>(subnet.prefix), ports, lids, ports ? lids / ports : 0, switches,
                    subnet.max_lid);
        const Routes::Subnet& how = routes.subnets[s];
        if (how.engine == "-")
            std::printf("%s: no tables needed\n", subnet.crossbar ? "crossbar" : "no switches");
        else
            std::printf("%s%s, %.2f s\n", how.engine.c_str(), how.cached ? ", cached" : "", how.seconds);
        if (!how.warning.empty()) std::fprintf(stderr, "warning: %s\n", how.warning.c_str());
    }
}

void print_tables(const FabricImage& image) {
    for (uint32_t s = 0; s < image.subnets; ++s) {
        std::printf("%ssubnet %u\n", s == 0 ? "" : "\n", s);
        for (uint32_t p = 0; p < image.ports; ++p) {
            const PortImage& port = image.port(p);
            if (port.subnet == s && port.lid != 0)
                std::printf("  LID %u-%u  %s\n", port.lid, port.lid + (1U << port.lmc) - 1,
                            port_name(image, p).c_str());
        }
        for (uint32_t w = 0; w < image.switches; ++w) {
            const SwitchImage& sw = image.sw(w);
            if (sw.subnet != s) continue;
            std::printf("switch %s\n", sw.name);
            for (uint32_t lid = 1; lid <= image.subnet(s).max_lid; ++lid) {
                const uint32_t owner = image.port_of_lid(s, lid);
                if (owner == kNone) continue; // switches' own LIDs, holes
                const uint8_t out = image.at<uint8_t>(sw.lft)[lid];
                const std::string port = out == kNoRoute ? "none" : std::to_string(unsigned{out});
                std::printf("  LID %u -> port %s  (%s)\n", lid, port.c_str(), port_name(image, owner).c_str());
            }
        }
    }
}

// "37", "0x25", or "+2": the third LID of the destination; nothing: all of them.
std::vector<uint32_t> lids_to_trace(const FabricImage& image, uint32_t destination, const std::string& text) {
    const PortImage& port = image.port(destination);
    const std::string name = port_name(image, destination);
    if (port.lid == 0) throw FabricError(name + " is on no subnet and has no LID");
    std::vector<uint32_t> lids;
    for (uint32_t i = 0; i < 1U << port.lmc; ++i) lids.push_back(port.lid + i);
    if (text.empty()) return lids;
    const bool relative = text[0] == '+', hexadecimal = text.starts_with("0x");
    const char* first = text.data() + (relative ? 1 : hexadecimal ? 2 : 0);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(first, text.data() + text.size(), value, hexadecimal ? 16 : 10);
    const bool number = error == std::errc{} && end == text.data() + text.size();
    const uint32_t lid = relative ? port.lid + value : value;
    if (!number || value > kMaxLid || std::find(lids.begin(), lids.end(), lid) == lids.end())
        throw FabricError("LID '" + text + "' is not one of " + name + ": " + std::to_string(lids.front()) + " to " +
                          std::to_string(lids.back()) + " (or +0 to +" + std::to_string(lids.size() - 1) + ")");
    return {lid};
}

void print_trace(const FabricImage& image, const TraceArguments& arguments, bool (*works)(uint32_t, void*),
                 void* argument) {
    const uint32_t source = find_port(image, arguments.source), destination = find_port(image, arguments.destination);
    if (image.port(source).subnet != image.port(destination).subnet)
        throw FabricError(port_name(image, source) + " and " + port_name(image, destination) +
                          " are in different subnets");
    for (const uint32_t lid : lids_to_trace(image, destination, arguments.lid)) {
        const Trace way = trace(image, source, lid, works, argument);
        print(std::cout, image, way);
    }
}

// Whether a cable of a running session carries packets: it and the adapter ports at its ends.
bool carries(uint32_t link, void* segment) {
    Segment& seg = *static_cast<Segment*>(segment);
    const LinkImage& l = seg.img().link(link);
    return seg.link(link).up.load() && (l.from_kind != EndKind::port || seg.port(l.from).up.load()) &&
           (l.to_kind != EndKind::port || seg.port(l.to).up.load());
}

void run_trace(const TraceArguments& arguments) {
    if (!arguments.session.empty()) { // the tables and cables of a running session, as they are now
        Observer observer(arguments.session);
        return print_trace(observer.seg().img(), arguments, carries, &observer.seg());
    }
    Routes routes;
    const FabricBlock block = route(arguments.fabric, arguments.down, true, routes);
    print_trace(block.image(), arguments, nullptr, nullptr);
}

} // namespace

void add_routes_command(CLI::App& app) {
    auto arguments = std::make_shared<RoutesArguments>();
    CLI::App* command =
        app.add_subcommand("routes", "compute (or look up) the LIDs and routes of a fabric with opensm");
    CLI::Option* fabric =
        command->add_option("fabric", arguments->fabric, "a fabric file, or the name of one that comes with softhca");
    command->add_flag("--dump", arguments->dump, "print every LID and every switch's forwarding table");
    command->add_flag("--no-cache", arguments->no_cache, "run opensm even if its tables are in the cache");
    CLI::Option* down = command->add_option("--down", arguments->down,
                                            "take the cables between A and B down and re-route (repeatable)");
    down->type_name("A B")->type_size(2)->expected(1, 1000);
    command->add_option("--session", arguments->session, "print the tables of a running session, as they are now")
        ->excludes(fabric)
        ->excludes(down);
    command->callback([arguments] {
        if (!arguments->session.empty()) {
            Observer observer(arguments->session);
            print_tables(observer.seg().img());
            return;
        }
        if (arguments->fabric.empty()) throw FabricError("routes: name a fabric, or a running session by --session");
        Routes routes;
        const FabricBlock block = route(arguments->fabric, arguments->down, !arguments->no_cache, routes);
        print_summary(block.image(), routes);
        if (arguments->dump) {
            std::printf("\n");
            print_tables(block.image());
        }
        std::fflush(stdout);
    });
}

void add_trace_command(CLI::App& app) {
    auto arguments = std::make_shared<TraceArguments>();
    arguments->fabric = default_fabric();
    CLI::App* command = app.add_subcommand("trace", "print the hops from a port to a LID, like ibtracert");
    command->add_option("source", arguments->source, "NODE:DEVICE:PORT, e.g. 0:softhca_0:1")->required();
    command->add_option("destination", arguments->destination, "NODE:DEVICE:PORT")->required();
    command->add_option("lid", arguments->lid, "a LID of the destination, or +K for its K-th; default: all of them");
    CLI::Option* fabric = command->add_option("--fabric", arguments->fabric,
                                              "fabric file or name (default: $SOFTHCA_FABRIC, else ideal-2rail)");
    CLI::Option* down =
        command->add_option("--down", arguments->down, "take the cables between A and B down first (repeatable)")
            ->type_name("A B")
            ->type_size(2)
            ->expected(1, 1000);
    command->add_option("--session", arguments->session, "of a running session, with its faults and re-routes")
        ->excludes(fabric)
        ->excludes(down);
    command->callback([arguments] { run_trace(*arguments); });
}

} // namespace softhca
