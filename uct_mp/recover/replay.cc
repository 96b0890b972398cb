#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "uct_mp/channel/settling.h"
#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

void Replay::finish_replayed(Channel& channel, Work& work) {
    auto* of = static_cast<Work*>(work.unpack_arg);
    if (work.kind == WorkKind::replayed_put) --channel.wiring.unsettled.puts_open;
    if (channel.wiring.recovery && channel.wiring.recovery->put_again == &work)
        channel.wiring.recovery->put_again = nullptr;
    if (!of) return;
    if (ucx_mp::failed(work.status) && !ucx_mp::failed(of->status)) of->status = work.status;
    if (--of->open == 0) core_.works.finish_work(*of);
}

void Replay::not_posted(Channel& channel) {
    Recovery& recovery = recovery_of(channel);
    recovery.resend = true;
    ++channel.epoch_open[channel.epoch]; // a flush waits for it
    recovery.holds.push_back({.until = channel.next_sequence, .requests = 1, .epoch = channel.epoch});
    all_.phases.list_recovering(channel);
}

void Replay::send_again(Channel& channel) {
    recovery_of(channel).resend = true;
    all_.phases.list_recovering(channel);
}

void Replay::drop_lost(Channel& channel, std::span<Work* const> works) {
    if (!channel.wiring.recovery) return;
    std::vector<Work*> dropped;
    for (PathRecovery& r : channel.wiring.recovery->paths)
        std::erase_if(r.lost, [&](const LostPut& put) {
            const bool named = std::ranges::find(works, put.work) != works.end();
            if (named) dropped.push_back(put.work);
            return named;
        });
    // Last, since this calls the user, who may do anything. Works in `works` may be reused then.
    for (Work* const work : dropped)
        if (--work->open == 0) core_.works.finish_work(*work);
}

namespace {
// True: the peer has not told yet which of the lost writes it has.
bool is_unsettled(Phase phase) { return phase == Phase::draining || phase == Phase::asking; }

// Was this write executed at the peer? A packet number answers that exactly. Without one, a marker or message that was
// posted behind the write and has arrived shows that it was executed. If neither has arrived, the peer's program cannot
// know of the write, so it may go again. Numbers beyond what was sent are not believed. The marker of a path that was
// quiet for long may be much older than the write.
bool executed(const Channel& channel, PathIndex path, const PathRecovery& r, const LostPut& put) {
    const auto between = [](std::uint32_t told, std::uint32_t from, std::uint32_t to, std::uint32_t mask) {
        return ((told - from) & mask) <= ((to - from) & mask);
    };
    if (r.theirs.psn != connect::kUnknownPsn)
        return between(r.theirs.psn, put.end_psn, channel.wiring.paths[path].own[0]->psn(), kPsnMask);
    if (put.later_marker && r.theirs.marker && between(r.theirs.marker, put.later_marker, put.newest_marker, ~0u))
        return true;
    // A single path has no markers, since messages keep the order there.
    return channel.wiring.path_count == 1 && put.later_messages > channel.next_sequence - r.theirs.delivered;
}
} // namespace

void Replay::settled(Channel& channel, PathIndex path) {
    Recovery& recovery = *channel.wiring.recovery;
    PathRecovery& r = recovery.paths[path];
    if (r.timer) core_.services.cancel(std::exchange(r.timer, 0));
    const bool dc = channel.wiring.paths[path].kind == path::Kind::dc;
    // A packet number has 24 bits, so it says nothing if too many packets were under way.
    if (!dc) {
        const SendQueue& queue = *channel.wiring.paths[path].own[0];
        if (queue.psn() - queue.drained_from >= kMaxPacketsInFlight) r.theirs.psn = connect::kUnknownPsn;
    }
    core_.receiver.take_ack(channel, r.lost.empty() && dc ? channel.acked : r.theirs.delivered);
    if (channel.gates & gate::failed) return; // by a callback of the user
    // From the back, since Failure::redo() puts each before the others.
    std::vector<LostPut> lost = std::exchange(r.lost, {});
    std::uint64_t again = 0;
    for (std::size_t i = lost.size(); i-- > 0;) {
        const LostPut& put = lost[i];
        if (channel.gates & gate::failed) { // by a callback
            if (!ucx_mp::failed(put.work->status)) put.work->status = channel.error;
            if (--put.work->open == 0) core_.works.finish_work(*put.work);
        } else if (executed(channel, path, r, put)) {
            ++recovery.puts_found_done;
            if (--put.work->open == 0) core_.works.finish_work(*put.work);
        } else {
            all_.failure.redo(channel, *put.work, put.offset, put.bytes);
            ++again;
        }
    }
    if (channel.gates & gate::failed) return;
    if (r.stays) {
        all_.phases.set_phase(channel, path, Phase::up);
        r.stays = false;
        return all_.exchange.resume(channel);
    }
    const bool over = all_.demand.lets_go(channel, path);
    r.attempts = 0;
    if (!over) all_.phases.set_phase(channel, path, Phase::reopening);
    all_.reports.note(channel, Transition::What::settled, path, r.since, static_cast<std::uint32_t>(again));
    all_.reports.tell(channel, path, "is settled in %.3f ms, %zu writes lost, %" PRIu64 " sent again",
                      static_cast<double>(core_.services.now() - r.since) * 1e-6, lost.size(), again);
    if (over)
        all_.demand.give_back(channel, path);
    else
        all_.jobs.schedule_open(channel, path);
    all_.exchange.resume(channel);
}

