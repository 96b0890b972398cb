#include <array>
#include <cstdio>
#include <map>

#include "uct_mp/ucx/info/views.h"

namespace ucx_mp::info {

namespace {

std::string label(const char* name, std::string_view value) {
    std::string out = std::string(name) + "=\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') out += '\\';
        out += c >= ' ' && c < 0x7f ? c : '?';
    }
    return out + '"';
}

enum Metric : std::size_t { written, read, failures, returns, up, down, kMetrics };

// Gauges: a connection that ends takes its counts with it, so a sum may fall.
constexpr struct {
    const char *name, *type, *help;
} kNames[kMetrics] = {
    {"ucx_mp_path_written_bytes", "gauge", "Bytes of messages and writes that were sent over a path."},
    {"ucx_mp_path_read_bytes", "gauge", "Bytes that were read over a path."},
    {"ucx_mp_path_failures", "gauge", "Times that a path has failed."},
    {"ucx_mp_path_returns", "gauge", "Times that a path has come back."},
    {"ucx_mp_path_up", "gauge", "Peers that are reached over this path now."},
    {"ucx_mp_path_down", "gauge", "Peers for whom this path is down now."},
};

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.0f", value); // counts: exact up to 2^53
    return text;
}

void head(std::string& out, const char* name, const char* type, const char* help) {
    out += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
}

} // namespace

std::string to_metrics(const std::vector<Process>& processes) {
    std::map<std::string, std::array<double, kMetrics>> paths; // by labels
    std::map<std::string, std::array<double, 2>> peers;        // of a process: all, cut off
    for (const Process& process : processes) {
        const std::string who = label("pid", std::to_string(process.pid)) + ',' +
                                label("program", process.line.get("program")) + ',' +
                                label("rank", process.line.get("rank")) + ',' + label("job", process.line.get("job"));
        for (const Interface& interface : process.interfaces) {
            if (!interface.is_used()) continue;
            const std::string whose = who + ',' + label("transport", interface.line.get("transport"));
            for (const Peer& peer : interface.peers) {
                peers[whose][0] += 1;
                peers[whose][1] += peer.is_cut_off();
                for (const Line& path : peer.paths) {
                    auto& sums = paths[whose + ',' + label("port", path.get("rail")) + ',' +
                                       label("peer_host", peer.line.get("host")) + ',' +
                                       label("peer_port", path.get("port_there")) + ',' +
                                       label("from", path.get("from")) + ',' + label("to", path.get("to"))];
                    sums[written] += path.number("written");
                    sums[read] += path.number("read");
                    sums[failures] += path.number("failures");
                    sums[returns] += path.number("returns");
                    sums[up] += path.get("state") == "up";
                    sums[down] += !is_well(path);
                }
            }
        }
    }
    std::string out;
    head(out, "ucx_mp_processes", "gauge", "Processes of this host that use the transport.");
    out += "ucx_mp_processes " + std::to_string(processes.size()) + '\n';
    head(out, "ucx_mp_peers", "gauge", "Peers that a process knows.");
    for (const auto& [labels, counts] : peers) out += "ucx_mp_peers{" + labels + "} " + number(counts[0]) + '\n';
    head(out, "ucx_mp_peers_cut_off", "gauge", "Peers to whom no path is left.");
    for (const auto& [labels, counts] : peers)
        out += "ucx_mp_peers_cut_off{" + labels + "} " + number(counts[1]) + '\n';
    for (std::size_t i = 0; i < kMetrics; ++i) {
        head(out, kNames[i].name, kNames[i].type, kNames[i].help);
        for (const auto& [labels, sums] : paths) out += kNames[i].name + ('{' + labels + "} ") + number(sums[i]) + '\n';
    }
    return out;
}

} // namespace ucx_mp::info
