// A path fails: nothing more is posted there, what was posted comes back, and everything finds its list.
#include <cinttypes>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using connect::PathNews;
using recover::PathRecovery;
using recover::Phase;
using recover::Recovery;

Recovery& Interface::Impl::recovery_of(Channel& channel) {
    if (!channel.recovery) {
        channel.recovery = std::make_unique<Recovery>();
        channel.recovery->paths.resize(channel.places);
    }
    return *channel.recovery;
}

bool Interface::Impl::recoverable(const Channel& channel) const {
    return config.recovery.enabled && !(channel.gates & (gate::failed | gate::not_ready));
}

void Interface::Impl::set_phase(PathRecovery& r, Phase phase) {
    alert = true;
    const auto away = [](Phase p) { return p != Phase::up && p != Phase::absent; };
    paths_away += away(phase) - away(r.phase);
    r.phase = phase;
    ++recovery_steps;
}

void Interface::Impl::note(const Channel& channel, recover::Transition::What what, PathIndex path, Nanos since,
                           std::uint32_t again, const char* cause) {
    const Nanos now = services.now();
    history.add({what, path, channel.uid, now, since ? now - since : 0, again, cause});
}

void Interface::Impl::list_recovering(Channel& channel) {
    if (std::exchange(channel.recovery->listed, true)) return;
    alert = true;
    recovering.push_back(&channel);
}

void Interface::Impl::path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) {
    Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[path];
    const bool dc = config.transport == connect::Transport::dc;
    const Nanos now = services.now();
    list_recovering(channel);
    switch (r.phase) {
    case Phase::draining:
        // A shared initiator has been ended just now: until then packets were sent.
        if (dc) r.not_before = now + config.recovery.packet_lifetime;
        [[fallthrough]];
    case Phase::asking:
        // mp_dc: a path that carried on has lost more; the question has to be asked anew.
        if (!dc || !r.stays) return;
        break;
    case Phase::reopening:
    case Phase::absent:
        return;
    case Phase::up:
    case Phase::half:
        break;
    }
    if (r.timer) services.cancel(std::exchange(r.timer, 0));
    set_phase(r, Phase::draining);
    r.mine_known = r.theirs_known = r.back = r.greet = false;
    r.round = looks;
    r.attempts = 0;
    r.stays = stays;
    if (dc) ++r.life;
    recovery.damaged |= PathMask{1} << path;
    if (channel.path_count == 1) channel.gates |= gate::recovering;
    // Whoever else was on the initiator: an adapter that has not given up by itself may still have packets on the way.
    r.not_before = now + (dc ? config.recovery.packet_lifetime : 0);
    if (!dc) drain(*channel.subs[path].own[0], channel, path);
    if (stays || (channel.gates & gate::failed)) return; // failed: by a callback, if the adapter is gone
    r.since = now;
    ++r.failures;
    r.flaps = r.came_up && now - r.came_up < config.recovery.hold_down ? r.flaps + 1 : 0;
    channel.scheduler->set_state(path, schedule::PathState::down);
    find_spares(channel);
    forget_migration(channel, path);
    mark_messages(channel, path);
    // The initiator would stand still until it gives up, and what has been executed there need never be told.
    if (Subchannel& sub = channel.subs[path]; dc && sub.open) drain(*sub.queue[0], channel, path);
    if (channel.gates & gate::failed) return;
    note(channel, recover::Transition::What::down, path, 0, 0, cause);
    services.say(LogLevel::info, "path %u to %016" PRIx64 ": down: %s", path, channel.uid, cause);
    if (channel.scheduler->paths().usable() == 0 && !recovery.partition) {
        no_path_left(channel);
        for (PathIndex i = 0; i < channel.path_count; ++i)
            if (recovery.paths[i].phase == Phase::reopening) { // held down until now, perhaps
                recovery.paths[i].attempts = 0;
                schedule_open(channel, i);
            }
    } else {
        judge_peer(channel);
    }
}

