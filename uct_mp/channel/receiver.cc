#include <cstdlib>
#include <cstring>
#include <new>

#include "uct_mp/channel/data_path.h"
#include "uct_mp/channel/well_formed.h"

namespace ucx_mp::channel {

// -- Who has sent it

bool Receiver::has_queue_pair(const Path* subs, unsigned count, const Adapter& adapter, PathIndex path,
                              std::uint64_t number) const {
    const auto is_it = [&](const Path& sub) {
        if (sub.device != adapter.index) return false; // numbers are an adapter's own
        for (const auto& own : sub.own)
            if (own && own->number && own->number == number) return true;
        return false;
    };
    if (path < count && is_it(subs[path])) return true;
    for (unsigned i = 0; i < count; ++i)
        if (is_it(subs[i])) return true;
    return false;
}

bool Receiver::is_from(const Adapter& adapter, Channel& channel, PathIndex path, std::uint64_t from) {
    if (!(channel.gates & gate::not_ready)) {
        if (adapter.tagged) return from == channel.connection.own_dc_tag;
        return channel.wiring.paths &&
               has_queue_pair(channel.wiring.paths.get(), channel.wiring.places, adapter, path, from);
    }
    const std::lock_guard lock(core_.services);
    const Wiring::Prepared& made = channel.wiring.prepared;
    if (!made.paths) return false;
    return adapter.tagged ? from == channel.connection.own_dc_tag
                          : has_queue_pair(made.paths.get(), made.count, adapter, path, from);
}

// We have told the peer what had arrived by this half, and the peer sends again whatever that does not cover. An
// adapter may still bring late what it has accepted. If such a marker counted, the program would learn of writes that
// go again.
bool Receiver::is_late(const Adapter& adapter, const Channel& channel, std::uint64_t from) const {
    const std::uint64_t number = adapter.tagged ? adapter.came_by : from;
    for (unsigned i = 0; i < channel.wiring.places; ++i)
        if (const Path& sub = channel.wiring.paths[i];
            path::has_told(sub.phase) && has_queue_pair(&sub, 1, adapter, 0, number))
            return true;
    return false;
}

// True: late messages may still come through this adapter, and their tag is that of messages in time. So each message
// must be looked at.
bool Receiver::may_be_late(const Adapter& adapter, const Channel& channel) {
    if (!adapter.tagged || !channel.wiring.recovery) return false;
    for (unsigned i = 0; i < channel.wiring.places; ++i)
        if (const Path& sub = channel.wiring.paths[i];
            path::has_told(sub.phase) && sub.device == adapter.index && sub.own[0] && sub.own[0]->number)
            return true;
    return false;
}

void Receiver::drop_forged(const Channel& channel) {
    ++dropped;
    // Both halves of a path to ourselves are replaced at once, and the adapter may be late with messages that it has
    // accepted by the old ones. They are sent again, so dropping them is no sign of a forgery. A forged one is dropped
    // as well.
    if (channel.self) return;
    ++forged;
    constexpr Nanos kPause = 1'000'000'000;
    const Nanos now = core_.services.now();
    if (now < next_forged_line) return;
    next_forged_line = now + kPause;
    const std::lock_guard lock(core_.services); // a handshake may be changing the peer's names
    core_.services.say(LogLevel::warn,
                       "a message in the name of %s has come by other ways than its own: dropped (%llu so far)",
                       connect::describe(channel.connection).c_str(), static_cast<unsigned long long>(forged));
}

// The message has come by another queue pair, or from another peer, than the one before.
void Receiver::receive_other(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from) {
    link::Sender& known = adapter.sender_at(from);
    if (known.from == from) [[likely]] {
        adapter.heard = from;
        adapter.heard_channel = known.channel;
        return receive_heard(core_, adapter, buffer, length, from);
    }
    const auto& header = *reinterpret_cast<const MessageHeader*>(core_.layout.message(buffer));
    Channel* const channel = length < kHeader ? nullptr : core_.directory.channel_with(header.channel);
    if (!channel || channel->live_id != header.channel || !is_from(adapter, *channel, header.path, from) ||
        (channel->wiring.recovery && is_late(adapter, *channel, from)))
        return receive_unusual(adapter, buffer, length, from);
    adapter.heard = from;
    adapter.heard_channel = channel;
    const bool once = may_be_late(adapter, *channel); // then the next message is looked at as well
    if (!once) known = {.from = from, .channel = channel};
    receive_heard(core_, adapter, buffer, length, from);
    if (once) [[unlikely]]
        adapter.forget_latest();
}

// Takes all messages that are not the next active message in order.
void Receiver::receive_unusual(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from) {
    std::byte* const message = core_.layout.message(buffer);
    const auto& header = *reinterpret_cast<const MessageHeader*>(message);
    Channel* const found = length < kHeader ? nullptr : core_.directory.channel_with(header.channel);
    if (!found || found->gates & gate::failed) [[unlikely]] { // its channel has ended
        ++dropped;
        adapter.give_back(buffer);
        return;
    }
    Channel& channel = *found;
    if ((adapter.heard != from || adapter.heard_channel != found) && !is_from(adapter, channel, header.path, from))
        [[unlikely]] {
        drop_forged(channel);
        adapter.give_back(buffer);
        return;
    }
    if (channel.wiring.recovery && is_late(adapter, channel, from)) [[unlikely]] {
        core_.services.say(LogLevel::debug, "a message of peer %016llx has come too late by a failed path: dropped",
                           static_cast<unsigned long long>(channel.uid));
        adapter.give_back(buffer);
        return;
    }
    if (channel.gates & gate::not_ready) [[unlikely]] {
        // Data may overtake the last message of the handshake, or our mail about it. The sender is ready, so we may
        // take the channel over now.
        core_.takeover.establish(channel);
        if (channel.gates & (gate::not_ready | gate::failed)) {
            ++dropped;
            adapter.give_back(buffer);
            return;
        }
    }
    if (const char* const flaw = flaw_of(message, length, (PathMask{1} << channel.wiring.places) - 1)) [[unlikely]] {
        broken(core_, channel, flaw, length);
        adapter.give_back(buffer);
        return;
    }
    take_ack(channel, header.ack);
    if (channel.gates & gate::failed) [[unlikely]] // by the user of a completion
        return adapter.give_back(buffer);
    const auto kind = static_cast<Kind>(header.kind);
    if (kind <= Kind::atomic_reply) [[likely]] {
        const std::uint32_t sequence = header.sequence;
        if (sequence != channel.expected && channel.rings) [[unlikely]] {
            core_.rings.look(channel); // the messages before it may be in the ring
            if (channel.gates & gate::failed) return adapter.give_back(buffer);
        }
        if (sequence == channel.expected && !(header.flags & flag::fenced)) [[likely]] {
            if (header.flags & flag::ack_request) answer_soon(core_, channel, header);
            if (deliver_next(core_, channel, header, [&] { return deliver(channel, buffer, length); }))
                adapter.give_back(buffer);
            else
                ++adapter.kept;
            if (channel.early_count) [[unlikely]]
                drain_early(channel);
            return;
        }
        const auto ahead = static_cast<std::int32_t>(sequence - channel.expected);
        if (ahead < 0) {
            ++channel.counts.duplicates; // delivered before: the sender has missed our acknowledgment, or this is a
                                         // late copy
            core_.acks.owe_ack(channel, true);
            channel.ack_sent = channel.expected - 1;
        } else if (static_cast<std::uint32_t>(ahead) >= core_.ring) {
            broken(core_, channel, "a message that is too far ahead of its turn", static_cast<std::uint64_t>(ahead));
        } else {
            return store_early(channel, adapter, buffer, length, sequence);
        }
        adapter.give_back(buffer);
        return;
    }
    switch (kind) {
    case Kind::ack_request:
        // It may have overtaken messages on other paths. Each of these is acknowledged when it comes.
        if (static_cast<std::int32_t>(header.sequence - channel.expected) > 0) {
            channel.ack_after = 1;
            channel.ack_until = header.sequence;
        }
        core_.acks.owe_ack(channel, true);
        if (channel.ack_sent == channel.expected) channel.ack_sent = channel.expected - 1; // the peer may know already
        break;
    case Kind::marker: {
        MarkerBody body;
        std::memcpy(&body, message + kHeader, sizeof body);
        take_marker(channel, body.number, header.path);
        if (channel.early_count) drain_early(channel);
        break;
    }
    case Kind::path_up: {
        PathUpBody body;
        std::memcpy(&body, message + kHeader, sizeof body);
        core_.observer->news.take_path_up(channel, header.path, body.life);
        break;
    }
    default:
        break; // an acknowledgment
    }
    adapter.give_back(buffer);
}

bool Receiver::deliver(Channel& channel, ReceiveBuffer* buffer, std::uint32_t length) {
    std::byte* const message = core_.layout.message(buffer);
    const auto& header = *reinterpret_cast<const MessageHeader*>(message);
    std::byte* const payload = message + kHeader;
    if (header.kind == static_cast<std::uint8_t>(Kind::am)) [[likely]] {
        const std::uint32_t bytes = payload_bytes(header, length);
        if (header.flags & flag::part) [[unlikely]] {
            core_.parts.join_part(channel, header, payload, bytes);
            return true;
        }
        return hand_over(core_, header, payload, bytes);
    }
    if (header.kind == static_cast<std::uint8_t>(Kind::atomic)) {
        AtomicRequest request;
        std::memcpy(&request, payload, sizeof request);
        core_.atomics.serve_atomic(channel, request);
    } else {
        AtomicReply reply;
        std::memcpy(&reply, payload, sizeof reply);
        if (!core_.atomics.take_reply(channel, reply)) ++dropped;
    }
    return true;
}

// -- Early messages

ReceiveBuffer* Receiver::get_stored() {
    if (!stored_free) {
        // Memory for 32 is made at a time. The senders' windows bound how many there are.
        constexpr unsigned kChunk = 32;
        auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, std::size_t{core_.layout.stride} * kChunk));
        if (!memory) return nullptr;
        for (unsigned i = 0; i < kChunk; ++i) {
            auto* buffer = new (memory + std::size_t{core_.layout.stride} * i) ReceiveBuffer{};
            buffer->adapter = ReceiveBuffer::kStored;
            keep_stored(buffer);
        }
        stored_chunks.emplace_back(memory, std::free);
    }
    ReceiveBuffer* buffer = ReceiveBuffer::of(stored_free);
    stored_free = buffer->wr.next;
    return buffer;
}

