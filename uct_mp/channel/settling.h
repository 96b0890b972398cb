// Settles completed requests: works, epochs, acknowledgments.
//
// Inline, since every message and every completion passes here. Recovery includes it, too, to settle replays. The
// user's callbacks may run inside, and may call operations.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

[[gnu::always_inline]] inline void Works::epoch_done(Channel& channel, std::uint8_t epoch, std::uint32_t count) {
    if ((channel.epoch_open[epoch] -= count) == 0 && epoch == channel.oldest_epoch && epoch != channel.epoch)
        close_oldest(channel);
}

// Ends a work: counts it out of its channel, gives it back, and calls the user's completion. The caller has settled the
// path's account.
[[gnu::always_inline]] inline void Works::finish(Core& core, Work& work) {
    Channel& channel = *work.channel;
    Completion* const completion = work.completion;
    const Status status = work.status;
    if (work.kind <= WorkKind::get) [[likely]] {
        --channel.moving.rdma_open;
        channel.moving.gets_open -= work.kind == WorkKind::get;
        // Only a put with a completion counts: without one the program does not know, before a fence or a flush, that
        // it could tell the peer.
        if (channel.visible.unseen_gate) [[unlikely]] {
            if (work.kind == WorkKind::put && completion) channel.gates |= channel.visible.unseen_gate;
        }
    } else if (!core.works.finish_unusual(channel, work)) {
        return;
    }
    if (work.bounce) work.bounce->pool->put(work.bounce);
    const std::uint8_t epoch = work.epoch;
    core.works.pool.put(&work);
    if (completion) complete(completion, status);
    core.works.epoch_done(channel, epoch);
}

[[gnu::always_inline]] inline void Works::settle(Core& core, const Posted& posted) {
    if (posted.work) {
        if (--posted.work->open == 0) Works::finish(core, *posted.work);
    } else if (posted.epoch != kNoEpoch) {
        core.works.epoch_done(*posted.channel, posted.epoch, posted.requests);
    }
}

[[gnu::always_inline]] inline Work* Works::new_work(Channel& channel, WorkKind kind, Completion* completion) {
    Work* work = pool.get();
    work->next = nullptr;
    work->channel = &channel;
    work->completion = completion;
    work->bounce = nullptr;
    work->kind = kind;
    work->epoch = channel.epoch;
    work->pieces = 0;
    work->status = Status::ok;
    ++channel.epoch_open[channel.epoch];
    return work;
}

[[gnu::always_inline]] inline void Works::attach_flush(Channel& channel, std::uint8_t epoch, Completion* completion) {
    Work* work = pool.get();
    work->channel = &channel;
    work->completion = completion;
    work->kind = WorkKind::flush;
    work->next = channel.moving.flushes[epoch];
    channel.moving.flushes[epoch] = work;
}

[[gnu::always_inline]] inline void Receiver::take_ack(Channel& channel, std::uint32_t ack) {
    const std::uint32_t count = ack - channel.acked;
    if (count == 0) return;
    if (count > channel.in_flight()) return; // older than the newest one, or invalid
    Buffer** const retained = channel.wiring.retained.get();
    const std::uint32_t mask = channel.window_mask;
    for (std::uint32_t i = channel.acked; i != ack;) {
        Buffer* buffer = retained[i++ & mask];
        Work* work = buffer->work;
        buffer->pool->put(buffer);
        if (!work) [[likely]]
            continue;
        buffer->work = nullptr;
        channel.acked = i; // may call the user
        if (work->kind == WorkKind::atomic) --channel.moving.atomics_pending;
        if (--work->open == 0) core_.works.finish_work(*work);
        if (channel.gates & gate::failed) [[unlikely]]
            return; // a callback has ended the channel: nothing is retained any more
    }
    channel.acked = ack;
}

} // namespace ucx_mp::channel
