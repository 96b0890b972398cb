// Automatic path migration (migration.h). The alternate route shares as little as possible with the path's own
// (path::alternate_of). After a migration the adapter repeats the packets that were under way, so nothing is to be
// settled. The packets say that their sender has migrated, so the other side's adapter follows. Then both sides load
// the route that was left, so that the path can go back when this route fails.
//
// A path that fails in spite of this is made anew over its own route.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

using connect::Connection;

namespace {
std::vector<path::RemoteRail> described(const std::vector<verbs::Rail>& rails) {
    std::vector<path::RemoteRail> list;
    list.reserve(rails.size());
    for (const verbs::Rail& rail : rails) list.push_back(path::describe(rail));
    return list;
}

// The path and its alternate change places.
void turn_route(Core& core, Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    {
        const std::lock_guard lock(core.services); // the control plane may be reading it
        std::swap(channel.connection.paths[path], sub.other);
    }
    sub.rail = static_cast<std::uint8_t>(channel.connection.local_rail(path));
    channel.wiring.scheduler->set_rail(path, sub.rail);
}
} // namespace

// The other side does the same, whether it has seen the migration or not.
void forget_migration(Core& core, Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    sub.loaded = sub.told_to_migrate = sub.load_due = false;
    if (std::exchange(sub.migrated, false)) turn_route(core, channel, path);
}

// The queue pair has just been connected. The control plane's thread may call this, with the lock held.
void Migration::load_first_alternate(Connection& connection, PathIndex path, Path& sub) {
    sub.loaded = sub.migrated = false;
    if (!core_.config.apm || !core_.devices.devices()[sub.device].has_apm) return;
    const std::vector<path::RemoteRail> ours = described(core_.rails);
    const auto other = connection.server ? path::alternate_of(connection.paths[path], connection.remote_rails, ours)
                                         : path::alternate_of(connection.paths[path], ours, connection.remote_rails);
    if (!other) return;
    sub.other = *other;
    load_alternate(connection, path, sub);
}

void Migration::load_alternate(const Connection& connection, PathIndex path, Path& sub) {
    const unsigned rail = connection.server ? sub.other.server_rail : sub.other.client_rail;
    const int error = verbs::load_alternate(sub.own[0]->qp.get(), core_.rails[rail],
                                            core_.ends.remote_end(connection, sub.other, {}), core_.config.reliability);
    sub.loaded = error == 0;
    if (error)
        core_.services.say(LogLevel::debug, "path %u: no alternate route can be loaded: %s", path,
                           std::strerror(error));
}

bool Migration::may_migrate(const Channel& channel, PathIndex path) const {
    const Path& sub = channel.wiring.paths[path];
    if (!sub.loaded || sub.told_to_migrate || sub.own[0]->failed()) return false;
    const unsigned other = channel.connection.server ? sub.other.server_rail : sub.other.client_rail;
    return !all_.ports.is_down(other);
}

void Migration::tell_to_migrate(Channel& channel, PathIndex path, const char* cause) {
    channel.wiring.paths[path].told_to_migrate = true;
    core_.services.say(LogLevel::debug, "path %u to %016" PRIx64 ": is to migrate: %s", path, channel.uid, cause);
    (void)recovery_of(channel);
    all_.jobs.add_path_job(channel, Job::What::migrate, {.path = path, .end = {}});
}

// The adapters learn of the change from packets in both directions, and there may be no others to send.
void Migration::exchange_migration(Channel& channel, PathIndex path) {
    SendQueue& queue = *channel.wiring.paths[path].own[0];
    if (!queue.failed()) (void)core_.epochs.write_nothing(channel, path, queue);
}

void Migration::take_migrations() {
    for (const verbs::Device& device : core_.devices.devices()) {
        verbs::DeviceEvents& events = *device.events;
        if (events.migrations() == seen_migrations[device.index]) continue;
        std::vector<std::uint32_t> numbers = events.migrated_since(seen_migrations[device.index]);
        std::ranges::sort(numbers); // there may be many: one for each peer over a port
        for (std::uint32_t c = 0; c < core_.directory.channels.size(); ++c) {
            Channel& channel = *core_.directory.channels[c];
            for (PathIndex i = 0; i < channel.wiring.path_count; ++i) {
                const Path& sub = channel.wiring.paths[i];
                if (sub.device == device.index && sub.own[0] && sub.own[0]->qp &&
                    std::ranges::binary_search(numbers, sub.own[0]->qp->qp_num))
                    has_migrated(channel, i);
            }
        }
    }
}

