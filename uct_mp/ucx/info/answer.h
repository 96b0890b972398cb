// The answer of a running process (inspect.h), taken apart: lines of "key value" pairs, each under its owner.
//
// Threads: any. An answer may come from another release: what is not known is kept, what is missing is empty.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ucx_mp::info {

struct Line {
    std::string kind; // its first word
    std::vector<std::pair<std::string, std::string>> fields;

    // Empty: there is none, or it is "-", which says not known.
    [[nodiscard]] std::string_view get(std::string_view key) const;
    [[nodiscard]] double number(std::string_view key) const; // 0: there is none
};

struct Peer {
    Line line;
    std::vector<Line> paths;
    std::vector<Line> more; // service, memory, ring, recovery

    [[nodiscard]] std::string name() const; // "node7 rank 4", else its number
    [[nodiscard]] bool is_well() const;     // connected or idle, and nothing of its paths is down
    [[nodiscard]] bool is_cut_off() const { return line.number("cut_off") != 0; }
};

struct Interface {
    Line line;
    std::vector<Peer> peers;
    std::vector<Line> events; // oldest first
    std::vector<Line> more;   // adapt, rings

    [[nodiscard]] double sum(std::string_view key) const; // over all paths
    [[nodiscard]] bool is_used() const;                   // has a peer
};

struct Process {
    int pid = 0;
    Line line;
    std::vector<Interface> interfaces;

    [[nodiscard]] double sum(std::string_view key) const;
};

[[nodiscard]] Process parse(int pid, const std::string& answer);
// Any process may answer, and its text goes to a terminal: other characters than ASCII's visible ones become '?'.
[[nodiscard]] std::string printable(std::string text);

// The path is up, or its state is no fault, such as waiting until it is wanted.
[[nodiscard]] bool is_well(const Line& path);

} // namespace ucx_mp::info
