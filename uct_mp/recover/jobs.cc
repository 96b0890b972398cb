#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

namespace {
constexpr Nanos kWorkTime = 200'000; // no job begins after it; the last one may run longer (five commands at most)
} // namespace

void Jobs::add_job(const Job& job) {
    const bool urgent = !job.channel || job.channel->wiring.scheduler->paths().usable() == 0;
    queues[!urgent].push_back(job);
    core_.alert = true;
}

void Jobs::add_path_job(Channel& channel, Job::What what, const connect::PathNews& news) {
    std::uint8_t& due = channel.wiring.recovery->paths[news.path].jobs_due;
    const auto bit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(what));
    if (due & bit) return; // a copy: news are repeated
    due |= bit;
    add_job({.what = what, .channel = &channel, .queue = nullptr, .news = news});
}

void JobRunner::run(const Job& job) {
    if (job.what == Job::What::restart) return all_.failure.restart(*job.queue); // belongs to no channel
    Channel& channel = *job.channel;
    if (job.what == Job::What::end) {
        if (job.queue->error_due) all_.failure.end(*job.queue, channel, job.news.path);
        return;
    }
    const PathIndex path = job.news.path;
    PathRecovery& r = channel.wiring.recovery->paths[path];
    r.jobs_due &= static_cast<std::uint8_t>(~(1u << static_cast<unsigned>(job.what)));
    if (!core_.failures.recoverable(channel)) return;
    switch (job.what) {
    case Job::What::truth:
        if (channel.wiring.paths[path].phase == Phase::draining) all_.failure.drained(channel, path);
        return;
    case Job::What::open:
        return all_.exchange.try_open(channel, path);
    case Job::What::take_open:
        return all_.exchange.on_path_open(channel, job.news);
    case Job::What::take_opened:
        return all_.exchange.on_path_opened(channel, job.news);
    case Job::What::migrate:
        return all_.migration.migrate(channel, path);
    case Job::What::load:
        if (channel.wiring.paths[path].phase != Phase::up || channel.wiring.paths[path].loaded) return;
        all_.migration.load_alternate(channel.connection, path, channel.wiring.paths[path]);
        return all_.migration.exchange_migration(channel, path);
    case Job::What::end:
    case Job::What::restart:
        return;
    }
}

void JobRunner::run_jobs() {
    if (timer) return;
    auto& queues = all_.jobs.queues;
    const Nanos start = core_.services.now();
    Nanos now = start;
    for (bool urgent = true; now - start < kWorkTime && ((urgent = !queues[0].empty()) || !queues[1].empty());) {
        auto& list = queues[!urgent];
        const Job job = list.front();
        list.pop_front();
        run(job);
        ++core_.recovery_steps;
        now = core_.services.now();
    }
    if (!all_.jobs.jobs_wait()) return;
    timer = core_.services.at(now + (now - start), [this] {
        timer = 0;
        run_jobs();
    });
}

} // namespace ucx_mp::recover
