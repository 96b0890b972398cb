#include <cstring>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

constexpr std::uint32_t kFencesUnasked = Fences::kMost / 4; // with more in flight, each asks for an acknowledgment

// -- Gates (slow path)

Status Sender::blocked(Channel& channel) {
    if (channel.gates & gate::failed) return refusal(core_, channel);
    if ((channel.gates & gate::not_ready) && !channel.asked) {
        channel.asked = true;
        const std::lock_guard lock(core_.services);
        core_.attention.store(true, std::memory_order_relaxed);
        if (channel.self) {
            core_.takeover.connect_self(channel);
            if (!(channel.gates & (gate::not_ready | gate::held | gate::failed))) return Status::ok;
            if (channel.gates & gate::failed) return channel.error;
        } else if (channel.connection.state == connect::State::closed) {
            if (core_.admission.may_connect(channel, Admission::Side::client)) core_.control->start(channel.connection);
        }
    }
    return Status::no_resource;
}

Status Sender::pass_gate_message(Channel& channel) {
    if (channel.gates &
        (gate::not_ready | gate::held | gate::failed | gate::recovering | gate::keys | gate::retiring)) {
        const Status status = blocked(channel);
        if (status != Status::ok) return status;
    }
    // Nothing passes a fence while a read before it is open, or a write before it has not been posted whole.
    if (channel.gates & gate::fence) {
        if (channel.moving.gets_open || channel.moving.pulled_count) return Status::no_resource;
        if (channel.fences.passed != kNoPath && channel.moving.rdma_open == 0) (void)core_.epochs.clear_drain(channel);
        if (std::exchange(channel.fences.catch_up, false)) {
            channel.fences.fence_paths |= std::exchange(channel.fences.put_paths, 0);
            channel.fences.marker_due = channel.fences.fence_paths != 0;
        }
    }
    return Status::ok;
}

// -- Beginning and ending a message

Status Sender::start_gated(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start) {
    if (channel.gates == gate::ring) [[likely]]
        return start_ring(channel, pool, size, start);
    if (const Status status = pass_gate_message(channel); status != Status::ok) return status;
    if (channel.gates & gate::unseen) core_.visibility.mark_unseen(channel);
    if (channel.fences.marker_due) {
        if (core_.visibility.better_await(channel) && !core_.epochs.clear_drain(channel)) return Status::no_resource;
        if (channel.fences.marker_due) return start_fenced(channel, pool, size, start);
    }
    return channel.gates & gate::ring ? start_ring(channel, pool, size, start)
                                      : start_plain(channel, pool, size, start);
}

