// Puts and gets, see mover.h.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

constexpr double kOpenMemory = 16;   // operations that the mean usual_open_ covers
constexpr unsigned kTimedPlans = 4;  // one in so many plans is timed
constexpr unsigned kFirstPlans = 16; // ... and all of the first ones

Status Mover::pass_gate_rdma(Channel& channel, const verbs::RemoteKeys*& keys) {
    if (channel.gates &
        (gate::not_ready | gate::held | gate::failed | gate::recovering | gate::keys | gate::retiring)) {
        const Status status = core_.sender.blocked(channel);
        if (status != Status::ok) return status;
    }
    if (keys->lives != channel.remote_lives && !core_.observer->news.present_keys(channel, keys))
        return Status::no_resource;
    return core_.epochs.clear_drain(channel) ? Status::ok : Status::no_resource;
}

// The path of a copied write, which has no completion that the caller could wait for. UCT promises no order without a
// fence. But a single queue pair has always given it, and programs rely on that when they poll for the last of several
// such writes. So these follow each other on one path, and those lost with a path go again first.
PathIndex Mover::lane_of_puts(Channel& channel) {
    if (channel.wiring.only) return channel.wiring.only->room() ? PathIndex{0} : kNoPath;
    if (channel.wiring.unsettled.damaged) return kNoPath;
    if (channel.fences.passed != kNoPath) channel.visible.put_lane = channel.fences.passed; // all open writes are there
    if (channel.moving.rdma_open && channel.wiring.scheduler->paths().is_usable(channel.visible.put_lane))
        return core_.placement.path_has_room(channel, channel.visible.put_lane, Direction::write,
                                             1 + SendQueue::kReserve)
                   ? channel.visible.put_lane
                   : kNoPath;
    const PathIndex path = core_.placement.place(channel, Direction::write, 0);
    if (path != kNoPath) channel.visible.put_lane = path;
    return path;
}

// The usual case of lane_of_puts(): the scheduler's current lane is a queue pair of RC with room, and open writes are
// not elsewhere. Null: ask lane_of_puts().
[[gnu::always_inline]] inline SendQueue* Mover::queue_of_lane(Channel& channel, const Lane& current) {
    const PathIndex path = current.lane.path;
    if (!current.lasts() || channel.wiring.unsettled.damaged) return nullptr;
    if (channel.fences.passed != kNoPath && channel.fences.passed != path) return nullptr;
    if (channel.moving.rdma_open && channel.visible.put_lane != path) return nullptr;
    const Path& sub = channel.wiring.paths[path];
    if (sub.kind != path::Kind::rc) return nullptr; // an initiator is to be chosen
    SendQueue* const queue = sub.queue[static_cast<unsigned>(Direction::write)];
    return queue && queue->room() ? queue : nullptr;
}

// Like post_piece(), but the queue may be full. False: it is full, or there is none.
bool Mover::post_stripe(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path) {
    SendQueue* queue = core_.placement.queue_for(channel, path, work.transfer.direction);
    if (!queue || !queue->room()) return false;
    post_piece(channel, work, offset, length, path, *queue);
    return true;
}

Status Mover::rdma(Channel& channel, Work& work) {
    const bool read = work.kind != WorkKind::put;
    work.transfer.direction = read ? Direction::read : Direction::write;
    work.transfer.offset = 0;
    work.transfer.fed = 0;
    work.transfer.waits = false;
    channel.moving.begin();
    channel.moving.gets_open += read;
    if (!channel.wiring.only) {
        // A fixed lane leaves nothing to choose, so the work is posted whole, unless a write should wait for reads.
        Lane& current = channel.wiring.scheduler->current(work.transfer.direction);
        const std::uint64_t size = work.transfer.size;
        if (!current.is_fixed() || channel.moving.pulled_count || channel.fences.passed != kNoPath ||
            (!read && size >= schedule::PathTable::kRateBytes &&
             ahead_of_reads(channel, size, core_.services.now()) < size))
            return rdma_by_plan(channel, work);
        SendQueue* const queue = core_.placement.queue_for(channel, current.lane.path, work.transfer.direction);
        if (!queue || !queue->room()) return rdma_by_plan(channel, work);
        work.open = 0;
        work.transfer.offset = size;
        channel.wiring.scheduler->charge(current, size);
        if (read && channel.moving.gets_open == 1) learn_order(channel);
        post_piece(channel, work, 0, size, current.lane.path, *queue, current.teaches());
        return Status::in_progress;
    }
    work.open = 0;
    work.transfer.offset = work.transfer.size;
    post_piece(channel, work, 0, work.transfer.size, 0, *channel.wiring.only); // the caller has seen that there is room
    return Status::in_progress;
}

