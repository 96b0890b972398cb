// Fences, and flushes by epochs: every operation belongs to the epoch in which it was started; a flush closes the epoch
// and is done when this one and all before are empty.
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

void Interface::Impl::fence(Channel& channel) {
    const bool one_queue = channel.path_count <= 1;
    if (channel.pulled[0].first && !channel.only) pull(channel); // no read before the fence will come any more
    if (!one_queue) {
        // A fence whose message has not gone yet is joined with this one; markers already sent don't cover later puts.
        if (std::exchange(channel.marked_paths, 0)) channel.fence_number = channel.next_fence();
        channel.fence_paths |= channel.put_paths;
        channel.marker_due = channel.fence_paths != 0;
        channel.catch_up = channel.pulled_count != 0;
    }
    channel.put_paths = 0;
    // With a single queue pair the adapters keep the order, but for a write behind a read (and the read may be
    // repeated).
    if (channel.rdma_open && (!one_queue || channel.gets_open)) channel.drain_due = true;
    if (channel.unseen_gate && channel.unread) channel.drain_due = true;
    if (channel.atomics_sent) {
        channel.atomics_sent = false;
        channel.atomics_until = channel.atomics_end;
        channel.atomics_due = channel.drain_due = true;
    }
    if (channel.marker_due || channel.drain_due || channel.gets_open || channel.catch_up) channel.gates |= gate::fence;
}

// True: RDMA may go.
bool Interface::Impl::clear_drain(Channel& channel) {
    if (!channel.drain_due) {
        if (!channel.marker_due && !channel.gets_open && !channel.catch_up) channel.gates &= ~gate::fence;
        return true;
    }
    if (channel.unseen_gate && channel.unread) read_back(channel); // behind the writes, at once
    if (channel.rdma_open) return false;
    if (channel.atomics_due) {
        if (channel.atomics_until - 1 - channel.acked < channel.in_flight()) return false;
        channel.atomics_due = false;
    }
    channel.drain_due = false;
    if (!channel.marker_due && !channel.catch_up) channel.gates &= ~gate::fence;
    return true;
}

// Small messages ask for completions only now and then: a write of nothing asks for one of everything before it.
bool Interface::Impl::push_out(Channel& channel) {
    for (PathIndex path = 0; path < channel.path_count; ++path) {
        const Subchannel& sub = channel.subs[path];
        SendQueue* queue = sub.queue[0];
        if (!queue || queue->all_signaled() || queue->failed() || (queue->dc && sub.open == 0)) continue;
        if (!write_nothing(channel, path, *queue)) return false;
    }
    return true;
}

// Gets everything outstanding to tell its completion; what finds no room is tried again by progress.
void Interface::Impl::push(Channel& channel) {
    if (channel.push_due) return;
    if (push_out(channel) && (!channel.atomics_pending || send_ack(channel, Kind::ack_request))) return;
    if (channel.gates & gate::failed) return;
    channel.push_due = true;
    enlist(pushes_due, &channel);
}

void Interface::Impl::push_due() {
    for (Channel* channel : std::exchange(pushes_due, {})) {
        channel->push_due = false;
        push(*channel);
    }
}

namespace {
void begin_epoch(Channel& channel, std::uint8_t epoch) {
    channel.epoch = epoch;
    if (channel.only) {
        channel.only->close(); // no message of this epoch joins one of the last
    } else if (channel.by_lane) {
        for (unsigned i = 0; i < channel.path_count; ++i)
            if (SendQueue* queue = channel.subs[i].queue[0]) queue->close();
    }
}
} // namespace

Status Interface::Impl::flush(Channel& channel, Completion* completion) {
    const bool dead = channel.gates & gate::failed;
    if (!dead && channel.pulled[0].first && !channel.only) pull(channel); // what waits for reads waits no longer
    if (channel.has_unread() && !(channel.gates & gate::failed)) read_back(channel);
    close_epochs(channel);
    if (channel.epochs_empty()) return dead && !channel.quiet ? channel.error : Status::ok;
    if (!dead) push(channel); // else everything is coming back flushed
    if (!completion) return Status::in_progress;
    // Operations from now on belong to the next epoch. If that is still in use, close_epochs() turns to it later, and
    // this flush waits for more than it must: it is never refused, since there may be room for everything else.
    std::uint8_t closed = channel.epoch;
    if (channel.epoch_open[closed] == 0 && closed != channel.oldest_epoch)
        closed =
            static_cast<std::uint8_t>((closed + Channel::kEpochs - 1) % Channel::kEpochs); // nothing new since the last
    else if (const std::uint8_t next = (closed + 1) % Channel::kEpochs; next != channel.oldest_epoch)
        begin_epoch(channel, next);
    Work* work = works.get();
    work->channel = &channel;
    work->completion = completion;
    work->kind = WorkKind::flush;
    work->next = channel.flushes[closed];
    channel.flushes[closed] = work;
    return Status::in_progress;
}

void Interface::Impl::close_epochs(Channel& channel) {
    for (;;) {
        if (channel.flushes[channel.epoch]) { // it was attached when all epochs were in use
            const std::uint8_t next = (channel.epoch + 1) % Channel::kEpochs;
            if (next != channel.oldest_epoch) {
                begin_epoch(channel, next);
                if (!(channel.gates & gate::failed)) push(channel); // what has been sent since that flush
            }
        }
        if (channel.oldest_epoch == channel.epoch || channel.epoch_open[channel.oldest_epoch] != 0) return;
        Work* work = std::exchange(channel.flushes[channel.oldest_epoch], nullptr);
        channel.oldest_epoch = static_cast<std::uint8_t>((channel.oldest_epoch + 1) % Channel::kEpochs);
        const Status status = channel.gates & gate::failed ? channel.error : Status::ok;
        while (work) {
            Work* next = work->next;
            Completion* completion = work->completion;
            works.put(work);
            complete(completion, status);
            work = next;
        }
    }
}

Status Interface::fence(Channel& channel) {
    channel.impl->fence(channel);
    return Status::ok;
}

void Interface::fence_all() {
    for (std::uint32_t i = 0; i < impl_->channels.size(); ++i) impl_->fence(*impl_->channels[i]);
}

Status Interface::flush(Channel& channel, Completion* completion) { return impl_->flush(channel, completion); }

Status Interface::flush_all() {
    Status result = Status::ok;
    for (std::uint32_t i = 0; i < impl_->channels.size(); ++i) {
        Channel* channel = impl_->channels[i];
        if (channel->epochs_empty() && !channel->has_unread()) continue;
        if (impl_->flush(*channel, nullptr) == Status::in_progress) result = Status::in_progress;
    }
    return result;
}

} // namespace ucx_mp::channel
