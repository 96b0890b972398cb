// Starting the program, forwarding signals, waiting.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "core/locked.h"
#include "core/node.h"
#include "core/process.h"
#include "session/client.h"
#include "session/launcher.h"
#include "session/record.h"

namespace softhca {

namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGALRM};

// The library first in LD_PRELOAD: it takes libibverbs' place before anything asks for it. By its absolute path; but a
// blank separates names there, so with one in its folder by its name, and that folder is searched.
void set_environment(const RunOptions& options, const std::string& session) {
    std::string preload = options.library;
    if (const size_t slash = preload.rfind('/'); slash != std::string::npos && preload.find(' ') < slash) {
        const char* searched = std::getenv("LD_LIBRARY_PATH");
        const std::string folder = preload.substr(0, slash);
        setenv("LD_LIBRARY_PATH", (folder + (searched && *searched ? std::string(":") + searched : "")).c_str(), 1);
        preload.erase(0, slash + 1);
    }
    const char* old = std::getenv("LD_PRELOAD");
    if (old && *old && std::string(old).find(preload) == std::string::npos)
        preload += std::string(":") + old;
    else if (old && *old)
        preload = old;
    setenv("LD_PRELOAD", preload.c_str(), 1);
    setenv(kSessionEnv, session.c_str(), 1);
    // What this command says goes before what it has inherited of the other kind.
    if (!options.node.empty()) setenv(kNodeEnv, options.node.c_str(), 1);
    if (!options.place.empty()) setenv(kPlaceEnv, options.place.c_str(), 1), unsetenv(kNodeEnv);
}

// Runs the command; `error` gets errno if it can't be run (read from a pipe that a successful exec closes).
pid_t start(const RunOptions& options, SessionHold& hold, const std::string& session, const sigset_t& signals,
            int& error) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &signals, nullptr);
        set_environment(options, session);
        // By the child: the keeper knows it before it does anything, whatever becomes of the launcher.
        hold.watch_child(getpid());
        std::vector<char*> argv;
        for (const auto& a : options.command) argv.push_back(const_cast<char*>(a.c_str()));
        argv.push_back(nullptr);
        execvp(argv[0], argv.data());
        const int why = errno;
        (void)!write(report[1], &why, sizeof why);
        _exit(127);
    }
    error = pid < 0 ? errno : 0;
    close(report[1]);
    int why = 0;
    if (pid > 0 && read(report[0], &why, sizeof why) == sizeof why) error = why;
    close(report[0]);
    return pid;
}

class SignalFile {
public:
    SignalFile() {
        sigset_t set;
        sigemptyset(&set);
        for (int s : kForwarded) sigaddset(&set, s);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, &before_);
        fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    }
    ~SignalFile() {
        close(fd_);
        sigprocmask(SIG_SETMASK, &before_, nullptr);
    }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const sigset_t& before() const { return before_; }
    void forward(pid_t child) {
        signalfd_siginfo info;
        while (read(fd_, &info, sizeof info) == sizeof info)
            // What the terminal sends goes to the whole process group: the child has it already.
            if (info.ssi_signo != SIGCHLD && info.ssi_code <= 0) kill(child, static_cast<int>(info.ssi_signo));
    }

private:
    int fd_;
    sigset_t before_;
};

std::unique_ptr<SessionHold> open_session(const RunOptions& o, std::string& name) {
    const bool named = !o.session.empty();
    name = named ? o.session : "run-" + std::to_string(getpid());
    const auto names = named ? running_sessions() : std::vector<std::string>{};
    const bool running = std::find(names.begin(), names.end(), name) != names.end();
    if (running && o.fabric.empty() && !o.ideal) {
        try {
            return std::make_unique<SessionHold>(name, nullptr);
        } catch (const std::runtime_error&) { // it has just ended: make a new one
        }
    }
    const char* variable = std::getenv("SOFTHCA_FABRIC");
    const std::string fabric = !o.fabric.empty() ? o.fabric : variable && *variable ? variable : "ideal-2rail";
    const FabricBlock block = load_fabric(fabric, o.ideal);
    return std::make_unique<SessionHold>(name, &block);
}

void check_node(const RunOptions& o, const FabricImage& image) {
    std::string why;
    if (!o.node.empty() && find_node(image, o.node, why) == kNone)
        throw std::runtime_error("--node " + o.node + ": " + why);
    if (!o.place.empty() && read_places(image, o.place, why).empty())
        throw std::runtime_error("--place " + o.place + ": " + why);
}

} // namespace

int run_program(const RunOptions& options) {
    std::string name;
    if (const char* text = std::getenv(kLockedEnv); !read_locked_limit(text))
        throw std::runtime_error(std::string(kLockedEnv) + "=" + text + ": allowed is " + kLockedAllowed);
    const auto hold = open_session(options, name);
    check_node(options, hold->seg().img());
    uint64_t seed = options.seed;
    if (!options.seed_given && !options.faults.empty()) seed = hold->seg().fabric.seed.load() % 1'000'000;
    if (options.seed_given || (hold->created() && !options.faults.empty())) hold->seg().fabric.seed = seed;
    std::vector<ScriptStep> steps;
    if (!options.faults.empty()) {
        steps = load_script(hold->seg().img(), options.faults, seed);
        std::fprintf(stderr, "softhca: faults from %s, seed %llu\n", options.faults.c_str(),
                     static_cast<unsigned long long>(seed));
    }
    if (options.verbose) {
        const FabricImage& image = hold->seg().img();
        std::fprintf(stderr, "softhca: session %s (%s), fabric %s%s: %u nodes, %u adapters, seed %llu\n", name.c_str(),
                     hold->created() ? "new" : "joined", image.name, image.ideal ? " (ideal)" : "", image.nodes,
                     image.devices, static_cast<unsigned long long>(hold->seg().fabric.seed.load()));
        hold->be_verbose();
    }
    std::unique_ptr<Recorder> recorder;
    if (!options.record.empty()) recorder = std::make_unique<Recorder>(hold->seg(), options.record);

    SignalFile signals;
    int error = 0;
    const pid_t child = start(options, *hold, name, signals.before(), error);
    if (error != 0) {
        std::fprintf(stderr, "softhca: can't run '%s': %s\n", options.command[0].c_str(), std::strerror(error));
        if (child > 0) waitpid(child, nullptr, 0);
        return 127;
    }
    hold->remember_child(child);
    if (!steps.empty()) hold->start_script(std::move(steps));
    int status = 0;
    for (;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) break;
        pollfd fds[] = {{signals.fd(), POLLIN, 0}, {hold->connection(), POLLIN, 0}};
        poll(fds, 2, recorder ? static_cast<int>(options.record_ms) : -1);
        if (recorder) recorder->sample();
        if (fds[0].revents) signals.forward(child);
        if (fds[1].revents)
            if (const std::string text = hold->receive(); !text.empty())
                std::fprintf(stderr, "softhca: %s\n", text.c_str());
    }
    if (recorder) recorder->sample();
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

} // namespace softhca
