// The inline code of the data path: the usual way of a message from the call to the queue pair, and from the completion
// to the handler. Unusual cases are calls. Private to uct_mp/channel; the parts' headers have the contracts.
//
// perf/transport-speed counts its instructions (callgrind), side by side with UCX's rc_verbs.
//
// Threads: the interface's.
#pragma once

#include <cstring>
#include <functional>

#include "uct_mp/channel/core.h"
#include "uct_mp/channel/settling.h"
#include "uct_mp/link/posting.h"

namespace ucx_mp::channel {

// Copies up to kFewBytes. Most messages are a word or two, which is not worth a call. (Even a call that is not made
// makes its caller save registers.)
inline constexpr unsigned kFewBytes = 32;
[[gnu::always_inline]] inline void copy_few(std::byte* to, const void* from, unsigned length) {
    const auto ends = [&]<class T>(T) { // copies the first and the last T, which may overlap
        T first, last;
        std::memcpy(&first, from, sizeof first);
        std::memcpy(&last, static_cast<const std::byte*>(from) + length - sizeof last, sizeof last);
        std::memcpy(to, &first, sizeof first);
        std::memcpy(to + length - sizeof last, &last, sizeof last);
    };
    struct Sixteen {
        std::uint64_t words[2];
    };
    if (length >= 16)
        ends(Sixteen{});
    else if (length >= 8)
        ends(std::uint64_t{});
    else if (length >= 4)
        ends(std::uint32_t{});
    else
        for (unsigned i = 0; i < length; ++i) to[i] = static_cast<const std::byte*>(from)[i];
}

// -- A call of the program

// `marked`: the call has an entry and an exit, for a thread that takes turns with the program (Beside::turn).

// Its exit, with what it returns. (Without an object whose destructor leaves: compilers keep that in memory.)
template <bool marked, class Result> [[gnu::always_inline]] inline Result left(Core& core, Result result) {
    if constexpr (marked) mp_turn_leave(&core.progress.beside.turn);
    return result;
}
// Its entry. True: wait_and_call() is the rest.
template <bool marked> [[gnu::always_inline]] inline bool enter(Channel& channel) {
    if constexpr (marked) return mp_turn_begin(&channel.core->progress.beside.turn);
    return false;
}
// Waits for the thread, makes the call and leaves. A function of its own, so that none of the caller's registers has to
// survive a call. `call`: the same without marks.
template <auto call, class... Arguments>
[[gnu::noinline, gnu::cold]] auto wait_and_call(Channel& channel, Arguments... arguments) {
    Core& core = *channel.core;
    mp_turn_wait(&core.progress.beside.turn);
    return left<true>(core, call(channel, arguments...));
}
// Its entry, `body`, and its exit.
template <bool marked, auto call, class Body, class... Arguments>
[[gnu::always_inline]] inline auto in_turn(Channel& channel, const Body& body, Arguments... arguments) {
    Core& core = *channel.core;
    if constexpr (!marked) return body(core);
    if (mp_turn_begin(&core.progress.beside.turn)) [[unlikely]]
        return wait_and_call<call>(channel, arguments...);
    return left<true>(core, body(core));
}

// -- Sending

[[gnu::always_inline]] inline Status Sender::start_message(Channel& channel, BufferPool& pool, std::uint32_t size,
                                                           Start& start) {
    if (channel.gates) [[unlikely]]
        return start_gated(channel, pool, size, start);
    return start_plain(channel, pool, size, start);
}

[[gnu::always_inline]] inline Status Sender::start_plain(Channel& channel, BufferPool& pool, std::uint32_t size,
                                                         Start& start) {
    if (!channel.window_open()) [[unlikely]]
        return Status::no_resource;
    start.way = Start::Way::plain;
    start.placed = size;
    if (SendQueue* only = channel.wiring.only) {
        if (!only->room()) [[unlikely]]
            return Status::no_resource;
        start.queue = only;
        start.path = 0;
        start.buffer = pool.get();
        return start.buffer ? Status::ok : Status::no_resource;
    }
    start.path = core_.placement.place(channel, Direction::write, size);
    if (start.path == kNoPath) [[unlikely]]
        return Status::no_resource;
    start.queue = channel.wiring.paths[start.path].queue[0];
    start.buffer = pool.get();
    if (start.buffer) [[likely]]
        return Status::ok;
    channel.wiring.scheduler->cancel(start.path, Direction::write, size);
    return Status::no_resource;
}

// Gives the message its number and header, and retains it until it is acknowledged.
[[gnu::always_inline]] inline void Sender::compose(Channel& channel, Buffer& buffer, PathIndex path, Kind kind,
                                                   std::uint8_t am_id, std::uint32_t length, std::uint8_t flags) {
    const std::uint32_t sequence = channel.next_sequence++;
    channel.wiring.retained[sequence & channel.window_mask] = &buffer;
    channel.ack_sent = channel.expected;
    // The MessageHeader, written as two words.
    const std::uint64_t words[2] = {channel.header | static_cast<std::uint64_t>(kind) | std::uint64_t{flags} << 8 |
                                        std::uint64_t{am_id} << 16 | std::uint64_t{path} << 24,
                                    std::uint64_t{channel.expected} << 32 | sequence};
    std::memcpy(buffer.data(), words, sizeof(MessageHeader));
    buffer.length = length;
    buffer.path = path;
    buffer.trailer = 0;
}

// Posts on a queue pair of RC. Only this channel and path use it, and its record is closed at the end of an epoch: so a
// message may join the last record without further checks.
template <Fits fits> [[gnu::always_inline]] inline void
Sender::post_own(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, const std::uint64_t* tag) {
    Posted* const joined = queue.joinable();
    if (!joined) [[unlikely]]
        return post_whole(channel, buffer, queue, path, queue.signal_due());
    ++channel.epoch_open[channel.epoch];
    if (!queue.send_joined<fits>(*joined, buffer, tag)) [[unlikely]]
        post_joined_refused(channel, queue);
}

inline void Sender::finish_message(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id,
                                   std::uint32_t length, std::uint8_t flags) {
    if (start.way != Start::Way::plain) [[unlikely]]
        return finish_other(channel, start, kind, am_id, length, flags);
    compose(channel, *start.buffer, start.path, kind, am_id, length, flags);
    bool signaled = start.queue->signal_due();
    if (!channel.wiring.only) {
        if (length > start.placed)
            channel.wiring.scheduler->place_rest(start.path, Direction::write, length - start.placed);
        signaled |= length >= schedule::PathTable::kRateBytes;
        channel.wiring.paths[start.path].open += start.queue->dc;
    }
    post_whole(channel, *start.buffer, *start.queue, start.path, signaled);
}

// Sends an active message over the only path, in the usual case: it joins the last record, and all resources are there.
// fill(payload) writes the payload and returns its length. True: sent. False: nothing has happened, try another way.
template <Fits fits, class Fill>
[[gnu::always_inline]] inline bool Sender::active_message_sole(Channel& channel, BufferPool& pool, std::uint8_t id,
                                                               const Fill& fill, std::uint32_t& length) {
    SendQueue& queue = *channel.wiring.only;
    Posted* const joined = queue.ready();
    if (!joined || !channel.window_open() || !pool.at_hand()) [[unlikely]]
        return false;
    Buffer* const buffer = pool.take();
    length = fill(buffer->data() + kHeader);
    compose(channel, *buffer, 0, Kind::am, id, kHeader + length, 0);
    ++channel.epoch_open[channel.epoch];
    if (!queue.send_joined<fits>(*joined, *buffer)) [[unlikely]]
        post_joined_refused(channel, queue);
    return true;
}

// The same where a resource is missing, or a completion is to be asked for. Returns the length, or a Status.
template <class Fill> [[gnu::noinline]] ssize_t Sender::active_message_sole_unusual(Channel& channel, BufferPool& pool,
                                                                                    std::uint8_t id, Fill fill) {
    SendQueue& queue = *channel.wiring.only;
    if (!channel.window_open() || !queue.room()) return static_cast<ssize_t>(Status::no_resource);
    Buffer* const buffer = pool.get();
    if (!buffer) return static_cast<ssize_t>(Status::no_resource);
    const std::uint32_t length = fill(buffer->data() + kHeader);
    compose(channel, *buffer, 0, Kind::am, id, kHeader + length, 0);
    post_whole(channel, *buffer, queue, 0, queue.signal_due());
    return length;
}

// The same where paths have accounts (no Wiring::only), while the scheduler's current lane lasts, else otherwise().
// `tagged`: the peer wants tags.
template <Fits fits, bool tagged, class Fill, class Otherwise>
[[gnu::always_inline]] inline ssize_t Sender::active_message_lane(Channel& channel, BufferPool& pool, std::uint8_t id,
                                                                  const Fill& fill, const Otherwise& otherwise) {
    schedule::Scheduler::Current& current = channel.wiring.scheduler->current(Direction::write);
    if (!current.lasts()) [[unlikely]]
        return otherwise();
    if (!channel.window_open()) [[unlikely]]
        return static_cast<ssize_t>(Status::no_resource);
    const PathIndex path = current.lane.path;
    const Path& sub = channel.wiring.paths[path];
    if (tagged && sub.kind != path::Kind::rc)
        return active_message_dc<fits>(channel, pool, id, current, fill, otherwise);
    SendQueue& queue = *sub.queue[0];
    if (!queue.room()) [[unlikely]]
        return otherwise(); // on another path
    Buffer* const buffer = pool.get();
    if (!buffer) [[unlikely]]
        return static_cast<ssize_t>(Status::no_resource);
    const std::uint32_t length = fill(buffer->data() + kHeader);
    compose(channel, *buffer, path, Kind::am, id, kHeader + length, 0);
    channel.wiring.scheduler->charge<fits == Fits::yes>(current, kHeader + length);
    if (fits == Fits::maybe && kHeader + length >= schedule::PathTable::kRateBytes)
        post_whole(channel, *buffer, queue, path, true);
    else // with a tag, the message may no longer fit into the request
        post_own<tagged ? Fits::maybe : fits>(channel, *buffer, queue, path, tagged ? &sub.dc.tag : nullptr);
    return length;
}

// The same on a path of DC. Other channels may share its initiator, so the last record there need not be this one's.
template <Fits fits, class Fill, class Otherwise>
[[gnu::noinline]] ssize_t Sender::active_message_dc(Channel& channel, BufferPool& pool, std::uint8_t id,
                                                    schedule::Scheduler::Current& current, const Fill& fill,
                                                    const Otherwise& otherwise) {
    const PathIndex path = current.lane.path;
    Path& sub = channel.wiring.paths[path];
    // An initiator is kept while requests of this channel are under way there, see Placement.
    SendQueue* const queue =
        sub.open && sub.queue[0] ? sub.queue[0] : core_.placement.queue_for(channel, path, Direction::write);
    if (!queue || !queue->room()) [[unlikely]]
        return otherwise(); // on another path
    Buffer* const buffer = pool.get();
    if (!buffer) [[unlikely]]
        return static_cast<ssize_t>(Status::no_resource);
    const std::uint32_t length = fill(buffer->data() + kHeader);
    compose(channel, *buffer, path, Kind::am, id, kHeader + length, 0);
    channel.wiring.scheduler->charge<fits == Fits::yes>(current, kHeader + length);
    ++sub.open;
    const bool timed = fits == Fits::maybe && kHeader + length >= schedule::PathTable::kRateBytes;
    post_whole(channel, *buffer, *queue, path, timed || queue->signal_due());
    return length;
}

// Writes the message into the peer's ring, or sends it over the same path if it does not fit. otherwise(): the lane has
// ended, no slot is free, or the queue is full. Only where gate::ring is the only gate, and paths have accounts.
template <Fits fits, class Fill, class Otherwise>
[[gnu::always_inline]] inline ssize_t Sender::active_message_ring(Channel& channel, BufferPool& pool, std::uint8_t id,
                                                                  const Fill& fill, const Otherwise& otherwise) {
    schedule::Scheduler::Current& current = channel.wiring.scheduler->current(Direction::write);
    RingOut& ring = channel.rings->out;
    const std::uint32_t sequence = channel.next_sequence, in_flight = channel.in_flight();
    // A slot is free when the message after the last one in it has been acknowledged. start_ring() tests the same.
    if (!current.lasts() || in_flight + 1 >= ring.shape.slots) [[unlikely]]
        return otherwise();
    if (in_flight >= channel.window) [[unlikely]]
        return static_cast<ssize_t>(Status::no_resource);
    const PathIndex path = current.lane.path;
    Path& sub = channel.wiring.paths[path];
    const bool own = sub.kind == path::Kind::rc;
    // An initiator is kept while requests of this channel are under way there, see Placement.
    SendQueue* const queue =
        own || (sub.open && sub.queue[0]) ? sub.queue[0] : core_.placement.queue_for(channel, path, Direction::write);
    if (!queue || !queue->room()) [[unlikely]]
        return otherwise(); // on another path
    Buffer* const buffer = pool.get();
    if (!buffer) [[unlikely]]
        return static_cast<ssize_t>(Status::no_resource);
    const std::uint32_t length = fill(buffer->data() + kHeader);
    const std::uint32_t whole = kHeader + length;
    compose(channel, *buffer, path, Kind::am, id, whole, 0);
    if (whole > ring.shape.longest()) [[unlikely]] {
        channel.wiring.scheduler->charge<fits == Fits::yes>(current, whole);
        sub.open += queue->dc;
        post_whole(channel, *buffer, *queue, path, queue->signal_due() || whole >= schedule::PathTable::kRateBytes);
        return length;
    }
    const std::uint32_t bytes = link::seal_ring_message(buffer->data(), whole, sequence, ring.key);
    channel.wiring.scheduler->charge<fits == Fits::yes>(current, bytes);
    ++ring.messages;
    const link::RemotePiece to{ring.address + ring.shape.end_of(sequence) - bytes, ring.rkey[sub.remote_device]};
    const bool timed = fits == Fits::maybe && bytes >= schedule::PathTable::kRateBytes;
    Posted* const joined = own && !timed ? queue->joinable() : nullptr;
    if (!joined) [[unlikely]] {
        post_ring(channel, *buffer, *queue, path, to, timed || queue->signal_due());
        return length;
    }
    ++channel.epoch_open[channel.epoch];
    if (!queue->write_joined(*joined, *buffer, bytes, to)) [[unlikely]]
        post_ring_refused(channel, *queue);
    return length;
}

// For every case: gates, fences, a channel that is not connected, a lane that has ended. If `size` is not 0, the length
// is at most `size`.
template <Fits fits, class Fill> [[gnu::noinline]] ssize_t
Sender::active_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, Fill fill) {
    Start start;
    if constexpr (fits == Fits::maybe) {
        if (channel.gates & gate::parts) {
            if (const Status status = core_.parts.start_parts(channel, start); status != Status::ok)
                return static_cast<ssize_t>(status);
            const std::uint32_t length = fill(core_.parts.whole.get());
            core_.parts.finish_parts(channel, start, id, length);
            return length;
        }
    }
    if (const Status status = start_message(channel, pool, size ? kHeader + size : 0, start); status != Status::ok)
        return static_cast<ssize_t>(status);
    const std::uint32_t length = fill(start.buffer->data() + kHeader);
    finish_message(channel, start, Kind::am, id, kHeader + length, 0);
    return length;
}

