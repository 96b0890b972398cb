// Where a request goes: the policy's path if it has room, else any that has; for DC also which initiator.
#include "uct_mp/channel/interface_impl.h"

namespace ucx_mp::channel {

SendQueue* Interface::Impl::pick_initiator(Channel& channel, Subchannel& sub) {
    // While something of ours is outstanding there the initiator is kept: order on a path is the queue pair's.
    if (sub.open && sub.queue[0]) return sub.queue[0];
    // ... and only what this one brings is behind its writes, if nothing else is believed.
    if (config.read_back == ReadBack::always && sub.queue[0] && !sub.queue[0]->failed() &&
        (channel.unread | channel.put_paths | channel.fence_paths) >> (&sub - channel.subs.get()) & 1)
        return sub.queue[0];
    auto& pool = dc_rails[sub.rail].initiators;
    SendQueue* chosen = nullptr;
    switch (config.dci_policy) {
    case DciPolicy::hash: {
        // (i + j) mod n: i is us, j the peer; neighbours use different initiators, and so do different paths.
        const std::uint64_t i = control->address().uid >> 32, j = channel.uid >> 32;
        chosen = pool[(i + j + static_cast<std::uint64_t>(&sub - channel.subs.get())) % pool.size()].get();
        break;
    }
    case DciPolicy::quota:
        // Its last one if nobody else is on it: the connection to the target may still stand.
        if (sub.queue[0] && sub.queue[0]->idle()) return sub.queue[0];
        [[fallthrough]];
    case DciPolicy::least:
        for (auto& queue : pool) {
            if (queue->failed()) continue;
            if (!chosen || queue->outstanding() < chosen->outstanding()) chosen = queue.get();
            if (chosen->idle()) break;
        }
        break;
    }
    sub.queue[0] = sub.queue[1] = chosen;
    return chosen;
}

SendQueue* Interface::Impl::queue_for(Channel& channel, PathIndex path, Direction direction) {
    Subchannel& sub = channel.subs[path];
    if (config.transport == connect::Transport::dc) return pick_initiator(channel, sub);
    return sub.queue[static_cast<unsigned>(direction)];
}

bool Interface::Impl::path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n) {
    const SendQueue* queue = queue_for(channel, path, direction);
    return queue && queue->room(n);
}

PathIndex Interface::Impl::place(Channel& channel, Direction direction, std::uint64_t size) {
    schedule::Scheduler& scheduler = *channel.scheduler;
    const PathIndex path = scheduler.place(direction, size);
    if (path == kNoPath) [[unlikely]]
        return kNoPath;
    if (path_has_room(channel, path, direction, 1 + SendQueue::kReserve)) [[likely]]
        return path;
    scheduler.cancel(path, direction, size);
    for (const PathIndex other : schedule::each(scheduler.paths().usable(direction))) {
        if (other == path || !path_has_room(channel, other, direction, 1 + SendQueue::kReserve)) continue;
        scheduler.place_on(other, direction, size);
        return other;
    }
    return kNoPath;
}

bool Interface::Impl::any_path_has_room(Channel& channel, Direction direction) {
    if (!channel.scheduler) return false;
    for (const PathIndex path : schedule::each(channel.scheduler->paths().usable(direction)))
        if (path_has_room(channel, path, direction, 1 + SendQueue::kReserve)) return true;
    return false;
}

// The one path that writes without a completion may take now (lane_of_puts).
bool Interface::Impl::lane_has_room(Channel& channel) {
    if (channel.only) return true; // any_path_has_room() has seen it
    if (channel.recovery && channel.recovery->damaged) return false;
    if (!channel.rdma_open || !channel.scheduler->paths().is_usable(channel.put_lane)) return true;
    return path_has_room(channel, channel.put_lane, Direction::write, 1 + SendQueue::kReserve);
}

bool Interface::Impl::surely_room(Channel& channel) {
    if (channel.gates & gate::failed) return !channel.renewing; // the operation tells the error
    if (channel.gates & (gate::not_ready | gate::recovering | gate::keys | gate::retiring)) return false;
    if (channel.gates & gate::fence) {
        if (!clear_drain(channel) || channel.marker_due || channel.gets_open || channel.pulled_count) return false;
    }
    if (channel.gates & gate::unseen) {
        mark_unseen(channel);
        if (channel.marker_due) return false;
    }
    return channel.window_open() && any_path_has_room(channel, Direction::write) &&
           (!channel.scheduler->paths().apart() || any_path_has_room(channel, Direction::read)) &&
           channel.pulled_count < Channel::kMaxPulled && small.available() && large.available() &&
           lane_has_room(channel) && (!(channel.gates & gate::parts) || room_for_parts(channel));
}

bool Interface::Impl::maybe_room(Channel& channel) {
    if (channel.gates & gate::failed) return !channel.renewing;
    if (channel.gates & (gate::not_ready | gate::recovering | gate::keys | gate::retiring)) return false;
    if (any_path_has_room(channel, Direction::write)) return true;
    return channel.scheduler && channel.scheduler->paths().apart() && any_path_has_room(channel, Direction::read);
}

void Interface::Impl::list_waiting(Channel& channel) {
    if (channel.waiting) return;
    channel.waiting = true;
    enlist(waiting, &channel);
}

void Interface::Impl::wake_waiting() {
    // A woken channel may come back at once: it goes to the new end of the list and waits for the next progress.
    std::size_t n = waiting.size();
    for (std::size_t i = 0; i < n;) {
        Channel& channel = *waiting[i];
        if (!maybe_room(channel)) {
            ++i;
            continue;
        }
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
        --n;
        channel.waiting = false;
        events.room(channel);
    }
}

} // namespace ucx_mp::channel
