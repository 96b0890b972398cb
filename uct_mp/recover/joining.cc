// Ports that come up late. The handshake has kept places for paths over them (path::add_absent_paths). Nothing has been
// made for these paths, and their phase is `absent`. We learn that our port is up by an event, and that the peer's port
// is up by its list of rails. When both are up, the client opens the path like one that has been lost (PROTOCOL.md). A
// subnet manager may also give a port other LIDs; a path that is opened again uses the present ones.
#include <algorithm>
#include <mutex>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

void Joining::tell_self(Channel& channel) {
    if (!channel.self || !recoverable(core_, channel)) return;
    core_.takeover.describe_self(channel.connection);
    all_.renewal.note_lives(channel);
    core_.visibility.note_devices(channel);
}

void Joining::join_paths(Channel& channel) {
    if (!recoverable(core_, channel) || !channel.connection.absent) return;
    std::vector<path::RemoteRail> ours;
    for (const verbs::Rail& rail : core_.rails) ours.push_back(path::describe(rail));
    const bool routed = path::must_route(ours, channel.connection.remote_rails);
    for (PathIndex path = 0; path < channel.wiring.places; ++path)
        if (is_absent(channel, path) && may_join(channel, path, routed) && wanted(channel, path)) {
            if (!has_places(channel)) return;       // widen() calls this again
            if (!may_open(channel, path)) continue; // the other side opens it
            join(channel, path);
            all_.jobs.open(channel, path);
        }
}

bool Joining::may_join(const Channel& channel, PathIndex path, bool routed) const {
    return path::reach(path::describe(core_.rails[channel.wiring.paths[path].rail]),
                       channel.connection.remote_rail(path), routed);
}

// A single path of RC is used as if there were no other places (Wiring::only): it has no accounts and no markers, since
// its queue pair keeps the order. Before another path joins, everything posted that way must be back. A gate lets
// nothing new through until then.
bool Joining::has_places(Channel& channel) {
    if (channel.wiring.path_count == channel.wiring.places) return true;
    Recovery& recovery = *channel.wiring.recovery;
    if (!std::exchange(recovery.widening, true)) {
        recovery.widening_told = false;
        channel.gates |= gate::recovering;
        all_.phases.list_recovering(channel);
    }
    return false;
}

// Acknowledgments that are posted meanwhile need not be back: they may take any path.
void Joining::widen(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    SendQueue& queue = *channel.wiring.paths[0].own[0];
    const Phase phase = channel.wiring.paths[0].phase;
    const bool whole = !channel.wiring.unsettled.damaged && !channel.wiring.unsettled.puts_open && !recovery.resend &&
                       channel.moving.pulled_count == 0;
    // If the path was lost (reopening), everything posted is settled. It goes again over any path, in the same order
    // (Replay::resend()).
    if (phase != Phase::reopening && (phase != Phase::up || !whole)) {
        recovery.widening_told = false;
        return;
    }
    if (phase == Phase::up) {
        if (!recovery.widening_told) {
            if (!core_.epochs.push_out(channel) || (channel.gates & gate::failed)) return;
            recovery.widening_told = true;
            recovery.widen_behind = queue.head;
        }
        if (static_cast<std::int32_t>(queue.tail - recovery.widen_behind) < 0) return;
    }
    recovery.widening = false;
    queue.close();
    queue.sole = false;
    queue.set_signal_interval(core_.config.signal_interval);
    channel.wiring.only = nullptr;
    channel.wiring.by_lane = true;
    channel.wiring.path_count = channel.wiring.places;
    channel.fences.put_paths |= 1;  // it may have carried puts; nobody has counted
    if (channel.moving.rdma_open) { // operations that were lost and go again in order
        channel.moving.open_paths = 1;
        channel.moving.in_order = true;
    }
    channel.visible.unread |= 1;
    core_.visibility.note_devices(channel);
    ++core_.recovery_steps;
    join_paths(channel);
}