template <Fits fits, class Fill> [[gnu::always_inline]] inline ssize_t
Sender::send_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, const Fill& fill) {
    const auto otherwise = [&] { return active_message<fits>(channel, pool, id, size, fill); };
    if (channel.gates) [[unlikely]] {
        if (channel.gates == gate::ring && !channel.wiring.only)
            return active_message_ring<fits>(channel, pool, id, fill, otherwise);
        return otherwise();
    }
    if (channel.wiring.only) {
        std::uint32_t length;
        if (!active_message_sole<fits>(channel, pool, id, fill, length)) [[unlikely]]
            return active_message_sole_unusual(channel, pool, id, fill);
        return length;
    }
    if (channel.wiring.by_lane) [[likely]]
        return active_message_lane<fits, false>(channel, pool, id, fill, otherwise);
    return active_message_lane<fits, true>(channel, pool, id, fill, otherwise);
}

// -- Completions

[[gnu::always_inline]] inline void Completions::tally(const Posted& posted, Path& sub) {
    sub.bytes[posted.read] += posted.bytes;
    sub.requests += posted.requests;
}

// -- Puts and gets

// Posts [offset, offset + length) of the work. The path's account includes it already, and the queue has room.
[[gnu::always_inline]] inline void Mover::post_piece(Channel& channel, Work& work, std::uint64_t offset,
                                                     std::uint64_t length, PathIndex path, SendQueue& queue,
                                                     bool timed) {
    const bool read = work.transfer.direction == Direction::read;
    Path& sub = channel.wiring.paths[path];
    ibv_sge sge[kMaxIov];
    int count = 0;
    std::uint64_t skip = offset, left = length;
    if (work.pieces == 1) [[likely]] {
        sge[count++] = {work.local[0].address + offset, static_cast<std::uint32_t>(length),
                        work.local[0].lkey[sub.device]};
        left = 0;
    }
    for (unsigned i = 0; i < work.pieces && left; ++i) {
        const LocalPiece& piece = work.local[i];
        if (skip >= piece.length) {
            skip -= piece.length;
            continue;
        }
        const std::uint64_t take = std::min(piece.length - skip, left);
        sge[count++] = {piece.address + skip, static_cast<std::uint32_t>(take), piece.lkey[sub.device]};
        left -= take;
        skip = 0;
    }
    Posted posted{.channel = &channel,
                  .work = &work,
                  .offset = offset,
                  .bytes = static_cast<std::uint32_t>(length),
                  .path = path,
                  .read = read};
    posted.extra = queue.extra_packets(static_cast<std::uint32_t>(length));
    if (channel.wiring.path_count > 1) {
        posted.timed = timed;
        posted.t_post = timed ? core_.services.now() : 0;
        channel.moving.open_paths |= PathMask{1} << path;
    }
    if (!read) {
        channel.fences.put_paths |= PathMask{1} << path;
        channel.visible.unread |= PathMask{1} << path;
        ++sub.puts;
    }
    ++work.open;
    sub.open += queue.dc;
    const RemotePiece remote{work.remote + offset, work.keys.rkey[sub.remote_device]};
    const bool in_line = !read && count == 1 && length <= queue.inline_bytes;
    if (!queue.rdma(sub.dc, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, sge, count, remote, posted,
                    in_line ? IBV_SEND_SIGNALED | IBV_SEND_INLINE : IBV_SEND_SIGNALED)) [[unlikely]] {
        post_refused(core_, channel, queue, posted);
    }
}

