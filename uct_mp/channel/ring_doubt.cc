// Messages that were written into a ring, arrived, and are not there: somebody else has written over them (PROTOCOL.md,
// R263). Slow path.
#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
constexpr Nanos kPatience = 10'000'000; // by then what came by a ring that was taken back should be acknowledged

// Requests posted to `path` when the doubt began have come back; else the adapter may still read it.
bool is_back(const Channel& channel, const RingDoubt& doubt, PathIndex path) {
    const Path& sub = channel.wiring.paths[path];
    if (sub.phase == path::Phase::draining) return false; // its messages go again anyway
    if (path >= doubt.behind.size()) return true;         // it has come later
    const auto [queue, head] = doubt.behind[path];
    // Another queue: the path has changed to it when nothing was open any more.
    return !queue || sub.queue[0] != queue || static_cast<std::int32_t>(queue->tail - head) >= 0;
}
} // namespace

// The peer has taken the ring back. Usually all is acknowledged soon.
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

// No bound: it ends when they are acknowledged, have gone again, or the channel fails. A path that brings nothing back
// fails (watch_interval), and its messages go again anyway.
void Rings::seek_lost_later(Channel& channel) {
    channel.rings->out.doubt->timer = core_.services.at(core_.services.now() + kPatience, [this, &channel] {
        channel.rings->out.doubt->timer = 0;
        seek_lost(channel);
    });
}

// Sent again: whoever has got one knows its number. Others of that time go again with them, which is harmless. Fenced
// ones and those in the user's memory have never been in a ring.
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
    if (lost) core_.observer->send_again(channel);
    if (!later) return;
    core_.epochs.push(channel); // those that asked for no completion
    seek_lost_later(channel);
}

} // namespace ucx_mp::channel
