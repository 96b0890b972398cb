// Peers that may be dead: asking their adapters, ending their channels. Slow path.
//
// A dead process takes its queue pairs along, so whatever is sent to it is not acknowledged any more: the adapter gives
// up after its repetitions (UCX_MP_RC_TIMEOUT, RETRY_COUNT). A stopped process, or one that computes, keeps its queue
// pairs, and its adapter goes on acknowledging. So a request that changes nothing, a write of no bytes, tells them
// apart without the peer's help. It is sent when somebody asks (check()), and by the watchdog when a peer owes us
// acknowledgments of messages and nothing is under way that would tell. The watchdog also asks the peer's control plane
// (connect/question.cc), which answers while the peer computes.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

// The peer's verdict: the one place that decides what becomes of a peer to which no path is left. One whose process
// answers over the control plane is alive, and a path will come back. One that has ended the connection is lost. One
// that is silent while another process at one of its ports acknowledges us is dead. All else may be a partition of the
// network, to be waited out for UCX_MP_PARTITION_TIMEOUT.
void Interface::Impl::judge_peer(Channel& channel) {
    if (channel.self) return;
    const std::lock_guard lock(services);
    control->ask(channel.connection, config.check_interval);
}

void Interface::Impl::no_path_left(Channel& channel) {
    const Nanos timeout = config.recovery.partition_timeout;
    services.say(channel.references ? LogLevel::warn : LogLevel::info, "no path to %016llx is left: operations wait",
                 static_cast<unsigned long long>(channel.uid));
    const Nanos now = services.now();
    judge_peer(channel);
    note(channel, recover::Transition::What::cut_off, kNoPath);
    channel.recovery->partition_since = now;
    const Nanos next = timeout ? std::min(timeout, config.check_interval) : config.check_interval;
    channel.recovery->partition = services.at(now + next, [this, &channel] { still_no_path(channel); });
}

void Interface::Impl::still_no_path(Channel& channel) {
    recover::Recovery& recovery = *channel.recovery;
    recovery.partition = 0;
    if (channel.scheduler->paths().usable()) return; // a suspect has turned out to be good
    const Nanos now = services.now(), timeout = config.recovery.partition_timeout;
    if (timeout && now - recovery.partition_since >= timeout) {
        services.say(channel.references ? LogLevel::error : LogLevel::info,
                     "no path to %016llx has come back in %.1f s (UCX_MP_PARTITION_TIMEOUT)",
                     static_cast<unsigned long long>(channel.uid), static_cast<double>(timeout) * 1e-9);
        return fail_channel(channel, Status::endpoint_timeout);
    }
    judge_peer(channel);
    Nanos next = now + config.check_interval;
    if (timeout) next = std::min(next, recovery.partition_since + timeout);
    recovery.partition = services.at(next, [this, &channel] { still_no_path(channel); });
}

// Somebody else at a port of the peer acknowledges what we send: the port and the way to it work.
bool Interface::Impl::has_witness(const Channel& channel) const {
    const auto same_port = [](const path::RemoteRail& a, const path::RemoteRail& b) {
        return a.usable() && a.lid == b.lid && a.gid == b.gid && a.subnet_prefix == b.subnet_prefix;
    };
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        const Channel& other = *channels[slot];
        if (&other == &channel || other.gates & (gate::not_ready | gate::failed) || other.self) continue;
        for (PathIndex i = 0; i < other.path_count; ++i) {
            if (!other.scheduler->paths().is_usable(i)) continue;
            for (const path::RemoteRail& theirs : channel.connection.remote_rails)
                if (same_port(other.connection.remote_rail(i), theirs)) return true;
        }
    }
    return false;
}

// A request that tells whether the queue pair at the other end exists. False: no room for it.
bool Interface::Impl::write_nothing(Channel& channel, PathIndex path, SendQueue& queue) {
    if (!queue.room(1)) return false;
    Subchannel& sub = channel.subs[path];
    const Posted posted{&channel, nullptr, 0, 0, path, kNoEpoch, false, false, 0, 1};
    sub.open += queue.dc;
    if (queue.write_inline(sub.dc, nullptr, 0, {0, 0}, posted, IBV_SEND_SIGNALED)) return true;
    post_refused(channel, queue, posted);
    return false;
}

void Interface::Impl::check(Channel& channel) {
    for (PathIndex path = 0; path < channel.path_count && !(channel.gates & gate::failed); ++path) {
        if (is_absent(channel, path)) continue;
        SendQueue* const queue = queue_for(channel, path, Direction::write);
        // What is under way and has asked for a completion tells as well as this would. (Without one it may have been
        // executed long ago.)
        const bool open = queue && (queue->dc ? channel.subs[path].open != 0 : !queue->idle());
        const bool asked = open && queue->all_signaled();
        if (queue && !asked) (void)write_nothing(channel, path, *queue);
    }
}

