#include <algorithm>
#include <iterator>

#include "uct_mp/ucx/info/views.h"

namespace ucx_mp::info {

namespace {

// Names and ids, which may look like numbers.
bool is_text(std::string_view key) {
    static const std::string_view kTexts[] = {"id",   "host", "program", "job",        "peer",  "from", "to",
                                              "rail", "qp",   "state",   "port_there", "cause", "why"};
    return std::ranges::find(kTexts, key) != std::end(kTexts);
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c >= ' ' && c < 0x7f ? c : '?';
    }
    return out + '"';
}

// -?(0|[1-9][0-9]*)(.[0-9]+)?, as JSON has it; without exponents.
bool is_number(std::string_view text) {
    const auto digits = [&] {
        const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
        text.remove_prefix(n);
        return n;
    };
    if (text.starts_with('-')) text.remove_prefix(1);
    const bool zero = text.starts_with('0');
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (!text.starts_with('.')) return text.empty();
    text.remove_prefix(1);
    return digits() != 0 && text.empty();
}

std::string value_of(std::string_view key, const std::string& text) {
    if (text == "-") return "null";
    // As it is: a double would round large counts.
    return is_text(key) || !is_number(text) ? quoted(text) : text;
}

// Without the braces.
std::string members(const Line& line) {
    std::string out;
    for (const auto& [key, value] : line.fields)
        out += (out.empty() ? "" : ", ") + quoted(key) + ": " + value_of(key, value);
    return out;
}

template <class Of, class Each> std::string array(const std::vector<Of>& list, const char* indent, const Each& each) {
    std::string out = "[";
    for (const Of& one : list) out += (&one == &list.front() ? "\n" : ",\n") + std::string(indent) + each(one);
    return out + "]";
}

std::string object(const Line& line) { return "{" + members(line) + "}"; }

// adapt, rings, service: an object under its name each.
std::string named(const std::vector<Line>& lines) {
    std::string out;
    for (const Line& line : lines) out += ", " + quoted(line.kind) + ": " + object(line);
    return out;
}

} // namespace

std::string to_json(const std::vector<Process>& processes) {
    const auto of_peer = [](const Peer& peer) {
        return "{" + members(peer.line) + named(peer.more) + ", \"paths\": " + array(peer.paths, "        ", object) +
               "}";
    };
    const auto of_interface = [&](const Interface& interface) {
        return "{" + members(interface.line) + named(interface.more) +
               ", \"events\": " + array(interface.events, "      ", object) +
               ", \"peers\": " + array(interface.peers, "      ", of_peer) + "}";
    };
    return array(processes, "  ",
                 [&](const Process& process) {
                     const std::string facts = members(process.line);
                     return "{\"pid\": " + std::to_string(process.pid) + (facts.empty() ? "" : ", ") + facts +
                            ", \"interfaces\": " + array(process.interfaces, "    ", of_interface) + "}";
                 }) +
           "\n";
}

} // namespace ucx_mp::info
