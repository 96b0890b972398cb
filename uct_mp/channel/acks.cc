#include "uct_mp/channel/acks.h"

#include <cstring>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

bool Acks::send_control(Channel& channel, Kind kind, const void* body, unsigned length, PathIndex path,
                        SendQueue& queue, PathIndex marked) {
    if (!queue.room(1)) return false;
    struct {
        std::uint64_t tag; // link::Needs::tag
        MessageHeader header;
        std::byte body[16];
    } message;
    message.header = {
        static_cast<std::uint8_t>(kind), kWireVersion,    0, 0, marked == kNoPath ? path : marked, channel.remote_id,
        channel.next_sequence,           channel.expected};
    if (length) std::memcpy(message.body, body, length);
    channel.ack_sent = channel.expected;
    // A flush must not end before the fenced messages of its epoch can be delivered. So their markers count in the
    // epoch. A marker that is lost holds it (Failure::lose).
    const bool marker = kind == Kind::marker;
    channel.epoch_open[channel.epoch] += marker;
    Posted posted{.channel = &channel, .path = path, .epoch = marker ? channel.epoch : kNoEpoch};
    if (marker && marked == kNoPath) std::memcpy(&posted.fence, body, sizeof posted.fence); // MarkerBody::number
    Path& sub = channel.wiring.paths[path];
    sub.open += queue.dc;
    unsigned flags = IBV_SEND_SOLICITED;
    if (queue.signal_due()) flags |= IBV_SEND_SIGNALED;
    if (queue.send_inline(sub.dc, &message.header, kHeader + length, posted, flags)) return true;
    post_refused(core_, channel, queue, posted);
    return false;
}

bool Acks::send_ack(Channel& channel, Kind kind) {
    if (!channel.wiring.scheduler) return false;
    const PathMask usable = channel.wiring.scheduler->paths().usable(Direction::write);
    const PathMask heard = channel.heard < schedule::kMaxPaths ? usable & PathMask{1} << channel.heard : 0;
    for (const PathMask paths : {heard, usable & ~heard}) {
        for (const PathIndex path : schedule::each(paths)) {
            SendQueue* queue = core_.placement.queue_for(channel, path, Direction::write);
            if (!queue || !queue->room(1)) continue;
            if (!send_control(channel, kind, nullptr, 0, path, *queue)) return false;
            ++channel.counts.acks_sent;
            return true;
        }
    }
    return false;
}

void Acks::owe_ack(Channel& channel, bool now) {
    channel.ack_now |= now;
    enlist_once(core_, core_.lists.acks, channel, channel.ack_due);
}

void Acks::send_due_acks() {
    std::vector<Channel*>& due = core_.lists.acks;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < due.size(); ++i) {
        Channel& channel = *due[i];
        // A message of ours may have carried it meanwhile.
        const bool owed = channel.expected != channel.ack_sent &&
                          (channel.ack_now || channel.expected - channel.ack_sent >= channel.ack_after);
        if (owed && !(channel.gates & gate::failed) && !send_ack(channel, Kind::ack)) {
            due[kept++] = &channel; // no room: the next round tries again
            continue;
        }
        channel.ack_due = channel.ack_now = false;
        if (static_cast<std::int32_t>(channel.ack_until - channel.expected) <= 0) {
            channel.ack_after = channel.ack_threshold;
            channel.ack_until = channel.expected; // numbers wrap, so it must not stay behind
        }
    }
    due.resize(kept);
}

} // namespace ucx_mp::channel