// Nothing goes through this queue pair any more. Requests that asked for no completion and were executed would never
// come back: one more behind them does (an error state flushes it), and what it finds before it counts as lost.
void Interface::Impl::drain(SendQueue& queue, Channel& channel, PathIndex path) {
    if (queue.draining) return;
    queue.draining = true;
    queue.drained_from = queue.psn();
    queue.fail();
    queue.close();
    queue.error_due = true;
    // Others have requests on this initiator, too. Those will come back as lost, but until then markers for them must
    // not go by another initiator.
    for (std::uint32_t i = queue.tail; queue.dc && i != queue.head; ++i)
        if (const Posted& posted = queue.at(i); recoverable(*posted.channel))
            path_failed(*posted.channel, posted.path, "", true);
    add_job({.what = recover::Job::What::end, .channel = &channel, .queue = &queue, .news = {.path = path, .end = {}}});
}

void Interface::Impl::end(SendQueue& queue, Channel& channel, PathIndex path) {
    queue.error_due = false;
    if (queue.qp) (void)verbs::to_error(queue.qp.get()); // else its adapter has died
    end_queue(queue, channel, path);
    if (queue.dc)
        restart_later(queue); // if it was idle
    else if (channel.recovery)
        channel.recovery->paths[path].round = looks;
}

// The completion queue has room for some of these beyond the senders' credits: enough for all DC initiators. With many
// connected queue pairs at once the others wait until something has come back (recover() calls again).
void Interface::Impl::end_queue(SendQueue& queue, Channel& channel, PathIndex path) {
    queue.end_due =
        !queue.dc && !queue.idle() && queue.adapter->send_credits <= -static_cast<std::int32_t>(Adapter::kDrains);
    if (queue.end_due || queue.idle()) return;
    const Posted last{&channel, nullptr, 0, 0, path, kNoEpoch, false, false, 0, 1};
    channel.subs[path].open += queue.dc;
    if (queue.write_inline(channel.subs[path].dc, nullptr, 0, {0, 0}, last, IBV_SEND_SIGNALED)) return;
    channel.subs[path].open -= queue.dc;
    drop_posted(queue); // not even that: the adapter is gone
}

// Without completions.
void Interface::Impl::drop_posted(SendQueue& queue) {
    queue.draining = true;
    queue.fail();
    queue.close();
    while (!queue.idle()) {
        const Posted posted = queue.pop();
        if (queue.dc) posted.channel->subs[posted.path].open -= posted.requests;
        if (recoverable(*posted.channel)) {
            if (queue.dc) path_failed(*posted.channel, posted.path, "", true);
            lose(queue, posted);
            if (queue.dc) note_back(*posted.channel, posted.path);
        } else {
            if (posted.work && !ucx_mp::failed(posted.work->status)) posted.work->status = Status::io_error;
            settle(posted);
        }
    }
    if (queue.dc) restart_later(queue);
}

// mp_dc. New requests may follow at once, on another initiator: so this moment is remembered.
void Interface::Impl::note_back(Channel& channel, PathIndex path) {
    if (channel.subs[path].open == 0) channel.recovery->paths[path].back = true;
}

// One record that has come back without success; its channel is recoverable.
void Interface::Impl::lose(SendQueue& queue, const Posted& posted) {
    Channel& channel = *posted.channel;
    Recovery& recovery = recovery_of(channel);
    PathRecovery& r = recovery.paths[posted.path];
    std::uint32_t messages = 0;
    const auto given_up = [](const Work& work) { // see cancel.cc
        const bool part = work.kind == WorkKind::replayed_put || work.kind == WorkKind::replayed_get;
        const Work* const whole = part ? static_cast<const Work*>(work.unpack_arg) : &work;
        return work.kind != WorkKind::message && work.kind != WorkKind::replayed_message && whole &&
               ucx_mp::failed(whole->status);
    };
    if (Work* work = posted.work; work && given_up(*work)) {
        if (--work->open == 0) finish_work(*work);
    } else if (work) {
        switch (work->kind) {
        case WorkKind::put:
        case WorkKind::replayed_put:
            r.lost.push_back({work, posted.offset, posted.bytes, queue.psn() & recover::kPsnMask, 0, 0});
            break;
        case WorkKind::get:
        case WorkKind::get_bcopy:
        case WorkKind::replayed_get:
            redo(channel, *work, posted.offset, posted.bytes);
            break;
        case WorkKind::read_back:
            read_back_lost(channel, *work);
            break;
        case WorkKind::message: // its pieces are no longer read by this adapter
        case WorkKind::replayed_message:
            messages = 1;
            if (--work->open == 0) finish_work(*work);
            break;
        default:
            services.say(LogLevel::error,
                         "an atomic operation of the adapter to %016" PRIx64 " was lost with its path; "
                         "UCX_MP_ATOMICS=target survives that",
                         channel.uid);
            work->status = Status::io_error;
            if (--work->open == 0) finish_work(*work);
            fail_channel(channel, Status::io_error);
            return;
        }
    } else if (posted.epoch != kNoEpoch) {
        messages = posted.requests;
        recovery.holds.push_back({channel.next_sequence, posted.requests, posted.epoch});
    }
    if (!posted.fence && !messages) return;
    for (recover::LostPut& put : r.lost) {
        put.later_messages += messages;
        if (!put.later_marker) put.later_marker = posted.fence;
    }
}