// `sge` describes the pieces of `work`. Fits::yes: a write that is copied into the request, so `sge` needs no key.
template <bool read, Fits fits>
[[gnu::always_inline]] inline Status Mover::post_sole(Channel& channel, SendQueue& queue, Work& work, ibv_sge* sge,
                                                      int pieces, std::uint32_t bytes, std::uint64_t remote,
                                                      const verbs::RemoteKeys& rkeys) {
    work.transfer.size = work.transfer.offset = bytes;
    work.transfer.direction = read ? Direction::read : Direction::write;
    work.remote = remote;
    work.keys = rkeys;
    work.open = 1;
    ++channel.moving.rdma_open;
    Path& sub = channel.wiring.paths[0];
    if constexpr (read)
        ++channel.moving.gets_open;
    else
        ++sub.puts;
    queue.record(
        {.channel = &channel, .work = &work, .bytes = bytes, .read = read, .extra = queue.extra_packets(bytes)}, true);
    assert(fits != Fits::yes || bytes <= queue.inline_bytes);
    const bool in_line = fits == Fits::yes || (!read && pieces == 1 && bytes <= queue.inline_bytes);
    const unsigned flags = in_line ? IBV_SEND_SIGNALED | IBV_SEND_INLINE : IBV_SEND_SIGNALED;
    if (queue.post_rc(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, sge, pieces, {remote, rkeys.rkey[sub.remote_device]},
                      flags) != 0) [[unlikely]] {
        queue.take_back(bytes);
        post_refused(core_, channel, queue, {.channel = &channel, .work = &work, .bytes = bytes, .read = read});
    }
    return Status::in_progress;
}

// A zcopy operation over an only path: one request.
template <bool read>
[[gnu::always_inline]] inline Status Mover::rdma_sole(Channel& channel, SendQueue& queue, const Iov* iov,
                                                      std::size_t count, std::uint64_t remote,
                                                      const verbs::RemoteKeys& rkeys, Completion* completion) {
    if (!queue.room()) [[unlikely]]
        return Status::no_resource;
    Work& work = *core_.works.new_work(channel, read ? WorkKind::get : WorkKind::put, completion);
    const unsigned device = queue.adapter->index;
    ibv_sge sge[kMaxIov];
    std::uint64_t size = 0;
    int pieces = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto address = reinterpret_cast<std::uint64_t>(iov[i].buffer);
        const std::uint64_t length = iov[i].length;
        if (length == 0) [[unlikely]]
            continue;
        const std::uint32_t* const lkey = iov[i].memory->lkey.data();
        sge[pieces] = {address, static_cast<std::uint32_t>(length), lkey[device]};
        work.local[pieces++] = {address, length, lkey};
        size += length;
    }
    if (size == 0) [[unlikely]]
        return nothing_to_do(work);
    work.pieces = static_cast<std::uint8_t>(pieces);
    return post_sole<read, Fits::maybe>(channel, queue, work, sge, pieces, static_cast<std::uint32_t>(size), remote,
                                        rkeys);
}

