#include "pml_glue/core/async/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ucx_mp::glue::async {

namespace {
// cgroup v2: "max 100000" or "150000 100000". The group is the last field of the line "0::/path".
double quota_of(const std::string& folder) {
    std::ifstream file(folder + "/cpu.max");
    std::string most;
    double period = 0;
    if (!(file >> most >> period) || most == "max" || period <= 0) return 0;
    return std::atof(most.c_str()) / period;
}

// The tightest quota: the group's own, or that of one above it.
double quota() {
    std::ifstream groups("/proc/self/cgroup");
    double least = 0;
    for (std::string line; std::getline(groups, line);) {
        if (line.compare(0, 3, "0::") != 0) continue;
        for (std::filesystem::path group = line.substr(3);; group = group.parent_path()) {
            const double found = quota_of("/sys/fs/cgroup" + group.string());
            if (found > 0 && (least == 0 || found < least)) least = found;
            if (!group.has_relative_path()) break;
        }
    }
    return least;
}
} // namespace

Processors processors() {
    Processors found;
    found.online = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    found.allowed = found.online;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) found.allowed = std::max(1, CPU_COUNT(&allowed));
    found.quota = quota();
    return found;
}

bool is_spare(const Processors& processors, unsigned ranks, unsigned threads, std::string& why) {
    const double share = static_cast<double>(processors.allowed) / std::max(processors.allowed, processors.online);
    const auto sharers = static_cast<unsigned>(std::ceil(std::max(1.0, ranks * share) - 1e-9));
    const double mine =
        processors.quota > 0 ? std::min<double>(processors.quota * share, processors.allowed) : processors.allowed;
    std::ostringstream text;
    text << mine << (mine == 1 ? " processor for " : " processors for ") << sharers
         << (sharers == 1 ? " rank" : " ranks") << " with " << threads << (threads == 1 ? " thread" : " threads")
         << (sharers == 1 ? "" : " each");
    why = text.str();
    return mine >= sharers * threads + 1.0;
}

} // namespace ucx_mp::glue::async
