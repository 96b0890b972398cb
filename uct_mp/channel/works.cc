#include "uct_mp/channel/works.h"

#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

void Works::finish_work(Work& work) { finish(core_, work); }

bool Works::finish_unusual(Channel& channel, Work& work) {
    if (work.kind == WorkKind::get_bcopy) {
        if (!ucx_mp::failed(work.status)) work.unpack(work.unpack_arg, work.bounce->data(), work.transfer.size);
    } else if (work.kind == WorkKind::adapter_atomic) {
        if (!ucx_mp::failed(work.status) && work.unpack_arg) std::memcpy(work.unpack_arg, work.bounce->data(), 8);
        channel.gates |= channel.visible.unseen_gate;
    } else if (work.kind == WorkKind::read_back) {
        return finish_read_back(channel, work);
    } else {
        if (work.kind >= WorkKind::replayed_put) core_.observer->repeats.finish_replayed(channel, work);
        return true;
    }
    --channel.moving.gets_open;
    --channel.moving.rdma_open;
    return true;
}

// -- Read backs

bool Works::finish_read_back(Channel& channel, Work& work) {
    if (work.tag && (channel.gates & gate::failed)) work.status = channel.error;
    const bool good = !ucx_mp::failed(work.status);
    if (work.tag && good) {
        read_back_again(channel, work);
        return false;
    }
    --channel.moving.rdma_open;
    // All writes but those posted since then are visible, so messages need no markers for them.
    if (--channel.visible.read_backs_open == 0 && good) channel.fences.put_paths &= channel.visible.unread;
    return true;
}

void Works::read_back_lost(Channel& channel, Work& work) {
    if (--work.open == 0)
        read_back_again(channel, work);
    else
        work.tag = 1;
}

// It goes before all others, since it belongs to the oldest epoch. It goes over all paths: lost writes may go again
// over any of them, and another read back may have been asked for since then.
void Works::read_back_again(Channel& channel, Work& work) {
    auto& list = channel.visible.read_backs;
    work.open = 1;
    work.tag = 0;
    work.remote = (PathMask{1} << channel.wiring.path_count) - 1;
    work.next = list.first;
    list.first = &work;
    if (!list.last) list.last = &work;
    enlist_once(core_, core_.lists.read_backs, channel, channel.visible.read_back_due);
}

// -- Epochs

void Works::begin_epoch(Channel& channel, std::uint8_t epoch) {
    channel.epoch = epoch;
    if (channel.wiring.only) {
        channel.wiring.only->close(); // a record belongs to one epoch: messages of the new one begin another
    } else if (channel.wiring.by_lane) {
        for (unsigned i = 0; i < channel.wiring.path_count; ++i)
            if (SendQueue* queue = channel.wiring.paths[i].queue[0]) queue->close();
    } else { // initiators of DC need no close(): messages join a record there only within its epoch
        for (unsigned i = 0; i < channel.wiring.path_count; ++i)
            if (const auto& queue = channel.wiring.paths[i].own[0]) queue->close();
    }
}

void Works::close_oldest(Channel& channel) {
    const std::uint8_t oldest = channel.oldest_epoch, next = (oldest + 1) % kEpochs;
    Work* const work = channel.moving.flushes[oldest];
    // The usual case: one flush, and none behind it.
    if (next != channel.epoch || channel.moving.flushes[next] || !work || work->next || (channel.gates & gate::failed))
        [[unlikely]]
        return close_epochs(channel);
    channel.moving.flushes[oldest] = nullptr;
    channel.oldest_epoch = next;
    Completion* const completion = work->completion;
    pool.put(work);
    complete(completion, Status::ok);
}

void Works::close_epochs(Channel& channel) {
    for (;;) {
        if (channel.moving.flushes[channel.epoch]) { // a flush that came when all epochs were in use
            const std::uint8_t next = (channel.epoch + 1) % kEpochs;
            if (next != channel.oldest_epoch) {
                begin_epoch(channel, next);
                // Completions are asked for what was sent after that flush.
                if (!(channel.gates & gate::failed))
                    enlist_once(core_, core_.lists.pushes, channel, channel.moving.push_due);
            }
        }
        if (channel.oldest_epoch == channel.epoch || channel.epoch_open[channel.oldest_epoch] != 0) return;
        Work* work = std::exchange(channel.moving.flushes[channel.oldest_epoch], nullptr);
        channel.oldest_epoch = static_cast<std::uint8_t>((channel.oldest_epoch + 1) % kEpochs);
        const bool broken = (channel.gates & gate::failed) && !channel.ending.whole;
        const Status status = broken ? channel.error : Status::ok;
        while (work) {
            Work* next = work->next;
            Completion* completion = work->completion;
            pool.put(work);
            complete(completion, status);
            work = next;
        }
    }
}

} // namespace ucx_mp::channel