[[gnu::always_inline]] inline Work& Mover::copied_work(Channel& channel, Buffer& bounce, std::uint32_t length) {
    Work& work = *core_.works.new_work(channel, WorkKind::put, nullptr);
    work.bounce = &bounce;
    work.pieces = 1;
    work.local[0] = {bounce.address(), length, bounce.lkey};
    return work;
}

template <Fits fits> [[gnu::always_inline]] inline void Mover::put_copied_sole(Channel& channel, SendQueue& queue,
                                                                               Buffer& bounce, std::uint32_t length,
                                                                               std::uint64_t remote,
                                                                               const verbs::RemoteKeys& rkeys) {
    Work& work = copied_work(channel, bounce, length);
    ibv_sge sge{bounce.address(), length, fits == Fits::yes ? 0 : bounce.lkey[queue.adapter->index]};
    (void)post_sole<false, fits>(channel, queue, work, &sge, 1, length, remote, rkeys);
}

// Posts a write that is copied into the request, on the queue pair that queue_of_lane() has found.
[[gnu::always_inline]] inline void Mover::put_inline(Channel& channel, Lane& current, SendQueue& queue, Buffer& bounce,
                                                     std::uint32_t length, std::uint64_t remote,
                                                     const verbs::RemoteKeys& rkeys) {
    const PathIndex path = current.lane.path;
    const PathMask bit = PathMask{1} << path;
    Path& sub = channel.wiring.paths[path];
    Work& work = copied_work(channel, bounce, length);
    work.transfer = {length, Direction::write, false, length};
    work.remote = remote;
    work.keys = rkeys;
    work.open = 1;
    channel.moving.begin();
    channel.moving.open_paths |= bit;
    channel.visible.put_lane = path;
    channel.visible.unread |= bit;
    channel.fences.put_paths |= bit;
    channel.wiring.scheduler->charge<true>(current, length);
    const bool timed = current.teaches();
    ++sub.puts;
    const Posted posted{.channel = &channel,
                        .work = &work,
                        .bytes = length,
                        .path = path,
                        .timed = timed,
                        .t_post = timed ? core_.services.now() : 0,
                        .extra = queue.extra_packets(length)};
    queue.record(posted, true);
    assert(length <= queue.inline_bytes);
    ibv_sge sge{bounce.address(), length, 0};
    if (queue.post_rc(IBV_WR_RDMA_WRITE, &sge, 1, {remote, rkeys.rkey[sub.remote_device]},
                      IBV_SEND_SIGNALED | IBV_SEND_INLINE) != 0) [[unlikely]] {
        queue.take_back(length);
        post_refused(core_, channel, queue, posted);
    }
}

void Mover::put_copied(Channel& channel, Buffer& bounce, std::uint32_t length, std::uint64_t remote,
                       const verbs::RemoteKeys& rkeys, PathIndex path) {
    if (channel.wiring.only)
        return put_copied_sole<Fits::maybe>(channel, *channel.wiring.only, bounce, length, remote, rkeys);
    Work& work = copied_work(channel, bounce, length);
    work.transfer = {length, Direction::write, false, length};
    work.remote = remote;
    work.keys = rkeys;
    work.open = 0;
    channel.moving.begin();
    channel.wiring.scheduler->place_on(path, Direction::write, length);
    post_piece(channel, work, 0, length, path, *core_.placement.queue_for(channel, path, Direction::write));
}

// Learns what a descriptor costs: the time for posting `count` of them, doubled as a guess for reaping them. A smoothed
// value, since the thread may be interrupted. A single descriptor may only lower it: the plan used the value to choose
// one. Not every call is timed, since that reads the clock.
void Mover::learn_descriptor_time(Nanos begun, unsigned count) {
    if (plans_++ % kTimedPlans != 0 && plans_ > kFirstPlans) return;
    double each = std::min(2.0 * static_cast<double>(core_.services.now() - begun) / count, kLongestDescriptor);
    // The first plans have cache misses, so the quickest of them counts.
    if (plans_ <= kFirstPlans) each = quickest_ = std::min(quickest_, each);
    if (count > 1 || each < core_.rounds.descriptor_time)
        core_.rounds.descriptor_time += (each - core_.rounds.descriptor_time) / 4;
}