// Messages that nobody has acknowledged and whose last way was this path are sent again, at once: whoever gets one
// twice knows its number. (Also those whose send was completed: adapters may flush what they had accepted.)
void Interface::Impl::mark_messages(Channel& channel, PathIndex path) {
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer* buffer = channel.retained[i & channel.window_mask];
        if (buffer->path != path) continue;
        buffer->path = kNoPath;
        channel.recovery->resend = true;
        if (&buffer->pool->home() != buffer->pool)
            continue; // the message itself is on another path that is down, here was a copy
        BufferPool& home = *buffer->pool;
        std::unique_ptr<BufferPool>& detour = channel.recovery->paths[path].detour[&home == &large];
        if (!detour) detour = std::make_unique<BufferPool>(home);
        buffer->pool = detour.get();
    }
}

// Nothing posted to the path is read any more.
void Interface::Impl::end_detours(Channel& channel, PathIndex path) {
    for (std::unique_ptr<BufferPool>& detour : channel.recovery->paths[path].detour) {
        if (!detour) continue;
        for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i)
            if (Buffer* const buffer = channel.retained[i & channel.window_mask]; buffer->pool == detour.get())
                buffer->pool = &detour->home();
        detour->take_home();
        detour.reset();
    }
}

// Everything posted has come back.
void Interface::Impl::drained(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    const bool dc = config.transport == connect::Transport::dc;
    mark_messages(channel, path);
    end_detours(channel, path);
    set_phase(r, Phase::asking);
    r.mine = {.path = path,
              .life = r.life,
              .marker = channel.subs[path].last_marker,
              .delivered = channel.expected,
              .end = {}};
    r.mine_known = true;
    if (dc) {
        // Messages and reads need no answer. Writes that were acknowledged may not be placed yet, and targets are not
        // ended: packet_lifetime and an answer by another way are the time they are given.
        const PathMask written = channel.unseen_gate ? channel.unread | channel.put_paths | channel.fence_paths : 0;
        r.theirs_known = r.lost.empty() && !(written >> path & 1);
    } else {
        SendQueue& queue = *channel.subs[path].own[0];
        verbs::QueuePairTruth truth;
        const bool believed = config.recovery.packet_numbers && !(untested >> channel.subs[path].device & 1);
        if (channel.subs[path].unconnected) // it has executed nothing
            r.mine.psn = channel.connection.remote_ends[path].psn & recover::kPsnMask;
        else if (believed && verbs::query(queue.qp.get(), truth) == 0)
            r.mine.psn = truth.rq_psn & recover::kPsnMask;
        if (channel.self && r.mine.psn != connect::kUnknownPsn) {
            r.theirs = r.mine;
            r.theirs_known = true;
        }
    }
    if (!r.theirs_known) return ask(channel, path);
    if (dc || channel.self) return;
    // The other side was first: it waits for nothing but this.
    PathNews mine = r.mine;
    mine.answer = true;
    tell_peer(channel, connect::PathKind::down, mine, question_attempts++);
}

// -- The whole of an adapter or a port

