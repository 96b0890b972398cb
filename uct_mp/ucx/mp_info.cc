// mp_info: the rails of this host, and a look into running processes (inspect.h).
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "uct_mp/ucx/check/check.h"
#include "uct_mp/ucx/check/wire.h"
#include "uct_mp/verbs/device.h"

namespace {

using namespace ucx_mp;

int show_rails(const std::vector<std::string>& names) {
    verbs::DeviceSet devices;
    std::string error;
    if (failed(verbs::DeviceSet::open({names}, devices, error))) {
        std::fprintf(stderr, "mp_info: %s\n", error.c_str());
        return 1;
    }
    std::printf("%-20s %15s %4s %18s %6s %12s %4s %11s %7s\n", "rail", "LID or address", "LMC", "subnet", "MTU", "MB/s",
                "DC", "timestamps", "device");
    for (const verbs::Rail& rail : devices.rails()) {
        const verbs::Device& device = devices.device_of(rail);
        std::printf("%-20s %15s %4u 0x%016llx %6u %12.0f %4s %11s %7u%s\n", rail.name.c_str(),
                    rail.ethernet ? verbs::to_string(rail.gid).c_str() : std::to_string(rail.lid).c_str(),
                    unsigned{rail.lmc}, static_cast<unsigned long long>(rail.subnet_prefix), 128u << rail.mtu,
                    rail.rate * 1e3, device.has_dc ? "yes" : "no", device.has_timestamps ? "yes" : "no", device.index,
                    rail.active ? "" : "  (port down)");
    }
    return 0;
}

// Processes that can be looked into.
std::vector<int> processes() {
    std::vector<int> out;
    std::ifstream file("/proc/net/unix");
    for (std::string line; std::getline(file, line);) {
        const auto at = line.find("@ucx-mp.");
        if (at != std::string::npos) out.push_back(std::atoi(line.c_str() + at + 8));
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

// A file in memory, by its descriptor (inspect.cc). It is sealed, so nobody changes it under us, or makes us wait.
bool receive_text(int from, std::string& out) {
    char byte;
    iovec data{&byte, 1};
    int file = -1;
    union {
        cmsghdr head;                      // for its alignment
        char bytes[CMSG_LEN(sizeof file)]; // room for no second one
    } control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) return false;
    const cmsghdr* const head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof file))
        return false;
    std::memcpy(&file, CMSG_DATA(head), sizeof file);
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    constexpr off_t kMost = 1 << 30;
    struct stat what {};
    bool good = (fcntl(file, F_GET_SEALS) & kSeals) == kSeals && fstat(file, &what) == 0 && what.st_size <= kMost;
    if (good) {
        out.resize(static_cast<std::size_t>(what.st_size));
        good = pread(file, out.data(), out.size(), 0) == what.st_size;
    }
    close(file);
    return good;
}

// Any process may take the name: the one that answers has to be ours, or we root.
bool is_trusted(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (geteuid() == 0 || peer.uid == geteuid());
}

bool ask(int pid, std::string& out) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "ucx-mp.%d", pid);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const timeval patience{2, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
    bool good = connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0;
    if (good) good = is_trusted(fd) && receive_text(fd, out);
    close(fd);
    return good;
}

// A transition, as inspect.cc writes it: "cause" takes the rest of the line.
void show_event(std::istringstream& words) {
    std::map<std::string, std::string> value;
    for (std::string key, word; words >> key;) {
        if (key == "cause")
            std::getline(words >> std::ws, word);
        else
            words >> word;
        value[key] = word;
    }
    const std::string where = value["path"] == "-1" ? "" : "path " + value["path"];
    std::printf("  %12.3f s ago  peer %s %-7s %-8s", std::atof(value["ms_ago"].c_str()) * 1e-3, value["peer"].c_str(),
                where.c_str(), value["state"].c_str());
    if (value.count("took_ms")) std::printf("  after %s ms", value["took_ms"].c_str());
    if (value.count("writes_again")) std::printf("  %s writes sent again", value["writes_again"].c_str());
    if (value.count("cause")) std::printf("  %s", value["cause"].c_str());
    std::printf("\n");
}

// Bytes per path since the last look, as rates.
void show(int pid, const std::string& text, std::map<std::string, double>& before, double seconds, bool history) {
    std::printf("process %d\n", pid);
    std::istringstream lines(text);
    std::string peer;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string kind;
        words >> kind;
        if (kind == "interface" || kind == "adapt" || kind == "rings") {
            std::printf("%s\n", line.c_str());
        } else if (kind == "event") {
            if (history) show_event(words);
        } else if (kind == "recovery" || kind == "service" || kind == "ring" || kind == "memory") {
            std::printf("    %s\n", line.c_str());
        } else if (kind == "peer") {
            words >> peer;
            std::printf("  %s\n", line.c_str());
        } else if (kind == "path") {
            std::map<std::string, std::string> value;
            for (std::string key, word; words >> key >> word;) value[key] = word;
            const std::string name =
                std::to_string(pid) + peer + value["rail"] + value["from"] + "-" + value["to"] + value["qp"];
            const double bytes = std::atof(value["written"].c_str()) + std::atof(value["read"].c_str());
            std::printf("    %-14s %5s -> %-5s %-10s weight %8s  GB/s write %7s read %7s  latency %6s ns  written %14s "
                        "read %14s  in flight %9s",
                        value["rail"].c_str(), value["from"].c_str(), value["to"].c_str(), value["state"].c_str(),
                        value["weight"].c_str(), value["write_rate"].c_str(), value["read_rate"].c_str(),
                        value["latency"].c_str(), value["written"].c_str(), value["read"].c_str(),
                        value["in_flight"].c_str());
            if (!value["kind"].empty()) std::printf("  %s", value["kind"].c_str());
            if (value["carries"] == "spare")
                std::printf("  spare");
            else if (value["carries"] != "all")
                std::printf("  for %s", value["carries"].c_str());
            if (value["failures"] != "0")
                std::printf("  failed %s times, came back %s", value["failures"].c_str(), value["returns"].c_str());
            if (value["migrations"] != "0") std::printf("  migrated %s times", value["migrations"].c_str());
            if (seconds > 0 && before.count(name))
                std::printf("  now %8.1f MB/s", (bytes - before[name]) / 1e6 / seconds);
            std::printf("\n");
            before[name] = bytes;
        }
    }
}

