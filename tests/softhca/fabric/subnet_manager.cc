#include "fabric/subnet_manager.h"

#include "fabric/child_process.h"
#include "fabric/topology.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

namespace softhca {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
    return text;
}

void write_file(const fs::path& file, const std::string& text) {
    std::ofstream out(file);
    if (!(out << text) || !out.flush()) throw FabricError("cannot write " + file.string());
}

std::string read_file(const fs::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// The last line that says something, for error messages.
std::string last_line(const fs::path& file) {
    std::istringstream in(read_file(file));
    std::string last, line;
    while (std::getline(in, line))
        if (line.find_first_not_of(" \t-") != std::string::npos) last = line;
    return last.empty() ? "it said nothing" : last;
}

// umad2sim lives in a folder of its own, outside the loader's search path.
std::optional<fs::path> find_umad2sim() {
    const char* file = "umad2sim/libumad2sim.so";
    std::error_code ignored;
    if (const char* given = std::getenv("SOFTHCA_UMAD2SIM"); given && *given) return fs::path(given);
    for (const char* root : {"/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"}) {
        if (fs::exists(fs::path(root) / file, ignored)) return fs::path(root) / file;
        for (const auto& entry : fs::directory_iterator(root, ignored)) // multiarch
            if (entry.is_directory(ignored) && fs::exists(entry.path() / file, ignored)) return entry.path() / file;
    }
    return std::nullopt;
}

// ibsim is ready when somebody is bound to its control socket. (umad2sim would look only every two seconds.)
bool socket_is_bound(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size()); // abstract: first byte 0; ibsim counts a final 0 too
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size() + 1);
    const bool bound = connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0;
    close(fd);
    return bound;
}

// guid2lid: "0x<port guid> 0x<first lid> 0x<last lid>", one per line. opensm starts from it and writes it again.
std::string guid2lid_text(const SubnetTask& task) {
    std::string text;
    for (const auto& [guid, lid] : task.lids) {
        const bool is_switch = task.netlist.find("switchguid=" + hex(guid) + "\n") != std::string::npos;
        char line[64];
        std::snprintf(line, sizeof line, " 0x%04x 0x%04x\n\n", lid, lid + (is_switch ? 1U : 1U << task.lmc) - 1);
        text += hex(guid) + line;
    }
    return text;
}

void read_guid2lid(const fs::path& file, SubnetTables& tables) {
    std::ifstream in(file);
    for (std::string guid, first, last; in >> guid >> first >> last;)
        tables.lids[std::strtoull(guid.c_str(), nullptr, 16)] =
            static_cast<uint16_t>(std::strtoul(first.c_str(), nullptr, 16));
}

// opensm-lfts.dump: a line "Unicast lids [0-n] of switch Lid 1 guid 0x... ('...'):" and then "0x<lid> <port> # ..." for
// every LID in use; a LID without a route has a word in place of the number.
void read_forwarding_tables(const fs::path& file, SubnetTables& tables) {
    std::ifstream in(file);
    std::vector<uint8_t>* table = nullptr;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("Unicast lids")) {
            const size_t at = line.find("guid 0x");
            table =
                at == std::string::npos ? nullptr : &tables.tables[std::strtoull(line.c_str() + at + 5, nullptr, 16)];
        } else if (table && line.starts_with("0x")) {
            char* rest = nullptr;
            const unsigned long lid = std::strtoul(line.c_str(), &rest, 16);
            char* end = nullptr;
            const unsigned long port = std::strtoul(rest, &end, 10);
            if (lid == 0 || lid > kMaxLid || end == rest || port > 254) continue;
            if (table->size() <= lid) table->resize(lid + 1, kNoRoute);
            (*table)[lid] = static_cast<uint8_t>(port);
        }
    }
}

// The log says which engine was used in the end, and sometimes why not the one asked for.
void read_engine(const fs::path& log, const std::string& wanted, SubnetTables& tables) {
    std::ifstream in(log);
    std::string reason;
    for (std::string line; std::getline(in, line);) {
        const size_t end = line.find(" tables configured");
        const size_t colon = end == std::string::npos ? end : line.rfind(' ', end - 1);
        if (colon != std::string::npos) tables.engine = line.substr(colon + 1, end - colon - 1);
        const size_t why = line.find("-> ");
        if (line.find("not supported") != std::string::npos && why != std::string::npos) reason = line.substr(why + 3);
    }
    const std::string first = wanted.substr(0, wanted.find(','));
    if (!tables.engine.empty() && tables.engine != first)
        tables.warning = "opensm could not use '" + first + "' and took '" + tables.engine + "'" +
                         (reason.empty() ? "" : ": " + reason);
}

} // namespace

