// A helper program that never outlives its owner: killed by the destructor, and by the kernel if the owning thread
// dies.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace softhca {

class ChildProcess {
public:
    // Runs argv[0] (a path) in `folder` with exactly this environment ("NAME=value"); stdin is empty, stdout and stderr
    // go to `output`. Throws std::system_error if it cannot be started.
    ChildProcess(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                 const std::filesystem::path& folder, const std::filesystem::path& output);
    ~ChildProcess();
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    // Exit status as of waitpid, or nothing if it still runs at `deadline`.
    std::optional<int> wait_until(std::chrono::steady_clock::time_point deadline);
    [[nodiscard]] bool running() { return !wait_until({}); }

private:
    pid_t pid_ = -1;
    std::optional<int> status_;
};

// First executable of that name in $PATH, then in the system folders that users do not always have in it (sbin).
std::optional<std::filesystem::path> find_program(const std::string& name);

// A private folder for helper programs, removed with everything in it at the end. Also removes those that killed
// processes of this user have left.
class ScratchFolder {
public:
    ScratchFolder();
    ~ScratchFolder();
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

} // namespace softhca
