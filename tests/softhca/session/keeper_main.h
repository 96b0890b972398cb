// The keeper's inside: see keeper.h.
#pragma once
#include <poll.h>

#include <deque>
#include <list>
#include <string>
#include <vector>

#include "core/join.h"
#include "core/process.h"
#include "session/faults.h"

namespace softhca {

class Keeper {
public:
    Keeper(Segment& seg, int segment_fd, int listen_fd) : seg_(seg), segment_fd_(segment_fd), listen_fd_(listen_fd) {}
    // Serves until the session is over.
    void run();

private:
    struct Connection {
        int fd;
        int32_t pid;
        HelloKind kind = HelloKind::observer;
        bool greeted = false, verbose = false;
        uint32_t slot = kNone; // kind process
    };
    struct Watched { // a process whose end is waited for
        int pidfd;
        uint32_t slot = kNone; // kNone: a launcher's child; it only keeps the session alive
    };
    struct Step {
        Nanos at;
        std::string fault;
    };

    // keeper.cc
    void adopt_processes();
    void accept_connections();
    void ready(int fd);
    bool serve(Connection& c); // false: close it
    bool welcome_process(Connection& c, Welcome& welcome);
    void connection_lost(const Connection& c);
    void watch(uint32_t slot);
    void reap(uint32_t slot);
    void retry_reaping();
    [[nodiscard]] bool wanted();
    [[nodiscard]] int wait_milliseconds() const;
    // keeper_actions.cc
    void packet(Connection& c, const std::string& text);
    void answer(Connection& c, const std::string& line);
    std::string execute(const std::string& line, int reply_fd, bool& answered);
    std::string act_on_processes(const FaultCommand& command);
    void start_reroute(int reply_fd);
    void run_due_steps();
    void watch_crossbar_trips();
    std::string list() const;
    void log(const std::string& text);

    Segment& seg_;
    int segment_fd_, listen_fd_;
    std::list<Connection> connections_;
    std::list<Watched> watched_;
    std::deque<uint32_t> unreaped_;       // slots whose objects somebody held for too long
    std::vector<Step> steps_;             // in order of time
    std::vector<uint32_t> tripped_ports_; // ports without a cable that wait for their `port down --at-packet`
    std::vector<uint32_t> transitions_;   // of each port, at the last reroute
    Nanos last_wanted_ = 0;
};

} // namespace softhca
