#include <algorithm>
#include <cstring>
#include <utility>

#include "uct_mp/channel/settling.h"
#include "uct_mp/link/posting.h"
#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

using connect::PathNews;

void Failure::path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) {
    Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[path];
    const bool dc = channel.wiring.paths[path].kind == path::Kind::dc;
    const Nanos now = core_.services.now();
    all_.phases.list_recovering(channel);
    switch (channel.wiring.paths[path].phase) {
    case Phase::draining:
        // A shared initiator has been ended just now, and it sent packets of this path until then.
        if (dc) r.not_before = now + core_.config.recovery.packet_lifetime;
        [[fallthrough]];
    case Phase::asking:
        // mp_dc: a path that stayed in use has lost more, so the peer must be asked anew.
        if (!dc || !r.stays) return;
        break;
    case Phase::reopening:
    case Phase::absent:
    case Phase::ended:
        return;
    case Phase::up:
    case Phase::half:
        break;
    }
    if (r.timer) core_.services.cancel(std::exchange(r.timer, 0));
    if (!r.retired) core_.rings.path_failed(channel);
    r.stays = stays;
    all_.phases.set_phase(channel, path, Phase::draining);
    r.mine_known = r.theirs_known = r.back = r.greet = r.ended_aside = false;
    r.round = core_.rounds.looks;
    r.attempts = 0;
    if (dc) ++r.life;
    // A path that nobody wants has nothing under way. Another path takes over its part in fences, so that no fence
    // waits for the peer, which may make no progress for long. (The path may also have failed by itself since
    // Demand::trim() chose it. So all is checked again.)
    const SendQueue* const own = channel.wiring.paths[path].own[0].get();
    if (r.retired && own && own->idle() && core_.visibility.can_hand_over(channel, path))
        core_.visibility.hand_over(channel, path);
    else
        channel.wiring.unsettled.damaged |= PathMask{1} << path;
    if (channel.wiring.path_count == 1) channel.gates |= gate::recovering;
    // mp_dc: packets may still be on the way, if the adapter has not given up by itself.
    r.not_before = now + (dc ? core_.config.recovery.packet_lifetime : 0);
    if (!dc) drain(*channel.wiring.paths[path].own[0], channel, path);
    if (stays || (channel.gates & gate::failed)) return; // failed: nothing is recovered
    r.since = now;
    if (!r.retired) {
        r.cause = cause;
        ++r.failures;
        r.flaps = r.came_up && now - r.came_up < core_.config.recovery.hold_down ? r.flaps + 1 : 0;
    }
    all_.demand.find_spares(channel);
    forget_migration(core_, channel, path);
    mark_messages(channel, path);
    // Without this the initiator would retry until it gives up, and executed requests that asked for no completion
    // would never come back.
    if (Path& sub = channel.wiring.paths[path]; dc && sub.open) drain(*sub.queue[0], channel, path);
    if (channel.gates & gate::failed) return;
    all_.reports.note(channel, Transition::What::down, path, 0, 0, cause);
    all_.reports.tell(channel, path, "is down: %s", cause);
    if (channel.wiring.scheduler->paths().usable() == 0 && !recovery.partition) {
        all_.liveness.no_path_left(channel);
        for (PathIndex i = 0; i < channel.wiring.path_count; ++i)
            if (channel.wiring.paths[i].phase == Phase::reopening) { // may be held down
                recovery.paths[i].attempts = 0;
                all_.jobs.schedule_open(channel, i);
            }
    } else if (!r.retired) {
        all_.liveness.judge_peer(channel);
    }
}