// -- Receiving

// Calls the handler. True: the buffer may be given back. False: the handler keeps it.
[[gnu::always_inline]] inline bool hand_over(Core& core, const MessageHeader& header, std::byte* payload,
                                             std::uint32_t bytes) {
    const AmHandler& handler = core.handlers[header.am_id % kAmIds];
    const Status status = handler.callback(handler.arg, payload, bytes, kCallbackMayKeep);
    if (status != Status::in_progress) [[likely]]
        return true;
    std::memcpy(payload - core.config.headroom - sizeof(void*), &core.config.keeper, sizeof(void*));
    return false;
}

[[gnu::always_inline]] inline void Receiver::receive(Core& core, Adapter& adapter, ReceiveBuffer* buffer,
                                                     std::uint32_t length, std::uint32_t qp_number) {
    std::uint64_t from = qp_number;
    if (adapter.tagged) {
        if (length < kTagBytes + kHeader) [[unlikely]] {
            ++core.receiver.dropped;
            return adapter.give_back(buffer);
        }
        adapter.came_by = qp_number;
        std::memcpy(&from, core.layout.message(buffer) - kTagBytes, kTagBytes);
        length -= kTagBytes;
    }
    if (from != adapter.heard) [[unlikely]]
        return core.receiver.receive_other(adapter, buffer, length, from);
    receive_heard(core, adapter, buffer, length, from);
}