// Early messages never leave the adapter with fewer receives. A large one stays in its buffer if the adapter has a
// spare buffer to post instead. Small ones, and large ones without a spare, are copied.
void Receiver::store_early(Channel& channel, Adapter& adapter, ReceiveBuffer* from, std::uint32_t length,
                           std::uint32_t sequence) {
    const std::uint32_t mask = core_.ring - 1;
    if (!channel.early) channel.early.reset(new (std::nothrow) ReceiveBuffer*[core_.ring]());
    ReceiveBuffer* stored = nullptr;
    if (channel.early && channel.early[sequence & mask]) {
        ++channel.counts.duplicates;
        adapter.give_back(from);
    } else {
        if (channel.early && length >= kStaysFrom && adapter.may_wait(core_.layout)) {
            stored = from;
        } else {
            if (channel.early) stored = get_stored();
            if (stored) std::memcpy(core_.layout.message(stored), core_.layout.message(from), length);
            adapter.give_back(from);
        }
        // The adapter has acknowledged the message, so it would be missing for ever.
        if (!stored) {
            core_.services.say(LogLevel::error, "no memory for a message of %s that came early: its channel ends",
                               connect::describe(channel.connection).c_str());
            mark_failed(core_, channel, Status::no_memory);
            return;
        }
        const auto& header = *reinterpret_cast<const MessageHeader*>(core_.layout.message(stored));
        if (header.flags & flag::fenced)
            (void)markers_in(channel, header, core_.layout.message(stored), length); // it counts as a marker at once
        stored->length = length;
        channel.early[sequence & mask] = stored;
        ++channel.early_count;
        channel.set_live();
        ++channel.counts.early;
    }
    if (sequence == channel.expected) drain_early(channel);
}