// What the answer says:
// - lost: it lives and has ended its channel with us. It will never acknowledge anything (over DC its adapter does not
//   tell): failed.
// - alive: paths are to blame, and recovery brings them back.
// - silent, with paths left: their queue pairs are asked, idle ones would never tell.
// - silent, and no path is left: dead or cut off. If a process at a port of its node answers, the way there is good and
// its
//   queue pairs are gone: dead. Else it is a partition, which ends after UCX_MP_PARTITION_TIMEOUT.
// A stopped process is silent, but its adapter acknowledges, so its paths don't fail. (Unless they really do while it
// is stopped: then it is taken for dead.)
void Interface::Impl::hear_answer(Channel& channel, connect::Answer answer) {
    if (services.logs(LogLevel::debug))
        services.say(LogLevel::debug, "peer %016llx is %s", static_cast<unsigned long long>(channel.uid),
                     answer == connect::Answer::alive  ? "alive"
                     : answer == connect::Answer::lost ? "alive, but has ended its connection with us"
                                                       : "silent");
    if (channel.gates & gate::failed) return;
    if (answer == connect::Answer::lost) return fail_channel(channel, Status::connection_reset);
    if (answer != connect::Answer::silent) return;
    const bool cut_off = channel.recovery && channel.recovery->partition;
    if (!cut_off) return check(channel);
    if (has_witness(channel)) {
        services.say(LogLevel::info, "peer %016llx is dead: its node answers and it does not",
                     static_cast<unsigned long long>(channel.uid));
        fail_channel(channel, Status::endpoint_timeout);
    }
}

// Called about every Config::check_interval.
void Interface::Impl::watch_peers(Nanos now) {
    next_watch = now + config.check_interval;
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        Channel& channel = *channels[slot];
        if (channel.gates & (gate::not_ready | gate::failed)) continue;
        const bool owes = channel.in_flight() != 0 || !channel.atomics.empty();
        if (owes && channel.watching && channel.watched == channel.acked) {
            check(channel);
            if (!(channel.gates & gate::failed)) judge_peer(channel);
        }
        channel.watching = owes;
        channel.watched = channel.acked;
        if (channel.references == 0 && !channel.self && !owes) watch_unused(channel, now);
    }
}

Nanos Interface::next_watch() const {
    const Impl& m = *impl_;
    for (std::uint32_t slot = 0; slot < m.channels.size(); ++slot) {
        const Channel& channel = *m.channels[slot];
        if (channel.gates & (gate::not_ready | gate::failed)) continue;
        if (channel.in_flight() != 0 || !channel.atomics.empty()) return std::max<Nanos>(m.next_watch, 1);
    }
    return 0;
}

// What a failed channel leaves to a successor, and what nobody will come for.
void Interface::Impl::bury(Channel& channel) {
    const std::lock_guard lock(services);
    channel.buried = !channel.renewing;
    const connect::State state = channel.connection.state;
    if (state == connect::State::requesting || state == connect::State::confirming ||
        state == connect::State::accepting || channel.renewing)
        control->forget(channel.connection);
    drop_prepared(channel);
    if (channel.early) {
        for (std::uint32_t i = 0; i < ring; ++i)
            if (ReceiveBuffer* const buffer = std::exchange(channel.early[i], nullptr)) keep_stored(buffer);
        channel.early_count = 0;
        channel.set_live();
    }
    drop_joined(channel);
}

// A failed channel of which something is still posted. Queue pairs that do not flush belong to an adapter that is dead:
// they are destroyed, nothing is read through them any more, and what they would still say is recognised as late. A DC
// initiator that does not get on (the peer may be one that computes) is ended; the others on it send their requests
// again.
void Interface::Impl::abandon(Channel& channel) {
    for (PathIndex path = 0; path < channel.places; ++path) {
        Subchannel& sub = channel.subs[path];
        if (sub.open && config.recovery.enabled && !sub.queue[0]->failed()) drain(*sub.queue[0], channel, path);
        for (const auto& own : sub.own) {
            if (!own || own->idle()) continue;
            own->replace({});
            while (!own->idle()) {
                const Posted posted = own->pop();
                if (posted.work && !ucx_mp::failed(posted.work->status)) posted.work->status = channel.error;
                settle(posted);
            }
        }
    }
}

// DC initiators serve many: one that has failed is used again as soon as everything on it has come back.
void Interface::Impl::restart_later(SendQueue& queue) {
    if (!queue.draining || !queue.idle()) return;
    add_job({.what = recover::Job::What::restart, .channel = nullptr, .queue = &queue});
}

void Interface::Impl::restart(SendQueue& queue) {
    if (!queue.draining || !queue.idle()) return; // the last of its requests will add a job again
    for (const verbs::Rail& rail : rails)
        for (const auto& initiator : dc_rails[rail.index].initiators) {
            if (initiator.get() != &queue) continue;
            if (devices.device_of(rail).events->seen(0).fatal) return; // reopen.cc, if ever
            const int error = verbs::restart_dci(queue.qp.get(), devices.device_of(rail), rail, config.reliability);
            if (error == 0)
                queue.revive();
            else
                services.say(LogLevel::warn, "cannot restart DC initiator 0x%x on %s: %s", queue.qp->qp_num,
                             rail.name.c_str(), std::strerror(error));
        }
}

void Interface::check(Channel& channel) {
    if (!(channel.gates & (gate::not_ready | gate::failed)))
        channel.impl->check(channel);
    else if (channel.gates & gate::failed)
        (void)channel.impl->refusal(channel);
}

void Interface::invalidate(Channel& channel, Status status, bool quiet) {
    if (quiet) channel.error_told = true;
    if (channel.renewing) { // it has ended already, and does not begin anew now
        {
            const std::lock_guard lock(impl_->services);
            channel.renewing = false;
            channel.buried = true;
        }
        channel.error = status;
        (void)impl_->refusal(channel);
        return;
    }
    impl_->fail_channel(channel, status);
}

} // namespace ucx_mp::channel