// The message takes one of the paths that have carried puts, and is that path's marker. The other paths get their
// markers now.
Status Sender::start_fenced(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start) {
    if (!channel.window_open()) return Status::no_resource;
    const std::uint32_t number = channel.fences.next();
    // The receiver remembers Fences::kMost fences. So this one waits while the fence that many before is in flight.
    // Numbers wrap, so that one's message is compared with the messages in flight.
    if (channel.fences.fence_sequence[number % Fences::kMost] - 1 - channel.acked < channel.in_flight()) {
        // No message in flight need have asked for an acknowledgment (finish_fenced()), if fence numbers were left out.
        std::uint32_t& asked = channel.fences.asked;
        if (asked != channel.next_sequence + 1 && core_.acks.send_ack(channel, Kind::ack_request))
            asked = channel.next_sequence + 1;
        return Status::no_resource;
    }
    const PathMask usable = channel.wiring.scheduler->paths().usable();
    if (channel.fences.fence_paths & ~usable) return Status::no_resource; // recovery must settle its puts first
    if (channel.fences.fence_paths & channel.wiring.unsettled.damaged) [[unlikely]]
        return Status::no_resource;
    start.path = kNoPath;
    for (const PathIndex path : schedule::each(channel.fences.fence_paths)) {
        if (!core_.placement.path_has_room(channel, path, Direction::write, 1 + SendQueue::kReserve))
            return Status::no_resource;
        if (start.path == kNoPath) start.path = path;
    }
    if (channel.fences.marked_paths >> start.path & 1) {
        // The marker of this path was sent by itself, and writes may have followed it. They must not seem covered by
        // the same number, so the fence gets the next one.
        channel.fences.marked_paths = 0;
        channel.fences.fence_number = channel.fences.next();
        return start_fenced(channel, pool, size, start);
    }
    start.buffer = pool.get();
    if (!start.buffer) return Status::no_resource;
    for (const PathIndex path : schedule::each(channel.fences.fence_paths & ~channel.fences.marked_paths)) {
        if (path == start.path) continue;
        const MarkerBody body{number, channel.wiring.paths[path].puts};
        // Several paths may share a queue (mp_dc). Each had room, but not all together. The next attempt sends the
        // rest.
        if (!core_.acks.send_control(channel, Kind::marker, &body, sizeof body, path,
                                     *core_.placement.queue_for(channel, path, Direction::write)) ||
            !core_.placement.path_has_room(channel, start.path, Direction::write, 1)) {
            start.buffer->pool->put(start.buffer);
            return Status::no_resource;
        }
        channel.fences.marked_paths |= PathMask{1} << path;
        ++channel.counts.markers_sent;
    }
    channel.fences.marked_paths = 0;
    channel.wiring.scheduler->place_on(start.path, Direction::write, size);
    start.queue = core_.placement.queue_for(channel, start.path, Direction::write);
    start.way = Start::Way::fenced;
    start.placed = size;
    channel.fences.fence_number = number;
    return Status::ok;
}

void Sender::finish_pieces(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length) {
    if (start.way == Start::Way::fenced) [[unlikely]]
        return finish_fenced(channel, start, Kind::am, am_id, length, flag::ack_request);
    compose(channel, *start.buffer, start.path, Kind::am, am_id, length, flag::ack_request);
    post_message(channel, *start.buffer, *start.queue, start.path, start.placed);
}

void Sender::finish_fenced(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                           std::uint8_t flags) {
    // Only Fences::kMost fences may be in flight. An acknowledgment is asked for long before that.
    const std::uint32_t before =
        channel.fences.fence_sequence[(channel.fences.fence_number - kFencesUnasked) % Fences::kMost];
    if (before - 1 - channel.acked < channel.in_flight()) flags |= flag::ack_request;
    compose(channel, *start.buffer, start.path, kind, am_id, length, flags | flag::fenced);
    append_trailer(channel, *start.buffer, channel.next_sequence - 1);
    post_message(channel, *start.buffer, *start.queue, start.path, start.placed);
}

void Sender::append_trailer(Channel& channel, Buffer& buffer, std::uint32_t sequence) {
    const FenceTrailer trailer{channel.fences.fence_paths, channel.fences.fence_number, 0};
    std::memcpy(buffer.data() + buffer.length, &trailer, sizeof trailer);
    buffer.trailer = sizeof trailer;
    channel.fences.fence_sequence[channel.fences.fence_number % Fences::kMost] = sequence + 1;
    channel.fences.fence_paths = 0;
    channel.fences.marker_due = false;
    channel.gates &= ~gate::unseen;
    if (!channel.fences.pending()) channel.gates &= ~gate::fence;
}

int Sender::gather(Buffer& buffer, const Work* pieces, unsigned device, ibv_sge* sge) {
    const std::uint32_t own = buffer.length + (pieces ? 0u : buffer.trailer);
    int count = 0;
    sge[count++] = {buffer.address(), own, buffer.lkey[device]};
    if (!pieces) return count;
    for (unsigned i = 0; i < pieces->pieces; ++i) {
        const LocalPiece& piece = pieces->local[i];
        sge[count++] = {piece.address, static_cast<std::uint32_t>(piece.length), piece.lkey[device]};
    }
    if (buffer.trailer) sge[count++] = {buffer.address() + buffer.length, buffer.trailer, buffer.lkey[device]};
    return count;
}

