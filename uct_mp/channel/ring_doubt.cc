// Messages that arrived in a ring, but were overwritten by a third party before they were read (PROTOCOL.md, R263). The
// source sends them again. Slow path.
#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
constexpr Nanos kPatience = 10'000'000; // messages in a ring that was taken back should be acknowledged by then

// True: all requests that were posted to `path` when the doubt began have come back, so the adapter does not read their
// buffers any more.
bool is_back(const Channel& channel, const RingDoubt& doubt, PathIndex path) {
    const Path& sub = channel.wiring.paths[path];
    if (sub.phase == path::Phase::draining) return false; // recovery sends its messages again
    if (path >= doubt.behind.size()) return true;         // the path has joined later
    const auto [queue, head] = doubt.behind[path];
    // A path changes to another queue only when nothing is open on the old one.
    return !queue || sub.queue[0] != queue || static_cast<std::int32_t>(queue->tail - head) >= 0;
}
} // namespace

// The peer has taken the ring back. Usually all its messages are acknowledged soon, and nothing has to be sent again.
void Rings::doubt(Channel& channel) {
    RingOut& out = channel.rings->out;
    const std::uint32_t open = out.until - channel.acked;
    if (out.messages == 0 || open == 0 || open > channel.in_flight()) return;
    if (!out.doubt) out.doubt = std::make_unique<RingDoubt>();
    stop(out.doubt->timer);
    out.doubt->behind.clear();
    for (PathIndex path = 0; path < channel.wiring.places; ++path) {
        const link::SendQueue* const queue = channel.wiring.paths[path].queue[0];
        out.doubt->behind.emplace_back(queue, queue ? queue->head : 0);
    }
    seek_lost_later(channel);
}

// There is no bound: the timer ends when the messages are acknowledged, have gone again, or the channel fails. A path
// that brings nothing back fails (watch_interval), and recovery then sends its messages again.
void Rings::seek_lost_later(Channel& channel) {
    channel.rings->out.doubt->timer = core_.services.at(core_.services.now() + kPatience, [this, &channel] {
        channel.rings->out.doubt->timer = 0;
        seek_lost(channel);
    });
}

// Sends unacknowledged messages again. Some may have arrived; the peer knows their numbers and drops them. Fenced
// messages and those in the user's memory never go by a ring.
void Rings::seek_lost(Channel& channel) {
    const RingOut& out = channel.rings->out;
    bool later = false, lost = false;
    for (std::uint32_t i = channel.acked; static_cast<std::int32_t>(out.until - i) > 0; ++i) {
        Buffer& buffer = *channel.wiring.retained[i & channel.window_mask];
        if (buffer.path == kNoPath || buffer.trailer || buffer.work) continue;
        if (is_back(channel, *out.doubt, buffer.path)) {
            buffer.path = kNoPath;
            lost = true;
        } else {
            later = true;
        }
    }
    if (lost) core_.observer->repeats.send_again(channel);
    if (!later) return;
    core_.epochs.push(channel); // makes requests complete that asked for no completion
    seek_lost_later(channel);
}

} // namespace ucx_mp::channel