// -- Messages

// A fenced message is a marker, too. So it follows the writes that have gone again, on their path.
PathIndex Replay::place_again(Channel& channel, Buffer& buffer, std::uint64_t bytes) {
    if (const std::uint32_t fence = channel::trailer_of(buffer).number)
        for (const Recovery::Marker& marker : channel.wiring.recovery->told)
            if (marker.number == fence && channel.wiring.stands(marker.over))
                return place_put_again(channel, marker.over, bytes);
    return core_.placement.place(channel, Direction::write, bytes);
}

PathIndex Replay::place_put_again(Channel& channel, PathIndex path, std::uint64_t bytes) {
    if (!core_.placement.path_has_room(channel, path, Direction::write, 1 + SendQueue::kReserve)) return kNoPath;
    channel.wiring.scheduler->place_on(path, Direction::write, bytes);
    return path;
}

bool Replay::place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk) {
    const schedule::Transfer& transfer = work.transfer;
    PathIndex& over = channel.wiring.recovery->puts_over;
    const PathMask usable = channel.wiring.scheduler->paths().usable(Direction::write);
    if (!channel.wiring.stands(over)) {
        // The path that took such writes has failed, too. Its lost writes come before this work.
        if (usable == 0 || (over != kNoPath && is_unsettled(channel.wiring.paths[over].phase))) return false;
        over = *schedule::each(usable).begin();
    }
    // There were fences between these writes. If this path fails, too, no write may go again when a later one has
    // arrived. So only one is under way at a time, unless the path can tell exactly which were executed.
    const Work* const before = channel.wiring.recovery->put_again;
    if (channel.moving.in_order && before && before != &work &&
        !tells_what_was_executed(core_, channel, channel.wiring.paths[over]))
        return false;
    chunk = {.offset = transfer.offset, .length = transfer.remaining(), .path = over};
    if (place_put_again(channel, over, chunk.length) == kNoPath) return false;
    channel.wiring.recovery->put_again = &work;
    return true;
}

// False: no room now.
bool Replay::send_again(Channel& channel, Buffer& buffer) {
    Work* pieces = buffer.work && buffer.work->kind == WorkKind::message ? buffer.work : nullptr;
    std::uint64_t bytes = buffer.length + buffer.trailer;
    for (unsigned i = 0; pieces && i < pieces->pieces; ++i) bytes += pieces->local[i].length;
    PathIndex path = 0;
    if (channel.wiring.only ? !channel.wiring.only->room() : (path = place_again(channel, buffer, bytes)) == kNoPath)
        return false;
    // A copy is sent: the message may be acknowledged, and its buffer reused, while the adapter is still reading.
    Buffer* copy = buffer.pool->home().get();
    if (!copy) {
        if (!channel.wiring.only) channel.wiring.scheduler->cancel(path, Direction::write, bytes);
        return false;
    }
    std::memcpy(copy->data(), buffer.data(), buffer.length + buffer.trailer);
    copy->length = buffer.length;
    copy->trailer = buffer.trailer;
    auto* header = reinterpret_cast<MessageHeader*>(copy->data());
    header->ack = channel.expected;
    header->flags |= flag::ack_request;
    Work* work = core_.works.new_work(channel, WorkKind::replayed_message, nullptr);
    work->bounce = copy;
    work->open = 1;
    work->unpack_arg = pieces;
    if (pieces) ++pieces->open;
    SendQueue& queue = *core_.placement.queue_for(channel, path, Direction::write);
    Path& sub = channel.wiring.paths[path];
    ibv_sge sge[kMaxIov + 2];
    const int count = core_.sender.gather(*copy, pieces, sub.device, sge);
    Posted posted{.channel = &channel, .work = work, .bytes = static_cast<std::uint32_t>(bytes), .path = path};
    posted.extra = queue.extra_packets(posted.bytes);
    sub.open += queue.dc;
    buffer.path = path;
    ++core_.recovery_steps;
    ++channel.wiring.recovery->messages_again;
    channel.wiring.recovery->bytes_again += bytes;
    if (!queue.send(sub.dc, sge, count, posted, IBV_SEND_SOLICITED | IBV_SEND_SIGNALED))
        channel::post_refused(core_, channel, queue, posted);
    return true;
}

