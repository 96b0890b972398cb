// When a write has completed the peer's adapter has it, but it may not be in the peer's memory yet. If the same adapter
// brings the message that tells the peer, the bus keeps the order (channel.h says what is assumed). With several
// adapters the writes must be pushed: a marker goes before a message, and a read before everything else.
//
// A read pushes the writes before it on its queue pair, which executes in order. So it is posted directly behind them,
// and all paths together take one round trip. It counts in the epoch in which it was asked for, and a flush waits for
// it as for any other operation. A read that is lost with its path is posted again when the path's losses are settled.
//
// GPU memory is not ordered by any of this, since an adapter may reach it by another route than the host's memory. A
// read of that memory itself would be needed. So such memory is not advertised (ucx/md.cc).
#include <algorithm>
#include <bit>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
constexpr double kSlow = 4; // a path is slow if its bytes under way take so many times as long as the link alone needs

PathMask all_paths(const Channel& channel) { return (PathMask{1} << channel.wiring.path_count) - 1; }
} // namespace

void Visibility::note_devices(Channel& channel) {
    // A port that has never been up brings nothing, so the peer cannot be told of a write over its adapter.
    const auto device_bit = [](const path::RemoteRail& rail) { return rail.usable() ? 1u << rail.device : 0u; };
    const bool always = core_.config.read_back == ReadBack::always;
    unsigned theirs = 0, reached = 0;
    for (const path::RemoteRail& rail : channel.connection.remote_rails) theirs |= device_bit(rail);
    for (PathIndex path = 0; path < channel.wiring.places; ++path) {
        const path::RemoteRail& rail = channel.connection.remote_rail(path);
        reached |= device_bit(rail);
        channel.wiring.paths[path].remote_device = rail.device;
    }
    channel.visible.reads_back = always || std::popcount(theirs) > 1;
    const bool overtakes = channel.wiring.path_count > 1 && (always || std::popcount(reached) > 1);
    const bool before = std::exchange(channel.visible.unseen_gate, overtakes ? gate::unseen : 0);
    if (!overtakes) return;
    // From now on messages could overtake completed writes. So writes that have not been read back count as new, even
    // if their fence was settled by completions. Writes of a lost path become visible before those of another path to
    // the same adapter, which stands for them. If there is none they are visible (R84).
    for (const PathIndex path : schedule::each(before ? 0 : channel.visible.unread)) {
        const PathIndex over = channel.wiring.unsettled.damaged >> path & 1 ? path : beside(channel, path);
        if (over != kNoPath) channel.fences.put_paths |= PathMask{1} << over;
    }
    if (channel.fences.put_paths) channel.gates |= gate::unseen;
}

PathIndex Visibility::beside(const Channel& channel, PathIndex path) const {
    return channel.wiring.stands(path) ? path : twin_of(channel, path);
}

// Another path to the same adapter of the peer, or kNoPath.
PathIndex Visibility::twin_of(const Channel& channel, PathIndex path) const {
    for (PathIndex other = 0; other < channel.wiring.path_count; ++other)
        if (other != path && channel.wiring.stands(other) &&
            channel.wiring.paths[other].remote_device == channel.wiring.paths[path].remote_device)
            return other;
    return kNoPath;
}

// One path for each adapter that `paths` lead to. When all writes have completed, a marker over any path to their
// adapter is behind them.
PathMask Visibility::one_per_device(const Channel& channel, PathMask paths) const {
    const PathMask usable = channel.wiring.scheduler->paths().usable(Direction::write);
    PathMask chosen = 0;
    unsigned devices = 0;
    for (const PathMask some : {paths & usable, usable, paths})
        for (const PathIndex path : schedule::each(some)) {
            const unsigned device = channel.wiring.paths[path].remote_device;
            bool written = false;
            for (const PathIndex put : schedule::each(paths))
                written |= channel.wiring.paths[put].remote_device == device;
            if (!written || devices >> device & 1) continue;
            devices |= 1u << device;
            chosen |= PathMask{1} << path;
        }
    return chosen;
}

