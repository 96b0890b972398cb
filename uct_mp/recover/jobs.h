// Commands to adapters that recovery needs: a few at a time.
//
// Threads: the interface's.
#pragma once

#include <deque>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Jobs {
public:
    Jobs(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void add_job(const Job& job);
    void add_path_job(Channel& channel, Job::What what, const connect::PathNews& news); // once, however often
    void run_jobs();
    [[nodiscard]] bool jobs_wait() const { return !queues[0].empty() || !queues[1].empty(); }
    std::deque<Job> queues[2];      // urgent, others
    Services::Timer jobs_timer = 0; // runs while jobs wait for their time

private:
    void run(const Job& job);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