Status Mover::rdma_by_plan(Channel& channel, Work& work) {
    const bool read = work.kind != WorkKind::put;
    const Direction direction = work.transfer.direction;
    const std::uint64_t size = work.transfer.size;
    work.open = 1; // keeps the work open until everything is placed
    const auto give_up = [&] {
        --channel.moving.rdma_open;
        channel.moving.gets_open -= read;
        --channel.epoch_open[work.epoch];
        if (work.bounce) work.bounce->pool->put(work.bounce);
        core_.works.pool.put(&work);
        return Status::no_resource;
    };
    const auto whole = [&]() -> Status {
        const PathIndex path = core_.placement.place(channel, direction, size);
        if (path == kNoPath) return give_up();
        work.transfer.offset = size;
        (void)post_stripe(channel, work, 0, size, path); // place() has seen the room
        if (--work.open == 0) core_.works.finish_work(work);
        return Status::in_progress;
    };
    if (channel.wiring.path_count == 1) return whole();
    if (channel.fences.passed != kNoPath) [[unlikely]] { // the queue pair of one path orders whole writes only
        if (!read) return whole();
        Epochs::stop_passing(channel);
        return give_up();
    }
    if (channel.moving.pulled_count >= Moving::kMaxPulled) return give_up();
    const Nanos now = core_.services.now();
    // `ahead`: the part of a write that does not wait for the next read. It is posted in two halves, so that the
    // completion of the first one asks for the rest in time.
    const std::uint64_t ahead = read ? size : ahead_of_reads(channel, size, now);
    const std::uint64_t first = ahead < size ? ahead / 2 : size;
    work.transfer.waits = ahead < size;
    if (first == 0) {
        append(channel, work);
        return Status::in_progress;
    }
    if (read && channel.moving.gets_open == 1) learn_order(channel);
    switch (channel.wiring.scheduler->plan(message(channel, first, read, now), plan)) {
    case schedule::Outcome::no_path:
        return give_up();
    case schedule::Outcome::stripes: {
        if (plan.count == 1 &&
            !core_.placement.path_has_room(channel, plan.stripes[0].path, direction, 1 + SendQueue::kReserve)) {
            channel.wiring.scheduler->cancel(plan.stripes[0].path, direction, first);
            return whole();
        }
        unsigned i = 0;
        for (; i < plan.count; ++i) {
            const schedule::Stripe& stripe = plan.stripes[i];
            if (!post_stripe(channel, work, stripe.offset, stripe.length, stripe.path)) break;
        }
        if (i == plan.count) {
            learn_descriptor_time(now, i);
            work.transfer.offset = first;
            if (first < size) {
                if (channel.gates & gate::failed) break;
                append(channel, work);
                (void)post_until(channel, work, ahead, now);
                return Status::in_progress;
            }
            if (read && channel.moving.pulled[0].first) release_writes(channel, now);
            if (--work.open == 0) core_.works.finish_work(work);
            return Status::in_progress;
        }
        // Queues are full: the rest is pulled when they have room.
        work.transfer.offset = plan.stripes[i].offset;
        for (; i < plan.count; ++i)
            channel.wiring.scheduler->cancel(plan.stripes[i].path, direction, plan.stripes[i].length);
        if (work.transfer.offset == 0 && !core_.placement.any_path_has_room(channel, work.transfer.direction))
            return give_up();
        break;
    }
    case schedule::Outcome::pull:
        if (!core_.placement.any_path_has_room(channel, work.transfer.direction)) return give_up();
        break;
    }
    if (channel.gates & gate::failed) { // it has failed meanwhile
        work.status = channel.error;
        if (--work.open == 0) core_.works.finish_work(work);
        return Status::in_progress;
    }
    append(channel, work);
    pull(channel);
    return Status::in_progress;
}

