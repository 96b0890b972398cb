// What was lost goes again: settled with what the other side has told, through the scheduler, over whatever path works.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using recover::LostPut;
using recover::PathRecovery;
using recover::Phase;
using recover::Recovery;

// Part of a work, as a work of its own that the scheduler may cut anew. It is done when all of it has completed.
void Interface::Impl::redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes) {
    Recovery& recovery = *channel.recovery;
    const bool put = of.transfer.direction == Direction::write;
    Work& part = *new_work(channel, put ? WorkKind::replayed_put : WorkKind::replayed_get, nullptr);
    part.unpack_arg = &of;
    part.pieces = of.pieces;
    for (unsigned i = 0; i < of.pieces; ++i) part.local[i] = of.local[i];
    part.remote = of.remote;
    part.keys = of.keys;
    part.transfer = {.size = offset + bytes, .direction = of.transfer.direction, .offset = offset};
    part.open = 1; // until all is placed
    recovery.puts_open += put;
    ++(put ? recovery.puts_again : recovery.gets_again);
    recovery.bytes_again += bytes;
    // Before what has never been sent.
    auto& list = channel.pulled[!put];
    part.next = list.first;
    list.first = &part;
    if (!list.last) list.last = &part;
    ++channel.pulled_count;
    list_recovering(channel);
}

void Interface::Impl::finish_replayed(Channel& channel, Work& work) {
    auto* of = static_cast<Work*>(work.unpack_arg);
    if (work.kind == WorkKind::replayed_put) --channel.recovery->puts_open;
    if (!of) return;
    if (ucx_mp::failed(work.status) && !ucx_mp::failed(of->status)) of->status = work.status;
    if (--of->open == 0) finish_work(*of);
}

namespace {
// Was this write executed? Packet numbers say it exactly; else a marker or a message that came behind it does, and what
// neither of them covers nobody can have been told of.
bool executed(const Channel& channel, const PathRecovery& r, const LostPut& put) {
    if (r.theirs.psn != connect::kUnknownPsn)
        return ((r.theirs.psn - put.end_psn) & recover::kPsnMask) < recover::kPsnMask / 2;
    if (put.later_marker && static_cast<std::int32_t>(r.theirs.marker - put.later_marker) >= 0) return true;
    // A single path has no markers; messages keep the order there.
    return channel.path_count == 1 && put.later_messages > channel.next_sequence - r.theirs.delivered;
}
} // namespace

void Interface::Impl::settled(Channel& channel, PathIndex path) {
    Recovery& recovery = *channel.recovery;
    PathRecovery& r = recovery.paths[path];
    if (r.timer) services.cancel(std::exchange(r.timer, 0));
    const bool dc = config.transport == connect::Transport::dc;
    // Numbers of 24 bits say nothing about more packets than that.
    if (!dc) {
        const SendQueue& queue = *channel.subs[path].own[0];
        if (queue.psn() - queue.drained_from >= recover::kMaxPacketsInFlight) r.theirs.psn = connect::kUnknownPsn;
    }
    take_ack(channel, r.lost.empty() && dc ? channel.acked : r.theirs.delivered);
    if (channel.gates & gate::failed) return; // by the user, in a callback
    // From the back, since redo() puts each before the others.
    std::vector<LostPut> lost = std::exchange(r.lost, {});
    std::uint64_t again = 0;
    for (std::size_t i = lost.size(); i-- > 0;) {
        const LostPut& put = lost[i];
        if (channel.gates & gate::failed) { // likewise
            if (!ucx_mp::failed(put.work->status)) put.work->status = channel.error;
            if (--put.work->open == 0) finish_work(*put.work);
        } else if (executed(channel, r, put)) {
            ++recovery.puts_found_done;
            if (--put.work->open == 0) finish_work(*put.work);
        } else {
            redo(channel, *put.work, put.offset, put.bytes);
            ++again;
        }
    }
    if (channel.gates & gate::failed) return;
    if (r.stays) {
        set_phase(r, Phase::up);
        return resume(channel);
    }
    set_phase(r, Phase::reopening);
    r.attempts = 0;
    channel.scheduler->set_state(path, schedule::PathState::probing);
    note(channel, recover::Transition::What::settled, path, r.since, static_cast<std::uint32_t>(again));
    services.say(LogLevel::info,
                 "path %u to %016" PRIx64 ": settled in %.3f ms, %zu writes lost, %" PRIu64 " sent again", path,
                 channel.uid, static_cast<double>(services.now() - r.since) * 1e-6, lost.size(), again);
    schedule_open(channel, path);
    resume(channel);
}

