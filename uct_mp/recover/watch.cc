// Silent loss: a route that swallows packets tells nobody, and an adapter needs all its repetitions to notice. A path
// on which nothing completes is asked by itself whether datagrams come through. A receiver that computes (RNR) answers,
// since its control plane does; one whose control plane is mute, too, is left to the adapter.
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using recover::PathRecovery;
using recover::Phase;

namespace {
constexpr unsigned kPush = 1, kProbe = 2, kSuspect = 3, kDown = 5; // looks in a row
} // namespace

void Interface::Impl::watch_paths(Nanos now) {
    next_path_watch = now + config.recovery.watch_interval;
    bool suspicion = false;
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        Channel& channel = *channels[slot];
        // Without another path there is nowhere to go, and nobody to compare with.
        if (!recoverable(channel) || channel.self || channel.path_count < 2) continue;
        for (PathIndex path = 0; path < channel.path_count && recoverable(channel); ++path) {
            watch_path(channel, path, now);
            suspicion |= channel.scheduler->paths()[path].state == schedule::PathState::suspect;
        }
    }
    // Operations may be waiting for a suspect path to be cleared, and nothing else may happen until then.
    if (suspicion && !watch_timer)
        watch_timer = services.at(next_path_watch, [this] {
            watch_timer = 0;
            watch_paths(services.now());
        });
}

void Interface::Impl::watch_path(Channel& channel, PathIndex path, Nanos now) {
    Subchannel& sub = channel.subs[path];
    if (channel.recovery && channel.recovery->paths[path].phase != Phase::up) return;
    const schedule::PathTable& table = channel.scheduler->paths();
    SendQueue* const queue = sub.queue[0];
    const bool open = queue && !queue->failed() && (queue->dc ? sub.open != 0 : !queue->idle());
    if (!open || sub.requests != sub.watched) {
        sub.watched = sub.requests;
        sub.told_to_migrate = false;
        return path_answers(channel, path);
    }
    ++sub.stale;
    if (sub.stale == kPush && !queue->all_signaled()) (void)write_nothing(channel, path, *queue);
    if (sub.stale < kProbe) return;
    recover::Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[path];
    if (!r.probed_since) r.probed_since = now;
    tell_over_path(channel, connect::PathKind::probe, {.path = path, .end = {}});
    for (const PathIndex other : schedule::each(table.usable())) {
        if (other == path) continue;
        tell_over_path(channel, connect::PathKind::probe, {.path = other, .end = {}});
        break;
    }
    if (sub.stale >= kSuspect && table.is_usable(path) && table.usable_count() > 1) {
        channel.scheduler->set_state(path, schedule::PathState::suspect);
        note(channel, recover::Transition::What::suspect, path);
    }
    if (sub.stale < kDown || recovery.answered_at <= r.probed_since) return;
    r.probed_since = 0;
    sub.stale = 0;
    if (may_migrate(channel, path)) return tell_to_migrate(channel, path, "nothing comes through");
    path_failed(channel, path, "nothing comes through", false);
}

void Interface::Impl::path_answers(Channel& channel, PathIndex path) {
    Subchannel& sub = channel.subs[path];
    sub.stale = 0;
    if (!channel.recovery) return;
    PathRecovery& r = channel.recovery->paths[path];
    r.probed_since = 0;
    if (r.phase != Phase::up || channel.scheduler->paths()[path].state != schedule::PathState::suspect) return;
    channel.scheduler->set_state(path, schedule::PathState::up);
    ++recovery_steps; // a fence may have waited for it
    note(channel, recover::Transition::What::cleared, path);
}

} // namespace ucx_mp::channel
