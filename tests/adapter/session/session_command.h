// Sessions as a user has them: the command `softhca` runs programs. The test's own executable also plays the part of
// the program that is run: with --play it joins the session and does what it is told on stdin. So this header brings
// main(), and what includes it defines BOOST_TEST_MODULE and BOOST_TEST_NO_MAIN before.
#pragma once
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <ucx_mp_places.h>
#include <utility>
#include <vector>

#include "core/node.h"
#include "core/process.h"
#include "session/client.h"

namespace softhca {

namespace fs = std::filesystem;

inline bool wait_until(const std::function<bool()>& condition, int milliseconds = 30'000) {
    for (int i = 0; i < milliseconds; ++i, usleep(1000))
        if (condition()) return true;
    return condition();
}

inline std::string new_session() {
    static int n = 0;
    return "unit-" + std::to_string(getpid()) + "-" + std::to_string(n++);
}

// A `softhca ...` command with pipes on stdin and stdout.
class Command {
public:
    Command(std::vector<std::string> words, bool own_group = true) {
        words.insert(words.begin(), UCX_MP_BINARY_DIR "/bin/softhca");
        int in[2], out[2];
        if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) std::abort();
        pid_ = fork();
        if (pid_ == 0) {
            if (own_group) setpgid(0, 0);
            dup2(in[0], 0), dup2(out[1], 1), dup2(out[1], 2);
            std::vector<char*> argv;
            for (auto& w : words) argv.push_back(w.data());
            argv.push_back(nullptr);
            execv(argv[0], argv.data());
            _exit(126);
        }
        close(in[0]), close(out[1]);
        in_ = in[1], out_ = out[0];
    }
    ~Command() {
        close(in_), close(out_);
        if (pid_ > 0) kill(pid_, SIGKILL), wait();
    }
    void say(const std::string& line) { (void)!write(in_, (line + "\n").data(), line.size() + 1); }
    // The next line of output, "" after half a minute or at the end.
    std::string line() {
        for (size_t end;;) {
            if ((end = text_.find('\n')) != std::string::npos) {
                const std::string l = text_.substr(0, end);
                text_.erase(0, end + 1);
                return l;
            }
            pollfd p{out_, POLLIN, 0};
            char buffer[4096];
            ssize_t n = poll(&p, 1, 30000) > 0 ? read(out_, buffer, sizeof buffer) : 0;
            if (n <= 0) return std::exchange(text_, "");
            text_.append(buffer, static_cast<size_t>(n));
        }
    }
    std::string ask(const std::string& what) {
        say(what);
        return line();
    }
    int wait() { // exit status or -signal
        int status = 0;
        if (waitpid(pid_, &status, 0) != pid_) return -1000;
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    pid_t pid() const { return pid_; }
    void stop_listening() { close(in_), in_ = -1; }

private:
    pid_t pid_;
    int in_, out_;
    std::string text_;
};

inline std::string self() { return fs::read_symlink("/proc/self/exe"); }

inline Command player(const std::string& session, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{"run", "--session", session};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", self(), "--play"});
    return Command(words);
}

inline pid_t keeper_of(const std::string& session) {
    try {
        const std::string text = send_command(session, "ls");
        return std::atoi(text.c_str() + text.find("keeper ") + 7);
    } catch (const std::exception&) { return 0; }
}

// Never kill(0, ...): that is this test.
inline void kill_hard(pid_t pid) {
    BOOST_REQUIRE(pid > 1);
    kill(pid, SIGKILL);
}
inline pid_t pid_of(Command& c) { return std::atoi(c.ask("pid").c_str()); }

// The played program.
inline int play() {
    Process* p = Process::attach();
    std::string word, line;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        in >> word;
        if (!p)
            std::cout << "not attached" << std::endl;
        else if (word == "slot")
            std::cout << p->slot() << std::endl;
        else if (word == "pid")
            std::cout << getpid() << std::endl;
        else if (word == "node")
            std::cout << p->choose_node() << std::endl;
        else if (word == "live")
            std::cout << p->seg().live_procs.load() << std::endl;
        else if (word == "claim")
            std::cout << p->claim_qp() << " " << p->alloc(100'000) << std::endl;
        else if (word == "owned") { // blocks and pages of a slot
            uint32_t slot, n = 0;
            in >> slot;
            Segment& seg = p->seg();
            for (uint32_t i = 0; i < seg.qp_blocks; ++i)
                n += seg.at<std::atomic<uint32_t>>(seg.qp_owner)[i] == slot + 1;
            for (uint64_t i = 0; i < seg.heap_top; ++i)
                n += seg.at<std::atomic<uint32_t>>(seg.heap_owner)[i] == slot + 1;
            std::cout << n << std::endl;
        } else if (word == "port") {
            uint32_t port;
            in >> port;
            std::cout << p->seg().port(port).up.load() << std::endl;
        } else if (word == "disturbed")
            std::cout << p->seg().fabric.disturbed.load() << std::endl;
        else if (word == "exec") {
            execl(self().c_str(), self().c_str(), "--play", "again", nullptr);
        } else if (word == "exec-cat") {
            execlp("cat", "cat", nullptr);
        } else if (word == "exit") {
            int status;
            in >> status;
            return status;
        }
    }
    return 0;
}

} // namespace softhca

int main(int argc, char** argv) {
    if (argc > 2) std::cout << argv[2] << std::endl;
    if (argc > 1 && std::strcmp(argv[1], "--play") == 0) return softhca::play();
    signal(SIGPIPE, SIG_IGN);
    return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
