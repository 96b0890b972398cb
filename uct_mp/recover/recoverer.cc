#include "uct_mp/recover/recoverer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace ucx_mp::recover {

std::unique_ptr<channel::Observer> Recoverer::make(Core& core) { return std::make_unique<Recoverer>(core); }

Recoverer::~Recoverer() {
    const auto cancel = [&](Services::Timer timer) {
        if (timer) core_.services.cancel(timer);
    };
    for (const Services::Timer timer : all_.reopening.reopen_timer) cancel(timer);
    cancel(job_runner_.timer);
    cancel(all_.numbers.numbers_timer);
    cancel(all_.watchdog.watch_timer);
    cancel(all_.demand.trim_timer);
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        const Recovery* recovery = channel.wiring.recovery.get();
        if (!recovery) continue;
        cancel(recovery->partition);
        cancel(recovery->nudge);
        cancel(recovery->wishes.timer);
        cancel(recovery->wishes.revoking);
        for (const PathRecovery& path : recovery->paths) cancel(path.timer);
        stop_asking(core_, channel);
    }
}

// -- A channel

void Recoverer::established(Channel& channel) {
    all_.renewal.note_lives(channel);
    for (PathIndex i = 0; i < channel.wiring.places; ++i)
        if (channel.wiring.paths[i].phase == Phase::absent) (void)recovery_of(channel);
    for (PathIndex i = 0; i < channel.wiring.path_count; ++i)
        if (channel.wiring.paths[i].loaded) all_.migration.exchange_migration(channel, i);
}

// A path fails here if its queue pair could not be connected, if it has no address handle, or if its adapter has died
// during the handshake.
void Recoverer::connected(Channel& channel) {
    for (PathIndex i = 0; i < channel.wiring.path_count && recoverable(core_, channel); ++i) {
        const Path& path = channel.wiring.paths[i];
        if (path.unconnected) all_.failure.path_failed(channel, i, "it could not be connected", false);
        if (is_absent(channel, i) || !core_.devices.devices()[path.device].events->seen(0).fatal) continue;
        all_.failure.path_failed(channel, i, "the adapter has failed", false);
        if (!recoverable(core_, channel)) break;
        channel.wiring.recovery->paths[i].port = true;
        all_.asking.tell_gone(channel, i);
    }
    fail_dead_routes(channel);
    all_.joining.join_paths(channel); // ports may have come up meanwhile
}

// Remembers routes that are lost now, so that the next connection need not find that out again.
void Recoverer::parting(Channel& channel) {
    channel.dead_routes.clear();
    const Recovery* const recovery = channel.wiring.recovery.get();
    for (PathIndex path = 0; recovery && path < channel.wiring.path_count; ++path) {
        const PathRecovery& r = recovery->paths[path];
        const Phase phase = channel.wiring.paths[path].phase;
        if (phase != Phase::up && phase != Phase::absent && !r.stays && r.failures &&
            !channel.connection.paths[path].on_demand)
            channel.dead_routes.push_back({channel.connection.route(path), r.since});
    }
}

// Routes that were lost when the last connection ended begin as failed paths. They are tried at once, and nothing waits
// for that. Knowledge older than kRemembered is dropped: a connection may be too short to find out that a route works
// again. If all routes would begin as failed, none does.
void Recoverer::fail_dead_routes(Channel& channel) {
    constexpr Nanos kRemembered = 1'000'000'000;
    const std::vector<channel::Lasting::DeadRoute> dead = std::exchange(channel.dead_routes, {});
    if (dead.empty() || !recoverable(core_, channel)) return;
    const Nanos now = core_.services.now();
    const PathMask usable = channel.wiring.scheduler->paths().usable();
    std::vector<std::pair<PathIndex, Nanos>> lost;
    for (const PathIndex path : schedule::each(usable))
        for (const auto& [route, since] : dead)
            if (now - since < kRemembered && route == channel.connection.route(path) &&
                !channel.wiring.paths[path].loaded) {
                lost.emplace_back(path, since);
                break; // the same route may be listed twice: for two kinds of paths, or for reads and writes
            }
    if (lost.size() == static_cast<std::size_t>(std::popcount(usable))) return;
    for (const auto& [path, since] : lost) {
        if (!recoverable(core_, channel)) return;
        all_.failure.path_failed(channel, path, "it was lost when the last connection ended", false);
        if (channel.wiring.recovery) channel.wiring.recovery->paths[path].since = since;
    }
}

void Recoverer::ended(Channel& channel, Status status) {
    all_.reports.ended(channel);
    all_.failure.abandon_recovery(channel, status);
}

bool Recoverer::names(Channel& channel) {
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    std::erase_if(all_.asking.questions, is_its);
    if (channel.wiring.recovery && channel.wiring.recovery->listed) return true;
    assert(std::ranges::find(all_.phases.recovering, &channel) == all_.phases.recovering.end());
    return std::ranges::any_of(all_.jobs.queues, [&](const auto& queue) { return std::ranges::any_of(queue, is_its); });
}

void Recoverer::check(Channel& channel) { all_.liveness.check(channel); }
void Recoverer::hear_answer(Channel& channel, connect::Answer answer) { all_.liveness.hear_answer(channel, answer); }

