// Commands to adapters that recovery needs. They wait in two lists, and progress runs a few at a time.
//
// A command takes 20 to 300 us, and when a port fails each peer needs several. Channels without a usable path come
// first. Progress runs jobs for 200 us, and then leaves as much time to everything else.
//
// Callers: any part adds a job; JobRunner runs it. A job checks first whether it is still wanted.
// Threads: the interface's.
#pragma once

#include <deque>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Jobs {
public:
    explicit Jobs(Core& core) : core_(core) {}

    void add_job(const Job& job);
    // Adds the job unless one of the same kind waits for this path already.
    void add_path_job(Channel& channel, Job::What what, const connect::PathNews& news);

    // -- When a path is opened
    void open(Channel& channel, PathIndex path); // as soon as its turn comes
    void open_at(Channel& channel, PathIndex path, Nanos at);
    // After another attempt, if this side may try: after a pause that grows.
    void open_later(Channel& channel, PathIndex path);
    // The same for a path that has just failed. One that keeps failing is held down for longer, unless no path is
    // usable.
    void schedule_open(Channel& channel, PathIndex path);

    // -- What others read
    [[nodiscard]] bool jobs_wait() const { return !queues[0].empty() || !queues[1].empty(); }
    std::deque<Job> queues[2]; // urgent, others

private:
    [[nodiscard]] Nanos pause_between_tries(const Channel& channel, const PathRecovery& r) const;

    Core& core_;
};

// Takes jobs from the lists and hands each one to its part. Callers: Recoverer::step(), or its own timer.
class JobRunner {
public:
    JobRunner(Core& core, Members& all) : core_(core), all_(all) {}
    void run_jobs();

    Services::Timer timer = 0; // runs during the pause between two turns

private:
    void run(const Job& job);
    void migrate(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