SubnetManagerPrograms find_subnet_manager() {
    SubnetManagerPrograms found;
    const auto opensm = find_program("opensm"), ibsim = find_program("ibsim"), umad2sim = find_umad2sim();
    if (!opensm) throw FabricError("routes need the program opensm: install the package opensm");
    if (!ibsim) throw FabricError("routes need the program ibsim: install the package ibsim-utils");
    if (!umad2sim) throw FabricError("routes need libumad2sim.so: install the package ibsim-utils");
    found.opensm = *opensm;
    found.ibsim = *ibsim;
    found.umad2sim = *umad2sim;
    const ScratchFolder scratch;
    const fs::path output = scratch.path() / "version";
    ChildProcess version({found.opensm, "--version"}, {"PATH=/usr/bin:/bin"}, scratch.path(), output);
    if (!version.wait_until(Clock::now() + std::chrono::seconds(10))) throw FabricError("opensm --version hangs");
    found.version = read_file(output);
    return found;
}

SubnetTables run_subnet_manager(const SubnetManagerPrograms& programs, const SubnetTask& task,
                                std::chrono::seconds timeout) {
    const Clock::time_point deadline = Clock::now() + timeout;
    const ScratchFolder scratch;
    const fs::path& folder = scratch.path();
    const std::string late = " did not finish within " + std::to_string(timeout.count()) + " s and was killed";
    write_file(folder / "net", task.netlist);
    write_file(folder / "opensm.conf", ""); // else opensm reads the machine's own
    write_file(folder / "partitions.conf", "Default=0x7fff,ipoib:ALL=full;\n");
    if (!task.lids.empty()) write_file(folder / "guid2lid", guid2lid_text(task));

    const std::string socket = folder.filename();
    const std::vector<std::string> base = {"PATH=/usr/bin:/bin", "LC_ALL=C", "IBSIM_SOCKNAME=" + socket};
    ChildProcess ibsim({programs.ibsim, "-s", "-n", "-N", std::to_string(task.nodes + 8), "-S",
                        std::to_string(task.switches + 8), "-P", std::to_string(task.ports + 64), "-L",
                        std::to_string(kMaxLid + 1), (folder / "net").string()},
                       base, folder, folder / "ibsim.out");
    while (!socket_is_bound(socket + ":ctl")) {
        if (!ibsim.running()) throw FabricError("ibsim failed: " + last_line(folder / "ibsim.out"));
        if (Clock::now() > deadline) throw FabricError("ibsim" + late);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }

    std::vector<std::string> env = base;
    for (const std::string& v : {"LD_PRELOAD=" + programs.umad2sim, "SIM_HOST=" + task.attach_to,
                                 "OSM_CACHE_DIR=" + folder.string(), "OSM_TMP_DIR=" + folder.string()})
        env.push_back(v);
    // -D 0x43: errors, information, and routing - the last makes it dump its tables.
    ChildProcess opensm({programs.opensm,
                         "-F",
                         "opensm.conf",
                         "-P",
                         "partitions.conf",
                         "-g",
                         hex(task.attach_guid),
                         "-o",
                         "-R",
                         task.engines,
                         "-l",
                         std::to_string(task.lmc),
                         "--subnet_prefix",
                         hex(task.prefix),
                         "-D",
                         "0x43",
                         "-f",
                         "opensm.log",
                         "--dump_files_dir",
                         folder.string()},
                        env, folder, folder / "opensm.out");
    const auto status = opensm.wait_until(deadline);
    if (!status) throw FabricError("opensm" + late);
    if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
        throw FabricError("opensm failed: " + last_line(folder / "opensm.out"));

    SubnetTables tables;
    read_guid2lid(folder / "guid2lid", tables);
    read_forwarding_tables(folder / "opensm-lfts.dump", tables);
    read_engine(folder / "opensm.log", task.engines, tables);
    if (tables.lids.empty() || tables.tables.empty())
        throw FabricError("opensm left no tables: " + last_line(folder / "opensm.log"));
    tables.sm_lid = tables.lids[task.attach_guid];
    return tables;
}

} // namespace softhca
