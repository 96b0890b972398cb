#include <algorithm>
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

namespace {
constexpr Nanos kWorkTime = 200'000; // no job begins after it; the last one may run longer (five commands at most)
} // namespace

void Jobs::add_job(const Job& job) {
    bool urgent = !job.channel || job.channel->wiring.scheduler->paths().usable() == 0;
    // A half that is made needs no command, so it does not wait for those of others.
    if (job.what == Job::What::open) urgent |= bool(job.channel->wiring.recovery->paths[job.news.path].next);
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

void Jobs::open(Channel& channel, PathIndex path) { add_path_job(channel, Job::What::open, {.path = path, .end = {}}); }

void Jobs::open_at(Channel& channel, PathIndex path, Nanos at) {
    set_path_timer(core_, channel, path, at, [this](Channel& c, PathIndex p) { open(c, p); });
}

void Jobs::open_later(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    ++r.attempts;
    if (may_open(channel, path)) open_at(channel, path, core_.services.now() + pause_between_tries(channel, r));
}

void Jobs::schedule_open(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    if (!may_open(channel, path)) return;
    // A path that keeps failing soon after its return is held down for longer and longer. If no path is usable it is
    // not held down: any path is better than none.
    const bool needed = channel.wiring.scheduler->paths().usable() == 0;
    const Nanos hold = r.flaps && !needed
                           ? doubled(core_.config.recovery.hold_down, r.flaps - 1, core_.config.recovery.max_hold_down)
                           : 0;
    open_at(channel, path, std::max(core_.services.now() + pause_between_tries(channel, r), r.since + hold));
}

Nanos Jobs::pause_between_tries(const Channel& channel, const PathRecovery& r) const {
    const bool needed = channel.wiring.scheduler->paths().usable() == 0;
    return doubled(core_.config.recovery.open_interval, r.attempts,
                   needed ? core_.config.recovery.max_needed_interval : core_.config.recovery.max_open_interval);
}

void JobRunner::migrate(Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    if (channel.wiring.paths[path].phase != Phase::up) return;
    const std::uint32_t before = sub.migrations;
    const int error = sub.loaded ? verbs::migrate(sub.own[0]->qp.get()) : 0;
    all_.rail_events.read_events(); // tells of this migration, or of one by the adapter itself before it
    if (channel.wiring.paths[path].phase != Phase::up || (channel.gates & gate::failed)) return;
    if (sub.migrations == before && error) all_.failure.path_failed(channel, path, "it could not migrate", false);
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
    if (!recoverable(core_, channel)) return;
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
        return migrate(channel, path);
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