// Things that programs started from here would lack.
void say_what_is_missing() {
    const auto has = [](const char* variable, std::initializer_list<const char*> words) {
        const char* const value = std::getenv(variable);
        return value &&
               std::any_of(words.begin(), words.end(), [&](const char* word) { return std::strstr(value, word); });
    };
    if (has("UCX_TLS", {"mp_rc", "mp_dc"}) && !has("LD_PRELOAD", {"libuct_mp"}) && !has("UCX_PLUGIN_PATH", {"ucx-mp"}))
        std::fprintf(stderr,
                     "mp_info: UCX_TLS names mp_rc or mp_dc, but LD_PRELOAD has no libuct_mp.so: UCX knows no such "
                     "transport then. Set it, or start MPI jobs with mpirun-mp or mpiexec-mp\n");
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app{"Rails of this host, and the paths of running processes that use mp_rc or mp_dc.\n"
                 "  mp_info               rails: LIDs, rates, what the adapters can do\n"
                 "  mp_info -p PID        a process: peers, paths, weights, bytes, delivery times\n"
                 "  mp_info -a --history  all processes of yours, and what became of their paths lately\n"
                 "  mp_info -a --watch 1  all processes of yours, every second, with rates per path\n"
                 "  mp_info --check       are the adapters what the transport takes them for?"};
    app.set_version_flag("--version", "mp_info " UCX_MP_VERSION);
    std::vector<std::string> rails;
    std::vector<int> pids;
    bool all = false, raw = false, history = false;
    double watch = 0;
    app.add_option("-r,--rails", rails, "only these rails, as in UCX_MP_RAILS")->delimiter(',');
    app.add_option("-p,--pid", pids, "look into these processes (yours; any as root)");
    app.add_flag("-a,--all", all, "look into every process that can be looked into");
    app.add_option("-w,--watch", watch, "again every so many seconds, until interrupted")->check(CLI::PositiveNumber);
    app.add_flag("-H,--history", history,
                 "also the latest transitions of its paths: down (with the cause), settled, up again, ...");
    app.add_flag("--raw", raw,
                 "the answers as they are: one line per interface, peer, path and transition, \"key value\" pairs");
    std::string host;
    unsigned port = check::kPort;
    auto* const checks =
        app.add_option(
               "-c,--check", host,
               "try out what the transport assumes of adapters: over the ports of this host, or with HOST[:PORT], "
               "where\n"
               "mp_info --check --listen waits. Exit code 0: all that is relied on holds; 1: see what to set; 2: usage")
            ->expected(0, 1);
    auto* const listens = app.add_option("-l,--listen", port, "with --check: be the other end, on this port")
                              ->expected(0, 1)
                              ->check(CLI::Range(1, 65535))
                              ->needs(checks)
                              ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }
    if (*checks) {
        if (!pids.empty() || all || (*listens && !host.empty())) {
            std::fprintf(stderr,
                         "mp_info: --check goes with --rails, and with either HOST[:PORT] or --listen [PORT]\n");
            return 2;
        }
        return *listens ? check::listen(rails, port) : check::check(rails, host);
    }
    if (pids.empty() && !all) {
        say_what_is_missing();
        return show_rails(rails);
    }
    std::map<std::string, double> before;
    for (bool again = false;; again = true) {
        const std::vector<int> chosen = pids.empty() ? processes() : pids;
        if (chosen.empty()) {
            std::fprintf(stderr, "mp_info: no process uses mp_rc or mp_dc on this host (or it is another user's)\n");
            return 1;
        }
        int answered = 0;
        for (const int pid : chosen) {
            std::string text;
            if (!ask(pid, text)) {
                if (!pids.empty())
                    std::fprintf(stderr,
                                 "mp_info: process %d does not answer: it has no mp interface, or is another user's\n",
                                 pid);
                continue;
            }
            ++answered;
            if (raw)
                std::fputs(text.c_str(), stdout);
            else
                show(pid, text, before, again ? watch : 0, history);
        }
        std::fflush(stdout);
        if (watch <= 0) return answered ? 0 : 1;
        std::this_thread::sleep_for(std::chrono::duration<double>(watch));
    }
} catch (const std::exception& e) {
    std::fprintf(stderr, "mp_info: %s\n", e.what());
    return 1;
}