// A request that asked for no completion and was executed never comes back by itself. So one more request is posted
// behind all (end_queue()). The error state flushes it, and all that is still open before it counts as lost.
void Failure::drain(SendQueue& queue, Channel& channel, PathIndex path) {
    if (queue.draining) return;
    queue.draining = true;
    queue.drained_from = queue.psn();
    queue.fail();
    queue.close();
    queue.error_due = true;
    // Other channels have requests on this initiator, too, which will come back as lost. Their paths fail now, since no
    // marker for these requests may go by another initiator until then.
    for (std::uint32_t i = queue.tail; queue.dc && i != queue.head; ++i)
        if (const Posted& posted = queue.at(i); recoverable(core_, *posted.channel))
            path_failed(*posted.channel, posted.path, "", true);
    all_.jobs.add_job(
        {.what = Job::What::end, .channel = &channel, .queue = &queue, .news = {.path = path, .end = {}}});
}

void Failure::end(SendQueue& queue, Channel& channel, PathIndex path) {
    if (!queue.dc && all_.demand.end_aside(channel, path)) return;
    queue.error_due = false;
    if (queue.qp) (void)verbs::to_error(queue.qp.get()); // else its adapter has died
    end_queue(queue, channel, path);
    if (queue.dc)
        restart_later(queue); // if it was idle
    else if (channel.wiring.recovery)
        channel.wiring.recovery->paths[path].round = core_.rounds.looks;
}

// The share of Adapter::kDrains that queue pairs of RC may use. Each DC initiator of the adapter keeps one.
unsigned Failure::room_for_ends(const SendQueue& queue) const {
    unsigned initiators = 0;
    for (const verbs::Rail& rail : core_.rails)
        if (core_.has_targets() && rail.device == queue.adapter->index)
            initiators += static_cast<unsigned>(core_.dc.rails[rail.index].initiators.size());
    return Adapter::kDrains - std::min(initiators, Adapter::kDrains / 2);
}

// The completion queue has room for Adapter::kDrains of these requests beyond the senders' credits. DC initiators
// always find room. If many queue pairs of RC end at once, some wait until others are back; Replay::recover() calls
// again.
void Failure::end_queue(SendQueue& queue, Channel& channel, PathIndex path) {
    queue.end_due =
        !queue.dc && !queue.idle() && queue.adapter->send_credits <= -static_cast<std::int32_t>(room_for_ends(queue));
    if (queue.end_due || queue.idle()) return;
    const Posted last{.channel = &channel, .path = path};
    channel.wiring.paths[path].open += queue.dc;
    if (queue.write_inline(channel.wiring.paths[path].dc, nullptr, 0, {0, 0}, last, IBV_SEND_SIGNALED)) return;
    channel.wiring.paths[path].open -= queue.dc;
    drop_posted(queue); // not even that: the adapter is gone
}

void Failure::drop_posted(SendQueue& queue) {
    queue.draining = true;
    queue.fail();
    queue.close();
    while (!queue.idle()) {
        const Posted posted = queue.pop();
        channel::Wiring& wiring = posted.channel->wiring;
        if (queue.dc) wiring.paths[posted.path].open -= posted.requests;
        // A path that stays in use keeps its account, and these bytes would count as under way for ever.
        if (!wiring.only)
            wiring.scheduler->cancel(posted.path, posted.read ? schedule::Direction::read : schedule::Direction::write,
                                     posted.bytes);
        if (recoverable(core_, *posted.channel)) {
            lost(queue, posted);
        } else {
            if (posted.work && !ucx_mp::failed(posted.work->status)) posted.work->status = Status::io_error;
            channel::Works::settle(core_, posted);
        }
    }
    if (queue.dc) restart_later(queue);
}

// mp_dc: new requests may follow at once, on another initiator. So the moment when nothing is open is remembered.
void Failure::note_back(Channel& channel, PathIndex path) {
    if (channel.wiring.paths[path].open == 0) channel.wiring.recovery->paths[path].back = true;
}

void Failure::lost(SendQueue& queue, const Posted& posted) {
    Channel& channel = *posted.channel;
    if (queue.dc) path_failed(channel, posted.path, "", true);
    lose(queue, posted);
    if (queue.dc) note_back(channel, posted.path);
}

