// Fences and flushes, see epochs.h.
#include <algorithm>
#include <bit>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

// Counts usable paths, not places: a rail may have a place for DC and one for RC, of which one is in use.
PathIndex Epochs::sole_path(const Channel& channel) const {
    // Lost writes, and writes not posted yet, may take another path. Writes by several adapters have no order.
    if (channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open || channel.moving.pulled_count ||
        channel.visible.unseen_gate || core_.config.read_back == ReadBack::always || !channel.wiring.scheduler)
        return kNoPath;
    const PathMask usable = channel.wiring.scheduler->paths().usable(Direction::write);
    if (!std::has_single_bit(usable)) return kNoPath;
    return static_cast<PathIndex>(std::countr_zero(usable));
}

// The path that all open writes took and that new ones take. kNoPath: nothing is open, or it has no order.
PathIndex Epochs::queue_of_all(const Channel& channel) const {
    const Moving& moving = channel.moving;
    if (!moving.rdma_open || moving.gets_open) return kNoPath;
    if (channel.wiring.path_count <= 1) return 0;
    const PathIndex sole = sole_path(channel);
    return sole != kNoPath && moving.open_paths == PathMask{1} << sole ? sole : kNoPath;
}

// True: a message has been posted behind all open writes, on the same queue. With several paths it must be a marker or
// a fenced message. If the queue fails and the message has arrived, these writes were executed. If it has not arrived,
// nothing behind it was executed (PROTOCOL.md, R261).
bool Epochs::is_told(const Channel& channel, PathIndex path) const {
    const Fences& fences = channel.fences;
    if (channel.wiring.path_count > 1) return !fences.marker_due && !fences.catch_up && !fences.fence_paths;
    if (channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open) return false;
    for (std::uint32_t i = channel.next_sequence; i != fences.told_from && i != channel.acked; --i)
        if (channel.wiring.retained[(i - 1) & channel.window_mask]->path == path) return true;
    return false;
}

void Epochs::pass(Channel& channel, PathIndex path) {
    channel.moving.in_order = true;
    channel.fences.drain_due = false;
    if (channel.wiring.path_count > 1) channel.fences.passed = path;
}

void Epochs::fence(Channel& channel) {
    const bool one_path = channel.wiring.path_count <= 1;
    // A single queue pair keeps the order of writes. It does not keep a write behind a read, which may be repeated.
    Fences& fences = channel.fences;
    fences.passed = kNoPath;
    if (channel.moving.rdma_open) {
        const PathIndex queue = queue_of_all(channel);
        if (queue == kNoPath || !tells_what_was_executed(core_, channel, channel.wiring.paths[queue])) {
            // On DC, a message behind the writes tells enough. On RC without packet numbers it does not: if the queue
            // pair brings it late it does not count (R258), though the writes before it were executed.
            const bool by_dc = queue != kNoPath && channel.wiring.paths[queue].kind == path::Kind::dc;
            // If an earlier fence still waits, no write has been posted since, and its number stays.
            if (!fences.drain_due) fences.told_from = channel.next_sequence;
            fences.until_told = by_dc && (fences.until_told || !fences.drain_due);
            fences.drain_due = true;
        } else if (!fences.drain_due) {
            pass(channel, queue);
        }
    }
    if (!one_path) {
        // This fence joins an earlier one whose message has not been sent. Its markers on the way don't cover later
        // puts, so the number changes.
        if (std::exchange(fences.marked_paths, 0)) fences.fence_number = fences.next();
        fences.fence_paths |= fences.put_paths;
        fences.marker_due = fences.fence_paths != 0;
        fences.catch_up = channel.moving.pulled_count != 0;
        if (channel.moving.rdma_open == 0) core_.visibility.settle_fence(channel);
    }
    fences.put_paths = 0;
    if (channel.visible.unseen_gate && channel.visible.unread) fences.drain_due = true, fences.until_told = false;
    if (fences.atomics_sent) {
        fences.atomics_sent = fences.atomics_asked = fences.until_told = false;
        fences.atomics_until = fences.atomics_end;
        fences.atomics_due = fences.drain_due = true;
    }
    if (fences.pending() || channel.moving.gets_open) channel.gates |= gate::fence;
}

