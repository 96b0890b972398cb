// A session within the test's own process, without keeper: a small fabric. Children made with fork() join the
// same memory anew.
#pragma once
#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>

#include "core/liveness.h"
#include "core/process.h"
#include "fabric/image_builder.h"

namespace softhca {

// Two nodes with two one-port adapters each, ideal.
inline FabricBlock small_fabric() {
    Topology t;
    t.name = "small";
    t.ideal = true;
    t.adapter_types.push_back({.name = "plain"});
    t.subnets.push_back({.name = "rail", .prefix = 0xfe80000000000000, .crossbar = true, .rate = {}});
    for (uint32_t node = 0; node < 2; ++node) {
        t.nodes.push_back({"node" + std::to_string(node), node * 2, 2});
        for (uint32_t d = 0; d < 2; ++d) {
            t.devices.push_back({node, d, 0, node * 2 + d});
            t.ports.push_back({.device = node * 2 + d, .number = 1, .subnet = 0});
        }
    }
    return build_image(t, nullptr);
}

// Memory that parent and children share besides the session: where a child says what it has.
struct Board {
    std::atomic<uint64_t> address{0}, value{0};
    std::atomic<uint32_t> ready{0}, go{0};
};

inline Board& new_board() {
    void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *new (p) Board;
}

inline bool wait_until(const std::function<bool()>& condition, int milliseconds = 30'000) {
    for (int i = 0; i < milliseconds * 10; ++i, usleep(100))
        if (condition()) return true;
    return condition();
}

class LocalSession {
public:
    LocalSession() : file_(create_segment_file("test")), memory_(file_ < 0 ? nullptr : map_segment_file(file_, false)) {
        if (!memory_) std::abort();
        format_segment(memory_, small_fabric().image(), "test", false);
        process_ = Process::attach_local(static_cast<Segment*>(memory_));
        if (!process_) std::abort();
    }
    ~LocalSession() {
        leave();
        unmap_segment(memory_);
        close(file_);
    }
    LocalSession(const LocalSession&) = delete;
    Segment& seg() { return *static_cast<Segment*>(memory_); }
    Process& process() { return *process_; }
    void leave() {
        if (process_) process_->detach();
        process_ = nullptr;
    }

    // A child that joins the session and runs `body(process)`. The returned pid is to be given to end_child.
    template <class Fn> pid_t child(Fn&& body) {
        const pid_t pid = fork();
        if (pid != 0) return pid;
        Process* p = Process::attach_local(static_cast<Segment*>(map_segment_file(file_, false)));
        if (!p) _exit(99);
        body(*p);
        _exit(0);
    }
    // Exit status, or -signal.
    static int wait_child(pid_t pid) {
        int status = 0;
        if (waitpid(pid, &status, 0) != pid) return 98;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    // The slot of process `pid`, once it is alive there; kNone after two seconds.
    uint32_t slot_of(pid_t pid) {
        for (int i = 0; i < 2000; ++i, usleep(1000))
            for (uint32_t s = 0; s < seg().proc_top.load(); ++s)
                if (seg().proc(s).pid.load() == pid && seg().proc(s).state.load() == ProcState::alive) return s;
        return kNone;
    }

private:
    int file_;
    void* memory_;
    Process* process_ = nullptr;
};

// Kills a child and waits until it is gone, but not reaped in the session.
inline void kill_child(pid_t pid) {
    kill(pid, SIGKILL);
    BOOST_TEST(LocalSession::wait_child(pid) == -SIGKILL);
}

} // namespace softhca
