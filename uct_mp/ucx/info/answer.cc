#include "uct_mp/ucx/info/answer.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace ucx_mp::info {

namespace {

// "interface 0123 transport mp_rc": the first word has a value itself, without a key, for some kinds.
bool has_value(std::string_view kind) {
    return kind == "process" || kind == "interface" || kind == "peer" || kind == "rings";
}

Line read_line(const std::string& text) {
    Line line;
    std::istringstream words(text);
    words >> line.kind;
    std::string key, value;
    if (has_value(line.kind) && words >> value) line.fields.emplace_back("id", value);
    while (words >> key) {
        if (key == "asking" || key == "refused_by_peer") { // alone
            line.fields.emplace_back(key, "1");
            continue;
        }
        if (key == "cause") // the last one: it has spaces
            std::getline(words >> std::ws, value);
        else if (!(words >> value))
            break;
        line.fields.emplace_back(key, value);
    }
    return line;
}

} // namespace

std::string printable(std::string text) {
    for (char& c : text)
        if (c != '\n' && (c < ' ' || c > '~')) c = '?';
    return text;
}

std::string_view Line::get(std::string_view key) const {
    const auto found = std::ranges::find(fields, key, &std::pair<std::string, std::string>::first);
    return found == fields.end() || found->second == "-" ? std::string_view{} : found->second;
}

double Line::number(std::string_view key) const { return std::strtod(std::string(get(key)).c_str(), nullptr); }

std::string Peer::name() const {
    std::string name(line.get("host"));
    if (!line.get("rank").empty() && line.number("rank") >= 0)
        name += (name.empty() ? "rank " : " rank ") + std::string(line.get("rank"));
    return name.empty() ? "peer " + std::string(line.get("id")) : name;
}

bool is_well(const Line& path) {
    const std::string_view state = path.get("state");
    return state == "up" || state == "absent";
}

bool Peer::is_well() const {
    return !is_cut_off() && line.get("state") != "failed" &&
           std::ranges::all_of(paths, [](const Line& path) { return info::is_well(path); });
}

double Interface::sum(std::string_view key) const {
    double sum = 0;
    for (const Peer& peer : peers)
        for (const Line& path : peer.paths) sum += path.number(key);
    return sum;
}

bool Interface::is_used() const { return !peers.empty(); }

double Process::sum(std::string_view key) const {
    double sum = 0;
    for (const Interface& interface : interfaces) sum += interface.sum(key);
    return sum;
}

Process parse(int pid, const std::string& answer) {
    Process process{.pid = pid, .line = {}, .interfaces = {}};
    std::istringstream lines(printable(answer));
    for (std::string text; std::getline(lines, text);) {
        Line line = read_line(text);
        if (line.kind == "process") {
            process.line = std::move(line);
        } else if (line.kind == "interface") {
            process.interfaces.push_back({.line = std::move(line), .peers = {}, .events = {}, .more = {}});
        } else if (process.interfaces.empty()) {
            continue;
        } else {
            Interface& interface = process.interfaces.back();
            if (line.kind == "peer")
                interface.peers.push_back({.line = std::move(line), .paths = {}, .more = {}});
            else if (line.kind == "event")
                interface.events.push_back(std::move(line));
            else if (interface.peers.empty() || line.kind == "adapt" || line.kind == "rings")
                interface.more.push_back(std::move(line));
            else if (line.kind == "path")
                interface.peers.back().paths.push_back(std::move(line));
            else
                interface.peers.back().more.push_back(std::move(line));
        }
    }
    return process;
}

} // namespace ucx_mp::info