FenceTrailer trailer_of(Buffer& buffer) {
    FenceTrailer trailer{};
    if (buffer.trailer) std::memcpy(&trailer, buffer.data() + buffer.length, sizeof trailer);
    return trailer;
}

// Posts to any kind of queue pair. Also for messages that begin or end a group with one completion.
void Sender::post_whole(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, bool signaled) {
    const Nanos t_post = signaled && !channel.wiring.only ? core_.services.now() : 0;
    ++channel.epoch_open[channel.epoch];
    if (!queue.send_whole({&channel, path, channel.epoch}, channel.wiring.paths[path].dc, buffer, signaled, t_post))
        [[unlikely]]
        post_whole_refused(channel, buffer, queue, path);
}

void Sender::post_joined_refused(Channel& channel, SendQueue& queue) {
    Buffer& buffer = *channel.wiring.retained[(channel.next_sequence - 1) & channel.window_mask];
    (void)queue.take_back(buffer.length);
    post_whole_refused(channel, buffer, queue, buffer.path);
}

void Sender::post_whole_refused(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path) {
    post_refused(core_, channel, queue,
                 {.channel = &channel, .bytes = buffer.length, .path = path, .epoch = channel.epoch});
}

void Sender::post_message(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, std::uint32_t placed) {
    Work* work = buffer.work;
    Path& sub = channel.wiring.paths[path];
    ibv_sge sge[kMaxIov + 2];
    const bool pieces = work && work->kind == WorkKind::message;
    const int count = gather(buffer, pieces ? work : nullptr, sub.device, sge);
    std::uint32_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += sge[i].length;
    if (bytes > placed && !channel.wiring.only)
        channel.wiring.scheduler->place_on(path, Direction::write, bytes - placed);

    Posted posted{.channel = &channel,
                  .work = pieces ? work : nullptr,
                  .bytes = bytes,
                  .path = path,
                  .epoch = pieces ? kNoEpoch : channel.epoch};
    posted.extra = queue.extra_packets(bytes);
    posted.fence = trailer_of(buffer).number;
    unsigned flags = IBV_SEND_SOLICITED;
    if (pieces || queue.signal_due() || (bytes >= schedule::PathTable::kRateBytes && channel.wiring.path_count > 1)) {
        flags |= IBV_SEND_SIGNALED;
        if (channel.wiring.path_count > 1) {
            posted.timed = true;
            posted.t_post = core_.services.now();
        }
    }
    if (!pieces) ++channel.epoch_open[channel.epoch];
    sub.open += queue.dc;
    bool good;
    if (!pieces && bytes <= queue.inline_bytes) {
        good = queue.send_inline(sub.dc, buffer.data(), bytes, posted, flags);
    } else {
        good = queue.send(sub.dc, sge, count, posted, flags);
    }
    if (!good) [[unlikely]]
        post_refused(core_, channel, queue, posted);
}

// The windows of peers may be far from full, so that they owe no acknowledgment yet. Each peer is asked once for the
// messages sent so far.
void Sender::ask_for_buffers() {
    bool asked = true;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        if (channel.gates & (gate::failed | gate::not_ready) || channel.in_flight() == 0) continue;
        if (channel.moving.parts_asked == channel.next_sequence + 1) continue;
        if (core_.acks.send_ack(channel, Kind::ack_request))
            channel.moving.parts_asked = channel.next_sequence + 1;
        else
            asked = false;
        (void)core_.epochs.push_out(channel); // a large buffer is free only when the adapter has read it, too
    }
    if (asked) core_.small.starved = core_.large.starved = false;
}

// -- The calls

namespace {
constexpr Status status_of(ssize_t result) { return result < 0 ? static_cast<Status>(result) : Status::ok; }
} // namespace