// The fenced message is sent by Sender::start_fenced(). Its markers follow all writes posted so far.
void Visibility::mark_unseen(Channel& channel) {
    if (PathMask paths = std::exchange(channel.fences.put_paths, 0)) {
        const std::uint32_t writes_open =
            channel.moving.rdma_open - channel.moving.gets_open - channel.visible.read_backs_open;
        const bool damaged = channel.wiring.unsettled.damaged;
        if (writes_open == 0 && !damaged && core_.config.read_back != ReadBack::always)
            paths = one_per_device(channel, paths);
        if (std::exchange(channel.fences.marked_paths, 0)) channel.fences.fence_number = channel.fences.next();
        channel.fences.fence_paths |= paths;
    }
    channel.fences.marker_due = channel.fences.fence_paths != 0;
    if (!channel.fences.marker_due) channel.gates &= ~gate::unseen;
}

void Visibility::settle_fence(Channel& channel) const {
    Fences& fences = channel.fences;
    if (channel.visible.unseen_gate || channel.wiring.unsettled.damaged || fences.catch_up ||
        core_.config.read_back == ReadBack::always)
        return;
    // If markers of this fence were sent already, no message follows them. So the next fence gets another number.
    if (std::exchange(fences.marked_paths, 0)) fences.fence_number = fences.next();
    fences.fence_paths = 0;
    fences.marker_due = false;
}

// A marker is one more request here, and one more message there. While the data of the writes travel, both processors
// have time for that. There is no such time if the data are few. Nor is it spent well if many sources send to the peer:
// then data arrive slowly over all paths, and the peer's processor is what all wait for.
bool Visibility::better_await(const Channel& channel) const {
    if (!channel.fences.drain_due || channel.fences.atomics_due || channel.visible.unseen_gate ||
        core_.config.read_back == ReadBack::always)
        return false;
    const schedule::PathTable& paths = channel.wiring.scheduler->paths();
    const PathMask written = channel.fences.fence_paths;
    double bytes = 0, slowest = 0, link = 0, latency = 0, rates[schedule::kMaxPaths];
    paths.rates(written, Direction::write, rates);
    unsigned count = 0;
    for (const PathIndex path : schedule::each(written)) {
        const auto in_flight = static_cast<double>(paths[path].of(Direction::write).in_flight);
        slowest = std::max(slowest, in_flight / rates[count++]);
        bytes += in_flight;
        link = std::max(link, paths[path].nominal_rate);
        latency = std::max(latency, paths[path].base_latency);
    }
    if (count < 2 || link <= 0) return false;
    const double request = core_.rounds.descriptor_time, markers = (count - 1) * request;
    // Posting has taken some of that time.
    const double on_their_way = std::max(0.0, bytes / link - count * request / 2);
    return markers > latency && (markers > latency + on_their_way || slowest > kSlow * bytes / link);
}

bool Visibility::awaits_marker_of(const Channel& channel, PathIndex path) const {
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i)
        if (trailer_of(*channel.wiring.retained[i & channel.window_mask]).paths >> path & 1) return true;
    return false;
}

bool Visibility::can_hand_over(const Channel& channel, PathIndex path) const {
    if (awaits_marker_of(channel, path)) return false;
    const PathMask written = channel.fences.put_paths | channel.fences.fence_paths | channel.visible.unread;
    if (!(written >> path & 1) && !channel.visible.read_backs_open) return true;
    return twin_of(channel, path) != kNoPath && core_.config.read_back != ReadBack::always;
}

void Visibility::hand_over(Channel& channel, PathIndex path) {
    const PathMask bit = PathMask{1} << path;
    Fences& fences = channel.fences;
    if (!((fences.put_paths | fences.fence_paths | channel.visible.unread) & bit)) return;
    const PathIndex other = twin_of(channel, path);
    if (fences.fence_paths & bit) {
        // A marker that the other path has carried already is not behind these writes.
        if (std::exchange(fences.marked_paths, 0)) fences.fence_number = fences.next();
        fences.fence_paths |= PathMask{1} << other;
    }
    if (fences.put_paths & bit) fences.put_paths |= PathMask{1} << other;
    if (channel.visible.unread & bit) channel.visible.unread |= PathMask{1} << other;
    fences.put_paths &= ~bit;
    fences.fence_paths &= ~bit;
    channel.visible.unread &= ~bit;
}