schedule::Message Mover::message(const Channel& channel, std::uint64_t size, bool read, Nanos now) {
    // If a program always sends six operations together, the first one counts as one of several, though nothing is
    // under way yet.
    const double open = core_.works.pool.in_use();
    usual_open_ += (open - usual_open_) / kOpenMemory;
    return {size,
            read ? schedule::MessageKind::get : schedule::MessageKind::put,
            channel.hint,
            now,
            std::max(open, usual_open_),
            core_.rounds.descriptor_time,
            !read && channel.fences.put_paths != 0};
}

Status Mover::nothing_to_do(Work& work) {
    --work.channel->epoch_open[work.epoch];
    core_.works.pool.put(&work);
    return Status::ok;
}

// -- The calls

namespace {
// Describes the caller's memory in `work`. False: it has no bytes.
bool set_pieces(Work& work, const Iov* iov, std::size_t count) {
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (!iov[i].length) continue;
        work.local[work.pieces++] = {reinterpret_cast<std::uint64_t>(iov[i].buffer), iov[i].length,
                                     iov[i].memory->lkey.data()};
        size += iov[i].length;
    }
    work.transfer.size = size;
    return size != 0;
}

[[gnu::always_inline]] inline void copy_short(std::byte* to, const void* from, unsigned length) {
    if (length == 8) // the most common length: no call
        std::memcpy(to, from, 8);
    else
        std::memcpy(to, from, length);
}
} // namespace

Status Mover::put_short_chosen(Channel& channel, const void* buffer, unsigned length, std::uint64_t remote,
                               const verbs::RemoteKeys& keys) {
    Lane& current = channel.wiring.scheduler->current(Direction::write);
    SendQueue* const queue = queue_of_lane(channel, current);
    const PathIndex path = queue ? current.lane.path : lane_of_puts(channel);
    if (path == kNoPath) [[unlikely]]
        return Status::no_resource;
    Buffer* const bounce = core_.small.get();
    if (!bounce) [[unlikely]]
        return Status::no_resource;
    copy_short(bounce->data(), buffer, length);
    if (queue) [[likely]]
        put_inline(channel, current, *queue, *bounce, length, remote, keys);
    else
        put_copied(channel, *bounce, length, remote, keys, path);
    return Status::ok;
}

template <bool marked> Status Calls<marked>::put_short(Channel& channel, const void* buffer, unsigned length,
                                                       std::uint64_t remote, const verbs::RemoteKeys& rkeys) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        if (length == 0) [[unlikely]] // `rkeys` may be empty, so it is not looked at
            return channel.gates & gate::failed ? refusal(m, channel) : Status::ok;
        const verbs::RemoteKeys* keys = &rkeys;
        if ((channel.gates & gate::rdma) || rkeys.lives != channel.remote_lives) [[unlikely]] {
            if (const Status status = m.mover.pass_gate_rdma(channel, keys); status != Status::ok) return status;
        }
        if (!channel.wiring.only) return m.mover.put_short_chosen(channel, buffer, length, remote, *keys);
        if (!channel.wiring.only->room()) [[unlikely]]
            return Status::no_resource;
        Buffer* const bounce = m.small.get();
        if (!bounce) [[unlikely]]
            return Status::no_resource;
        copy_short(bounce->data(), buffer, length);
        m.mover.put_copied_sole<Fits::yes>(channel, *channel.wiring.only, *bounce, length, remote, *keys);
        return Status::ok;
    };
    return in_turn<marked, Calls<false>::put_short>(channel, body, buffer, length, remote, std::cref(rkeys));
}

