// Commands to the adapter (make, connect, end, query a queue pair) take the process 20 to 300 us each, and when a port
// fails every peer needs several. So what needs them waits in a list, first those to which no other path is left, and
// progress works on it for a while and then leaves as much time to everything else.
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using connect::PathKind;
using recover::Job;
using recover::Phase;

namespace {
constexpr Nanos kWorkTime = 200'000; // in a row; the last job may end later (five commands at most)
} // namespace

void Interface::Impl::add_job(Job job) {
    const bool urgent = !job.channel || job.channel->scheduler->paths().usable() == 0;
    jobs[!urgent].push_back(std::move(job));
    alert = true;
}

void Interface::Impl::add_path_job(Channel& channel, Job::What what, const connect::PathNews& news) {
    std::uint8_t& due = channel.recovery->paths[news.path].jobs_due;
    const auto bit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(what));
    if (due & bit) return; // news are repeated
    due |= bit;
    add_job({.what = what, .channel = &channel, .queue = nullptr, .news = news});
}

void Interface::Impl::run(const Job& job) {
    if (job.what == Job::What::restart) return restart(*job.queue); // all channels' queue
    Channel& channel = *job.channel;
    if (job.what == Job::What::end) {
        if (job.queue->error_due) end(*job.queue, channel, job.news.path);
        return;
    }
    const PathIndex path = job.news.path;
    recover::PathRecovery& r = channel.recovery->paths[path];
    r.jobs_due &= static_cast<std::uint8_t>(~(1u << static_cast<unsigned>(job.what)));
    if (!recoverable(channel)) return;
    switch (job.what) {
    case Job::What::truth:
        if (r.phase == Phase::draining) drained(channel, path);
        return;
    case Job::What::open:
        return try_open(channel, path);
    case Job::What::take_open:
        return on_path_open(channel, job.news);
    case Job::What::take_opened:
        return on_path_opened(channel, job.news);
    case Job::What::migrate:
        return migrate(channel, path);
    case Job::What::load:
        if (r.phase != Phase::up || channel.subs[path].loaded) return;
        load_alternate(channel.connection, path, channel.subs[path]);
        return exchange_migration(channel, path);
    case Job::What::end:
    case Job::What::restart:
        return;
    }
}

void Interface::Impl::run_jobs() {
    if (jobs_timer) return;
    const Nanos start = services.now();
    Nanos now = start;
    for (bool urgent = true; now - start < kWorkTime && ((urgent = !jobs[0].empty()) || !jobs[1].empty());) {
        auto& list = jobs[!urgent];
        const Job job = std::move(list.front());
        list.pop_front();
        run(job);
        ++recovery_steps;
        now = services.now();
    }
    if (!jobs_wait()) return;
    jobs_timer = services.at(now + (now - start), [this] {
        jobs_timer = 0;
        run_jobs();
    });
}

} // namespace ucx_mp::channel
