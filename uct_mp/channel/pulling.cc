// Puts and gets that could not be placed whole. A path takes the next piece as soon as it has room, and writes may wait
// so that reads go first (schedule/both_ways.h).
#include <algorithm>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
constexpr std::uint64_t kMostBytesWaiting = 16 << 20; // limit for writes that wait, beyond Moving::kFewWaiting of them
constexpr unsigned kFewBehind = 8;
constexpr std::uint64_t kBeforeReads = 32 << 10; // bytes of writes that are posted although reads will follow

// Bytes of reads under way less those of writes.
std::int64_t lead_of_reads(const schedule::PathTable& paths) {
    std::int64_t lead = 0;
    for (schedule::PathIndex i : schedule::each(paths.usable(Direction::write)))
        lead += static_cast<std::int64_t>(paths[i].of(Direction::read).in_flight) -
                static_cast<std::int64_t>(paths[i].of(Direction::write).in_flight);
    return lead;
}

// True: some queue with requests of the channel will bring a completion, since the last request there has asked for
// one. On a shared queue that may be another channel's request, see Completions::reap().
bool completion_due(const Channel& channel) {
    for (unsigned i = 0; i < channel.wiring.path_count; ++i) {
        const Path& sub = channel.wiring.paths[i];
        const SendQueue* const queue = sub.queue[0];
        if (queue && !queue->idle() && queue->all_signaled() && (!queue->dc || sub.open)) return true;
    }
    return false;
}
// Bytes of the transfers behind this work. At most kFewBehind are counted: more make no difference.
std::uint64_t bytes_behind(const Work& work) {
    std::uint64_t bytes = 0;
    unsigned count = 0;
    for (const Work* w = work.next; w && count < kFewBehind; w = w->next, ++count) bytes += w->transfer.remaining();
    return bytes;
}
} // namespace

void Mover::append(Channel& channel, Work& work) {
    auto& list = channel.moving.pulled[work.transfer.direction == Direction::read];
    (list.last ? list.last->next : list.first) = &work;
    list.last = &work;
    ++channel.moving.pulled_count;
}

// How many bytes of a new write of `size` bytes are posted now. The rest waits for reads to go first.
std::uint64_t Mover::ahead_of_reads(Channel& channel, std::uint64_t size, Nanos now) {
    // Nothing waits while losses are not settled: lost pieces complete only when the peer has answered.
    if (channel.wiring.unsettled.damaged || channel.wiring.unsettled.puts_open) return size;
    // A program that waits for each operation has no reads that could go first.
    if (channel.hint == schedule::TrafficHint::blocking || channel.hint == schedule::TrafficHint::collective)
        return size;
    Moving& moving = channel.moving;
    std::uint64_t ahead = channel.wiring.scheduler->write_ahead(size, now);
    const Work* const first = moving.pulled[0].first;
    // Something posted will complete, and the rest is looked at again then: an operation that is posted whole, or the
    // beginning of the first one that waits. `rdma_open` counts this write already, and each one that waits.
    const bool asked_again = moving.rdma_open > moving.pulled_count + 1 || (first && first->open > 1);
    // Reads have followed writes directly before. The first read would wait behind all bytes that are posted now.
    if (moving.patience > Moving::kFewWaiting && moving.gets_open == 0 && size >= schedule::PathTable::kRateBytes)
        ahead = std::min(ahead, asked_again ? 0 : kBeforeReads);
    if (ahead >= size) return size;
    if (moving.pulled_count >= moving.patience) {
        moving.impatient = true;
        return size;
    }
    if (moving.pulled_count >= Moving::kFewWaiting && moving.pulled_count * size >= kMostBytesWaiting) return size;
    if (ahead == 0 && !asked_again) return size;
    if (!first) moving.reads_came = false;
    return ahead;
}

// Waiting writes are about to be posted. If no read has come since they wait, the patience begins anew.
void Mover::learn_patience(Moving& moving) {
    if (!moving.pulled[0].first || !moving.pulled[0].first->transfer.waits || moving.reads_came) return;
    moving.patience = Moving::kFewWaiting;
    moving.impatient = false;
}