void Replay::resend(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    // A single queue pair keeps the order by itself, so the writes have to go first.
    if ((channel.gates & gate::recovering) &&
        (channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open || channel.moving.pulled_count))
        return;
    bool left = false;
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer& buffer = *channel.wiring.retained[i & channel.window_mask];
        if (buffer.path != kNoPath) continue;
        // A fenced message is a marker itself, so it waits for the writes that it stands for.
        if (buffer.trailer && channel.wiring.unsettled.may_not_tell()) {
            left = true;
            continue;
        }
        if (!send_again(channel, buffer) || (channel.gates & gate::failed)) return;
    }
    recovery.resend = left;
}

// -- Fences

// When all writes of the failed paths have completed, fences may pass again, and lost markers are sent again.
void Replay::heal(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    if (!channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open) return;
    for (const PathIndex path : schedule::each(channel.wiring.unsettled.damaged))
        if (is_unsettled(channel.wiring.paths[path].phase)) return;
    const PathMask healed = std::exchange(channel.wiring.unsettled.damaged, 0);
    ++core_.recovery_steps; // users that wait for room may go on
    // Paths that are up again may have carried new writes, so their bits stay.
    PathMask gone = 0;
    for (const PathIndex path : schedule::each(healed))
        if (!channel.wiring.stands(path)) gone |= PathMask{1} << path;
    const PathIndex over = std::exchange(recovery.puts_over, kNoPath);
    // A fence that has not been sent yet must cover the path that took the writes again.
    if (channel.wiring.stands(over) && (channel.fences.fence_paths & healed))
        channel.fences.fence_paths |= PathMask{1} << over;
    // Writes that had completed on a lost path become visible before any over another path to the same adapter. So that
    // path stands for them.
    for (const PathIndex path : schedule::each(gone)) {
        const PathIndex other = core_.visibility.beside(channel, path);
        if (other == kNoPath) continue;
        for (PathMask* paths : {&channel.fences.put_paths, &channel.fences.fence_paths})
            if (*paths >> path & 1) *paths |= PathMask{1} << other;
    }
    channel.fences.put_paths &= ~gone;
    channel.fences.fence_paths &= ~gone;
    // A marker must not be sent a second time with the same number: writes behind the first one would seem covered.
    if (channel.fences.marked_paths & healed) {
        channel.fences.marked_paths = 0;
        channel.fences.fence_number = channel.fences.next();
    }
    channel.fences.marker_due = channel.fences.fence_paths != 0;
    if (!channel.fences.pending() && !channel.moving.gets_open) channel.gates &= ~gate::fence;
    if (channel.wiring.path_count == 1) return;
    // Markers that were sent again before may have been lost with their path, so they go once more. Those of fences
    // that are over are dropped. Both numbers are compared, since either may have wrapped meanwhile.
    std::erase_if(recovery.told, [&](const Recovery::Marker& m) {
        return m.sequence - channel.acked >= channel.in_flight() ||
               channel::trailer_of(*channel.wiring.retained[m.sequence & channel.window_mask]).number != m.number;
    });
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer& buffer = *channel.wiring.retained[i & channel.window_mask];
        if (!buffer.trailer) continue;
        const FenceTrailer trailer = channel::trailer_of(buffer);
        for (const PathIndex path : schedule::each(trailer.paths & healed)) {
            const bool known = std::any_of(recovery.told.begin(), recovery.told.end(), [&](const Recovery::Marker& m) {
                return m.number == trailer.number && m.path == path;
            });
            if (!known) recovery.told.push_back({.number = trailer.number, .sequence = i, .path = path, .over = over});
        }
    }
    recovery.markers = recovery.told;
    if (!recovery.told.empty() && channel.visible.unseen_gate) core_.visibility.read_back_all(channel);
}

