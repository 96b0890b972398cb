// Commands to adapters that recovery needs. They wait in two lists and are done a few at a time.
//
// A command takes 20 to 300 us, and a port that fails wants several per peer. Peers without any path come first.
// Progress works on the lists for 200 us and then leaves as much time to everything else.
//
// Who calls: any part adds; Recoverer::step() runs them, or a timer. A job looks again whether it is still wanted.
// Threads: the interface's.
#pragma once

#include <deque>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Jobs {
public:
    Jobs(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    void add_job(const Job& job);
    // Once per path and kind, however often it is asked for.
    void add_path_job(Channel& channel, Job::What what, const connect::PathNews& news);
    void run_jobs();

    // -- What others read
    [[nodiscard]] bool jobs_wait() const { return !queues[0].empty() || !queues[1].empty(); }
    std::deque<Job> queues[2];      // urgent, others
    Services::Timer jobs_timer = 0; // runs while jobs wait for their time

private:
    void run(const Job& job);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