bool Epochs::clear_drain(Channel& channel) {
    if (channel.fences.passed != kNoPath) [[unlikely]] {
        if (channel.moving.rdma_open == 0) {
            channel.fences.passed = kNoPath;
            if (channel.fences.marker_due) core_.visibility.settle_fence(channel);
        } else if (channel.fences.passed != sole_path(channel)) {
            stop_passing(channel); // new writes may take another path
        }
    }
    if (channel.fences.drain_due && channel.fences.until_told)
        if (const PathIndex queue = queue_of_all(channel); queue != kNoPath && is_told(channel, queue))
            pass(channel, queue);
    if (!channel.fences.drain_due) {
        if (!channel.fences.pending() && !channel.moving.gets_open) channel.gates &= ~gate::fence;
        return true;
    }
    if (channel.visible.unseen_gate && channel.visible.unread)
        core_.visibility.read_back(channel); // posted at once: it executes behind the writes
    if (channel.moving.rdma_open) return false;
    if (channel.fences.atomics_due) {
        if (channel.fences.atomics_until - 1 - channel.acked < channel.in_flight()) {
            if (!std::exchange(channel.fences.atomics_asked, true))
                push(channel); // a peer with nothing to send would never acknowledge them unasked
            return false;
        }
        channel.fences.atomics_due = false;
    }
    channel.fences.drain_due = false;
    if (channel.fences.marker_due) core_.visibility.settle_fence(channel);
    if (!channel.fences.pending()) channel.gates &= ~gate::fence;
    return true;
}

namespace {
// The latest request there has asked for no completion. An initiator counts only while we have requests there.
bool is_quiet(const Path& sub) {
    const SendQueue* const queue = sub.queue[0];
    return queue && !queue->all_signaled() && !(queue->dc && sub.open == 0);
}
bool any_is_quiet(const Wiring& wiring) {
    return std::any_of(wiring.paths.get(), wiring.paths.get() + wiring.path_count, is_quiet);
}
} // namespace

bool Epochs::write_nothing(Channel& channel, PathIndex path, SendQueue& queue) {
    if (!queue.room(1)) return false;
    Path& sub = channel.wiring.paths[path];
    const Posted posted{.channel = &channel, .path = path};
    sub.open += queue.dc;
    if (queue.write_inline(sub.dc, nullptr, 0, {0, 0}, posted, IBV_SEND_SIGNALED)) return true;
    post_refused(core_, channel, queue, posted);
    return false;
}

// Small messages ask for a completion only now and then. That of an empty write covers all requests before it.
bool Epochs::push_out(Channel& channel) {
    for (PathIndex path = 0; path < channel.wiring.path_count; ++path) {
        const Path& sub = channel.wiring.paths[path];
        if (!is_quiet(sub) || sub.queue[0]->failed()) continue;
        if (!write_nothing(channel, path, *sub.queue[0])) return false;
    }
    return true;
}

void Epochs::push(Channel& channel) {
    if (channel.moving.push_due || (channel.gates & gate::failed)) return;
    if (push_out(channel) && (!channel.moving.atomics_pending || core_.acks.send_ack(channel, Kind::ack_request)))
        return;
    if (channel.gates & gate::failed) return;
    enlist_once(core_, core_.lists.pushes, channel, channel.moving.push_due);
}

void Epochs::push_due() {
    for (Channel* channel : std::exchange(core_.lists.pushes, {})) {
        channel->moving.push_due = false;
        push(*channel);
    }
}

