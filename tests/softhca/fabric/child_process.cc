#include "fabric/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <system_error>
#include <thread>

namespace softhca {
namespace fs = std::filesystem;
namespace {

constexpr const char* kScratchPrefix = "softhca-routes-";

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
    std::vector<char*> out;
    out.reserve(strings.size() + 1);
    for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
    out.push_back(nullptr);
    return out;
}

void remove_stale_folders(const fs::path& parent) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(parent, ignored)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with(kScratchPrefix)) continue;
        struct stat info {};
        const pid_t owner = std::atoi(name.c_str() + std::string_view(kScratchPrefix).size());
        if (owner > 0 && lstat(entry.path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
            kill(owner, 0) != 0 && errno == ESRCH)
            fs::remove_all(entry.path(), ignored);
    }
}

} // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                           const fs::path& folder, const fs::path& output) {
    // Everything that allocates happens before fork: another thread may hold the allocator's lock.
    const std::vector<char*> args = c_strings(argv), env = c_strings(environment);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // the parent was gone before prctl
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || chdir(folder.c_str()) != 0)
        _exit(126);
    execve(args[0], args.data(), env.data());
    _exit(127);
}

ChildProcess::~ChildProcess() {
    if (status_) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

std::optional<int> ChildProcess::wait_until(std::chrono::steady_clock::time_point deadline) {
    while (!status_) {
        int status = 0;
        const pid_t got = waitpid(pid_, &status, WNOHANG);
        if (got == pid_)
            status_ = status;
        else if (got < 0 && errno != EINTR)
            status_ = 0; // reaped by somebody else (SIGCHLD ignored)
        else if (std::chrono::steady_clock::now() >= deadline)
            break;
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return status_;
}

std::optional<fs::path> find_program(const std::string& name) {
    const char* path = std::getenv("PATH");
    std::istringstream folders(std::string(path ? path : "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
        if (folder.empty() || folder[0] != '/') continue;
        fs::path candidate = fs::path(folder) / name;
        std::error_code ignored;
        if (fs::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return std::nullopt;
}

ScratchFolder::ScratchFolder() {
    // A host without a folder for temporary files has one for shared memory: the session is there.
    std::error_code ignored;
    for (const fs::path& parent : {fs::temp_directory_path(ignored), fs::path("/dev/shm")}) {
        if (parent.empty()) continue;
        remove_stale_folders(parent);
        std::string pattern = (parent / (kScratchPrefix + std::to_string(getpid()) + "-XXXXXX")).string();
        if (!mkdtemp(pattern.data())) continue;
        path_ = pattern;
        return;
    }
    throw std::system_error(errno, std::generic_category(),
                            "no folder for temporary files can be written to (TMPDIR, /tmp, /dev/shm)");
}

ScratchFolder::~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

} // namespace softhca
