#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

SendQueue* Placement::pick_initiator(Channel& channel, Path& sub) {
    // The queue pair keeps the order on a path. So the initiator is kept while requests of the path are open there.
    if (sub.open && sub.queue[0]) return sub.queue[0];
    // ReadBack::always: writes of one queue pair are pushed only by requests of the same one. So it is kept until no
    // write is left to be marked or read back.
    if (core_.config.read_back == ReadBack::always && sub.queue[0] && !sub.queue[0]->failed() &&
        (channel.visible.unread | channel.fences.put_paths | channel.fences.fence_paths) >>
                (&sub - channel.wiring.paths.get()) &
            1)
        return sub.queue[0];
    auto& pool = core_.dc.rails[sub.rail].initiators;
    SendQueue* chosen = nullptr;
    switch (core_.config.dci_policy) {
    case DciPolicy::hash: {
        // Peers in turn, as they were met: those that a program goes through have different ones. So have paths.
        const std::size_t path = static_cast<std::size_t>(&sub - channel.wiring.paths.get());
        chosen = pool[((channel.local_id & kSlotMask) + path) % pool.size()].get();
        break;
    }
    case DciPolicy::quota:
        // Its last one if that is idle: the adapter may still be connected to the target.
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

SendQueue* Placement::queue_for(Channel& channel, PathIndex path, Direction direction) {
    Path& sub = channel.wiring.paths[path];
    if (sub.kind == path::Kind::dc) return pick_initiator(channel, sub);
    return sub.queue[static_cast<unsigned>(direction)];
}

bool Placement::path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n) {
    const SendQueue* queue = queue_for(channel, path, direction);
    return queue && queue->room(n);
}

PathIndex Placement::place(Channel& channel, Direction direction, std::uint64_t size) {
    schedule::Scheduler& scheduler = *channel.wiring.scheduler;
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

bool Placement::any_path_has_room(Channel& channel, Direction direction) {
    if (!channel.wiring.scheduler) return false;
    for (const PathIndex path : schedule::each(channel.wiring.scheduler->paths().usable(direction)))
        if (path_has_room(channel, path, direction, 1 + SendQueue::kReserve)) return true;
    return false;
}

} // namespace ucx_mp::channel
