// mp_info: the rails of this host, and a look into running processes (inspect.h).
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "uct_mp/ucx/check/check.h"
#include "uct_mp/ucx/check/wire.h"
#include "uct_mp/ucx/info/views.h"
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
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); // connect(), too
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
    bool good = connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0;
    if (good) good = is_trusted(fd) && receive_text(fd, out);
    close(fd);
    return good;
}

// As a whole or not at all: a collector reads it at any time.
int write_metrics(const std::string& path, const std::string& text) {
    const std::string fresh = path + "." + std::to_string(getpid());
    // Nobody else's file or link of this name is written to; the collector is another user.
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool good = fd >= 0 && fchmod(fd, 0644) == 0;
    for (std::string_view rest = text; good && !rest.empty();) {
        const ssize_t n = ::write(fd, rest.data(), rest.size());
        good = n > 0;
        if (good) rest.remove_prefix(static_cast<std::size_t>(n));
    }
    good = fd >= 0 && ::close(fd) == 0 && good;
    if (good && std::rename(fresh.c_str(), path.c_str()) == 0) return 0;
    std::fprintf(stderr, "mp_info: --metrics %s: cannot be written: %s\n", path.c_str(), std::strerror(errno));
    if (fd >= 0) (void)std::remove(fresh.c_str());
    return 1;
}

struct Wishes {
    std::vector<int> pids; // empty: every process
    std::string job;       // only processes of this one
    bool raw = false, json = false, metrics = false;
    std::string metrics_file; // empty: stdout
    double watch = 0;         // s
    info::TableOptions table;
};

// One look. Exit code.
int look(const Wishes& wishes, info::Table& table) {
    std::vector<info::Process> found;
    const std::vector<int> chosen = wishes.pids.empty() ? processes() : wishes.pids;
    for (const int pid : chosen) {
        std::string text;
        if (!ask(pid, text)) {
            if (!wishes.pids.empty())
                std::fprintf(
                    stderr, "mp_info: process %d does not answer: it has no mp interface, or is another user's\n", pid);
            continue;
        }
        info::Process process = info::parse(pid, text);
        if (!wishes.job.empty() && process.line.get("job") != wishes.job) continue;
        if (wishes.raw) std::fputs(info::printable(text).c_str(), stdout);
        found.push_back(std::move(process));
    }
    if (wishes.metrics) { // none is no error there
        const std::string text = info::to_metrics(found);
        if (!wishes.metrics_file.empty()) return write_metrics(wishes.metrics_file, text);
        std::fputs(text.c_str(), stdout);
        return 0;
    }
    if (wishes.json) {
        std::fputs(info::to_json(found).c_str(), stdout);
    } else if (found.empty() && wishes.pids.empty()) {
        const std::string job = wishes.job.empty() ? "" : " of job " + wishes.job;
        std::fprintf(stderr, "mp_info: no process%s uses mp_rc or mp_dc on this host (or it is another user's)\n",
                     job.c_str());
    } else if (!wishes.raw) {
        std::fputs(table.show(found, wishes.table).c_str(), stdout);
    }
    return found.empty();
}

int look_again_and_again(Wishes wishes) {
    info::Table table;
    for (;;) {
        const auto began = std::chrono::steady_clock::now();
        const int code = look(wishes, table);
        std::fflush(stdout);
        if (wishes.watch <= 0 || code) return code;
        std::this_thread::sleep_for(std::chrono::duration<double>(wishes.watch));
        wishes.table.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
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
                 "  mp_info -a            all processes of yours (all as root), and their peers that are not well\n"
                 "  mp_info --all         likewise, with every peer and path\n"
                 "  mp_info -a --history  likewise, and what became of the paths lately\n"
                 "  mp_info -a --watch 1  again every second, with rates\n"
                 "  mp_info --metrics     for Prometheus: bytes and faults of each path\n"
                 "  mp_info --check       are the adapters what the transport takes them for?"};
    app.set_version_flag("--version", "mp_info " UCX_MP_VERSION);
    std::vector<std::string> rails;
    Wishes wishes;
    bool every = false;
    app.add_option("-r,--rails", rails, "only these rails, as in UCX_MP_RAILS")->delimiter(',');
    app.add_option("-p,--pid", wishes.pids, "look into these processes (yours; any as root)");
    app.add_flag("-a", every, "look into every process that can be looked into");
    app.add_flag("--all", wishes.table.all,
                 "every peer and path, also those that are well. Without --pid: of every process");
    app.add_option("-j,--job", wishes.job, "only processes of this job, as the table calls it");
    app.add_option("-w,--watch", wishes.watch, "again every so many seconds, until interrupted")
        ->check(CLI::PositiveNumber);
    app.add_flag("-H,--history", wishes.table.history,
                 "also the latest transitions of paths: down (with the cause), settled, up again, ...");
    auto* const json = app.add_flag("--json", wishes.json, "for tools: an array of processes with all that is known");
    auto* const metrics =
        app.add_option("-m,--metrics", wishes.metrics_file,
                       "for Prometheus: bytes and faults of each path as text, to stdout or into FILE, which is\n"
                       "replaced as a whole. No process at all is no error then")
            ->expected(0, 1)
            ->type_name("[FILE]");
    app.add_flag("--raw", wishes.raw,
                 "the answers as they are: one line per interface, peer, path and transition, \"key value\" pairs")
        ->excludes(json)
        ->excludes(metrics);
    json->excludes(metrics);
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
    wishes.metrics = metrics->count() != 0;
    every |= wishes.table.all || wishes.json || wishes.metrics || !wishes.job.empty();
    if (*checks) {
        if (!wishes.pids.empty() || every || (*listens && !host.empty())) {
            std::fprintf(stderr,
                         "mp_info: --check goes with --rails, and with either HOST[:PORT] or --listen [PORT]\n");
            return 2;
        }
        return *listens ? check::listen(rails, port) : check::check(rails, host);
    }
    if (wishes.pids.empty() && !every) {
        say_what_is_missing();
        return show_rails(rails);
    }
    return look_again_and_again(std::move(wishes));
} catch (const std::exception& e) {
    std::fprintf(stderr, "mp_info: %s\n", e.what());
    return 1;
}
