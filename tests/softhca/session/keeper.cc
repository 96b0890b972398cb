#include "session/keeper.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>

#include "core/liveness.h"
#include "engine/aftermath.h"
#include "session/keeper_main.h"

namespace softhca {

namespace {

constexpr Nanos kGrace = 50'000'000;         // a session outlives its last user this long
constexpr Nanos kFirstGrace = 5'000'000'000; // nobody has come yet

// Where the program's arguments are, to show another name in ps. The C library passes them to constructors.
char* g_argv = nullptr;
size_t g_argv_bytes = 0;
__attribute__((constructor)) void remember_arguments(int argc, char** argv, char**) {
    if (argc < 1) return;
    g_argv = argv[0];
    g_argv_bytes = static_cast<size_t>(argv[argc - 1] + std::strlen(argv[argc - 1]) + 1 - argv[0]);
}

void show_name(const std::string& session) {
    prctl(PR_SET_NAME, "softhca-keeper");
    if (!g_argv) return;
    const std::string name = "softhca-keeper " + session;
    std::memset(g_argv, 0, g_argv_bytes);
    std::memcpy(g_argv, name.data(), std::min(name.size(), g_argv_bytes - 1));
}

// Does the process still have the session's memory? After exec() it has the same pid and start time, but not that.
bool maps_session(int32_t pid, int segment_fd) {
    struct stat file;
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE* f = std::fopen(path, "re");
    if (!f || fstat(segment_fd, &file) != 0) {
        if (f) std::fclose(f);
        return true; // gone: its pidfd says so
    }
    char line[512];
    bool found = false;
    while (!found && std::fgets(line, sizeof line, f)) {
        unsigned long inode = 0;
        if (std::strstr(line, "memfd:softhca-") && std::sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1)
            found = inode == file.st_ino;
    }
    std::fclose(f);
    return found;
}

[[noreturn]] void keeper_process(const std::string& session, int segment_fd, int listen_fd) {
    setsid();
    if (fork() != 0) _exit(0); // the middle one: nobody's child is left as a zombie
    show_name(session);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int s : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGALRM})
        signal(s, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_IGN); // workers are not waited for
    if (dup2(segment_fd, 3) < 0 || dup2(listen_fd, 4) < 0) _exit(1);
    (void)close_range(5, ~0u, 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd : {0, 1, 2}) dup2(null, fd);
    if (null > 2) close(null);
    for (int fd : {3, 4}) fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (chdir("/") != 0) _exit(1);
    rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    void* memory = map_segment_file(3, false);
    if (!memory || static_cast<Segment*>(memory)->magic != kSegmentMagic) _exit(1);
    auto& seg = *static_cast<Segment*>(memory);
    if (!attach_keeper(&seg)) _exit(1);
    Keeper(seg, 3, 4).run();
    _exit(0);
}

} // namespace

int bind_session(const std::string& session) {
    sockaddr_un address;
    const uint32_t length = session_address(session, address);
    if (length == 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd, 1024) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool spawn_keeper(const std::string& session, int segment_fd, int listen_fd) {
    // The descriptors go to 3 and 4: out of the way first.
    const int segment = fcntl(segment_fd, F_DUPFD_CLOEXEC, 10), listen = fcntl(listen_fd, F_DUPFD_CLOEXEC, 10);
    close(listen_fd);
    const pid_t pid = segment < 0 || listen < 0 ? -1 : fork();
    if (pid == 0) keeper_process(session, segment, listen);
    const int error = errno;
    if (segment >= 0) close(segment);
    if (listen >= 0) close(listen);
    errno = error;
    if (pid < 0) return false;
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
    return true;
}

void Keeper::run() {
    adopt_processes();
    last_wanted_ = monotonic_now() + kFirstGrace - kGrace;
    while (wanted()) {
        std::vector<pollfd> fds{{listen_fd_, POLLIN, 0}};
        for (const auto& c : connections_) fds.push_back({c.fd, POLLIN, 0});
        for (const auto& w : watched_) fds.push_back({w.pidfd, POLLIN, 0});
        if (poll(fds.data(), fds.size(), wait_milliseconds()) < 0 && errno != EINTR) break;
        // By descriptor, not by position: serving one may take another one off the lists.
        for (size_t i = 1; i < fds.size(); ++i)
            if (fds[i].revents) ready(fds[i].fd);
        if (fds[0].revents) accept_connections();
        retry_reaping();
        watch_crossbar_trips();
        run_due_steps();
    }
    // Bound until here: who connects too late is refused by the system and starts a new session.
    close(listen_fd_);
}

void Keeper::ready(int fd) {
    const auto c = std::find_if(connections_.begin(), connections_.end(), [fd](const auto& x) { return x.fd == fd; });
    if (c != connections_.end()) {
        if (serve(*c)) return;
        connection_lost(*c);
        close(fd);
        connections_.erase(c);
        return;
    }
    const auto w = std::find_if(watched_.begin(), watched_.end(), [fd](const auto& x) { return x.pidfd == fd; });
    if (w == watched_.end()) return;
    const uint32_t slot = w->slot;
    close(fd);
    watched_.erase(w);
    if (slot != kNone) reap(slot);
}

// A new keeper on the memory of a killed one.
void Keeper::adopt_processes() {
    transitions_.resize(seg_.img().ports);
    const uint32_t top = seg_.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot)
        if (seg_.proc(slot).state.load() != ProcState::free) watch(slot);
    refresh_states(seg_);
}