// The sender waits for the acknowledgment of this message, so it is owed at once.
[[gnu::always_inline]] inline void Receiver::answer_soon(Core& core, Channel& channel, const MessageHeader& header) {
    channel.heard = header.path;
    core.acks.owe_ack(channel, true);
}

// Counts the next message in order, hands it over, and acknowledges if that is due. hand() calls the handler, and
// returns what hand_over() does.
template <class Hand> [[gnu::always_inline]] inline bool
Receiver::deliver_next(Core& core, Channel& channel, const MessageHeader& header, const Hand& hand) {
    ++channel.expected;
    const bool done = hand();
    if (channel.expected - channel.ack_sent >= channel.ack_after) {
        channel.heard = header.path; // only a hint: a handler that keeps the message may have overwritten the header
        core.acks.owe_ack(channel, false);
    }
    return done;
}

[[gnu::always_inline]] inline void Receiver::receive_heard(Core& core, Adapter& adapter, ReceiveBuffer* buffer,
                                                           std::uint32_t length, std::uint64_t from) {
    std::byte* const message = core.layout.message(buffer);
    const auto& header = *reinterpret_cast<const MessageHeader*>(message);
    std::uint16_t first;
    std::memcpy(&first, message, sizeof first);
    Channel& channel = *adapter.heard_channel;
    if (channel.live_id != header.channel || header.sequence != channel.expected || length < kHeader) [[unlikely]]
        return core.receiver.receive_unusual(adapter, buffer, length, from);
    if (first != kPlainAm) [[unlikely]] {
        if (first != kUrgentAm) return core.receiver.receive_unusual(adapter, buffer, length, from);
        answer_soon(core, channel, header);
    }
    const bool done = deliver_next(
        core, channel, header, [&]() __attribute__((always_inline)) {
            if (header.ack != channel.ack_seen) {
                channel.ack_seen = header.ack;
                core.receiver.take_ack(channel, header.ack);
            }
            return hand_over(core, header, message + kHeader, length - kHeader);
        });
    if (done) [[likely]]
        adapter.give_back(buffer);
    else
        ++adapter.kept;
}

} // namespace ucx_mp::channel
