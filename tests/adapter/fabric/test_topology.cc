// Fabric files: what they may say, what is refused and how, and what becomes of them in the image.
#define BOOST_TEST_MODULE topology
#include <boost/test/unit_test.hpp>

#include "fabric/image_builder.h"
#include "fabric/name_pattern.h"
#include "fabric/names.h"
#include "fabric/routes.h"
#include "fabric/topology.h"
#include "fabric/units.h"

#include <set>
#include <ucx_mp_places.h>

using namespace softhca;

namespace {

// The message with which a fabric file is refused; empty if it is accepted.
std::string refusal(const std::string& text) {
    try {
        parse_topology(text, "test.yaml");
    } catch (const FabricError& e) { return e.what(); }
    return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Two nodes on one switch; `more` is appended (from line 11 on).
std::string small(const std::string& more = "", const std::string& node_extra = "") {
    return "nodes:\n"                                    // 1
           "  - name: n[0-1]\n"                          // 2
           "    adapters: [hca, hca]\n"                  // 3
           "switches:\n"                                 // 4
           "  - {name: sw, ports: 5, latency: 100 ns}\n" // 5
           "links:\n"                                    // 6
           "  - from: n[0-1]:[0-1]\n"                    // 7
           "    to: sw\n"                                // 8
           "    rate: 8 Gb/s\n"                          // 9
           "    latency: 50 ns\n" +                      // 10
           node_extra +
           more;
}

} // namespace

BOOST_AUTO_TEST_CASE(times_rates_and_sizes) {
    BOOST_TEST(parse_time_ns("150 ns").value() == 150);
    BOOST_TEST(parse_time_ns("1.5us").value() == 1500);
    BOOST_TEST(parse_time_ns("0").value() == 0);
    BOOST_TEST(!parse_time_ns("5"));
    BOOST_TEST(!parse_time_ns("-1 us"));
    BOOST_TEST(!parse_time_ns("1 min"));
    BOOST_TEST(parse_time_ns("-1 us", true).value() == -1000);
    BOOST_TEST(parse_size("32 KiB").value() == 32768U);
    BOOST_TEST(parse_size("4096").value() == 4096U);
    BOOST_TEST(!parse_size("1.5 B"));
    BOOST_TEST(!parse_size("many"));
    BOOST_TEST(parse_rate("8 Gb/s")->bytes_per_second == 1'000'000'000U);
    BOOST_TEST(parse_rate("1 GB/s")->bytes_per_second == 1'000'000'000U);
    BOOST_TEST(parse_rate("unlimited")->bytes_per_second == 0U);
    BOOST_TEST(!parse_rate("8"));
    BOOST_TEST(!parse_rate("0 Gb/s"));
    BOOST_TEST(!parse_rate("4x"));
    BOOST_TEST(!parse_rate("DDR 4x fast"));
}

BOOST_AUTO_TEST_CASE(infiniband_speeds_count_as_their_data_rate) {
    const auto is = [](const char* text, uint64_t rate, unsigned speed, unsigned width) {
        const auto r = parse_rate(text);
        BOOST_TEST_REQUIRE(r.has_value(), text);
        BOOST_TEST(r->bytes_per_second == rate, text);
        BOOST_TEST(unsigned{r->speed} == speed, text);
        BOOST_TEST(unsigned{r->width} == width, text);
    };
    is("SDR 4x", 1'000'000'000, 1, 2);
    is("4x DDR", 2'000'000'000, 2, 2);
    is("ddr", 2'000'000'000, 2, 2);
    is("QDR 1x", 1'000'000'000, 4, 1);
    is("FDR 4x", 6'818'181'818, 16, 2);
    is("EDR 4x", 12'500'000'000, 32, 2);
    is("HDR 2x", 12'500'000'000, 64, 16);
    is("8 Gb/s", 1'000'000'000, 1, 2); // plain rates: the nearest link
    is("2 Gb/s", 250'000'000, 1, 1);
    is("16 Gb/s", 2'000'000'000, 2, 2);
}

BOOST_AUTO_TEST_CASE(name_patterns) {
    const auto is = [](const char* pattern, const std::vector<std::string>& names) {
        const auto got = expand_names(pattern);
        BOOST_TEST(got == names, boost::test_tools::per_element());
    };
    is("node", {"node"});
    is("n[0-2]", {"n0", "n1", "n2"});
    is("n[1-2,7]", {"n1", "n2", "n7"});
    is("n[08-10]", {"n08", "n09", "n10"});
    is("r[1-2]n[0-1]x", {"r1n0x", "r1n1x", "r2n0x", "r2n1x"});
    is("a, b[1-2]", {"a", "b1", "b2"});
    for (const char* bad : {"", "n[", "n]", "n[1", "n[a]", "n[3-1]", "n[]", "a,,b", "n[0-99999999]", "n[0-999][0-999]"})
        BOOST_CHECK_THROW(expand_names(bad), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_small_fabric_becomes_an_image) {
    const Topology t = parse_topology(small("chunk_mtus: 2\nname: tiny\n"), "test.yaml");
    const FabricBlock block = build_image(t, nullptr);
    const FabricImage& image = block.image();
    BOOST_TEST(image.magic == kImageMagic);
    BOOST_TEST(image.bytes == block.size());
    BOOST_TEST(std::string(image.name) == "tiny");
    BOOST_TEST(image.nodes == 2U);
    BOOST_TEST(image.devices == 4U);
    BOOST_TEST(image.ports == 4U);
    BOOST_TEST(image.cables == 4U);
    BOOST_TEST(image.links == 8U);
    BOOST_TEST(image.subnets == 1U);
    BOOST_TEST(image.chunk_mtus == 2U);
    BOOST_TEST(image.subnet(0).prefix == 0xfe80000000000000U);
    std::set<uint64_t> guids;
    for (uint32_t p = 0; p < image.ports; ++p) {
        const PortImage& port = image.port(p);
        guids.insert(port.guid);
        BOOST_TEST(unsigned{port.mtu} == 5U); // IBV_MTU_4096
        const LinkImage &up = image.link(port.link), &down = image.link(up.reverse);
        BOOST_TEST((up.from_kind == EndKind::port && up.to_kind == EndKind::sw));
        BOOST_TEST(up.from == p);
        BOOST_TEST(unsigned{up.to_port} == p + 1); // switch ports in the order of the file
        BOOST_TEST(image.at<uint32_t>(image.sw(0).port_link)[up.to_port] == up.reverse);
        BOOST_TEST(down.cable == up.cable);
        BOOST_TEST(down.reverse == port.link);
        BOOST_TEST(up.latency_ns == 150U);  // cable + switch
        BOOST_TEST(down.latency_ns == 50U); // cable only
        BOOST_TEST(up.rate == 1'000'000'000U);
    }
    BOOST_TEST(guids.size() == 4U);
    BOOST_TEST(image.at<uint32_t>(image.sw(0).port_link)[5] == kNone);
    BOOST_TEST(port_name(image, 3) == "n1:softhca_1:1");
    BOOST_TEST(find_port(image, "1:1") == 3U);
    BOOST_TEST(find_port(image, "n1:softhca_1:1") == 3U);
    BOOST_CHECK_THROW(find_port(image, "n2:0:1"), FabricError);
    BOOST_CHECK_THROW(find_port(image, "n1"), FabricError); // two devices
    BOOST_CHECK_THROW(find_port(image, "n1:0:2"), FabricError);
    BOOST_TEST(find_cables(image, "sw", "n1").size() == 2U);
    BOOST_TEST(find_cables(image, "n1:1", "sw").size() == 1U);
    BOOST_TEST(find_cables(image, "sw:1", "n0").size() == 1U);
    BOOST_CHECK_THROW(find_cables(image, "n0", "n1"), FabricError);
}

BOOST_AUTO_TEST_CASE(adapter_limits_are_all_read) {
    const Topology t = parse_topology(
        "adapters:\n"
        "  old: {ports: 2, mtu: 2048, has_dc: false, has_timestamps: no, has_apm: true,\n"
        "    qp_cache_entries: 64, qp_cache_miss: 1 us, message: 2 ns, qp_message: 3 ns,\n"
        "    engines_per_port: 4, engine_message: 9 ns, engine_rate: 8 Gb/s, bus_rate: 16 Gb/s, dct_contexts: 5,\n"
        "    dc_connect: 6 ns, dc_disconnect: 7 ns, dc_busy_backoff: 8 ns, dc_request: 10 ns,\n"
        "    command_create: 100 us, command_modify: 101 us, command_query: 102 us,\n"
        "    command_reg: 103 us, command_destroy: 104 us, wire_header: 30 B, clock_offset: -1 ms, clock_drift: 20 "
        "ppm}\n"
        "nodes:\n"
        "  - {name: a, adapters: old}\n"
        "  - {name: b}\n"
        "subnets:\n"
        "  - {name: x, crossbar: true, lmc: 1}\n",
        "test.yaml");
    FabricBlock block = build_image(t, nullptr);
    const AdapterLimits l = block.image().device(0).limits;
    BOOST_TEST(block.image().device(0).ports == 2U);
    BOOST_TEST(unsigned{block.image().port(0).mtu} == 4U);
    BOOST_TEST((l.has_dc == 0 && l.has_timestamps == 0 && l.has_apm == 1));
    BOOST_TEST((l.qp_cache_entries == 64 && l.qp_cache_miss_ns == 1000 && l.message_ns == 2 && l.qp_message_ns == 3));
    BOOST_TEST((l.engines_per_port == 4 && l.engine_rate == 1'000'000'000 && l.bus_rate == 2'000'000'000));
    BOOST_TEST(l.engine_message_ns == 9);
    BOOST_TEST((l.dct_contexts == 5 && l.dc_connect_ns == 6 && l.dc_disconnect_ns == 7 && l.dc_busy_backoff_ns == 8));
    BOOST_TEST((l.dc_request_ns == 10u && l.command_destroy_ns == 104'000u));
    BOOST_TEST((l.command_create_ns == 100'000 && l.command_modify_ns == 101'000 && l.command_query_ns == 102'000));
    BOOST_TEST((l.command_reg_ns == 103'000 && l.wire_header == 30));
    BOOST_TEST((l.clock_offset_ns == -1'000'000 && l.clock_drift_ppb == 20'000));
    BOOST_TEST(unsigned{block.image().device(1).limits.has_dc} == 1U); // the built-in type
    strip_costs(block.image());
    const AdapterLimits& free = block.image().device(0).limits;
    BOOST_TEST(block.image().ideal == 1U);
    BOOST_TEST((free.message_ns == 0 && free.bus_rate == 0 && free.wire_header == 0 && free.command_reg_ns == 0));
    BOOST_TEST((free.has_apm == 1 && free.clock_drift_ppb == 20'000)); // not costs
}

BOOST_AUTO_TEST_CASE(wiring) {
    const auto cables = [](const std::string& links) {
        const Topology t = parse_topology("nodes: [{name: 'n[0-5]'}]\n"
                                          "switches: [{name: 'l[1-2]', ports: 8}, {name: 's[1-2]', ports: 8}]\n"
                                          "links:\n"
                                          "  - {from: 'n[0-5]', to: 'l[1-2]'}\n" +
                                              links,
                                          "test.yaml");
        const FabricBlock block = build_image(t, nullptr);
        std::string text;
        for (uint32_t l = 12; l < block.image().links; l += 2) text += link_name(block.image(), l) + "; ";
        return text;
    };
    const std::string rest = "  - {from: 'l1', to: 's[1-2]', wiring: all}\n";
    BOOST_TEST(cables("  - {from: 'l[1-2]', to: 's[1-2]', wiring: all}\n") ==
               "l1:4 -> s1:1; l1:5 -> s2:1; l2:4 -> s1:2; l2:5 -> s2:2; ");
    BOOST_TEST(cables("  - {from: 'l[1-2]', to: 's[1-2]', cables: 2}\n") ==
               "l1:4 -> s1:1; l1:5 -> s1:2; l2:4 -> s2:1; l2:5 -> s2:2; ");
    // A port that is named goes first, wherever it stands in the file.
    BOOST_TEST(cables("  - {from: 'l[1-2]', to: 's1'}\n  - {from: 'l1:8', to: 's2:1'}\n") ==
               "l1:4 -> s1:1; l2:4 -> s1:2; l1:8 -> s2:1; ");
    const Topology blocks = parse_topology("nodes: [{name: 'n[0-5]'}]\nswitches: [{name: 'l[1-2]', ports: 8}]\n"
                                           "links: [{from: 'n[0-5]', to: 'l[1-2]'}]\n",
                                           "test.yaml");
    BOOST_TEST(blocks.cables[1].ends[1].index == 0U); // n1 on l1
    BOOST_TEST(blocks.cables[4].ends[1].index == 1U); // n4 on l2
    BOOST_TEST(blocks.subnets.size() == 2U);          // nothing joins the two
    BOOST_TEST(blocks.subnets[0].prefix != blocks.subnets[1].prefix);
}

BOOST_AUTO_TEST_CASE(mistakes_are_named_with_file_line_value_and_what_is_allowed) {
    BOOST_TEST(refusal(small()) == "");
    const auto refused = [](const std::string& text, std::initializer_list<const char*> parts) {
        const std::string message = refusal(text);
        BOOST_TEST(message.find('\n') == std::string::npos);
        for (const char* part : parts) BOOST_TEST(has(message, part), "'" << part << "' in: " << message);
    };
    refused("nodes: [", {"test.yaml:1:", "not valid YAML"});
    refused("nods: 3\n", {"test.yaml:1:", "unknown key 'nods'", "allowed keys: name,", "nodes"});
    refused("name: x\n", {"test.yaml:1:", "'nodes' is missing"});
    refused("nodes: 3\n", {"test.yaml:1:", "nodes", "'3'", "a mapping with the keys name, adapters"});
    refused("\nnodes:\n  - name: n0\n    adaptors: [hca]\n",
            {"test.yaml:4:", "unknown key 'adaptors'", "name, adapters"});
    refused("nodes:\n  - name: n0\n    adapters: [mlx]\n",
            {"test.yaml:3:", "'mlx'", "adapter types of this file: hca"});
    refused("nodes:\n  - name: n[0-\n", {"test.yaml:2:", "'n[0-'", "node[0-15]"});
    refused("nodes:\n  - name: n[0-1]\n  - name: n1\n", {"test.yaml:3:", "'n1' is used twice"});
    refused("nodes:\n  - name: n0\nname: a\nname: b\n", {"test.yaml:4:", "'name' is given twice"});
    refused("lmc: 8\nnodes: [{name: n}]\n", {"test.yaml:1:", "lmc", "'8'", "0 to 7"});
    refused("ideal: maybe\nnodes: [{name: n}]\n", {"test.yaml:1:", "ideal", "'maybe'", "true or false"});
    refused("routing: best\nnodes: [{name: n}]\n", {"test.yaml:1:", "routing", "'best'", "ftree", "dfsssp"});
    refused("nodes: [{name: n}]\n", {"no port is connected"});
    refused("adapters:\n  x:\n    mtu: 1500\nnodes: [{name: n}]\n",
            {"test.yaml:3:", "adapters.x.mtu", "'1500'", "2048"});
    refused("adapters:\n  x:\n    message: 100\nnodes: [{name: n}]\n", {"test.yaml:3:", "message", "'100'", "150 ns"});
    refused("adapters:\n  x: {ports: 3}\nnodes: [{name: n}]\n", {"test.yaml:2:", "ports", "'3'", "1 to 2"});
    refused(small("  - {from: sw, to: sw}\n"), {"test.yaml:11:", "cabled to itself"});
    refused(small("    rate: 9 Gb/s\n"), {"test.yaml:11:", "'rate' is given twice"});
    refused(small("    buffer: 32 kilo\n"), {"test.yaml:11:", "buffer", "'32 kilo'", "32 KiB"});
    refused(small("    wiring: star\n"), {"test.yaml:11:", "'star'", "pairwise", "blocks", "all"});
    refused(small("    wiring: pairwise\n"),
            {"test.yaml:7:", "'from' has 4 ends and 'to' has 1", "as many on both sides"});
    refused(small("    cables: 2\n"), {"test.yaml:7:", "n0:0:1 is already cabled (line 7)"});
    refused(small("  - {from: n0:0, to: sw}\n"), {"test.yaml:11:", "n0:0:1 is already cabled (line 7)"});
    refused(small("  - {from: n5:0, to: sw}\n"), {"test.yaml:11:", "from", "'n5:0'", "'n5' is no node or switch"});
    refused(small("  - {from: n0:2, to: sw}\n"), {"test.yaml:11:", "'n0:2'", "0 to 1"});
    refused(small("  - {from: n0:0:2, to: sw}\n"), {"test.yaml:11:", "'n0:0:2'", "a port of that adapter: 1"});
    refused(small("  - {from: n0, to: sw}\n"), {"test.yaml:11:", "'n0'", "several ports"});
    refused(small("  - {from: sw:7, to: n0:0}\n"), {"test.yaml:11:", "'sw:7'", "1 to 5"});
    refused(small("subnets:\n  - {name: a}\n"), {"test.yaml:12:", "which switches"});
    refused(small("subnets:\n  - {name: a, switches: sw, prefix: fe80}\n"), {"test.yaml:12:", "'fe80'", "hexadecimal"});
    refused(small("subnets:\n  - {name: a, switches: sw}\n  - {name: b, switches: sw}\n"), {"test.yaml:13:", "'a'"});
    refused(small("subnets:\n  - {name: a, crossbar: true}\n"), {"test.yaml:12:", "no port is left"});
    refused(small("subnets:\n  - {name: a, crossbar: true, ports: 'n0:0'}\n"), {"test.yaml:12:", "n0:0:1 is cabled"});
    refused("nodes: [{name: 'n[0-9]'}]\nswitches: [{name: s, ports: 4}]\nlinks:\n  - {from: 'n[0-9]', to: s}\n",
            {"test.yaml:4:", "switch 's' has 4 ports and all are in use"});
    refused("nodes: [{name: n}]\nswitches: [{name: s, ports: 300}]\n", {"test.yaml:2:", "switches.ports", "1 to 254"});
}

BOOST_AUTO_TEST_CASE(fabrics_are_found_by_name) {
    setenv("SOFTHCA_FABRICS", UCX_MP_SOURCE_DIR "/config/fabrics", 1);
    BOOST_TEST(load_topology(find_fabric("two-rail")).nodes.size() == 16U);
    try {
        (void)find_fabric("no-such");
        BOOST_ERROR("found a fabric that is not there");
    } catch (const FabricError& e) {
        BOOST_TEST(has(e.what(), "no-such"));
        BOOST_TEST(has(e.what(), "four-path, four-path-1x, ideal-2rail"));
    }
    BOOST_CHECK_THROW(find_fabric("./two-rail"), FabricError);
}

BOOST_AUTO_TEST_CASE(the_shipped_ideal_fabric) {
    setenv("SOFTHCA_FABRICS", UCX_MP_SOURCE_DIR "/config/fabrics", 1);
    const FabricBlock block = load_fabric("ideal-2rail");
    const FabricImage& image = block.image();
    BOOST_TEST(image.ideal == 1U);
    BOOST_TEST(image.dynamic_nodes == 1U);
    BOOST_TEST(image.nodes == 256U);
    BOOST_TEST(image.ports == 512U);
    BOOST_TEST(unsigned{image.subnet(0).crossbar} == 1U);
    for (uint32_t p = 0; p < image.ports; ++p) BOOST_REQUIRE(image.port_of_lid(0, image.port(p).lid) == p);
}
