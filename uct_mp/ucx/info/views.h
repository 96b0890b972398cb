// The views that mp_info prints of processes: a table for people, JSON for tools, metrics for collectors.
//
// The table has at most 100 columns. Its words: a *process* with its program, rank and job; *peers* that are not well,
// each with its paths; a *path* leads from a port here to a port there. A figure that is not known is "-".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "uct_mp/ucx/info/answer.h"

namespace ucx_mp::info {

struct TableOptions {
    bool all = false;     // peers and paths that are well, too, and what else is told of them
    bool history = false; // what became of paths lately
    double seconds = 0;   // since the last look; 0: there was none, and totals are shown instead of rates
};

class Table {
public:
    // `before` of the next look is this one.
    [[nodiscard]] std::string show(const std::vector<Process>& processes, const TableOptions& options);

private:
    // Bytes of a path, as they were at the last look.
    struct Bytes {
        double written = 0, read = 0;
    };
    void show_process(const Process& process, const TableOptions& options);
    void show_peer(const std::string& key, const Interface& interface, const Peer& peer, const TableOptions& options);
    // Bytes, or bytes a second since the last look; "-": there was none of this.
    [[nodiscard]] std::string amount(double now, const Bytes* before, double Bytes::*what, double seconds) const;
    [[nodiscard]] const Bytes* at_last_look(const std::string& key) const;

    std::map<std::string, Bytes> before_, now_; // the last look, and this one
    std::string out_;
};

// An array of processes, each with its interfaces, their peers and the paths. Keys are those of the answers; numbers
// and null are what they are, ids and names are strings.
[[nodiscard]] std::string to_json(const std::vector<Process>& processes);

// Prometheus' text format, for node_exporter's textfile collector: bytes and faults of each path of each process.
// Peers of one host over one route are one path, so that large jobs stay small.
[[nodiscard]] std::string to_metrics(const std::vector<Process>& processes);

} // namespace ucx_mp::info