void Receiver::drop_early(ReceiveBuffer* buffer) {
    if (buffer->adapter != ReceiveBuffer::kStored) core_.adapters[buffer->adapter].has_waited(*buffer);
    release(buffer);
}

void Receiver::drain_early(Channel& channel) {
    const std::uint32_t mask = core_.ring - 1;
    while (channel.early_count && !(channel.gates & gate::failed)) {
        ReceiveBuffer*& place = channel.early[channel.expected & mask];
        if (!place) return;
        ReceiveBuffer* buffer = place;
        const std::byte* message = core_.layout.message(buffer);
        const auto& header = *reinterpret_cast<const MessageHeader*>(message);
        if (header.flags & flag::fenced && !markers_in(channel, header, message, buffer->length)) return;
        place = nullptr;
        if (--channel.early_count == 0) channel.set_live();
        if (header.flags & flag::ack_request) answer_soon(core_, channel, header);
        if (buffer->adapter != ReceiveBuffer::kStored) core_.adapters[buffer->adapter].has_waited(*buffer);
        if (deliver_next(core_, channel, header, [&] { return deliver(channel, buffer, buffer->length); }))
            release(buffer);
    }
}

// -- Fences

namespace {
// Fence numbers wrap, and a marker that is half a round old would look newer than the present ones. So at each quarter
// of the round, markers that are older than a quarter are forgotten.
constexpr unsigned kQuarterBits = 30;
void forget_old_markers(Channel& channel, std::uint32_t now) {
    const auto is_old = [now](std::uint32_t number) { return now - number >= 1u << kQuarterBits; };
    for (unsigned i = 0; i < channel.wiring.places; ++i)
        if (std::uint32_t& last = channel.wiring.paths[i].last_marker; is_old(last)) last = 0;
    for (Channel::Markers& markers : channel.markers)
        if (is_old(markers.number)) markers = {};
}
} // namespace

