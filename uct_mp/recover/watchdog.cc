// A route that swallows packets reports nothing, and an adapter notices only when all its retries are used up. So a
// path on which nothing completes is probed with datagrams. A receiver that is not ready (RNR), since its program
// computes, answers all the same: its control plane does. If the control plane is silent, too, the adapter decides.
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

namespace {
constexpr unsigned kPush = 1, kProbe = 2, kSuspect = 3, kDown = 5; // looks in a row without a completion
} // namespace

void Watchdog::watch_paths(Nanos now) {
    next_path_watch = now + core_.config.recovery.watch_interval;
    bool suspicion = false;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        // Without another path there is none to compare with, and none to change to.
        if (!recoverable(core_, channel) || channel.self || channel.wiring.path_count < 2) continue;
        PathMask moved = 0, culprits = 0;
        for (PathIndex path = 0; path < channel.wiring.path_count && recoverable(core_, channel); ++path) {
            const Path& sub = channel.wiring.paths[path];
            moved |= PathMask{sub.requests != sub.watched} << path;
            culprits |= PathMask{watch_path(channel, path, now)} << path;
            suspicion |= channel.wiring.scheduler->paths()[path].state == schedule::PathState::suspect;
        }
        for (const PathIndex path : schedule::each(culprits))
            if (recoverable(core_, channel)) suspect_siblings(channel, path, moved);
    }
    // Operations may wait until a suspect path is cleared. A timer looks, since no other event need come until then.
    if (suspicion && !watch_timer)
        watch_timer = core_.services.at(next_path_watch, [this] {
            watch_timer = 0;
            watch_paths(core_.services.now());
        });
}

// True: it has become suspect.
bool Watchdog::watch_path(Channel& channel, PathIndex path, Nanos now) {
    Path& sub = channel.wiring.paths[path];
    if (channel.wiring.recovery && channel.wiring.paths[path].phase != Phase::up) return false;
    const schedule::PathTable& table = channel.wiring.scheduler->paths();
    SendQueue* const queue = sub.queue[0];
    const bool open = queue && !queue->failed() && (queue->dc ? sub.open != 0 : !queue->idle());
    if (!open || sub.requests != sub.watched) {
        sub.watched = sub.requests;
        sub.told_to_migrate = false;
        all_.phases.path_answers(channel, path);
        return false;
    }
    ++sub.stale;
    if (sub.stale == kPush && !queue->all_signaled()) (void)core_.epochs.write_nothing(channel, path, *queue);
    if (sub.stale < kProbe) return false;
    Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[path];
    if (!r.probed_since) r.probed_since = now;
    all_.asking.tell_over_path(channel, connect::NewsKind::probe, {.path = path, .end = {}});
    for (const PathIndex other : schedule::each(table.usable())) {
        if (other == path) continue;
        all_.asking.tell_over_path(channel, connect::NewsKind::probe, {.path = other, .end = {}});
        break;
    }
    const bool suspected = sub.stale >= kSuspect && table.is_usable(path) && table.usable_count() > 1;
    if (suspected) suspect(channel, path);
    if (sub.stale < kDown || recovery.answered_at <= r.probed_since) return suspected;
    r.probed_since = 0;
    sub.stale = 0;
    if (all_.migration.may_migrate(channel, path))
        all_.migration.tell_to_migrate(channel, path, "nothing comes through");
    else
        all_.failure.path_failed(channel, path, "nothing comes through", false);
    return false;
}

void Watchdog::suspect(Channel& channel, PathIndex path) {
    channel.wiring.scheduler->set_state(path, schedule::PathState::suspect);
    all_.reports.note(channel, Transition::What::suspect, path);
}

// A port that swallows everything affects all its routes. If they were found one by one, each would cost the same time
// and lose a message. So idle paths between the same two ports become suspect, too, and are asked by an empty write.
// Paths on which something completed in the last interval are left out, and so are DC paths: each write would hold an
// initiator. Nothing is done if no path over other ports is left.
void Watchdog::suspect_siblings(Channel& channel, PathIndex path, PathMask moved) {
    const auto ports_of = [&](PathIndex i) {
        return std::pair(channel.wiring.paths[i].rail, channel.connection.remote_rail_index(i));
    };
    const PathMask usable = channel.wiring.scheduler->paths().usable();
    PathMask elsewhere = 0, idle = 0;
    for (const PathIndex other : schedule::each(usable)) {
        const SendQueue* const queue = channel.wiring.paths[other].own[0].get();
        const PathMask bit = PathMask{1} << other;
        if (ports_of(other) != ports_of(path))
            elsewhere |= bit;
        else if (queue && !queue->failed() && queue->idle())
            idle |= bit;
    }
    if (!elsewhere) return;
    for (const PathIndex other : schedule::each(idle & ~moved))
        if (core_.epochs.write_nothing(channel, other, *channel.wiring.paths[other].own[0])) suspect(channel, other);
}

} // namespace ucx_mp::recover