namespace {
[[gnu::always_inline]] inline void copy_any(std::byte* to, const void* from, unsigned length) {
    std::memcpy(to, from, length);
}
template <void (*copy)(std::byte*, const void*, unsigned)> struct Short {
    std::uint64_t header;
    const void* payload; // may be null if length is 0
    unsigned length;
    [[gnu::always_inline]] std::uint32_t operator()(std::byte* to) const {
        std::memcpy(to, &header, sizeof header);
        if (length) copy(to + sizeof header, payload, length);
        return static_cast<std::uint32_t>(sizeof header + length);
    }
};
using ShortMessage = Short<copy_any>;
using FewBytes = Short<copy_few>;
} // namespace

// Separate functions, so that none saves registers for the others.
Status Sender::am_short_any(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload,
                            unsigned length) {
    Core& m = *channel.core;
    return status_of(m.sender.active_message<Fits::yes>(channel, m.small, id,
                                                        static_cast<std::uint32_t>(sizeof header) + length,
                                                        ShortMessage{header, payload, length}));
}

template <bool tagged, bool marked> Status
Sender::am_short_lane(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload, unsigned length) {
    Core& m = *channel.core;
    return left<marked>(m, status_of(m.sender.active_message_lane<Fits::yes, tagged>(
                               channel, m.small, id, ShortMessage{header, payload, length}, [=, &channel] {
                                   return static_cast<ssize_t>(am_short_any(channel, id, header, payload, length));
                               })));
}

Status Sender::am_short_ring(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload,
                             unsigned length) {
    Core& m = *channel.core;
    return status_of(m.sender.active_message_ring<Fits::yes>(
        channel, m.small, id, ShortMessage{header, payload, length},
        [=, &channel] { return static_cast<ssize_t>(am_short_any(channel, id, header, payload, length)); }));
}

Status Sender::am_short_unusual(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload,
                                unsigned length) {
    Core& m = *channel.core;
    return status_of(m.sender.active_message_sole_unusual(channel, m.small, id, ShortMessage{header, payload, length}));
}

Status Sender::am_short_sole(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload,
                             unsigned length) {
    Core& m = *channel.core;
    std::uint32_t sent;
    if (!m.sender.active_message_sole<Fits::yes>(channel, m.small, id, ShortMessage{header, payload, length}, sent))
        [[unlikely]]
        return am_short_unusual(channel, id, header, payload, length);
    return Status::ok;
}

template <bool marked> Status Calls<marked>::am_short(Channel& channel, std::uint8_t id, std::uint64_t header,
                                                      const void* payload, unsigned length) {
    Core* const entered = marked ? channel.core : nullptr; // unmarked: it is not read before it is needed
    if (enter<marked>(channel)) [[unlikely]]
        return wait_and_call<Calls<false>::am_short>(channel, id, header, payload, length);
    if (channel.gates) [[unlikely]] {
        if (channel.gates == gate::ring && !channel.wiring.only)
            return left<marked>(marked ? *entered : *channel.core,
                                Sender::am_short_ring(channel, id, header, payload, length));
        return left<marked>(marked ? *entered : *channel.core,
                            Sender::am_short_any(channel, id, header, payload, length));
    }
    if (channel.wiring.only) {
        // Most messages are short. Those are sent here, with no call but the one that posts.
        static_assert(kHeader + sizeof header + kFewBytes <= 256);
        Core& core = marked ? *entered : *channel.core;
        std::uint32_t sent;
        if (length <= kFewBytes && core.sender.active_message_sole<Fits::one_packet>(
                                       channel, core.small, id, FewBytes{header, payload, length}, sent)) [[likely]]
            return left<marked>(core, Status::ok);
        return left<marked>(core, Sender::am_short_sole(channel, id, header, payload, length));
    }
    if (channel.wiring.by_lane) return Sender::am_short_lane<false, marked>(channel, id, header, payload, length);
    return Sender::am_short_lane<true, marked>(channel, id, header, payload, length);
}