void Receiver::take_marker(Channel& channel, std::uint32_t number, PathIndex path) {
    if (path >= channel.wiring.places) return;
    const auto is_newer = [number](std::uint32_t than) { return static_cast<std::int32_t>(number - than) > 0; };
    if (std::uint32_t& newest = channel.newest_marker; is_newer(newest)) {
        if ((number ^ newest) >> kQuarterBits) [[unlikely]]
            forget_old_markers(channel, number);
        newest = number;
    }
    std::uint32_t& last = channel.wiring.paths[path].last_marker;
    if (last == 0 || is_newer(last)) last = number;
    Channel::Markers& markers = channel.markers[number % Fences::kMost];
    if (markers.number != number) {
        if (markers.number && !is_newer(markers.number)) return; // late: its fence is over
        markers = {number, 0};
    }
    markers.paths |= PathMask{1} << path;
}

bool Receiver::markers_in(Channel& channel, const MessageHeader& header, const std::byte* message,
                          std::uint32_t length) {
    FenceTrailer trailer;
    std::memcpy(&trailer, message + length - sizeof trailer, sizeof trailer);
    take_marker(channel, trailer.number, header.path); // the message itself is the marker of its path
    const Channel::Markers& markers = channel.markers[trailer.number % Fences::kMost];
    return markers.number != trailer.number || (trailer.paths & ~markers.paths) == 0;
}

void Receiver::release(ReceiveBuffer* buffer) {
    if (buffer->adapter == ReceiveBuffer::kStored) {
        keep_stored(buffer);
    } else if (buffer->adapter == ReceiveBuffer::kJoined) {
        std::free(buffer);
    } else {
        core_.adapters[buffer->adapter].take_back(buffer);
    }
}

void Interface::release(void* data) {
    core_->receiver.release(core_->layout.buffer_of_message(static_cast<std::byte*>(data) - kHeader));
}

} // namespace ucx_mp::channel
