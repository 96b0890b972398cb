// Asks peers that may be dead, and ends their channels.
//
// When a process dies its queue pairs are gone, and nothing acknowledges what is sent to them. Our adapter then gives
// up after its retries (UCX_MP_RC_TIMEOUT, RETRY_COUNT). A process that is stopped or computes keeps its queue pairs,
// and its adapter goes on acknowledging. So a write of no bytes tells the two cases apart without the peer's help. It
// is sent when a user asks (check()), and by watch_peers() when a peer owes us acknowledgments. watch_peers() also asks
// the peer's control plane (connect/question.cc), which answers while the peer computes.
#include <algorithm>
#include <mutex>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

namespace {
constexpr Nanos kHearing = 1'000'000; // between the loss of the last path and the warning
} // namespace

void Liveness::judge_peer(Channel& channel) {
    if (channel.self) return;
    const std::lock_guard lock(core_.services);
    core_.control->ask(channel.connection, core_.config.check_interval);
}

// A process that has not called progress for long sees failed completions first, and its mail after that. The mail may
// be the peer's goodbye, or its answer that it has ended the connection. So the warning waits for kHearing.
void Liveness::no_path_left(Channel& channel) {
    const Nanos now = core_.services.now();
    judge_peer(channel);
    all_.reports.note(channel, Transition::What::cut_off, kNoPath);
    channel.wiring.recovery->partition_since = now;
    channel.wiring.recovery->partition = core_.services.at(now + kHearing, [this, &channel] { report(channel); });
}

void Liveness::report(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    recovery.partition = 0;
    if (channel.wiring.scheduler->paths().usable()) return;
    const bool has_left = channel.ending.leaving && !channel.ending.goodbye.idle;
    if (!has_left) all_.reports.cut_off(channel);
    look_again(channel, recovery.partition_since);
}

void Liveness::look_again(Channel& channel, Nanos since) {
    Recovery& recovery = *channel.wiring.recovery;
    const Nanos timeout = core_.config.recovery.partition_timeout;
    Nanos next = since + core_.config.check_interval;
    if (timeout) next = std::min(next, recovery.partition_since + timeout);
    recovery.partition = core_.services.at(next, [this, &channel] { still_no_path(channel); });
}

void Liveness::still_no_path(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    recovery.partition = 0;
    if (channel.wiring.scheduler->paths().usable()) return; // a suspect path works after all
    const Nanos now = core_.services.now(), timeout = core_.config.recovery.partition_timeout;
    if (timeout && now - recovery.partition_since >= timeout) {
        all_.reports.given_up(channel);
        return channel::mark_failed(core_, channel, Status::endpoint_timeout);
    }
    judge_peer(channel);
    look_again(channel, now);
}

// True: a path to another process at one of the peer's ports works, so that port and the route to it do.
bool Liveness::has_witness(const Channel& channel) const {
    const auto same_port = [](const path::RemoteRail& a, const path::RemoteRail& b) {
        return a.usable() && a.lid == b.lid && a.gid == b.gid && a.subnet_prefix == b.subnet_prefix;
    };
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        const Channel& other = *core_.directory.channels[slot];
        if (&other == &channel || other.gates & (gate::not_ready | gate::failed) || other.self) continue;
        for (PathIndex i = 0; i < other.wiring.path_count; ++i) {
            if (!other.wiring.scheduler->paths().is_usable(i)) continue;
            for (const path::RemoteRail& theirs : channel.connection.remote_rails)
                if (same_port(other.connection.remote_rail(i), theirs)) return true;
        }
    }
    return false;
}

void Liveness::check(Channel& channel) {
    for (PathIndex path = 0; path < channel.wiring.path_count && !(channel.gates & gate::failed); ++path) {
        if (is_absent(channel, path)) continue;
        SendQueue* const queue = core_.placement.queue_for(channel, path, Direction::write);
        if (queue && queue->dc && !channel.wiring.paths[path].dc.ah) continue; // its adapter has died: no address yet
        // A request under way that has asked for a completion tells as much as this write. One that has not may have
        // been executed long ago.
        const bool open = queue && (queue->dc ? channel.wiring.paths[path].open != 0 : !queue->idle());
        const bool asked = open && queue->all_signaled();
        if (queue && !asked) (void)core_.epochs.write_nothing(channel, path, *queue);
    }
}

// This function alone decides what becomes of a silent peer. Its answers mean:
// - lost: the process lives, but has ended its connection with us. It will never acknowledge anything, and over DC its
//   adapter does not tell. The channel ends.
// - alive: the paths are at fault, and recovery brings them back.
// - silent, and paths are left: check() asks its adapter, since idle queue pairs would never tell.
// - silent, and no path is left: if a path to another process at one of its ports works, the peer is dead and the
//   channel fails. Else the network may be partitioned, and the channel fails after UCX_MP_PARTITION_TIMEOUT.
// A stopped process is silent, but its adapter acknowledges, so its paths do not fail. If they do fail for another
// reason while it is stopped, it is taken for dead.
void Liveness::hear_answer(Channel& channel, connect::Answer answer) {
    if (core_.services.logs(LogLevel::debug))
        core_.services.say(LogLevel::debug, "peer %016llx is %s", static_cast<unsigned long long>(channel.uid),
                           answer == connect::Answer::alive  ? "alive"
                           : answer == connect::Answer::lost ? "alive, but has ended its connection with us"
                                                             : "silent");
    if (channel.gates & gate::failed) return;
    if (answer == connect::Answer::lost) return core_.endings.disowned(channel);
    if (answer != connect::Answer::silent) return;
    const bool cut_off = channel.wiring.recovery && channel.wiring.recovery->partition;
    if (!cut_off) return check(channel);
    if (has_witness(channel)) {
        core_.services.say(LogLevel::info, "%s is dead: its node answers and it does not",
                           connect::describe(channel.connection).c_str());
        channel::mark_failed(core_, channel, Status::endpoint_timeout);
    }
}

void Liveness::watch_peers(Nanos now) {
    core_.rounds.next_watch = now + core_.config.check_interval;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        if (channel.gates & (gate::not_ready | gate::failed)) continue;
        const bool owes = channel::Endings::is_owed(channel);
        if (owes && channel.watch.open && channel.watch.acked == channel.acked) {
            check(channel);
            if (!(channel.gates & gate::failed)) judge_peer(channel);
        }
        channel.watch.open = owes;
        channel.watch.acked = channel.acked;
        // Numbers wrap. So values that are compared with growing numbers are renewed here: the count of writes, and the
        // message for which an acknowledgment was asked.
        (void)channel.has_unread(true);
        channel.fences.asked = channel.moving.parts_asked = channel.next_sequence;
        if (channel.usage.endpoints == 0 && !channel.self && !owes) core_.endings.watch_unused(channel, now);
    }
}

} // namespace ucx_mp::recover