// It was never posted, so it goes again. Packet numbers must not decide about it.
void Failure::refused(SendQueue& queue, const Posted& posted) {
    Channel& channel = *posted.channel;
    path_failed(channel, posted.path, "its queue pair takes no more", false);
    if (queue.dc) drain(queue, channel, posted.path);
    const bool put = posted.work && (posted.work->kind == WorkKind::put || posted.work->kind == WorkKind::replayed_put);
    put ? redo(channel, *posted.work, posted.offset, posted.bytes) : lost(queue, posted);
}

// The part is a work of its own, so that the scheduler may cut it anew. `of` counts it as open until it has completed.
void Failure::redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes) {
    Recovery& recovery = *channel.wiring.recovery;
    if (recovery.put_again == &of) recovery.put_again = nullptr; // its post was refused, so it is not under way
    const bool put = of.transfer.direction == Direction::write;
    Work& part = *core_.works.new_work(channel, put ? WorkKind::replayed_put : WorkKind::replayed_get, nullptr);
    part.unpack_arg = &of;
    part.pieces = of.pieces;
    for (unsigned i = 0; i < of.pieces; ++i) part.local[i] = of.local[i];
    part.remote = of.remote;
    part.keys = of.keys;
    part.transfer = {.size = offset + bytes, .direction = of.transfer.direction, .offset = offset};
    part.open = 1; // 1 until all of it is placed
    channel.wiring.unsettled.puts_open += put;
    ++(put ? recovery.puts_again : recovery.gets_again);
    recovery.bytes_again += bytes;
    auto& list = channel.moving.pulled[!put];
    part.next = list.first;
    list.first = &part;
    if (!list.last) list.last = &part;
    ++channel.moving.pulled_count;
    all_.phases.list_recovering(channel);
}

void Failure::lose(SendQueue& queue, const Posted& posted) {
    Channel& channel = *posted.channel;
    Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[posted.path];
    std::uint32_t messages = 0;
    const auto given_up = [](const Work& work) { // see channel/cancels.h
        const bool part = work.kind == WorkKind::replayed_put || work.kind == WorkKind::replayed_get;
        const Work* const whole = part ? static_cast<const Work*>(work.unpack_arg) : &work;
        return work.kind != WorkKind::message && work.kind != WorkKind::replayed_message && whole &&
               ucx_mp::failed(whole->status);
    };
    if (Work* work = posted.work; work && given_up(*work)) {
        if (--work->open == 0) core_.works.finish_work(*work);
    } else if (work) {
        switch (work->kind) {
        case WorkKind::put:
        case WorkKind::replayed_put:
            if (recovery.put_again == work) recovery.put_again = nullptr; // if it goes again, another work does
            r.lost.push_back({.work = work,
                              .offset = posted.offset,
                              .bytes = posted.bytes,
                              .end_psn = queue.psn() & kPsnMask,
                              .later_marker = 0,
                              .newest_marker = channel.fences.next(),
                              .later_messages = 0});
            break;
        case WorkKind::get:
        case WorkKind::get_bcopy:
        case WorkKind::replayed_get:
            redo(channel, *work, posted.offset, posted.bytes);
            break;
        case WorkKind::read_back:
            core_.works.read_back_lost(channel, *work);
            break;
        case WorkKind::message: // this adapter does not read its pieces any more
        case WorkKind::replayed_message:
            messages = 1;
            if (--work->open == 0) core_.works.finish_work(*work);
            break;
        default:
            core_.services.say(LogLevel::error,
                               "an atomic operation of the adapter to %s was lost with its path; "
                               "UCX_MP_ATOMICS=target survives that",
                               connect::describe(channel.connection).c_str());
            work->status = Status::io_error;
            if (--work->open == 0) core_.works.finish_work(*work);
            channel::mark_failed(core_, channel, Status::io_error);
            return;
        }
    } else if (posted.epoch != kNoEpoch) {
        messages = posted.requests;
        recovery.holds.push_back({.until = channel.next_sequence, .requests = posted.requests, .epoch = posted.epoch});
    }
    if (!posted.fence && !messages) return;
    for (LostPut& put : r.lost) {
        put.later_messages += messages;
        if (!put.later_marker) put.later_marker = posted.fence;
    }
}