// More places are kept than are of use (path::add_absent_paths). A path is wanted if one of its rails has no path yet,
// or if its pair of rails has one already. The LMC may be less than the handshake guessed. Then two places may stand
// for the same route, and only one of them is used.
bool Joining::wanted(const Channel& channel, PathIndex path) const {
    const connect::Connection& connection = channel.connection;
    const path::PathSpec& spec = connection.paths[path];
    if (spec.on_demand) return all_.demand.is_agreed(channel) && all_.demand.is_of_use(channel, path);
    bool same_pair = false, our_rail = false, their_rail = false;
    const unsigned ours = connection.local_rail(path), theirs = connection.remote_rail_index(path);
    const auto lids = [](unsigned lmc) { return 1u << lmc; };
    const unsigned local_bits = connection.local_bits(path) & (lids(core_.rails[ours].lmc) - 1);
    const unsigned remote_bits =
        (connection.server ? spec.client_bits : spec.server_bits) & (lids(connection.remote_rail(path).lmc) - 1);
    const bool cut = local_bits != connection.local_bits(path) ||
                     remote_bits != (connection.server ? spec.client_bits : spec.server_bits);
    for (PathIndex i = 0; i < channel.wiring.places; ++i) {
        if (is_absent(channel, i)) continue;
        const bool our = connection.local_rail(i) == ours, their = connection.remote_rail_index(i) == theirs;
        our_rail |= our;
        their_rail |= their;
        same_pair |= our && their;
        const path::PathSpec& other = connection.paths[i];
        if (our && their && cut && other.kind == spec.kind && other.reads == spec.reads &&
            connection.local_bits(i) == local_bits &&
            (connection.server ? other.client_bits : other.server_bits) == remote_bits)
            return false;
    }
    return same_pair || !our_rail || !their_rail || core_.config.paths.cross_rails;
}

void Joining::join(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    connect::Connection& connection = channel.connection;
    const verbs::Rail& ours = core_.rails[channel.wiring.paths[path].rail];
    const path::RemoteRail& theirs = connection.remote_rail(path);
    {
        const std::lock_guard lock(core_.services); // the control plane may be reading it
        path::PathSpec& spec = connection.paths[path];
        const unsigned client_lmc = connection.server ? theirs.lmc : ours.lmc,
                       server_lmc = connection.server ? ours.lmc : theirs.lmc;
        spec.client_bits &= static_cast<std::uint8_t>((1u << client_lmc) - 1);
        spec.server_bits &= static_cast<std::uint8_t>((1u << server_lmc) - 1);
    }
    const double rate = std::min(ours.rate, theirs.rate);
    channel.wiring.scheduler->set_nominal_rate(path, rate);
    channel.wiring.scheduler->set_rail_rate(static_cast<std::uint8_t>(ours.index), rate);
    if (const schedule::PolicyConfig& policy = core_.config.policy;
        policy.has_weights()) // other policies keep the weight that they have learned
        channel.wiring.scheduler->set_weight(path, policy.weight(ours.index, connection.routes_of_rail(path), rate));
    r.since = core_.services.now();
    r.attempts = 0;
    // The server may give the first life up before we have entered it, and then asks for this: nothing has arrived.
    // A path on demand keeps the truth of its last life, since the peer may still ask for that.
    if (!r.mine_known || r.mine.life != r.life)
        r.mine = {.path = path,
                  .life = r.life,
                  .marker = channel.wiring.paths[path].last_marker,
                  .delivered = channel.expected,
                  .end = {}};
    r.mine_known = true;
    all_.phases.set_phase(channel, path, Phase::reopening);
}

bool Joining::address_target(Channel& channel, PathIndex path) {
    const connect::Connection& connection = channel.connection;
    Path& sub = channel.wiring.paths[path];
    const verbs::RemoteEnd end = core_.ends.remote_end(connection, connection.paths[path], {});
    sub.dc.dct_number = connection.remote_rail(path).dct_number;
    sub.dc.key = key_of_life(connection.dc_key, connection.remote_rail(path).life);
    sub.dc.ah = core_.dc.handles.get(core_.devices, core_.rails[sub.rail], end.destination(),
                                     core_.config.reliability.service_level);
    return sub.dc.ah != nullptr;
}

} // namespace ucx_mp::recover
