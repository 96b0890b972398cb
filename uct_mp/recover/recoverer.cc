#include "uct_mp/recover/recoverer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace ucx_mp::recover {

Recoverer::Recoverer(Core& core)
    : core_(core), failure(core, *this), rail_events(core, *this), jobs(core, *this), exchange(core, *this),
      numbers(core, *this), joining(core, *this), demand(core, *this), reopening(core, *this), renewal(core, *this),
      migration(core, *this), watchdog(core, *this), replay(core, *this), liveness(core, *this), reports(core) {}

std::unique_ptr<channel::Observer> Recoverer::make(Core& core) { return std::make_unique<Recoverer>(core); }

Recoverer::~Recoverer() {
    const auto cancel = [&](Services::Timer timer) {
        if (timer) core_.services.cancel(timer);
    };
    for (const Services::Timer timer : reopening.reopen_timer) cancel(timer);
    cancel(jobs.jobs_timer);
    cancel(numbers.numbers_timer);
    cancel(watchdog.watch_timer);
    cancel(demand.trim_timer);
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        const Recovery* recovery = channel.wiring.recovery.get();
        if (!recovery) continue;
        cancel(recovery->partition);
        cancel(recovery->nudge);
        cancel(recovery->wishes.timer);
        cancel(recovery->wishes.revoking);
        for (const PathRecovery& path : recovery->paths) cancel(path.timer);
        renewal.stop_asking(channel);
    }
}

// -- A path or a queue

void Recoverer::path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) {
    failure.path_failed(channel, path, cause, stays);
}
void Recoverer::drain(SendQueue& queue, Channel& channel, PathIndex path) { failure.drain(queue, channel, path); }
void Recoverer::lost(SendQueue& queue, const Posted& posted) { failure.lost(queue, posted); }
void Recoverer::restart_later(SendQueue& queue) { failure.restart_later(queue); }
void Recoverer::abandon(Channel& channel) { failure.abandon(channel); }

// -- A channel

void Recoverer::established(Channel& channel) {
    renewal.note_lives(channel);
    for (PathIndex i = 0; i < channel.wiring.places; ++i)
        if (channel.wiring.paths[i].phase == Phase::absent) (void)failure.recovery_of(channel);
    for (PathIndex i = 0; i < channel.wiring.path_count; ++i)
        if (channel.wiring.paths[i].loaded) migration.exchange_migration(channel, i);
}

// Paths whose queue pair could not be connected, or that have no address handle, are like any others that have failed;
// so are those whose adapter has died during the handshake.
void Recoverer::connected(Channel& channel) {
    for (PathIndex i = 0; i < channel.wiring.path_count && core_.failures.recoverable(channel); ++i) {
        const Path& path = channel.wiring.paths[i];
        if (path.unconnected) failure.path_failed(channel, i, "it could not be connected", false);
        if (joining.is_absent(channel, i) || !core_.devices.devices()[path.device].events->seen(0).fatal) continue;
        failure.path_failed(channel, i, "the adapter has failed", false);
        if (!core_.failures.recoverable(channel)) break;
        channel.wiring.recovery->paths[i].port = true;
        exchange.tell_gone(channel, i);
    }
    fail_dead_routes(channel);
    joining.join_paths(channel); // ports that came up meanwhile
}

// Routes that have been lost and are not back: the next connection need not find that out again.
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

// They are tried at once, and nothing waits for that. A short connection may be over by then: so what is known counts
// for `kRemembered` only. Where all have been lost nothing is known of any.
void Recoverer::fail_dead_routes(Channel& channel) {
    constexpr Nanos kRemembered = 1'000'000'000;
    const std::vector<channel::Lasting::DeadRoute> dead = std::exchange(channel.dead_routes, {});
    if (dead.empty() || !core_.failures.recoverable(channel)) return;
    const Nanos now = core_.services.now();
    const PathMask usable = channel.wiring.scheduler->paths().usable();
    std::vector<std::pair<PathIndex, Nanos>> lost;
    for (const PathIndex path : schedule::each(usable))
        for (const auto& [route, since] : dead)
            if (now - since < kRemembered && route == channel.connection.route(path) &&
                !channel.wiring.paths[path].loaded) {
                lost.emplace_back(path, since);
                break; // paths of two kinds, or for reads and writes, may have had the same route
            }
    if (lost.size() == static_cast<std::size_t>(std::popcount(usable))) return;
    for (const auto& [path, since] : lost) {
        if (!core_.failures.recoverable(channel)) return;
        failure.path_failed(channel, path, "it was lost when the last connection ended", false);
        if (channel.wiring.recovery) channel.wiring.recovery->paths[path].since = since;
    }
}

void Recoverer::ended(Channel& channel, Status status) { failure.abandon_recovery(channel, status); }

void Recoverer::free_detours(Channel& channel) {
    const Recovery* const recovery = channel.wiring.recovery.get();
    for (PathIndex path = 0; recovery && path < recovery->paths.size(); ++path) failure.end_detours(channel, path);
}

