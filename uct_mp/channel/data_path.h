// What every operation executes, inline: the usual way of a message from the call to the queue pair, and from the
// completion to the handler. The unusual ways are calls. Private to uct_mp/channel.
//
// Counted by perf/transport-speed (callgrind), side by side with UCX's rc_verbs.
#pragma once

#include <cstring>

#include "uct_mp/channel/interface_impl.h"

namespace ucx_mp::channel {

// -- Queue pairs

inline void SendQueue::record(const Posted& posted, bool signaled) {
    at(head++) = posted;
    open_ = nullptr;
    unsignaled = signaled ? 0 : unsignaled + 1;
    --slots_;
    --adapter->send_credits;
}

inline Posted& SendQueue::pop() {
    Posted& posted = at(tail++);
    slots_ += posted.requests;
    adapter->send_credits += posted.requests;
    return posted;
}

inline bool SendQueue::send_whole(const DcAddress& to, std::uint64_t address, std::uint32_t lkey, const Posted& posted,
                                  bool signaled) {
    Posted* joined = open_;
    if (joined && joined->channel == posted.channel && joined->path == posted.path && joined->epoch == posted.epoch) {
        joined->bytes += posted.bytes;
        ++joined->requests;
        --slots_;
        --adapter->send_credits;
        ++unsignaled;
    } else {
        record(posted, false);
        joined = open_ = &at(head - 1);
    }
    unsigned flags = IBV_SEND_SOLICITED;
    if (signaled) {
        joined->offset = posted.bytes;
        joined->timed = posted.timed;
        joined->t_post = posted.t_post;
        open_ = nullptr;
        unsignaled = 0;
        flags |= IBV_SEND_SIGNALED;
    }
    if (posted.bytes <= inline_bytes) flags |= IBV_SEND_INLINE;
    sge_.addr = address;
    sge_.length = posted.bytes;
    sge_.lkey = lkey;
    int error;
    if (!dc) [[likely]] {
        wr_.wr_id = id_of(head - 1);
        wr_.send_flags = flags;
        ibv_send_wr* bad;
        error = ibv_post_send(qp.get(), &wr_, &bad);
    } else {
        error = post_dc(to, IBV_WR_SEND, &sge_, 1, {}, flags);
    }
    return error == 0 || take_back(posted);
}

// -- Sending

inline Status Interface::Impl::start_message(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start) {
    if (channel.gates) [[unlikely]] return start_gated(channel, pool, size, start);
    return start_plain(channel, pool, size, start);
}

inline Status Interface::Impl::start_plain(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start) {
    if (!channel.window_open()) [[unlikely]] return Status::no_resource;
    start.fenced = false;
    start.placed = size;
    if (SendQueue* only = channel.only) {
        if (!only->room()) [[unlikely]] return Status::no_resource;
        start.queue = only;
        start.path = 0;
        start.buffer = pool.get();
        return start.buffer ? Status::ok : Status::no_resource;
    }
    start.path = place(channel, Direction::write, size);
    if (start.path == kNoPath) [[unlikely]] return Status::no_resource;
    start.queue = channel.subs[start.path].queue[0];
    start.buffer = pool.get();
    if (start.buffer) [[likely]] return Status::ok;
    channel.scheduler->cancel(start.path, Direction::write, size);
    return Status::no_resource;
}

// Number, header, a place among those to be acknowledged.
inline void Interface::Impl::compose(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id,
                                     std::uint32_t length, std::uint8_t flags) {
    Buffer& buffer = *start.buffer;
    const std::uint32_t sequence = channel.next_sequence++;
    channel.retained[sequence & channel.window_mask] = &buffer;
    const MessageHeader header{static_cast<std::uint8_t>(kind), kWireVersion,      flags,    am_id,
                               start.path,                      channel.remote_id, sequence, channel.expected};
    std::memcpy(buffer.data(), &header, sizeof header);
    channel.ack_sent = channel.expected;
    buffer.length = length;
    buffer.path = start.path;
    buffer.trailer = 0;
}

inline void Interface::Impl::finish_message(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id,
                                            std::uint32_t length, std::uint8_t flags) {
    if (start.fenced) [[unlikely]] return finish_fenced(channel, start, kind, am_id, length, flags);
    compose(channel, start, kind, am_id, length, flags);
    SendQueue& queue = *start.queue;
    Posted posted{&channel, nullptr, length, length, start.path, channel.epoch, false, false, 0, 1};
    bool signaled = queue.unsignaled + 1 >= config.signal_interval;
    const Subchannel& sub = channel.subs[start.path];
    if (!channel.only) {
        if (length > start.placed) channel.scheduler->place_on(start.path, Direction::write, length - start.placed);
        signaled |= length >= schedule::PathTable::kRateBytes;
        if (signaled) {
            posted.timed = true;
            posted.t_post = services.now();
        }
        if (queue.dc) ++channel.subs[start.path].open;
    }
    ++channel.epoch_open[channel.epoch];
    if (!queue.send_whole(sub.dc, start.buffer->address(), start.buffer->lkey[sub.device], posted, signaled)) [[unlikely]]
        post_refused(channel, queue, posted);
}

// -- Works

inline Work* Interface::Impl::new_work(Channel& channel, WorkKind kind, Completion* completion) {
    Work* work = works.get();
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

// -- Receiving

inline void Interface::Impl::take_ack(Channel& channel, std::uint32_t ack) {
    const std::uint32_t count = ack - channel.acked;
    if (count == 0) return;
    if (count > channel.in_flight()) return; // older than what we know, or nonsense
    while (channel.acked != ack) {
        Buffer* buffer = channel.retained[channel.acked++ & channel.window_mask];
        Work* work = buffer->work;
        buffer->pool->put(buffer);
        if (work) [[unlikely]] {
            if (work->kind == WorkKind::atomic) --channel.atomics_pending;
            if (--work->open == 0) finish_work(*work);
        }
    }
}

// True: the buffer may be given back.
inline bool Interface::Impl::hand_over(const MessageHeader& header, std::byte* payload, std::uint32_t bytes) {
    const AmHandler& handler = handlers[header.am_id % kAmIds];
    const Status status = handler.callback(handler.arg, payload, bytes, kCallbackMayKeep);
    if (status != Status::in_progress) [[likely]] return true;
    std::memcpy(payload - config.headroom - sizeof(void*), &config.keeper, sizeof(void*));
    return false;
}

inline void Interface::Impl::receive(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length) {
    std::byte* const message = layout.message(buffer);
    const auto& header = *reinterpret_cast<const MessageHeader*>(message);
    std::uint16_t first;
    std::memcpy(&first, message, sizeof first);
    Channel* const found = channel_with(header.channel);
    if (!found || (first & kPlainMask) != kPlainAm || header.sequence != found->expected || length < kHeader ||
        (found->gates & (gate::not_ready | gate::failed))) [[unlikely]]
        return receive_unusual(adapter, buffer, length);
    // The next active message in order.
    Channel& channel = *found;
    ++channel.expected;
    if (header.ack != channel.acked) take_ack(channel, header.ack);
    if (first & ~kPlainMask) owe_ack(channel, true);
    if (hand_over(header, message + kHeader, length - kHeader)) adapter.give_back(buffer);
    if (channel.expected - channel.ack_sent >= ack_threshold) owe_ack(channel, false);
    if (channel.early_count) [[unlikely]] drain_early(channel);
}

} // namespace ucx_mp::channel