// -- What the peer tells

void Recoverer::take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news) {
    all_.exchange.take_news(channel, kind, news);
}
void Recoverer::take_path_up(Channel& channel, PathIndex path, std::uint32_t life) {
    all_.exchange.take_path_up(channel, path, life);
}
void Recoverer::rails_changed(Channel& channel) {
    all_.renewal.note_lives(channel);
    if (!(channel.gates & gate::not_ready)) core_.visibility.note_devices(channel);
    all_.joining.join_paths(channel);
}
bool Recoverer::present_keys(Channel& channel, const verbs::RemoteKeys*& keys) {
    return all_.renewal.present_keys(channel, keys);
}
void Recoverer::take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) {
    all_.renewal.take_keys(channel, found, told);
}
void Recoverer::load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub) {
    all_.migration.load_first_alternate(connection, path, sub);
}

// -- In progress

void Recoverer::step() {
    if (!all_.asking.questions.empty()) all_.exchange.answer_questions();
    std::vector<Channel*> list = std::exchange(all_.phases.recovering, {});
    for (Channel* channel : list) {
        channel->wiring.recovery->listed = false;
        if (all_.replay.recover(*channel)) all_.phases.list_recovering(*channel);
    }
    if (!core_.endings.leavers.empty()) core_.endings.judge_leavers();
    if (all_.demand.trim_due) all_.demand.trim();
    if (all_.jobs.jobs_wait()) job_runner_.run_jobs();
    core_.alert = recovers() || !core_.endings.leavers.empty() || !core_.directory.ending.empty();
}

bool Recoverer::recovers() const {
    return all_.phases.paths_away || !all_.phases.recovering.empty() || !all_.asking.questions.empty();
}

void Recoverer::read_rails() {
    all_.rail_events.read_rails();
    for (const verbs::Device& device : core_.devices.devices())
        all_.migration.seen_migrations[device.index] = device.events->migrations();
}
void Recoverer::read_events() { all_.rail_events.read_events(); }
void Recoverer::watch_peers(Nanos now) { all_.liveness.watch_peers(now); }
void Recoverer::watch_paths(Nanos now) {
    if (now >= all_.watchdog.next_path_watch && core_.config.recovery.watch_interval) all_.watchdog.watch_paths(now);
}

bool Recoverer::busy() const {
    return !all_.phases.recovering.empty() || !all_.asking.questions.empty() ||
           (all_.jobs.jobs_wait() && !job_runner_.timer);
}

void Recoverer::describe(channel::InterfaceStatistics& out) const {
    out.adaptation.rc_in_use = all_.demand.in_use;
    out.adaptation.rc_kept = all_.phases.kept;
    const Nanos now = core_.services.now();
    out.transitions = all_.reports.history.count();
    all_.reports.history.for_each([&](const Transition& t) {
        out.history.push_back({.peer_uid = t.peer,
                               .path = t.path == kNoPath ? -1 : int{t.path},
                               .what = name(t.what),
                               .ago = now - t.at,
                               .took = t.took,
                               .again = t.again,
                               .cause = t.cause});
    });
}

void Recoverer::describe(const Channel& channel, channel::ChannelStatistics& out) const {
    const Recovery* const r = channel.wiring.recovery.get();
    if (!r) return;
    out.service = {.ours = name(r->wishes.ours),
                   .theirs = name(r->wishes.theirs),
                   .answered = r->wishes.answered,
                   .refused = r->wishes.refused,
                   .why = name(r->wishes.why),
                   .switches = r->wishes.switches,
                   .places = all_.demand.served(channel).places};
    out.recovery = {.seen = true,
                    .messages_again = r->messages_again,
                    .puts_again = r->puts_again,
                    .gets_again = r->gets_again,
                    .bytes_again = r->bytes_again,
                    .puts_found_done = r->puts_found_done,
                    .damaged = channel.wiring.unsettled.damaged,
                    .puts_open = channel.wiring.unsettled.puts_open,
                    .holds = r->holds.size(),
                    .markers = r->markers.size(),
                    .resend = r->resend,
                    .listed = r->listed};
    for (std::size_t i = 0; i < out.paths.size() && i < r->paths.size(); ++i) {
        out.paths[i].failures = r->paths[i].failures;
        out.paths[i].returns = r->paths[i].returns;
        out.paths[i].life = r->paths[i].life;
        if (channel.wiring.paths[i].phase == Phase::up || channel.wiring.paths[i].phase == Phase::absent) continue;
        out.paths[i].cause = r->paths[i].cause;
        out.paths[i].down_for = core_.services.now() - r->paths[i].since;
    }
}

void Recoverer::describe(const Channel& channel, std::vector<channel::PathLook>& out) const {
    const Recovery* const r = channel.wiring.recovery.get();
    for (std::size_t i = 0; r && i < out.size() && i < r->paths.size(); ++i) {
        out[i].failed_at = r->paths[i].since;
        out[i].came_up_at = r->paths[i].came_up;
        out[i].failures = r->paths[i].failures;
    }
}

} // namespace ucx_mp::recover
