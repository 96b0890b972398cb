// Commands to adapters that recovery needs. They wait in two lists and are done a few at a time.
//
// A command takes 20 to 300 us, and a port that fails wants several per peer. Peers without any path come first.
// Progress works on the lists for 200 us and then leaves as much time to everything else.
//
// Callers: any part adds; JobRunner runs them. A job looks again whether it is still wanted.
// Threads: the interface's.
#pragma once

#include <deque>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Jobs {
public:
    explicit Jobs(Core& core) : core_(core) {}

    // -- Operations
    void add_job(const Job& job);
    // Once per path and kind, however often it is asked for.
    void add_path_job(Channel& channel, Job::What what, const connect::PathNews& news);

    // -- What others read
    [[nodiscard]] bool jobs_wait() const { return !queues[0].empty() || !queues[1].empty(); }
    std::deque<Job> queues[2]; // urgent, others

private:
    Core& core_;
};

// Hands each job to the part that it concerns. No part calls it.
// Callers: Recoverer::step(), or its own timer.
class JobRunner {
public:
    JobRunner(Core& core, Members& all) : core_(core), all_(all) {}
    void run_jobs();

    Services::Timer timer = 0; // runs while jobs wait for their time

private:
    void run(const Job& job);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