template <bool marked> ssize_t Calls<marked>::put_bcopy(Channel& channel, PackFn pack, void* arg, std::uint64_t remote,
                                                        const verbs::RemoteKeys& rkeys) {
    const auto body = [&](Core & m) __attribute__((always_inline))->ssize_t {
        const verbs::RemoteKeys* keys = &rkeys;
        if ((channel.gates & gate::rdma) || rkeys.lives != channel.remote_lives) [[unlikely]] {
            if (const Status status = m.mover.pass_gate_rdma(channel, keys); status != Status::ok)
                return static_cast<ssize_t>(status);
        }
        // Packing can't be undone, so everything that may fail comes first.
        const PathIndex path = m.mover.lane_of_puts(channel);
        if (path == kNoPath) [[unlikely]]
            return static_cast<ssize_t>(Status::no_resource);
        Buffer* bounce = m.large.get();
        if (!bounce) return static_cast<ssize_t>(Status::no_resource);
        const std::size_t length = pack(bounce->data(), arg);
        if (length == 0) {
            m.large.put(bounce);
            return 0;
        }
        m.mover.put_copied(channel, *bounce, static_cast<std::uint32_t>(length), remote, *keys, path);
        return static_cast<ssize_t>(length);
    };
    return in_turn<marked, Calls<false>::put_bcopy>(channel, body, pack, arg, remote, std::cref(rkeys));
}

template <bool read> [[gnu::always_inline]] inline Status Mover::zcopy(Core& m, Channel& channel, const Iov* iov,
                                                                       std::size_t count, std::uint64_t remote,
                                                                       const verbs::RemoteKeys& rkeys,
                                                                       Completion* completion) {
    const verbs::RemoteKeys* keys = &rkeys;
    if ((channel.gates & gate::rdma) || rkeys.lives != channel.remote_lives) [[unlikely]] {
        if (const Status status = m.mover.pass_gate_rdma(channel, keys); status != Status::ok) return status;
    }
    if (channel.wiring.only)
        return m.mover.rdma_sole<read>(channel, *channel.wiring.only, iov, count, remote, *keys, completion);
    Work* work = m.works.new_work(channel, read ? WorkKind::get : WorkKind::put, completion);
    if (!set_pieces(*work, iov, count)) return m.mover.nothing_to_do(*work);
    work->remote = remote;
    work->keys = *keys;
    return m.mover.rdma(channel, *work);
}

template <bool marked> Status Calls<marked>::put_zcopy(Channel& channel, const Iov* iov, std::size_t count,
                                                       std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                                       Completion* completion) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        return Mover::zcopy<false>(m, channel, iov, count, remote, rkeys, completion);
    };
    return in_turn<marked, Calls<false>::put_zcopy>(channel, body, iov, count, remote, std::cref(rkeys), completion);
}

template <bool marked> Status Calls<marked>::get_zcopy(Channel& channel, const Iov* iov, std::size_t count,
                                                       std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                                       Completion* completion) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        return Mover::zcopy<true>(m, channel, iov, count, remote, rkeys, completion);
    };
    return in_turn<marked, Calls<false>::get_zcopy>(channel, body, iov, count, remote, std::cref(rkeys), completion);
}

template Status Calls<false>::put_short(Channel&, const void*, unsigned, std::uint64_t, const verbs::RemoteKeys&);
template Status Calls<true>::put_short(Channel&, const void*, unsigned, std::uint64_t, const verbs::RemoteKeys&);
template ssize_t Calls<false>::put_bcopy(Channel&, PackFn, void*, std::uint64_t, const verbs::RemoteKeys&);
template ssize_t Calls<true>::put_bcopy(Channel&, PackFn, void*, std::uint64_t, const verbs::RemoteKeys&);
template Status Calls<false>::put_zcopy(Channel&, const Iov*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                        Completion*);
template Status Calls<true>::put_zcopy(Channel&, const Iov*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                       Completion*);
template Status Calls<false>::get_zcopy(Channel&, const Iov*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                        Completion*);
template Status Calls<true>::get_zcopy(Channel&, const Iov*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                       Completion*);

} // namespace ucx_mp::channel