bool Replay::send_markers(Channel& channel) {
    auto& markers = channel.wiring.recovery->markers;
    if (!markers.empty() && channel.wiring.unsettled.may_not_tell()) return false;
    while (!markers.empty()) {
        const Recovery::Marker marker = markers.back();
        bool sent = static_cast<std::int32_t>(marker.sequence - channel.acked) < 0;
        const PathMask usable = channel.wiring.scheduler->paths().usable();
        const PathMask own = channel.wiring.stands(marker.over) ? PathMask{1} << marker.over : 0;
        for (const PathIndex over : schedule::each(own ? own : usable)) {
            SendQueue* queue = core_.placement.queue_for(channel, over, Direction::write);
            if (sent || !queue || !queue->room(1)) continue;
            const MarkerBody body{marker.number, channel.wiring.paths[marker.path].puts};
            if (!core_.acks.send_control(channel, Kind::marker, &body, sizeof body, over, *queue, marker.path))
                return false;
            sent = true;
            break;
        }
        if (!sent) return false;
        markers.pop_back();
        ++core_.recovery_steps;
    }
    return true;
}

// -- In progress

void Replay::release_holds(Channel& channel) {
    // Callbacks of the user may lose more messages, or end the channel.
    for (const Hold& hold : std::exchange(channel.wiring.recovery->holds, {})) {
        if (!(channel.gates & gate::failed) && static_cast<std::int32_t>(channel.acked - hold.until) < 0)
            channel.wiring.recovery->holds.push_back(hold);
        else
            ++core_.recovery_steps, core_.works.epoch_done(channel, hold.epoch, hold.requests);
    }
}

bool Replay::recover(Channel& channel) {
    Recovery& recovery = *channel.wiring.recovery;
    if (channel.gates & gate::failed) return false;
    for (PathIndex path = 0; path < channel.wiring.path_count; ++path) {
        PathRecovery& r = recovery.paths[path];
        if (channel.wiring.paths[path].phase == Phase::draining) {
            const Path& sub = channel.wiring.paths[path];
            if (sub.own[0] && sub.own[0]->end_due) all_.failure.end_queue(*sub.own[0], channel, path);
            const bool all_back = sub.own[0] ? sub.own[0]->idle() && !sub.own[0]->error_due : sub.open == 0 || r.back;
            if (all_back && !core_.rounds.looked_since(r.round))
                ++core_.recovery_steps; // the caller of progress() shall call again
            else if (all_back && sub.own[0])
                all_.jobs.add_path_job(channel, Job::What::truth, {.path = path, .end = {}});
            else if (all_back)
                all_.failure.drained(channel, path);
        }
        if (r.greet && channel.wiring.paths[path].phase == Phase::up) all_.exchange.greet(channel, path);
        if (Path& sub = channel.wiring.paths[path];
            sub.load_due && static_cast<std::int32_t>(sub.own[0]->tail - sub.load_behind) >= 0) {
            sub.load_due = sub.told_to_migrate = false;
            all_.jobs.add_path_job(channel, Job::What::load, {.path = path, .end = {}});
        }
        if (channel.wiring.paths[path].phase == Phase::asking && r.theirs_known) settled(channel, path);
        if (channel.gates & gate::failed) return false;
    }
    if (recovery.widening) all_.joining.widen(channel);
    if (!recovery.holds.empty()) release_holds(channel);
    if (!recovery.holds.empty() && !recovery.nudge)
        recovery.nudge = core_.services.at(core_.services.now() + core_.config.recovery.ask_interval, [this, &channel] {
            channel.wiring.recovery->nudge = 0;
            if (!channel.wiring.recovery->holds.empty()) (void)core_.acks.send_ack(channel, Kind::ack_request);
        });
    if (channel.moving.pulled_count) channel.wiring.only ? core_.mover.pull_sole(channel) : core_.mover.pull(channel);
    heal(channel);
    if (recovery.resend) resend(channel);
    const bool marked = send_markers(channel);
    if (channel.gates & gate::failed) return false;
    bool waiting = false; // for completions, which do not list the channel again
    for (PathIndex path = 0; path < channel.wiring.path_count; ++path)
        waiting |= channel.wiring.paths[path].phase == Phase::draining || recovery.paths[path].greet ||
                   channel.wiring.paths[path].load_due;
    const bool busy = waiting || recovery.widening || recovery.resend || !marked || !recovery.holds.empty() ||
                      channel.wiring.unsettled.puts_open;
    if (busy) return true;
    if (channel.wiring.only && channel.moving.pulled_count) return true;
    if ((channel.gates & gate::recovering) && !channel.wiring.unsettled.damaged &&
        channel.wiring.scheduler->paths().usable()) {
        channel.gates &= ~gate::recovering;
        ++core_.recovery_steps;
        all_.exchange.resume(channel);
    }
    return false;
}

} // namespace ucx_mp::recover