// -- Messages

// A fenced message is a marker, too: behind the writes that have gone again.
PathIndex Interface::Impl::place_again(Channel& channel, Buffer& buffer, std::uint64_t bytes) {
    if (const std::uint32_t fence = fence_of(buffer))
        for (const Recovery::Marker& marker : channel.recovery->told)
            if (marker.number == fence && channel.recovery->stands(marker.over))
                return place_put_again(channel, marker.over, bytes);
    return place(channel, Direction::write, bytes);
}

PathIndex Interface::Impl::place_put_again(Channel& channel, PathIndex path, std::uint64_t bytes) {
    if (!path_has_room(channel, path, Direction::write, 1 + SendQueue::kReserve)) return kNoPath;
    channel.scheduler->place_on(path, Direction::write, bytes);
    return path;
}

// False: the path that they take has no room.
bool Interface::Impl::place_puts_again(Channel& channel, const schedule::Transfer& transfer, schedule::Stripe& chunk) {
    PathIndex& over = channel.recovery->puts_over;
    const PathMask usable = channel.scheduler->paths().usable(Direction::write);
    if (!channel.recovery->stands(over)) {
        if (usable == 0) return false;
        over = *schedule::each(usable).begin();
    }
    chunk = {.offset = transfer.offset, .length = transfer.remaining(), .path = over};
    return place_put_again(channel, over, chunk.length) != kNoPath;
}

// False: no room now.
bool Interface::Impl::send_again(Channel& channel, Buffer& buffer) {
    Work* pieces = buffer.work && buffer.work->kind == WorkKind::message ? buffer.work : nullptr;
    std::uint64_t bytes = buffer.length + buffer.trailer;
    for (unsigned i = 0; pieces && i < pieces->pieces; ++i) bytes += pieces->local[i].length;
    PathIndex path = 0;
    if (channel.only ? !channel.only->room() : (path = place_again(channel, buffer, bytes)) == kNoPath) return false;
    // A copy: the acknowledgment may come by another way while this one is still being sent.
    Buffer* copy = buffer.pool->home().get();
    if (!copy) {
        if (!channel.only) channel.scheduler->cancel(path, Direction::write, bytes);
        return false;
    }
    std::memcpy(copy->data(), buffer.data(), buffer.length + buffer.trailer);
    copy->length = buffer.length;
    copy->trailer = buffer.trailer;
    auto* header = reinterpret_cast<MessageHeader*>(copy->data());
    header->ack = channel.expected;
    header->flags |= flag::ack_request;
    Work* work = new_work(channel, WorkKind::replayed_message, nullptr);
    work->bounce = copy;
    work->open = 1;
    work->unpack_arg = pieces;
    if (pieces) ++pieces->open;
    SendQueue& queue = *queue_for(channel, path, Direction::write);
    Subchannel& sub = channel.subs[path];
    ibv_sge sge[kMaxIov + 2];
    const int count = gather(*copy, pieces, sub.device, sge);
    Posted posted{&channel, work, 0, static_cast<std::uint32_t>(bytes), path, kNoEpoch, false, false, 0, 1};
    posted.extra = queue.extra_packets(posted.bytes);
    sub.open += queue.dc;
    buffer.path = path;
    ++recovery_steps;
    ++channel.recovery->messages_again;
    channel.recovery->bytes_again += bytes;
    if (!queue.send(sub.dc, sge, count, posted, IBV_SEND_SOLICITED | IBV_SEND_SIGNALED))
        post_refused(channel, queue, posted);
    return true;
}

void Interface::Impl::resend(Channel& channel) {
    Recovery& recovery = *channel.recovery;
    // A single queue pair keeps the order by itself, so the writes have to go first.
    if ((channel.gates & gate::recovering) && (recovery.damaged || recovery.puts_open || channel.pulled_count)) return;
    bool left = false;
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer& buffer = *channel.retained[i & channel.window_mask];
        if (buffer.path != kNoPath) continue;
        // A fenced message is a marker itself: not before the writes that it stands for, wherever they have gone.
        if (buffer.trailer && recovery.may_not_tell()) {
            left = true;
            continue;
        }
        if (!send_again(channel, buffer) || (channel.gates & gate::failed)) return;
    }
    recovery.resend = left;
}