[[gnu::always_inline]] inline bool Epochs::flush_at_once(Channel& channel, Completion* completion) {
    // The usual case: nothing to read back, no flush under way, and all open requests have asked for completions. So
    // nothing has to be posted.
    const std::uint8_t present = channel.epoch;
    const SendQueue* const only = channel.wiring.only;
    if (completion && present == channel.oldest_epoch && channel.epoch_open[present] &&
        !channel.moving.flushes[present] && !channel.moving.atomics_pending && !channel.visible.reads_back &&
        !(channel.gates & gate::failed) && core_.works.pool.at_hand() &&
        (only ? only->all_signaled() : !channel.moving.pulled_count && !any_is_quiet(channel.wiring))) [[likely]] {
        channel.epoch = (present + 1) % kEpochs;
        core_.works.attach_flush(channel, present, completion);
        return true;
    }
    return false;
}

Status Epochs::flush_any(Channel& channel, Completion* completion) {
    const bool dead = channel.gates & gate::failed;
    if (channel.has_unread() && !(channel.gates & gate::failed)) core_.visibility.read_back(channel);
    if (channel.oldest_epoch != channel.epoch || channel.moving.flushes[channel.epoch])
        core_.works.close_epochs(channel);
    if (channel.epochs_empty()) return dead && !channel.ending.quiet ? channel.error : Status::ok;
    // On a failed channel every request completes anyway, with an error.
    const SendQueue* const only = channel.wiring.only;
    if (!dead && !(only && only->all_signaled() && !channel.moving.atomics_pending)) push(channel);
    if (!completion) return Status::in_progress;
    // New operations belong to the next epoch. If that is still in use, close_epochs() begins it later, and this flush
    // waits for more than it must. That is better than a refusal, since everything else may still have room.
    std::uint8_t closed = channel.epoch;
    if (channel.epoch_open[closed] == 0 && closed != channel.oldest_epoch)
        closed = static_cast<std::uint8_t>((closed + kEpochs - 1) % kEpochs); // nothing has begun since the last flush
    else if (const std::uint8_t next = (closed + 1) % kEpochs; next != channel.oldest_epoch)
        Works::begin_epoch(channel, next);
    core_.works.attach_flush(channel, closed, completion);
    return Status::in_progress;
}

namespace {
// No read that belongs before will come any more, so writes need not wait for one.
void post_waiting_writes(Core& core, Channel& channel) {
    if (channel.moving.pulled[0].first && !channel.wiring.only) core.mover.pull(channel);
}
} // namespace

Status Interface::fence(Channel& channel) {
    post_waiting_writes(*channel.core, channel);
    channel.core->epochs.fence(channel);
    return Status::ok;
}

void Interface::fence_all() {
    for (std::uint32_t i = 0; i < core_->directory.channels.size(); ++i) (void)fence(*core_->directory.channels[i]);
}

namespace {
// A function of its own, so that the usual flush saves no registers for it.
template <bool marked> [[gnu::noinline]] Status flush_unusual(Core& core, Channel& channel, Completion* completion) {
    post_waiting_writes(core, channel);
    Status status = core.epochs.flush_any(channel, completion);
    if (core.aside) status = core.progress.beside.behind_kept(status, completion, channel);
    return left<marked>(core, status);
}
template <bool marked>
[[gnu::always_inline]] inline Status flush(Core& core, Channel& channel, Completion* completion) {
    if (core.epochs.flush_at_once(channel, completion)) [[likely]]
        return left<marked>(core, Status::in_progress);
    return flush_unusual<marked>(core, channel, completion);
}
} // namespace

Status Interface::flush(Channel& channel, Completion* completion) {
    return channel::flush<false>(*core_, channel, completion);
}

Status Interface::flush_and_leave(Channel& channel, Completion* completion) {
    return channel::flush<true>(*core_, channel, completion);
}

Status Interface::flush_all() {
    Status result = core_->aside & aside::kept ? Status::in_progress : Status::ok;
    for (std::uint32_t i = 0; i < core_->directory.channels.size(); ++i) {
        Channel* channel = core_->directory.channels[i];
        if (channel->epochs_empty() && !channel->has_unread()) continue;
        post_waiting_writes(*core_, *channel);
        if (core_->epochs.flush_any(*channel, nullptr) == Status::in_progress) result = Status::in_progress;
    }
    return result;
}

} // namespace ucx_mp::channel