// Unacknowledged messages that went over this path last are sent again at once: the receiver drops a number that it has
// delivered. This includes messages whose send has completed, since the peer's adapter may flush what it had accepted.
void Failure::mark_messages(Channel& channel, PathIndex path) {
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer* buffer = channel.wiring.retained[i & channel.window_mask];
        if (buffer->path != path) continue;
        buffer->path = kNoPath;
        channel.wiring.recovery->resend = true;
        if (&buffer->pool->home() != buffer->pool)
            continue; // only a copy went here: the buffer is in the detour of another path that is down
        BufferPool& home = *buffer->pool;
        std::unique_ptr<BufferPool>& detour = channel.wiring.recovery->paths[path].detour[&home == &core_.large];
        if (!detour) detour = std::make_unique<BufferPool>(home);
        buffer->pool = detour.get();
    }
}

void Failure::end_detours(Channel& channel, PathIndex path) {
    for (std::unique_ptr<BufferPool>& detour : channel.wiring.recovery->paths[path].detour) {
        if (!detour) continue;
        for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i)
            if (Buffer* const buffer = channel.wiring.retained[i & channel.window_mask]; buffer->pool == detour.get())
                buffer->pool = &detour->home();
        detour->take_home();
        detour.reset();
    }
}

void Failure::free_detours(Channel& channel) {
    const Recovery* const recovery = channel.wiring.recovery.get();
    for (PathIndex path = 0; recovery && path < recovery->paths.size(); ++path) end_detours(channel, path);
}

// Paths with completed writes that may not be visible at the peer yet: nothing that was posted behind them has come
// back. A fence that was sent counts until its message is acknowledged, since its marker may be lost with the path. A
// read back counts until it is over, for the same reason.
PathMask Failure::perhaps_unseen(const Channel& channel) {
    PathMask paths = channel.visible.unread | channel.fences.put_paths | channel.fences.fence_paths;
    if (channel.visible.read_backs_open) paths = ~PathMask{0};
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i)
        paths |= channel::trailer_of(*channel.wiring.retained[i & channel.window_mask]).paths;
    return paths;
}

void Failure::drained(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    const bool dc = channel.wiring.paths[path].kind == path::Kind::dc;
    mark_messages(channel, path);
    end_detours(channel, path);
    all_.phases.set_phase(channel, path, Phase::asking);
    r.mine = {.path = path,
              .home = r.retired,
              .life = r.life,
              .marker = channel.wiring.paths[path].last_marker,
              .delivered = channel.expected,
              .end = {}};
    r.mine_known = true;
    if (dc) {
        // Lost messages and reads need no answer of the peer. Completed writes may not be in its memory yet, and a DC
        // target cannot be ended. So packet_lifetime and the peer's answer over another path give them time.
        const PathMask written = channel.visible.unseen_gate ? perhaps_unseen(channel) : 0;
        r.theirs_known = r.lost.empty() && !(written >> path & 1);
    } else {
        SendQueue& queue = *channel.wiring.paths[path].own[0];
        queue.adapter->forget(); // what still comes is late: Receiver::is_late
        verbs::QueuePairTruth truth;
        const bool believed = core_.tells_packet_numbers(channel.wiring.paths[path].device);
        if (channel.wiring.paths[path].unconnected) // never connected, so it has executed nothing
            r.mine.psn = channel.connection.remote_ends[path].psn & kPsnMask;
        else if (r.ended_aside)
            r.mine.psn = r.expected;
        else if (queue.qp && believed && verbs::query(queue.qp.get(), truth) == 0)
            r.mine.psn = truth.rq_psn & kPsnMask;
        if (channel.self && r.mine.psn != connect::kUnknownPsn) {
            r.theirs = r.mine;
            r.theirs_known = true;
        }
    }
    if (!r.theirs_known) return all_.asking.ask(channel, path);
    if (dc || channel.self) return;
    // The other side has told its truth first, and waits only for ours.
    PathNews mine = r.mine;
    mine.answer = true;
    all_.asking.tell_peer(channel, connect::NewsKind::down, mine, all_.asking.question_attempts++);
}