// -- Fences

// All writes of the failed paths have completed, wherever: fences may pass, and markers that were lost are told again.
void Interface::Impl::heal(Channel& channel) {
    Recovery& recovery = *channel.recovery;
    if (!recovery.damaged || recovery.puts_open) return;
    for (const PathRecovery& r : recovery.paths)
        if (r.phase == Phase::draining || r.phase == Phase::asking) return;
    const PathMask healed = std::exchange(recovery.damaged, 0);
    ++recovery_steps; // who waits for room may go on
    // Paths that have come back may carry new writes.
    PathMask gone = 0;
    for (const PathIndex path : schedule::each(healed))
        if (!recovery.stands(path)) gone |= PathMask{1} << path;
    const PathIndex over = std::exchange(recovery.puts_over, kNoPath);
    // A fence that has not gone yet is to find the writes where they have gone now.
    if (recovery.stands(over) && (channel.fence_paths & healed)) channel.fence_paths |= PathMask{1} << over;
    // What had completed on a path that is gone is behind whatever goes by another one to the same adapter.
    for (const PathIndex path : schedule::each(gone)) {
        const PathIndex other = beside(channel, path);
        if (other == kNoPath) continue;
        for (PathMask* paths : {&channel.put_paths, &channel.fence_paths})
            if (*paths >> path & 1) *paths |= PathMask{1} << other;
    }
    channel.put_paths &= ~gone;
    channel.fence_paths &= ~gone;
    // A marker that has gone is not sent a second time under its number: writes behind the first one would seem
    // covered.
    if (channel.marked_paths & healed) {
        channel.marked_paths = 0;
        channel.fence_number = channel.next_fence();
    }
    channel.marker_due = channel.fence_paths != 0;
    if (!channel.marker_due && !channel.drain_due && !channel.gets_open && !channel.catch_up)
        channel.gates &= ~gate::fence;
    if (channel.path_count == 1) return;
    // Those that were told before may have been lost with the path that carried them.
    std::erase_if(recovery.told,
                  [&](const Recovery::Marker& m) { return static_cast<std::int32_t>(m.sequence - channel.acked) < 0; });
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer& buffer = *channel.retained[i & channel.window_mask];
        if (!buffer.trailer) continue;
        FenceTrailer trailer;
        std::memcpy(&trailer, buffer.data() + buffer.length, sizeof trailer);
        for (const PathIndex path : schedule::each(trailer.paths & healed)) {
            const bool known = std::any_of(recovery.told.begin(), recovery.told.end(), [&](const Recovery::Marker& m) {
                return m.number == trailer.number && m.path == path;
            });
            if (!known) recovery.told.push_back({trailer.number, i, path, over});
        }
    }
    recovery.markers = recovery.told;
    if (!recovery.told.empty() && channel.unseen_gate) read_back_all(channel);
}

bool Interface::Impl::send_markers(Channel& channel) {
    auto& markers = channel.recovery->markers;
    if (!markers.empty() && channel.recovery->may_not_tell()) return false;
    while (!markers.empty()) {
        const Recovery::Marker marker = markers.back();
        bool sent = static_cast<std::int32_t>(marker.sequence - channel.acked) < 0;
        const PathMask usable = channel.scheduler->paths().usable();
        const PathMask own = channel.recovery->stands(marker.over) ? PathMask{1} << marker.over : 0;
        for (const PathIndex over : schedule::each(own ? own : usable)) {
            SendQueue* queue = queue_for(channel, over, Direction::write);
            if (sent || !queue || !queue->room(1)) continue;
            const MarkerBody body{marker.number, channel.subs[marker.path].puts};
            if (!send_control(channel, Kind::marker, &body, sizeof body, over, *queue, marker.path)) return false;
            sent = true;
            break;
        }
        if (!sent) return false;
        markers.pop_back();
        ++recovery_steps;
    }
    return true;
}

// -- In progress