bool Recoverer::names(Channel& channel) {
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    std::erase_if(exchange.questions, is_its);
    if (channel.wiring.recovery && channel.wiring.recovery->listed) return true;
    assert(std::ranges::find(failure.recovering, &channel) == failure.recovering.end());
    return std::ranges::any_of(jobs.queues, [&](const auto& queue) { return std::ranges::any_of(queue, is_its); });
}

void Recoverer::drop_lost(Channel& channel, const std::function<bool(Work*)>& is_part) {
    if (!channel.wiring.recovery) return;
    for (PathRecovery& r : channel.wiring.recovery->paths) {
        std::vector<Work*> dropped;
        std::erase_if(
            r.lost, [&](const LostPut& put) { return is_part(put.work) ? dropped.push_back(put.work), true : false; });
        for (Work* const work : dropped)
            if (--work->open == 0) core_.works.finish_work(*work);
    }
}

void Recoverer::check(Channel& channel) { liveness.check(channel); }
void Recoverer::hear_answer(Channel& channel, connect::Answer answer) { liveness.hear_answer(channel, answer); }
bool Recoverer::write_nothing(Channel& channel, PathIndex path, SendQueue& queue) {
    return liveness.write_nothing(channel, path, queue);
}

void Recoverer::not_posted(Channel& channel) {
    Recovery& recovery = failure.recovery_of(channel);
    recovery.resend = true;
    ++channel.epoch_open[channel.epoch]; // a flush waits for it
    recovery.holds.push_back({.until = channel.next_sequence, .requests = 1, .epoch = channel.epoch});
    failure.list_recovering(channel);
}

void Recoverer::send_again(Channel& channel) {
    failure.recovery_of(channel).resend = true;
    failure.list_recovering(channel);
}

// -- Traffic that goes again

void Recoverer::redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes) {
    replay.redo(channel, of, offset, bytes);
}
void Recoverer::finish_replayed(Channel& channel, Work& work) { replay.finish_replayed(channel, work); }
bool Recoverer::place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk) {
    return replay.place_puts_again(channel, work, chunk);
}

// -- What the peer tells

void Recoverer::take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news) {
    exchange.take_news(channel, kind, news);
}
void Recoverer::take_path_up(Channel& channel, PathIndex path, std::uint32_t life) {
    exchange.take_path_up(channel, path, life);
}
void Recoverer::rails_changed(Channel& channel) {
    renewal.note_lives(channel);
    if (!(channel.gates & gate::not_ready)) core_.visibility.note_devices(channel);
    joining.join_paths(channel);
}
bool Recoverer::present_keys(Channel& channel, const verbs::RemoteKeys*& keys) {
    return renewal.present_keys(channel, keys);
}
void Recoverer::take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) {
    renewal.take_keys(channel, found, told);
}
void Recoverer::load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub) {
    migration.load_first_alternate(connection, path, sub);
}

void Recoverer::take_wish(Channel& channel, const connect::ServiceWish& wish) { demand.take_wish(channel, wish); }
void Recoverer::take_verdict(Channel& channel, std::uint32_t number, bool taken) {
    demand.take_verdict(channel, number, taken);
}
Status Recoverer::serve_by(Channel& channel, adapt::Service service, channel::Reason why) {
    return demand.serve_by(channel, service, why);
}
channel::Served Recoverer::served(const Channel& channel) const { return demand.served(channel); }
void Recoverer::revoke(Channel& channel) { demand.revoke(channel); }
void Recoverer::trim_services() { demand.trim(); }

// -- In progress

void Recoverer::step() {
    if (!exchange.questions.empty()) exchange.answer_questions();
    std::vector<Channel*> list = std::exchange(failure.recovering, {});
    for (Channel* channel : list) {
        channel->wiring.recovery->listed = false;
        if (replay.recover(*channel)) failure.list_recovering(*channel);
    }
    if (!core_.endings.leavers.empty()) core_.endings.judge_leavers();
    if (demand.trim_due) demand.trim();
    if (jobs.jobs_wait()) jobs.run_jobs();
    core_.alert = failure.paths_away || !failure.recovering.empty() || !exchange.questions.empty() ||
                  !core_.endings.leavers.empty() || !core_.endings.list.empty();
}

void Recoverer::read_rails() {
    rail_events.read_rails();
    for (const verbs::Device& device : core_.devices.devices())
        migration.seen_migrations[device.index] = device.events->migrations();
}
void Recoverer::read_events() { rail_events.read_events(); }
void Recoverer::watch_peers(Nanos now) { liveness.watch_peers(now); }
void Recoverer::watch_paths(Nanos now) {
    if (now >= watchdog.next_path_watch && core_.config.recovery.watch_interval) watchdog.watch_paths(now);
}

bool Recoverer::busy() const {
    return !failure.recovering.empty() || !exchange.questions.empty() || (jobs.jobs_wait() && !jobs.jobs_timer);
}

void Recoverer::describe(channel::Interface::Statistics& out) const {
    out.adaptation.rc_in_use = demand.in_use;
    out.adaptation.rc_kept = demand.kept;
    const Nanos now = core_.services.now();
    out.transitions = failure.history.count();
    failure.history.for_each([&](const Transition& t) {
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
                   .places = demand.served(channel).places};
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
