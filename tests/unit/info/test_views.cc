// What mp_info makes of the answers of processes: table, JSON, metrics.
#define BOOST_TEST_MODULE unit_info_views
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <sstream>
#include <string>

#include "uct_mp/ucx/info/views.h"

using namespace ucx_mp::info;

namespace {

// As inspect.cc writes it: an interface without peers, one peer that is well, one with a path down, one cut off.
const std::string kAnswer =
    "process 4242 host node3 program xhpl job 4711 rank 12 size 64\n"
    "interface 00000000000000aa transport mp_dc queue_pairs 4 dropped 0\n"
    "interface 00000000000000bb transport mp_rc queue_pairs 8 dropped 0\n"
    "event ms_ago 3200.000 peer 0000000000000002 path 1 state down cause nothing comes through\n"
    "peer 0000000000000001 state established sent 5 delivered 6 host node4 rank 1 cut_off 0\n"
    "memory queue_pairs 2 bytes 100\n"
    "path rail mlx5_0:1 from 1 to 4 qp 0x12 state up failures 0 returns 0 weight 1.000 write_rate 12.300 read_rate - "
    "latency 2100 written 9007199254740993 read 0 carries all port_there mlx5_0:1 down_ms 0\n"
    "path rail mlx5_1:1 from 2 to 5 qp 0x13 state up failures 0 returns 0 weight 1.000 write_rate - read_rate - "
    "latency - written 0 read 0 carries spare port_there mlx5_1:1 down_ms 0\n"
    "peer 0000000000000002 state established sent 5 delivered 6 host node7 rank 40 cut_off 0\n"
    "path rail mlx5_0:1 from 1 to 7 qp 0x14 state up failures 0 returns 0 weight 1.000 write_rate - read_rate - "
    "latency - written 1000000 read 5 carries all port_there mlx5_0:1 down_ms 0\n"
    "path rail mlx5_1:1 from 2 to 8 qp 0x15 state down failures 3 returns 2 weight 1.000 write_rate - read_rate - "
    "latency - written 500 read 6 carries all port_there mlx5_1:1 down_ms 3200 cause nothing comes through\n"
    "peer 0000000000000003 state established sent 5 delivered 6 host node7 rank 41 cut_off 1\n"
    "path rail mlx5_0:1 from 1 to 7 qp 0x16 state down failures 1 returns 0 weight 1.000 write_rate - read_rate - "
    "latency - written 7 read 0 carries all port_there mlx5_0:1 down_ms 90000 cause its port is down here\n";

std::string table(TableOptions options = {}) { return Table().show({parse(4242, kAnswer)}, options); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

long lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

} // namespace

BOOST_AUTO_TEST_CASE(taken_apart) {
    const Process process = parse(4242, kAnswer);
    BOOST_TEST(process.line.get("job") == "4711");
    BOOST_REQUIRE(process.interfaces.size() == 2);
    BOOST_TEST(!process.interfaces[0].is_used());
    const Interface& used = process.interfaces[1];
    BOOST_REQUIRE(used.peers.size() == 3);
    BOOST_TEST(used.events.size() == 1u);
    BOOST_TEST(used.events[0].get("cause") == "nothing comes through");
    BOOST_TEST(used.peers[0].is_well()); // one path of it is spare
    BOOST_TEST(!used.peers[1].is_well());
    BOOST_TEST(used.peers[2].is_cut_off());
    BOOST_TEST(used.peers[1].name() == "node7 rank 40");
    BOOST_TEST(used.peers[1].paths[1].get("cause") == "nothing comes through");
    BOOST_TEST(used.peers[0].paths[0].get("read_rate") == ""); // not measured
}

BOOST_AUTO_TEST_CASE(the_table_shows_what_is_not_well) {
    const std::string text = table();
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(has(text, "4242  xhpl         12/64      4711       mp_rc     3"));
    BOOST_TEST(has(text, "1 cut off, 1 impaired"));
    BOOST_TEST(!has(text, "node4"));
    BOOST_TEST(has(text, "node7 rank 40"));
    BOOST_TEST(has(text, "1 of 2 paths"));
    BOOST_TEST(has(text, "mlx5_1:1 -> mlx5_1:1"));
    BOOST_TEST(has(text, "down 3.2 s"));
    BOOST_TEST(has(text, "nothing comes through"));
    BOOST_TEST(has(text, "cut off: no path"));
    BOOST_TEST(has(text, "down 2 min"));
    BOOST_TEST(!has(text, "s ago"));
    BOOST_TEST(lines_of(text) == 8); // head, process, two peers, a path and its cause each
}

BOOST_AUTO_TEST_CASE(all_and_history) {
    const std::string text = table({.all = true, .history = true});
    BOOST_TEST(has(text, "node4 rank 1"));
    BOOST_TEST(has(text, "spare"));
    BOOST_TEST(has(text, "2.1 us"));
    BOOST_TEST(has(text, "12.3 GB/s"));
    BOOST_TEST(has(text, "has failed 3 times and come back 2 times"));
    BOOST_TEST(has(text, "3.200 s ago  peer 0000000000000002 path 1  down"));
    BOOST_TEST(has(text, "interface 00000000000000aa")); // without use
}

BOOST_AUTO_TEST_CASE(rates_between_two_looks) {
    Table table;
    std::string later = kAnswer;
    later.replace(later.find("written 1000000"), 15, "written 9000000");
    (void)table.show({parse(4242, kAnswer)}, {});
    const std::string text = table.show({parse(4242, later)}, {.all = true, .seconds = 2});
    BOOST_TEST(has(text, "4.00 MB/s"));
    BOOST_TEST(has(text, "0 B/s"));
}

// Neither totals as rates, nor those of the peer that had its place in the list before.
BOOST_AUTO_TEST_CASE(a_new_peer_has_no_rate_yet) {
    Table table;
    const std::size_t first = kAnswer.find("peer 0000000000000001"), third = kAnswer.find("peer 0000000000000003");
    (void)table.show({parse(4242, kAnswer.substr(0, third))}, {.all = true});
    const std::string gone_and_new = kAnswer.substr(0, first) + kAnswer.substr(third);
    const std::string text = table.show({parse(4242, gone_and_new)}, {.all = true, .seconds = 1});
    BOOST_TEST(has(text, "node7 rank 41"));
    const std::size_t line = text.find("mlx5_0:1 -> mlx5_0:1");
    BOOST_REQUIRE(line != text.npos);
    BOOST_TEST(!has(text.substr(line, text.find('\n', line) - line), "B/s"));
}

// Long names and large figures, too.
BOOST_AUTO_TEST_CASE(a_line_has_at_most_100_columns) {
    std::string longer = kAnswer;
    const auto replace = [&](const std::string& what, const std::string& by) {
        for (std::size_t at = 0; (at = longer.find(what, at)) != std::string::npos; at += by.size())
            longer.replace(at, what.size(), by);
    };
    replace("program xhpl job 4711 rank 12 size 64",
            "program " + std::string(15, 'p') + " job " + std::string(80, 'j') + " rank 123456 size 1234567");
    replace("host node7", "host " + std::string(32, 'h'));
    replace("port_there mlx5_1:1", "port_there " + std::string(64, 'd'));
    const std::string before = longer;
    replace("written 1000000", "written 18446744073709551615");
    Table table; // totals, rates, totals again
    for (const auto& [answer, seconds] : {std::pair{&before, 0.0}, {&longer, 1.0}, {&longer, 0.0}}) {
        std::istringstream lines(table.show({parse(4242, *answer)}, {.seconds = seconds}));
        for (std::string line; std::getline(lines, line);) BOOST_TEST(line.size() <= 100u, line);
    }
    std::istringstream first(Table().show({parse(4242, longer)}, {.seconds = 1})); // nothing to compare with
    for (std::string line; std::getline(first, line);) BOOST_TEST(line.size() <= 100u, line);
}

BOOST_AUTO_TEST_CASE(json) {
    const std::string text = to_json({parse(4242, kAnswer)});
    BOOST_TEST(has(text, "\"pid\": 4242"));
    BOOST_TEST(has(text, "\"job\": \"4711\""));
    BOOST_TEST(has(text, "\"rank\": 12,"));
    BOOST_TEST(has(text, "\"written\": 9007199254740993,")); // not rounded
    BOOST_TEST(has(text, "\"read_rate\": null"));
    BOOST_TEST(has(text, "\"qp\": \"0x12\""));
    BOOST_TEST(has(text, "\"memory\": {\"queue_pairs\": 2, \"bytes\": 100}"));
    BOOST_TEST(has(text, "\"cause\": \"nothing comes through\""));
    BOOST_TEST(to_json({}) == "[]\n");
}

BOOST_AUTO_TEST_CASE(metrics) {
    const std::string text = to_metrics({parse(4242, kAnswer)});
    const std::string who = "pid=\"4242\",program=\"xhpl\",rank=\"12\",job=\"4711\",transport=\"mp_rc\"";
    BOOST_TEST(has(text, "\nucx_mp_processes 1\n"));
    BOOST_TEST(has(text, "\nucx_mp_peers{" + who + "} 3\n"));
    BOOST_TEST(has(text, "\nucx_mp_peers_cut_off{" + who + "} 1\n"));
    // Both peers of node7 over one route are one path.
    const std::string path = who + ",port=\"mlx5_0:1\",peer_host=\"node7\",peer_port=\"mlx5_0:1\",from=\"1\",to=\"7\"";
    BOOST_TEST(has(text, "\nucx_mp_path_written_bytes{" + path + "} 1000007\n"));
    BOOST_TEST(has(text, "\nucx_mp_path_failures{" + path + "} 1\n"));
    BOOST_TEST(has(text, "\nucx_mp_path_up{" + path + "} 1\n"));
    BOOST_TEST(has(text, "\nucx_mp_path_down{" + path + "} 1\n"));
    BOOST_TEST(has(text, "# TYPE ucx_mp_path_read_bytes gauge\n"));
    BOOST_TEST(has(to_metrics({}), "ucx_mp_processes 0\n"));
}

// Any process may answer under the name. Its text goes to a terminal, and to tools that expect JSON.
BOOST_AUTO_TEST_CASE(hostile_answers) {
    const std::string answer = std::string("process 1 host \033[2Jx\"\\ job j\x9b") + "\ninterface 1 a 5" + '\0' +
                               ",\"b\":1 c +5 d 007 e .5 f 5. g 1e5 h inf i - j -1.50 k 0 l -0.25 m -\npeer 2 n 0x5\n";
    const std::string text = to_json({parse(1, answer)});
    BOOST_TEST(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    for (const char* quoted : {"\"a\": \"5?,\\\"b\\\":1\"", "\"c\": \"+5\"", "\"d\": \"007\"", "\"e\": \".5\"",
                               "\"f\": \"5.\"", "\"g\": \"1e5\"", "\"h\": \"inf\"", "\"n\": \"0x5\""})
        BOOST_TEST(has(text, quoted), quoted);
    for (const char* plain : {"\"j\": -1.50", "\"k\": 0", "\"l\": -0.25", "\"i\": null"})
        BOOST_TEST(has(text, plain), plain);
    const std::string shown = Table().show({parse(1, answer)}, {.all = true}) + to_metrics({parse(1, answer)});
    BOOST_TEST(std::ranges::all_of(shown, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    BOOST_TEST(!has(printable("a\033b\n"), "\033"));
}

// Of another release, or anybody's.
BOOST_AUTO_TEST_CASE(answers_that_make_no_sense) {
    for (const char* text : {"", "\n\n", "path rail a\n", "peer\n", "interface\npeer\npath\n", "interface x y\nevent\n",
                             "process\n", "interface a\npeer b state\npath state up cause\n"}) {
        const std::vector<Process> processes{parse(1, text)};
        (void)Table().show(processes, {.all = true, .history = true, .seconds = 1});
        (void)to_json(processes);
        (void)to_metrics(processes);
    }
    BOOST_TEST(parse(1, "path rail a\n").interfaces.empty());
}
