#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "uct_mp/ucx/info/views.h"

namespace ucx_mp::info {

namespace {

template <class... Values> std::string format(const char* pattern, Values... values) {
    char text[512];
    std::snprintf(text, sizeof text, pattern, values...);
    return text;
}

std::string or_dash(std::string_view text) { return text.empty() ? "-" : std::string(text); }

// In at most `most` characters, the end cut off.
std::string cut(std::string_view text, std::size_t most) {
    if (text.size() <= most) return or_dash(text);
    return std::string(text.substr(0, most - 1)) + "~";
}

// Three figures, and a unit: of bytes.
std::string bytes(double value) {
    static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    std::size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
    return format(unit == 0 || value >= 99.95 ? "%.0f %s"
                  : value >= 9.995            ? "%.1f %s"
                                              : "%.2f %s",
                  value, kUnits[unit]);
}

std::string seconds(double value) {
    if (value < 60) return format(value < 10 ? "%.1f s" : "%.0f s", value);
    return value < 3600 ? format("%.0f min", value / 60) : format("%.1f h", value / 3600);
}

std::string rank_of(const Line& process) {
    if (process.get("rank").empty() || process.number("rank") < 0) return "-";
    const double size = process.number("size");
    return format(size > 0 ? "%.0f/%.0f" : "%.0f", process.number("rank"), size);
}

std::string transports_of(const Process& process) {
    std::set<std::string> names;
    for (const Interface& interface : process.interfaces)
        if (interface.is_used()) names.insert(std::string(interface.line.get("transport")));
    return names.size() > 1 ? "both" : names.empty() ? "-" : *names.begin();
}

std::string state_of(const Process& process) {
    std::size_t cut_off = 0, unwell = 0;
    for (const Interface& interface : process.interfaces)
        for (const Peer& peer : interface.peers) {
            cut_off += peer.is_cut_off();
            unwell += !peer.is_cut_off() && !peer.is_well();
        }
    std::string text;
    if (cut_off) text += std::to_string(cut_off) + " cut off";
    if (unwell) text += (text.empty() ? "" : ", ") + std::to_string(unwell) + " impaired";
    return text.empty() ? "well" : text;
}

std::string state_of(const Peer& peer) {
    const auto up = std::ranges::count_if(peer.paths, [](const Line& path) { return path.get("state") == "up"; });
    const auto expected = std::ranges::count_if(
        peer.paths, [](const Line& path) { return path.get("state") != "absent" && path.get("carries") != "spare"; });
    if (peer.is_cut_off()) return "cut off: no path";
    if (const std::string_view state = peer.line.get("state"); state != "established") {
        if (state == "parked" || state == "closed") return "not connected now";
        return state == "failed" ? "lost" : "being connected";
    }
    return std::to_string(up) + " of " + std::to_string(std::max(up, expected)) + " paths";
}

// The state of the path, in an administrator's words.
std::string state_of(const Line& path) {
    const std::string_view state = path.get("state");
    if (state == "absent") return "not in use";
    if (state == "up") return path.get("carries") == "spare" ? "spare" : "up";
    if (state == "recovering") return "coming back";
    if (state == "suspect") return "no answer";
    const double down = path.number("down_ms") * 1e-3;
    return down > 0 ? "down " + seconds(down) : "down";
}

std::string figure(const Line& path, const char* key, double factor, const char* unit) {
    if (path.get(key).empty()) return "-";
    return format("%.3g %s", path.number(key) * factor, unit);
}

// "cause" takes the rest of the line.
std::string event_line(const Line& event) {
    const std::string_view path = event.get("path");
    std::string text = format(
        "  %12.3f s ago  peer %s %-7s %-8s", event.number("ms_ago") * 1e-3, std::string(event.get("peer")).c_str(),
        path == "-1" ? "" : ("path " + std::string(path)).c_str(), std::string(event.get("state")).c_str());
    if (!event.get("took_ms").empty()) text += "  after " + std::string(event.get("took_ms")) + " ms";
    if (!event.get("writes_again").empty())
        text += "  " + std::string(event.get("writes_again")) + " writes sent again";
    if (!event.get("cause").empty()) text += "  " + std::string(event.get("cause"));
    return text + '\n';
}

std::string raw_line(const Line& line) {
    std::string text = line.kind;
    for (const auto& [key, value] : line.fields) {
        if (key != "id") text += ' ' + key;
        text += ' ' + value;
    }
    return text + '\n';
}

} // namespace

std::string Table::amount(double now, const Bytes* before, double Bytes::*what, double seconds) const {
    if (seconds <= 0) return bytes(now);
    return before ? bytes(std::max(0.0, now - before->*what) / seconds) + "/s" : "-";
}

const Table::Bytes* Table::at_last_look(const std::string& key) const {
    const auto found = before_.find(key);
    return found == before_.end() ? nullptr : &found->second;
}

void Table::show_peer(const std::string& key, const Interface& interface, const Peer& peer,
                      const TableOptions& options) {
    out_ += format("  %-38s %-6s %s\n", cut(peer.name(), 38).c_str(), or_dash(interface.line.get("transport")).c_str(),
                   state_of(peer).c_str());
    for (std::size_t i = 0; i < peer.paths.size(); ++i) {
        const Line& path = peer.paths[i];
        const std::string path_key = key + '/' + std::to_string(i);
        const Bytes* const before = at_last_look(path_key);
        const Bytes now{path.number("written"), path.number("read")};
        const std::string ports = or_dash(path.get("rail")) + " -> " + or_dash(path.get("port_there"));
        if (options.all || !is_well(path)) {
            out_ += format("    %-34s %-12s %10s %10s %10s %9s\n", cut(ports, 34).c_str(), state_of(path).c_str(),
                           amount(now.written, before, &Bytes::written, options.seconds).c_str(),
                           amount(now.read, before, &Bytes::read, options.seconds).c_str(),
                           figure(path, "write_rate", 1, "GB/s").c_str(), figure(path, "latency", 1e-3, "us").c_str());
            if (const std::string_view cause = path.get("cause"); !cause.empty() && !is_well(path))
                out_ += "      " + cut(cause, 92) + '\n';
            if (const double failures = path.number("failures"); failures > 0 && options.all)
                out_ += format("      has failed %.0f times and come back %.0f times, LIDs or addresses %s -> %s\n",
                               failures, path.number("returns"), or_dash(path.get("from")).c_str(),
                               or_dash(path.get("to")).c_str());
        }
        now_[path_key] = now;
    }
    for (const Line& line : peer.more)
        if (options.all) out_ += "      " + raw_line(line);
}

void Table::show_process(const Process& process, const TableOptions& options) {
    const std::string key = std::to_string(process.pid);
    const Bytes* const before = at_last_look(key);
    const Bytes now{process.sum("written"), process.sum("read")};
    std::size_t peers = 0;
    for (const Interface& interface : process.interfaces) peers += interface.peers.size();
    out_ += format("%7d  %-12s %-10s %-10s %-5s %5zu %9s %9s  %s\n", process.pid,
                   cut(process.line.get("program"), 12).c_str(), cut(rank_of(process.line), 10).c_str(),
                   cut(process.line.get("job"), 10).c_str(), transports_of(process).c_str(), peers,
                   amount(now.written, before, &Bytes::written, options.seconds).c_str(),
                   amount(now.read, before, &Bytes::read, options.seconds).c_str(), cut(state_of(process), 23).c_str());
    now_[key] = now;
    for (const Interface& interface : process.interfaces) {
        if (!interface.is_used() && !options.all) continue;
        if (options.all) out_ += "  " + raw_line(interface.line);
        for (const Line& line : interface.more)
            if (options.all) out_ += "  " + raw_line(line);
        for (const Peer& peer : interface.peers) {
            const std::string peer_key =
                key + '/' + std::string(interface.line.get("id")) + '/' + std::string(peer.line.get("id"));
            if (options.all || !peer.is_well()) show_peer(peer_key, interface, peer, options);
        }
        for (const Line& event : interface.events)
            if (options.history) out_ += event_line(event);
    }
}

std::string Table::show(const std::vector<Process>& processes, const TableOptions& options) {
    out_ = format("%7s  %-12s %-10s %-10s %-5s %5s %9s %9s  %s\n", "process", "program", "rank", "job", "over", "peers",
                  "written", "read", "peers are");
    bool any = false;
    for (const Process& process : processes) {
        any |= std::ranges::any_of(process.interfaces,
                                   [](const Interface& interface) { return !interface.peers.empty(); });
        show_process(process, options);
    }
    if (!any) out_ += "  nobody has a peer yet\n";
    before_ = std::exchange(now_, {});
    return std::move(out_);
}

} // namespace ucx_mp::info
