// Processes that a test starts, each on a node of its choice, and that it waits for with a limit.
#pragma once
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace verbs_test {

// A child whose exit status is what `run` returns. It dies with the test.
inline pid_t start(int node, const std::function<int()>& run) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    BOOST_REQUIRE_GE(pid, 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SOFTHCA_NODE", std::to_string(node).c_str(), 1);
    std::_Exit(run());
}

// As of waitpid(); who has not ended by then is killed.
inline int status_of(pid_t pid, int milliseconds) {
    int status = 0;
    for (int i = 0; i < milliseconds; ++i, usleep(1000))
        if (waitpid(pid, &status, WNOHANG) != 0) return status;
    ::kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return status;
}

inline bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

} // namespace verbs_test
