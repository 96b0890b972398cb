// LIDs and routes as the real opensm computes them, for the shipped fabrics; re-routing; the cache.
#define BOOST_TEST_MODULE routes
#include <boost/test/unit_test.hpp>

#include "fabric/image_builder.h"
#include "fabric/names.h"
#include "fabric/routes.h"
#include "fabric/subnet_manager.h"
#include "fabric/topology.h"
#include "fabric/trace.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <ucx_mp_places.h>

using namespace softhca;
namespace fs = std::filesystem;

namespace {

// A cache of this test's own.
struct PrivateCache {
    fs::path folder = fs::temp_directory_path() / ("test-routes-" + std::to_string(getpid()));
    PrivateCache() {
        setenv("XDG_CACHE_HOME", folder.c_str(), 1);
        setenv("SOFTHCA_FABRICS", UCX_MP_SOURCE_DIR "/config/fabrics", 1);
    }
    ~PrivateCache() { fs::remove_all(folder); }
};
BOOST_TEST_GLOBAL_FIXTURE(PrivateCache);

std::vector<fs::path> cache_files() {
    std::vector<fs::path> files;
    std::error_code none_yet;
    for (const auto& e : fs::directory_iterator(fs::path(getenv("XDG_CACHE_HOME")) / "softhca", none_yet))
        files.push_back(e.path());
    return files;
}

// LIDs unique and aligned, every pair of ports of a subnet reached over every LID within `most` links. Returns pairs x
// LIDs.
size_t check_routes(const FabricImage& image, size_t most) {
    std::set<std::pair<uint32_t, uint32_t>> lids;
    size_t ways = 0;
    for (uint32_t to = 0; to < image.ports; ++to) {
        const PortImage& port = image.port(to);
        BOOST_REQUIRE(port.lid != 0);
        BOOST_REQUIRE(port.lid % (1U << port.lmc) == 0);
        for (uint32_t lid = port.lid; lid < port.lid + (1U << port.lmc); ++lid) {
            BOOST_REQUIRE(lids.emplace(port.subnet, lid).second);
            BOOST_REQUIRE(lid <= image.subnet(port.subnet).max_lid);
            for (uint32_t from = 0; from < image.ports; ++from) {
                if (image.port(from).subnet != port.subnet) continue;
                const Trace t = trace(image, from, lid);
                if (t.end != Trace::End::delivered || t.arrived != to || t.links.size() > most)
                    BOOST_FAIL(port_name(image, from)
                               << " to LID " << lid << " of " << port_name(image, to) << ": " << end_text(t.end));
                ++ways;
            }
        }
    }
    return ways;
}

// The switch in the middle of a way that crosses a spine.
uint32_t spine(const FabricImage& image, const Trace& t) {
    BOOST_REQUIRE(t.links.size() == 4);
    return image.link(t.links[1]).to;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_shipped_fabric_reaches_everybody) {
    BOOST_TEST(check_routes(load_fabric("ideal-2rail").image(), 0) == 512U * 512);
    BOOST_TEST(check_routes(load_fabric("two-rail").image(), 2) == 32U * 32);
    BOOST_TEST(check_routes(load_fabric("two-rail-unequal").image(), 2) == 32U * 32);
    BOOST_TEST(check_routes(load_fabric("four-path").image(), 4) == 16U * 16 * 4);
    BOOST_TEST(check_routes(load_fabric("dual-plane").image(), 4) == 16U * 16 * 3); // LMC 0 and 1
    BOOST_TEST(check_routes(load_fabric("link-20us").image(), 1) == 2U * 2);
}

BOOST_AUTO_TEST_CASE(the_planes_of_dual_plane_are_separate_subnets) {
    const FabricBlock block = load_fabric("dual-plane");
    const FabricImage& image = block.image();
    BOOST_TEST(image.subnets == 2U);
    BOOST_TEST(image.subnet(0).prefix != image.subnet(1).prefix);
    for (uint32_t p = 0; p < image.ports; ++p) {
        BOOST_TEST(image.port(p).subnet == image.port(p).number - 1);
        BOOST_TEST(unsigned{image.port(p).lmc} == image.port(p).number - 1);
    }
}

BOOST_AUTO_TEST_CASE(four_path_has_four_spines) {
    const FabricBlock block = load_fabric("four-path");
    const FabricImage& image = block.image();
    for (uint32_t from = 0; from < image.ports; ++from) {
        for (uint32_t to = 0; to < image.ports; ++to) {
            const uint32_t leaf_from = image.link(image.port(from).link).to,
                           leaf_to = image.link(image.port(to).link).to;
            if (leaf_from == leaf_to) continue;
            std::set<uint32_t> spines;
            for (uint32_t l = 0; l < 4; ++l) spines.insert(spine(image, trace(image, from, image.port(to).lid + l)));
            BOOST_TEST(spines.size() == 4U);
        }
    }
}

BOOST_AUTO_TEST_CASE(fattree_144_has_16_lids_over_12_spines) {
    const FabricBlock block = load_fabric("fattree-144");
    const FabricImage& image = block.image();
    BOOST_TEST(image.nodes == 144U);
    BOOST_TEST(image.switches == 24U);
    BOOST_TEST(check_routes(image, 4) == 144U * 144 * 16);
    std::set<uint32_t> spines, first;
    for (uint32_t to = 12; to < 24; ++to) { // from leaf1 to the nodes under leaf2
        first.insert(spine(image, trace(image, 0, image.port(to).lid)));
        for (uint32_t l = 0; l < 16; ++l) spines.insert(spine(image, trace(image, 0, image.port(to).lid + l)));
    }
    BOOST_TEST(spines.size() == 12U);
    BOOST_TEST(first.size() == 3U); // the hot spots of the dissertation's figure 3.5 (see the file)
}

BOOST_AUTO_TEST_CASE(a_reroute_avoids_the_cable_and_keeps_the_lids) {
    FabricBlock block = load_fabric("four-path");
    FabricImage& image = block.image();
    std::vector<uint16_t> before;
    for (uint32_t p = 0; p < image.ports; ++p) before.push_back(image.port(p).lid);
    const uint32_t cable = find_cables(image, "leaf1", "spine2").at(0);
    const auto uses = [&] {
        size_t count = 0;
        for (uint32_t from = 0; from < image.ports; ++from)
            for (uint32_t lid = 1; lid <= image.subnet(0).max_lid; ++lid)
                for (const uint32_t l : trace(image, from, lid).links) count += image.link(l).cable == cable;
        return count;
    };
    BOOST_TEST(uses() > 0U);
    const auto down = [&](uint32_t c) { return c == cable; };
    // Something on the way says so before the re-route.
    const uint32_t to = find_port(image, "4:0");
    size_t stopped = 0;
    for (uint32_t l = 0; l < 4; ++l) {
        const auto works = [](uint32_t link, void* which) {
            const auto& [fabric, dead] = *static_cast<std::pair<const FabricImage*, uint32_t>*>(which);
            return fabric->link(link).cable != dead;
        };
        std::pair<const FabricImage*, uint32_t> which{&image, cable};
        stopped += trace(image, 0, image.port(to).lid + l, works, &which).end == Trace::End::cable_down;
    }
    BOOST_TEST(stopped == 1U);

    reroute(image, down);
    BOOST_TEST(uses() == 0U);
    check_routes(image, 4);
    for (uint32_t p = 0; p < image.ports; ++p) BOOST_TEST(image.port(p).lid == before[p]);

    reroute(image, [](uint32_t) { return false; }); // the cable is back
    BOOST_TEST(uses() > 0U);
    check_routes(image, 4);
}

BOOST_AUTO_TEST_CASE(a_port_that_is_cut_off_keeps_its_lid_and_loses_its_routes) {
    FabricBlock block = load_fabric("four-path");
    FabricImage& image = block.image();
    const uint32_t lonely = find_port(image, "node3:1");
    const uint32_t cable = image.link(image.port(lonely).link).cable;
    const uint16_t lid = image.port(lonely).lid;
    reroute(image, [&](uint32_t c) { return c == cable; });
    BOOST_TEST(image.port(lonely).lid == lid);
    BOOST_TEST((trace(image, 0, lid).end == Trace::End::no_route));
    BOOST_TEST((trace(image, 0, image.port(find_port(image, "node2:1")).lid).end == Trace::End::delivered));
}

BOOST_AUTO_TEST_CASE(a_fabric_in_two_parts_routes_in_the_larger) {
    FabricBlock block = load_fabric("four-path");
    FabricImage& image = block.image();
    const uint32_t leaf = find_switch(image, "leaf1");
    std::set<uint32_t> cut;
    for (uint32_t l = 0; l < image.links; ++l)
        if (image.link(l).from_kind == EndKind::sw && image.link(l).from == leaf &&
            image.link(l).to_kind == EndKind::sw)
            cut.insert(image.link(l).cable);
    reroute(image, [&](uint32_t c) { return cut.contains(c); });
    const auto end = [&](const char* from, const char* to) {
        return trace(image, find_port(image, from), image.port(find_port(image, to)).lid).end;
    };
    BOOST_TEST((end("4:0", "5:1") == Trace::End::delivered));
    BOOST_TEST((end("4:0", "0:0") == Trace::End::no_route));
    BOOST_TEST((end("0:0", "1:0") == Trace::End::delivered)); // the leaf has kept its old table
}

BOOST_AUTO_TEST_CASE(an_engine_that_opensm_cannot_use_is_reported) {
    Topology t = load_topology(find_fabric("four-path"));
    t.routing = "ftree"; // refuses LMC > 0
    const Routes routes = compute_routes(build_image(t, nullptr).image());
    BOOST_TEST(routes.subnets[0].engine == "minhop");
    BOOST_TEST(routes.subnets[0].warning.find("could not use 'ftree'") != std::string::npos);
    t.routing = "updn";
    const Routes good = compute_routes(build_image(t, nullptr).image());
    BOOST_TEST(good.subnets[0].engine == "updn");
    BOOST_TEST(good.subnets[0].warning == "");
}

BOOST_AUTO_TEST_CASE(the_cache_gives_the_same_and_survives_damage) {
    const Topology t = load_topology(find_fabric("two-rail-unequal"));
    const FabricBlock bare = build_image(t, nullptr);
    const fs::path folder = getenv("XDG_CACHE_HOME");
    fs::remove_all(folder);
    const Routes first = compute_routes(bare.image());
    BOOST_TEST(!first.subnets[0].cached);
    BOOST_REQUIRE(cache_files().size() == 1U);
    const Routes second = compute_routes(bare.image());
    BOOST_TEST(second.subnets[0].cached);
    BOOST_TEST((first.lid == second.lid && first.table == second.table));
    BOOST_TEST(first.subnets[0].sm_lid == second.subnets[0].sm_lid);
    const fs::path file = cache_files()[0];
    const auto size = fs::file_size(file);
    for (const uintmax_t length : {size / 2, uintmax_t{0}}) { // torn
        fs::resize_file(file, length);
        const Routes again = compute_routes(bare.image());
        BOOST_TEST(!again.subnets[0].cached);
        BOOST_TEST((first.lid == again.lid && first.table == again.table));
    }
    { // one byte flipped
        std::fstream f(file, std::ios::in | std::ios::out);
        f.seekp(static_cast<std::streamoff>(size - 60)); // in the last table, where only the checksum can tell
        f.put(f.peek() == '1' ? '2' : '1');
    }
    BOOST_TEST(!compute_routes(bare.image()).subnets[0].cached);
    BOOST_TEST(compute_routes(bare.image()).subnets[0].cached);
    BOOST_TEST(fs::file_size(file) == size);
    setenv("XDG_CACHE_HOME", "/proc/no-such-folder", 1); // not writable: slower, but no error
    BOOST_TEST((compute_routes(bare.image()).table == first.table));
    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
}

BOOST_AUTO_TEST_CASE(runs_do_not_meet_and_leave_nothing) {
    const Topology t = load_topology(find_fabric("four-path"));
    const FabricBlock bare = build_image(t, nullptr);
    RouteOptions fresh;
    fresh.use_cache = false;
    Routes results[3];
    {
        std::vector<std::jthread> threads;
        for (Routes& r : results) threads.emplace_back([&] { r = compute_routes(bare.image(), fresh); });
    }
    BOOST_TEST((results[0].table == results[1].table && results[1].table == results[2].table));
    const std::string mine = "softhca-routes-" + std::to_string(getpid()) + "-";
    for (const auto& e : fs::directory_iterator(fs::temp_directory_path()))
        BOOST_TEST(!e.path().filename().string().starts_with(mine));
}

BOOST_AUTO_TEST_CASE(a_run_that_takes_too_long_is_killed) {
    SubnetTask task;
    task.netlist = "switchguid=0x1\nSwitch 2 \"S\"\n\n";
    task.attach_to = "S";
    task.attach_guid = 1;
    task.engines = "minhop";
    task.switches = task.nodes = 1;
    task.ports = 3;
    try {
        run_subnet_manager(find_subnet_manager(), task, std::chrono::seconds(0));
        BOOST_ERROR("finished in no time");
    } catch (const FabricError& e) {
        BOOST_TEST(std::string(e.what()).find("within 0 s") != std::string::npos, e.what());
    }
}

BOOST_AUTO_TEST_CASE(too_many_lids_are_refused) {
    const Topology t =
        parse_topology("lmc: 7\nnodes: [{name: 'n[0-399]'}]\nsubnets: [{name: x, crossbar: true}]\n", "t.yaml");
    try {
        compute_routes(build_image(t, nullptr).image());
        BOOST_ERROR("400 ports with 128 LIDs each cannot fit");
    } catch (const FabricError& e) {
        BOOST_TEST(std::string(e.what()).find("smaller lmc") != std::string::npos, e.what());
    }
}

BOOST_AUTO_TEST_CASE(broken_tables_are_recognized) {
    FabricBlock block = load_fabric("four-path");
    FabricImage& image = block.image();
    const uint16_t lid = image.port(find_port(image, "4:0")).lid;
    const Trace good = trace(image, 0, lid);
    BOOST_REQUIRE((good.end == Trace::End::delivered));
    const auto entry = [&](const char* sw) -> uint8_t& {
        return image.at<uint8_t>(image.sw(find_switch(image, sw)).lft)[lid];
    };
    const uint32_t middle = spine(image, good);
    uint8_t& up = entry("leaf1");
    const uint8_t was = up;
    up = 2; // to node1
    BOOST_TEST((trace(image, 0, lid).end == Trace::End::wrong_port));
    up = kNoRoute;
    BOOST_TEST((trace(image, 0, lid).end == Trace::End::no_route));
    up = was;
    image.at<uint8_t>(image.sw(middle).lft)[lid] = 1; // back to leaf1
    BOOST_TEST((trace(image, 0, lid).end == Trace::End::loop));
}