// A read is about to be posted behind many bytes of writes, and no write waits. So the next writes wait for reads.
void Mover::learn_order(Channel& channel) {
    Moving& moving = channel.moving;
    if (moving.pulled[0].first || moving.patience != Moving::kFewWaiting) return;
    const schedule::Scheduler& scheduler = *channel.wiring.scheduler;
    if (scheduler.lets_reads_go_first() && lead_of_reads(scheduler.paths()) < -static_cast<std::int64_t>(kBeforeReads))
        moving.patience *= 4;
}

// A read has been posted. Writes that have waited for it follow.
void Mover::release_writes(Channel& channel, Nanos now) {
    if (channel.gates & gate::failed) return;
    Moving& moving = channel.moving;
    moving.reads_came = true;
    if (std::exchange(moving.impatient, false)) moving.patience = std::min(4 * moving.patience, Moving::kMaxWaiting);
    for (;;) {
        Work* const work = channel.moving.pulled[0].first;
        if (!work || !work->transfer.waits) return;
        const std::uint64_t rest = work->transfer.remaining();
        // More reads will follow this one, and would wait behind all bytes that are posted now.
        if (moving.patience > Moving::kFewWaiting &&
            lead_of_reads(channel.wiring.scheduler->paths()) < static_cast<std::int64_t>(rest))
            return;
        if (channel.wiring.scheduler->write_ahead(rest, now) < rest ||
            !post_until(channel, *work, work->transfer.size, now))
            return;
        if (work->transfer.remaining()) return pull(channel, false);
        unlink(channel, false, *work);
        if (--work->open == 0) core_.works.finish_work(*work);
    }
}

// Posts a write up to `end` by one plan, or finds that the policy wants it pulled in chunks (`waits` is false then).
// False: it could not be posted now. The next pull goes on, unless the channel has failed.
bool Mover::post_until(Channel& channel, Work& work, std::uint64_t end, Nanos now) {
    schedule::Transfer& transfer = work.transfer;
    const std::uint64_t offset = transfer.offset;
    switch (channel.wiring.scheduler->plan(message(channel, end - offset, false, now), plan)) {
    case schedule::Outcome::no_path:
        return false; // a path that comes back pulls
    case schedule::Outcome::pull:
        transfer.waits = false;
        return true;
    case schedule::Outcome::stripes:
        break;
    }
    for (unsigned i = 0; i < plan.count; ++i) {
        const schedule::Stripe& stripe = plan.stripes[i];
        transfer.offset = offset + stripe.offset;
        if (!post_stripe(channel, work, transfer.offset, stripe.length, stripe.path)) {
            for (; i < plan.count; ++i)
                channel.wiring.scheduler->cancel(plan.stripes[i].path, Direction::write, plan.stripes[i].length);
            enlist_once(core_, core_.lists.pulls, channel, channel.moving.pull_due);
            return false;
        }
        if (channel.gates & gate::failed) return false;
    }
    transfer.offset = end;
    return true;
}

// `work` need not be the first: a refused request may have been put before it meanwhile (Failure::redo()).
void Mover::unlink(Channel& channel, bool read, Work& work) {
    auto& list = channel.moving.pulled[read];
    Work* before = nullptr;
    for (Work* w = list.first; w != &work; w = w->next) before = w;
    (before ? before->next : list.first) = work.next;
    if (list.last == &work) list.last = before;
    --channel.moving.pulled_count;
    work.next = nullptr;
}

void Mover::pull(Channel& channel) {
    if (channel.gates & gate::failed) return; // its works are about to end
    learn_patience(channel.moving);
    // Operations that go again keep their order, since a write may be before a fence and a read behind it.
    if (channel.wiring.path_count == 1 || channel.moving.in_order) {
        const Unsettled& unsettled = channel.wiring.unsettled;
        if (channel.moving.pulled[0].first) pull(channel, false);
        if (channel.moving.pulled[1].first && !unsettled.damaged && !unsettled.puts_open) pull(channel, true);
        return;
    }
    for (const bool read : {true, false})
        if (channel.moving.pulled[read].first) pull(channel, read);
}