void Interface::Impl::rail_failed(unsigned rail, const char* cause, bool device_gone) {
    for (std::uint32_t c = 0; c < channels.size(); ++c) {
        Channel* const channel = channels[c];
        if (!recoverable(*channel)) continue;
        for (PathIndex i = 0; i < channel->path_count; ++i) {
            if (channel->subs[i].rail != rail || is_absent(*channel, i)) continue;
            if (!device_gone && may_migrate(*channel, i)) {
                tell_to_migrate(*channel, i, cause);
                continue;
            }
            path_failed(*channel, i, cause, false);
            if (!recoverable(*channel)) break; // ended in a callback
            channel->recovery->paths[i].port = true;
            tell_gone(*channel, i);
        }
    }
    const bool dc = config.transport == connect::Transport::dc;
    for (unsigned i = 0; dc && i < dc_rails[rail].initiators.size(); ++i) {
        SendQueue& queue = *dc_rails[rail].initiators[i];
        if (queue.idle()) continue;
        if (device_gone) {
            drop_posted(queue);
        } else {
            const Posted first = queue.at(queue.tail);
            drain(queue, *first.channel, first.path);
        }
    }
    // Nothing of a dead adapter completes any more: what is posted is lost now. (Callbacks may make channels.)
    for (std::uint32_t c = 0; device_gone && !dc && c < channels.size(); ++c)
        for (PathIndex i = 0; i < channels[c]->path_count; ++i)
            if (SendQueue* const own = channels[c]->subs[i].own[0].get(); own && channels[c]->subs[i].rail == rail)
                drop_posted(*own);
}

void Interface::Impl::rail_active(unsigned rail) {
    control->port_active(rail);
    for (std::uint32_t c = 0; c < channels.size(); ++c) {
        Channel* const channel = channels[c];
        if (!channel->recovery || (channel->gates & gate::failed)) continue;
        for (PathIndex i = 0; i < channel->path_count; ++i) {
            PathRecovery& r = channel->recovery->paths[i];
            go_back(*channel, i, rail);
            if (channel->subs[i].rail != rail) continue;
            r.port = false;
            if (r.phase != Phase::reopening) continue;
            r.attempts = 0;
            if (may_open(*channel))
                schedule_open(*channel, i);
            else
                tell_over_path(*channel, connect::PathKind::probe, {.path = i, .end = {}}); // the client may try again
        }
    }
}

void Interface::Impl::read_events() {
    for (const verbs::Rail& rail : rails) {
        verbs::DeviceEvents& events = *devices.device_of(rail).events;
        events.read();
        const verbs::DeviceEvents::Seen now = events.seen(rail.port);
        const verbs::DeviceEvents::Seen before = std::exchange(seen_events[rail.index], now);
        if (now.fatal != before.fatal) {
            rail_failed(rail.index, "the adapter has failed", true);
            device_died(rail.device);
        } else if (now.downs != before.downs)
            rail_failed(rail.index, "its port is down here", false);
        if (now.ups != before.ups || now.renewals != before.renewals) renew_rail(rail.index);
        if (now.ups != before.ups) rail_active(rail.index);
    }
    if (config.apm) take_migrations();
}

// The peer has failed as a whole: nothing is settled any more, everything ends with `status`.
void Interface::Impl::abandon_recovery(Channel& channel, Status status) {
    if (!channel.recovery) return;
    Recovery& recovery = *channel.recovery;
    if (recovery.partition) services.cancel(std::exchange(recovery.partition, 0));
    if (recovery.nudge) services.cancel(std::exchange(recovery.nudge, 0));
    stop_asking(channel);
    for (PathRecovery& r : recovery.paths) {
        if (r.timer) services.cancel(std::exchange(r.timer, 0));
        set_phase(r, Phase::up);
        r.next.reset();
        r.greet = false;
        for (const recover::LostPut& put : std::exchange(r.lost, {})) {
            put.work->status = status;
            if (--put.work->open == 0) finish_work(*put.work);
        }
    }
    for (const recover::Hold& hold : std::exchange(recovery.holds, {})) epoch_done(channel, hold.epoch, hold.requests);
    recovery.markers.clear();
    recovery.resend = false;
}

} // namespace ucx_mp::channel