// -- Reading back

void Visibility::add_read_back(Channel& channel, PathMask paths, Completion* completion) {
    auto& list = channel.visible.read_backs;
    Work* const work = core_.works.new_work(channel, WorkKind::read_back, completion);
    work->open = 1; // until all of it is posted
    work->tag = 0;
    work->remote = paths;
    ++channel.moving.rdma_open;
    ++channel.visible.read_backs_open;
    (list.last ? list.last->next : list.first) = work;
    list.last = work;
}

void Visibility::read_back(Channel& channel) {
    Work* const last = channel.visible.read_backs.last;
    if (!last || last->epoch != channel.epoch)
        add_read_back(channel, std::exchange(channel.visible.unread, 0), nullptr);
    else
        last->remote |= std::exchange(channel.visible.unread, 0);
    post_read_backs(channel);
}

// Lost writes have gone again, perhaps to another adapter, and that path may fail, too. So their markers and fenced
// messages may come by any adapter. They wait until all paths have been read back and everything is visible.
void Visibility::read_back_all(Channel& channel) {
    ++channel.wiring.unsettled.reading.count;
    add_read_back(channel, all_paths(channel), &channel.wiring.unsettled.reading);
    post_read_backs(channel);
}

void Visibility::post_read_backs(Channel& channel) {
    auto& list = channel.visible.read_backs;
    while (Work* const work = list.first) {
        const bool posted = post_read_back(channel, *work);
        if (channel.gates & gate::failed) return; // Failures ends the list
        if (!posted) return enlist_once(core_, core_.lists.read_backs, channel, channel.visible.read_back_due);
        list.first = work->next;
        if (!list.first) list.last = nullptr;
        if (--work->open == 0) core_.works.finish_work(*work);
    }
}

bool Visibility::post_read_back(Channel& channel, Work& work) {
    // It must follow all writes of its epoch. Some may still be to be posted: the rest of a large one, or lost ones.
    if (channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open) return false;
    const auto age = [&](const Work& w) { return (w.epoch + kEpochs - channel.oldest_epoch) % kEpochs; };
    if (const Work* const write = channel.moving.pulled[0].first; write && age(*write) <= age(work)) return false;
    if (!work.bounce && !(work.bounce = core_.small.get())) return false;
    work.remote |= std::exchange(channel.visible.unread, 0); // writes of its epoch that have been posted since
    for (const PathIndex written : schedule::each(work.remote)) {
        const PathMask bit = PathMask{1} << written;
        const PathIndex path = beside(channel, written);
        const std::uint32_t key = path == kNoPath ? 0 : channel.connection.remote_rail(path).probe_key;
        if (key == 0) {
            // No path leads to that adapter any more. Its writes have completed, or were settled with the peer since
            // then. They are taken to be visible.
            work.remote &= ~bit;
            continue;
        }
        SendQueue* const queue = core_.placement.queue_for(channel, path, Direction::write);
        if (!queue || !queue->room(1)) return false;
        work.remote &= ~bit;
        Path& sub = channel.wiring.paths[path];
        const Posted posted{.channel = &channel, .work = &work, .path = path, .read = true};
        ibv_sge sge{work.bounce->address(), kReadBackBytes, work.bounce->lkey[sub.device]};
        ++work.open;
        sub.open += queue->dc;
        if (!queue->rdma(sub.dc, IBV_WR_RDMA_READ, &sge, 1, {channel.connection.probe_address, key}, posted,
                         IBV_SEND_SIGNALED))
            post_refused(core_, channel, *queue, posted);
        if (channel.gates & gate::failed) return false;
    }
    return true;
}

void Visibility::end_read_backs(Channel& channel, Status status) {
    auto& list = channel.visible.read_backs;
    list.last = nullptr;
    while (Work* const work = list.first) {
        list.first = work->next;
        work->status = status;
        if (--work->open == 0) core_.works.finish_work(*work);
    }
}

void Visibility::read_backs_due_again() {
    for (Channel* channel : std::exchange(core_.lists.read_backs, {})) {
        channel->visible.read_back_due = false;
        if (!(channel->gates & gate::failed)) post_read_backs(*channel);
    }
}

} // namespace ucx_mp::channel