bool Keeper::wanted() {
    const bool used = !watched_.empty() || !unreaped_.empty() ||
                      std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) {
                          return !c.greeted || c.kind == HelloKind::launcher || c.kind == HelloKind::command;
                      });
    const Nanos now = monotonic_now();
    if (used) last_wanted_ = now;
    return now < last_wanted_ + kGrace;
}

int Keeper::wait_milliseconds() const {
    const Nanos now = monotonic_now();
    Nanos until = now + 60'000'000'000;
    if (watched_.empty()) until = std::min(until, now + kGrace / 4);
    if (!unreaped_.empty()) until = std::min(until, now + 50'000'000);
    if (!tripped_ports_.empty()) until = std::min(until, now + 1'000'000);
    if (!steps_.empty()) until = std::min(until, steps_.front().at);
    return until <= now ? 0 : static_cast<int>((until - now + 999'999) / 1'000'000);
}

void Keeper::accept_connections() {
    for (int fd; (fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        ucred peer{};
        socklen_t size = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || (peer.uid != getuid() && peer.uid != 0)) {
            close(fd);
            continue;
        }
        const int buffer = 2 * static_cast<int>(kMaxPacket);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        connections_.push_back({.fd = fd, .pid = peer.pid});
    }
}

bool Keeper::serve(Connection& c) {
    static std::vector<char> buffer(kMaxPacket + 1);
    const ssize_t n = recv(c.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    if (c.greeted) {
        packet(c, std::string(buffer.data(), static_cast<size_t>(n)));
        return true;
    }
    Hello hello;
    if (n != static_cast<ssize_t>(sizeof hello)) return false;
    std::memcpy(&hello, buffer.data(), sizeof hello);
    if (hello.magic != kHelloMagic) return false;
    c.kind = hello.kind;
    Welcome welcome;
    if (hello.version != kSegmentVersion || hello.layout != kLayout) {
        welcome.status = EPROTO;
        std::snprintf(welcome.text, sizeof welcome.text, "session '%s' runs another build of softhca", seg_.session);
    } else if (c.kind == HelloKind::process) {
        welcome_process(c, welcome);
    }
    iovec data{&welcome, sizeof welcome};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (welcome.status == 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* h = CMSG_FIRSTHDR(&message);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(h), &segment_fd_, sizeof(int));
    }
    if (sendmsg(c.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return false;
    c.greeted = true;
    return welcome.status == 0;
}

bool Keeper::welcome_process(Connection& c, Welcome& welcome) {
    // The same process again: it has called exec(), its old objects are gone.
    const uint32_t top = seg_.proc_top.load();
    for (uint32_t slot = kKeeperSlot + 1; slot < top; ++slot) {
        ProcSlot& p = seg_.proc(slot);
        if (p.pid.load() != c.pid || p.state.load() == ProcState::free) continue;
        p.state = ProcState::dead;
        reap(slot);
    }
    c.slot = claim_slot(seg_, kNone, c.pid);
    if (c.slot == kNone) {
        welcome.status = EUSERS;
        std::snprintf(welcome.text, sizeof welcome.text, "session '%s' has %u processes, the most there can be",
                      seg_.session, kMaxProcs - 1);
        return false;
    }
    welcome.slot = c.slot;
    watch(c.slot);
    return true;
}

void Keeper::watch(uint32_t slot) {
    const ProcSlot& p = seg_.proc(slot);
    const int fd = open_process(p.pid.load(), p.start_time.load());
    if (fd >= 0)
        watched_.push_back({fd, slot});
    else
        reap(slot);
}

void Keeper::reap(uint32_t slot) {
    if (!reap_process(seg_, slot)) return unreaped_.push_back(slot);
    finish_work_of_the_dead(seg_);
}

void Keeper::retry_reaping() {
    for (size_t n = unreaped_.size(); n > 0; --n) {
        const uint32_t slot = unreaped_.front();
        unreaped_.pop_front();
        reap(slot);
    }
}

// The process is gone, and its pidfd says so too; or it has called exec(); or it closes descriptors that it does not
// know, and goes on.
void Keeper::connection_lost(const Connection& c) {
    if (c.slot == kNone) return;
    ProcSlot& p = seg_.proc(c.slot);
    if (p.pid.load() != c.pid || p.state.load() == ProcState::free || maps_session(c.pid, segment_fd_)) return;
    p.state = ProcState::dead;
    reap(c.slot);
    watched_.remove_if([&](const Watched& w) {
        if (w.slot == c.slot) close(w.pidfd);
        return w.slot == c.slot;
    });
}

} // namespace softhca