void Interface::Impl::release_holds(Channel& channel) {
    // The user's callbacks may lose more, or end the channel (which empties the list).
    for (const recover::Hold& hold : std::exchange(channel.recovery->holds, {})) {
        if (!(channel.gates & gate::failed) && static_cast<std::int32_t>(channel.acked - hold.until) < 0)
            channel.recovery->holds.push_back(hold);
        else
            ++recovery_steps, epoch_done(channel, hold.epoch, hold.requests);
    }
}

// False: nothing is left to do here but wait for news, timers or completions that call again.
bool Interface::Impl::recover(Channel& channel) {
    Recovery& recovery = *channel.recovery;
    if (channel.gates & gate::failed) return false;
    for (PathIndex path = 0; path < channel.path_count; ++path) {
        PathRecovery& r = recovery.paths[path];
        if (r.phase == Phase::draining) {
            const Subchannel& sub = channel.subs[path];
            if (sub.own[0] && sub.own[0]->end_due) end_queue(*sub.own[0], channel, path);
            const bool all_back = sub.own[0] ? sub.own[0]->idle() && !sub.own[0]->error_due : sub.open == 0 || r.back;
            if (all_back && !looked_since(r.round))
                ++recovery_steps; // progress is wanted
            else if (all_back && sub.own[0])
                add_path_job(channel, recover::Job::What::truth, {.path = path, .end = {}});
            else if (all_back)
                drained(channel, path);
        }
        if (r.greet && r.phase == Phase::up) greet(channel, path);
        if (Subchannel& sub = channel.subs[path];
            sub.load_due && static_cast<std::int32_t>(sub.own[0]->tail - sub.load_behind) >= 0) {
            sub.load_due = sub.told_to_migrate = false;
            add_path_job(channel, recover::Job::What::load, {.path = path, .end = {}});
        }
        if (r.phase == Phase::asking && r.theirs_known) settled(channel, path);
        if (channel.gates & gate::failed) return false;
    }
    if (recovery.widening) widen(channel);
    if (!recovery.holds.empty()) release_holds(channel);
    if (!recovery.holds.empty() && !recovery.nudge)
        recovery.nudge = services.at(services.now() + config.recovery.ask_interval, [this, &channel] {
            channel.recovery->nudge = 0;
            if (!channel.recovery->holds.empty()) (void)send_ack(channel, Kind::ack_request);
        });
    if (channel.pulled_count) channel.only ? pull_sole(channel) : pull(channel);
    heal(channel);
    if (recovery.resend) resend(channel);
    const bool marked = send_markers(channel);
    if (channel.gates & gate::failed) return false;
    bool waiting = false; // for completions that don't call us
    for (PathIndex path = 0; path < channel.path_count; ++path)
        waiting |=
            recovery.paths[path].phase == Phase::draining || recovery.paths[path].greet || channel.subs[path].load_due;
    const bool busy =
        waiting || recovery.widening || recovery.resend || !marked || !recovery.holds.empty() || recovery.puts_open;
    if (busy) return true;
    if (channel.only && channel.pulled_count) return true;
    if ((channel.gates & gate::recovering) && !recovery.damaged && channel.scheduler->paths().usable()) {
        channel.gates &= ~gate::recovering;
        ++recovery_steps;
        resume(channel);
    }
    return false;
}

// A look is over when all completion queues have been seen empty, or when as many completions have been taken as they
// can hold (peers that go on sending must not keep us from repairing). One that had begun before a moment says nothing
// about it, the next one does: looked_since().
void Interface::Impl::count_look(unsigned found) {
    const unsigned enough = (config.receive_depth + config.completion_depth) / config.poll_batch + 8;
    if (found >= config.poll_batch && ++crowded < enough) return;
    crowded = 0;
    ++looks;
}

void Interface::Impl::recover() {
    if (!questions.empty()) answer_questions();
    std::vector<Channel*> list = std::exchange(recovering, {});
    for (Channel* channel : list) {
        channel->recovery->listed = false;
        if (recover(*channel)) list_recovering(*channel);
    }
    if (!leavers.empty()) judge_leavers();
    if (jobs_wait()) run_jobs();
    alert = paths_away || !recovering.empty() || !questions.empty() || !leavers.empty() || !endings.empty();
}

} // namespace ucx_mp::channel