void Failure::abandon_recovery(Channel& channel, Status status) {
    if (!channel.wiring.recovery) return;
    Recovery& recovery = *channel.wiring.recovery;
    if (recovery.partition) core_.services.cancel(std::exchange(recovery.partition, 0));
    if (recovery.nudge) core_.services.cancel(std::exchange(recovery.nudge, 0));
    all_.demand.forget(channel);
    stop_asking(core_, channel);
    for (std::size_t i = 0; i < recovery.paths.size(); ++i) {
        const auto path = static_cast<PathIndex>(i);
        PathRecovery& r = recovery.paths[i];
        if (r.timer) core_.services.cancel(std::exchange(r.timer, 0));
        all_.phases.set_phase(channel, path, Phase::ended);
        r.next.reset();
        r.order = 0;
        r.greet = false;
        for (const LostPut& put : std::exchange(r.lost, {})) {
            put.work->status = status;
            if (--put.work->open == 0) core_.works.finish_work(*put.work);
        }
    }
    for (const Hold& hold : std::exchange(recovery.holds, {}))
        core_.works.epoch_done(channel, hold.epoch, hold.requests);
    recovery.markers.clear();
    recovery.resend = false;
}

// Queue pairs of RC that do not flush belong to a dead adapter. They are destroyed, so that nothing is read through
// them any more, and their late completions are recognised. A DC initiator that does not get on is drained: its peer
// may only compute. Other channels then send their requests on it again.
void Failure::abandon(Channel& channel) {
    for (PathIndex path = 0; path < channel.wiring.places; ++path) {
        Path& sub = channel.wiring.paths[path];
        if (sub.open && core_.config.recovery.enabled && !sub.queue[0]->failed()) drain(*sub.queue[0], channel, path);
        for (const auto& own : sub.own) {
            if (!own || own->idle()) continue;
            own->replace({});
            while (!own->idle()) {
                const Posted posted = own->pop();
                if (posted.work && !ucx_mp::failed(posted.work->status)) posted.work->status = channel.error;
                channel::Works::settle(core_, posted);
            }
        }
    }
}

void Failure::restart_later(SendQueue& queue) {
    if (!queue.draining || !queue.idle()) return;
    all_.jobs.add_job({.what = Job::What::restart, .channel = nullptr, .queue = &queue});
}

void Failure::restart(SendQueue& queue) {
    if (!queue.draining || !queue.idle()) return; // the last of its requests will add a job again
    for (const verbs::Rail& rail : core_.rails)
        for (const auto& initiator : core_.dc.rails[rail.index].initiators) {
            if (initiator.get() != &queue) continue;
            const verbs::Device& device = core_.devices.device_of(rail);
            if (device.events->seen(0).fatal) return; // Reopening makes it anew, if ever
            const int error = verbs::restart_dci(queue.qp.get(), device, rail, core_.config.reliability);
            if (error == 0) return queue.revive();
            if (!verbs::is_dead(device)) // a dead adapter is reported elsewhere
                core_.services.say(LogLevel::warn, "cannot restart DC initiator 0x%x on %s: %s", queue.qp->qp_num,
                                   rail.name.c_str(), std::strerror(error));
        }
}

} // namespace ucx_mp::recover
