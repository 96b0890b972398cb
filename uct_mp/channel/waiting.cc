#include "uct_mp/channel/waiting.h"

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
// Writes without a completion all take one path while any is open (Mover::lane_of_puts). True: that path has room.
bool lane_has_room(Core& core, Channel& channel) {
    if (channel.wiring.only) return true; // any_path_has_room() has seen it
    if (channel.wiring.unsettled.damaged) return false;
    if (!channel.moving.rdma_open || !channel.wiring.scheduler->paths().is_usable(channel.visible.put_lane))
        return true;
    return core.placement.path_has_room(channel, channel.visible.put_lane, Direction::write, 1 + SendQueue::kReserve);
}

bool maybe_room(Core& core, Channel& channel) {
    if (channel.gates & gate::failed) return !channel.ending.renewing;
    if (channel.gates & (gate::not_ready | gate::recovering | gate::keys | gate::retiring)) return false;
    if (core.placement.any_path_has_room(channel, Direction::write)) return true;
    return channel.wiring.scheduler && channel.wiring.scheduler->paths().apart() &&
           core.placement.any_path_has_room(channel, Direction::read);
}
} // namespace

bool surely_room(Core& core, Channel& channel) {
    if (channel.gates & gate::failed) return !channel.ending.renewing; // the operation returns the error
    if (channel.gates & (gate::not_ready | gate::recovering | gate::keys | gate::retiring)) return false;
    if (channel.gates & gate::fence) {
        if (!core.epochs.clear_drain(channel) || channel.fences.marker_due || channel.moving.gets_open ||
            channel.moving.pulled_count)
            return false;
    }
    if (channel.gates & gate::unseen) {
        core.visibility.mark_unseen(channel);
        if (channel.fences.marker_due) return false;
    }
    return channel.window_open() && core.placement.any_path_has_room(channel, Direction::write) &&
           (!channel.wiring.scheduler->paths().apart() || core.placement.any_path_has_room(channel, Direction::read)) &&
           channel.moving.pulled_count < Moving::kMaxPulled && core.small.available() && core.large.available() &&
           lane_has_room(core, channel) && (!(channel.gates & gate::parts) || core.parts.room_for_parts(channel));
}

void wake_waiting(Core& core) {
    std::vector<Channel*>& waiting = core.lists.waiting;
    // A woken channel may want room again at once. It then goes to the end of the list and waits for the next round.
    const std::size_t n = waiting.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
        Channel& channel = *waiting[i];
        if (!maybe_room(core, channel)) {
            waiting[kept++] = &channel;
            continue;
        }
        channel.usage.waiting = false;
        core.events.room(channel);
    }
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(kept),
                  waiting.begin() + static_cast<std::ptrdiff_t>(n));
}

} // namespace ucx_mp::channel