void Mover::pull(Channel& channel, bool read) {
    const Nanos now = core_.services.now();
    auto& list = channel.moving.pulled[read];
    while (Work* work = list.first) {
        schedule::Transfer& transfer = work->transfer;
        schedule::Stripe chunk;
        transfer.behind = bytes_behind(*work);
        while (transfer.remaining()) {
            if (transfer.waits) {
                if (!post_until(channel, *work, transfer.size, now)) return;
                continue;
            }
            if (work->kind == WorkKind::replayed_put) {
                if (!core_.observer->repeats.place_puts_again(channel, *work, chunk)) {
                    enlist_once(core_, core_.lists.pulls, channel, channel.moving.pull_due);
                    return;
                }
                transfer.offset += chunk.length;
            } else if (!channel.wiring.scheduler->next(transfer, now, chunk)) {
                // The windows are full, and a completion calls again. Reads always ask for one.
                if (!read && !completion_due(channel)) core_.epochs.push(channel);
                return;
            }
            if (!post_stripe(channel, *work, chunk.offset, chunk.length, chunk.path)) {
                channel.wiring.scheduler->cancel(chunk.path, transfer.direction, chunk.length);
                transfer.offset = chunk.offset;
                transfer.fed &= ~(schedule::PathMask{1} << chunk.path); // a full queue must not make the path look dry
                // Other channels may have filled a shared queue, so that no completion of this channel is to come.
                enlist_once(core_, core_.lists.pulls, channel, channel.moving.pull_due);
                return;
            }
            if (channel.gates & gate::failed) return; // Failures ends the list, and this work with it
        }
        unlink(channel, read, *work);
        if (--work->open == 0) core_.works.finish_work(*work);
    }
}

// The same for an only path (Wiring::only), which has no accounts.
void Mover::pull_sole(Channel& channel) {
    if (channel.gates & gate::failed) return;
    for (const bool read : {false, true})
        while (Work* work = channel.moving.pulled[read].first) {
            if (!channel.wiring.only->room()) return;
            schedule::Transfer& transfer = work->transfer;
            const std::uint64_t offset = std::exchange(transfer.offset, transfer.size);
            post_piece(channel, *work, offset, transfer.size - offset, 0, *channel.wiring.only);
            if (channel.gates & gate::failed) return;
            unlink(channel, read, *work);
            if (--work->open == 0) core_.works.finish_work(*work);
        }
}

void Mover::pull_due() {
    for (Channel* channel : std::exchange(core_.lists.pulls, {})) {
        channel->moving.pull_due = false;
        pull(*channel);
    }
}

// -- A call that pulls a few bytes

template <bool marked> Status Calls<marked>::get_bcopy(Channel& channel, UnpackFn unpack, void* arg, std::size_t length,
                                                       std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                                       Completion* completion) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        const verbs::RemoteKeys* keys = &rkeys;
        if ((channel.gates & gate::rdma) || rkeys.lives != channel.remote_lives) [[unlikely]] {
            if (const Status status = m.mover.pass_gate_rdma(channel, keys); status != Status::ok) return status;
        }
        if (channel.wiring.only && !channel.wiring.only->room()) [[unlikely]]
            return Status::no_resource;
        if (length == 0) return Status::ok;
        Buffer* bounce = m.large.get();
        if (!bounce) return Status::no_resource;
        Work* work = m.works.new_work(channel, WorkKind::get_bcopy, completion);
        work->bounce = bounce;
        work->local[work->pieces++] = {bounce->address(), length, bounce->lkey};
        work->transfer.size = length;
        work->remote = remote;
        work->keys = *keys;
        work->unpack = unpack;
        work->unpack_arg = arg;
        return m.mover.rdma(channel, *work);
    };
    return in_turn<marked, Calls<false>::get_bcopy>(channel, body, unpack, arg, length, remote, std::cref(rkeys),
                                                    completion);
}

template Status Calls<false>::get_bcopy(Channel&, UnpackFn, void*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                        Completion*);
template Status Calls<true>::get_bcopy(Channel&, UnpackFn, void*, std::size_t, std::uint64_t, const verbs::RemoteKeys&,
                                       Completion*);

} // namespace ucx_mp::channel