void Migration::has_migrated(Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    if (!sub.loaded || !recoverable(core_, channel) || channel.wiring.paths[path].phase != Phase::up) return;
    (void)recovery_of(channel); // has the path's timer
    sub.loaded = false;
    sub.migrated = !sub.migrated;
    ++sub.migrations;
    const Nanos now = core_.services.now();
    sub.home_probes = sub.home_answers = 0;
    sub.home_silent = false;
    if (!sub.migrated) {
        sub.went_home = now;
    } else if (!channel.connection.server) { // only the client probes the path's own route; the server follows
        const Nanos hold = core_.config.recovery.hold_down;
        sub.strays = sub.went_home && now - sub.went_home < hold ? sub.strays + 1 : 0;
        set_path_timer(core_, channel, path,
                       now + std::min(core_.config.recovery.max_hold_down, hold << std::min(sub.strays, 16u)),
                       [this](Channel& c, PathIndex p) { probe_home(c, p); });
    }
    turn_route(core_, channel, path);
    const verbs::Rail& rail = core_.rails[sub.rail];
    all_.reports.note(channel, Transition::What::migrated, path);
    all_.reports.tell(channel, path, "has migrated to %s, LID %u to %u", rail.name.c_str(),
                      rail.lid + channel.connection.local_bits(path), unsigned{channel.connection.remote_lid(path)});
    all_.phases.path_answers(channel, path);
    // The other side's adapter follows packets of a queue pair that has migrated, but not of one that has been armed
    // again. So the route that was left is loaded only when this write has completed.
    exchange_migration(channel, path);
    sub.load_due = true;
    sub.load_behind = sub.own[0]->head;
    all_.phases.list_recovering(channel);
}

// A path that has left our port returns to it. If the port is the peer's, the peer does this.
void Migration::go_back(Channel& channel, PathIndex path, unsigned rail) {
    const Path& sub = channel.wiring.paths[path];
    const unsigned own = channel.connection.server ? sub.other.server_rail : sub.other.client_rail;
    if (sub.migrated && sub.loaded && own == rail && may_migrate(channel, path))
        tell_to_migrate(channel, path, "its own port is back");
}

// After a silent loss no event tells that the path's own route works again. So it is probed now and then, and the path
// returns after three answers in a row. Until then it shares the alternate route with another path, at half the rate.
void Migration::probe_home(Channel& channel, PathIndex path) {
    constexpr unsigned kBelieved = 3;
    Path& sub = channel.wiring.paths[path];
    if (!recoverable(core_, channel) || !sub.migrated || channel.wiring.paths[path].phase != Phase::up) return;
    const auto& times = core_.config.recovery;
    if (std::exchange(sub.home_silent, false)) sub.home_answers = 0, ++sub.home_probes;
    const unsigned own = channel.connection.server ? sub.other.server_rail : sub.other.client_rail;
    if (sub.home_answers >= kBelieved && may_migrate(channel, path)) {
        sub.home_answers = 0;
        tell_to_migrate(channel, path, "its own route works again");
    } else if (sub.home_answers < kBelieved && !all_.ports.is_down(own)) {
        sub.home_silent = true;
        const std::lock_guard lock(core_.services);
        (void)core_.control->tell_over_route(channel.connection, sub.other, connect::NewsKind::probe,
                                             {.path = path, .home = true, .end = {}});
    }
    // Goes on after it was told to migrate, too: the job may wait, or fail.
    const Nanos pause = std::min(times.max_open_interval, times.open_interval << std::min(sub.home_probes, 16u));
    set_path_timer(core_, channel, path, core_.services.now() + pause,
                   [this](Channel& c, PathIndex p) { probe_home(c, p); });
}

void Migration::home_answers(Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    if (!sub.migrated || !std::exchange(sub.home_silent, false)) return;
    ++sub.home_answers;
    sub.home_probes = 0;
}

} // namespace ucx_mp::recover