template <bool marked>
Status Calls<marked>::am_short_iov(Channel& channel, std::uint8_t id, const Iov* iov, std::size_t count) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        const auto size = static_cast<std::uint32_t>(total_length(iov, count));
        const auto fill = [=](std::byte* to) {
            for (std::size_t i = 0; i < count; ++i) {
                if (iov[i].length) std::memcpy(to, iov[i].buffer, iov[i].length);
                to += iov[i].length;
            }
            return size;
        };
        return status_of(m.sender.send_message<Fits::yes>(channel, m.small, id, size, fill));
    };
    return in_turn<marked, Calls<false>::am_short_iov>(channel, body, id, iov, count);
}

template <bool marked> ssize_t Calls<marked>::am_bcopy(Channel& channel, std::uint8_t id, PackFn pack, void* arg) {
    const auto body = [&](Core & m) __attribute__((always_inline))->ssize_t {
        const auto fill = [=](std::byte* to) { return static_cast<std::uint32_t>(pack(to, arg)); };
        // The size is known only after packing, which cannot be undone. So the path is chosen first, and its account
        // is corrected later.
        return m.sender.send_message<Fits::maybe>(channel, m.large, id, 0, fill);
    };
    return in_turn<marked, Calls<false>::am_bcopy>(channel, body, id, pack, arg);
}

template <bool marked> Status Calls<marked>::am_zcopy(Channel& channel, std::uint8_t id, const void* header,
                                                      unsigned header_length, const Iov* iov, std::size_t count,
                                                      Completion* completion) {
    const auto body = [&](Core & m) __attribute__((always_inline))->Status {
        const auto whole = static_cast<std::uint32_t>(header_length + total_length(iov, count));
        if ((channel.gates & gate::parts) && whole > channel.connection.peer_segment) [[unlikely]]
            return m.parts.am_zcopy_parts(channel, id, header, header_length, iov, count);
        Sender::Start start;
        const std::uint32_t size = kHeader + header_length;
        if (const Status status = m.sender.start_message(channel, m.small, kHeader + whole, start);
            status != Status::ok)
            return status;
        if (header_length) std::memcpy(start.buffer->data() + kHeader, header, header_length);
        Work* work = m.works.new_work(channel, WorkKind::message, completion);
        // Until the send has completed, and the message is acknowledged: then no replay needs the memory.
        work->open = 2;
        work->pieces = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (!iov[i].length) continue;
            work->local[work->pieces++] = {reinterpret_cast<std::uint64_t>(iov[i].buffer), iov[i].length,
                                           iov[i].memory->lkey.data()};
        }
        start.buffer->work = work;
        m.sender.finish_pieces(channel, start, id, size);
        return Status::in_progress;
    };
    return in_turn<marked, Calls<false>::am_zcopy>(channel, body, id, header, header_length, iov, count, completion);
}

template Status Calls<false>::am_short(Channel&, std::uint8_t, std::uint64_t, const void*, unsigned);
template Status Calls<true>::am_short(Channel&, std::uint8_t, std::uint64_t, const void*, unsigned);
template Status Calls<false>::am_short_iov(Channel&, std::uint8_t, const Iov*, std::size_t);
template Status Calls<true>::am_short_iov(Channel&, std::uint8_t, const Iov*, std::size_t);
template ssize_t Calls<false>::am_bcopy(Channel&, std::uint8_t, PackFn, void*);
template ssize_t Calls<true>::am_bcopy(Channel&, std::uint8_t, PackFn, void*);
template Status Calls<false>::am_zcopy(Channel&, std::uint8_t, const void*, unsigned, const Iov*, std::size_t,
                                       Completion*);
template Status Calls<true>::am_zcopy(Channel&, std::uint8_t, const void*, unsigned, const Iov*, std::size_t,
                                      Completion*);

} // namespace ucx_mp::channel
