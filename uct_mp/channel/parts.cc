// All parts must fit into the queue and the window at once. If the settings of two interfaces never allow that, they do
// not connect (misfit()).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

// -- Sending

std::uint32_t Parts::part_size(const Channel& channel) const {
    return part_between(core_.config.segment + kMaxUserHeader, channel.connection.peer_segment);
}

unsigned Parts::most_parts(const Channel& channel) const {
    return static_cast<unsigned>(parts_between(core_.config.segment + kMaxUserHeader, channel.connection.peer_segment));
}

// The message may take any usable path, so all must have room. A queue needs room for the parts, for the reserve of
// SendQueue::room(), and for markers of all paths, which may share an initiator.
bool Parts::room_for_parts(Channel& channel) {
    const unsigned parts = most_parts(channel);
    if (channel.in_flight() + parts > channel.window || !core_.large.available(parts)) return false;
    const unsigned requests = parts + SendQueue::kReserve + (channel.wiring.has_dc ? channel.wiring.path_count : 0);
    if (channel.wiring.only) return channel.wiring.only->room(requests);
    for (const PathIndex path : schedule::each(channel.wiring.scheduler->paths().usable(Direction::write)))
        if (!core_.placement.path_has_room(channel, path, Direction::write, requests)) return false;
    return true;
}

Status Parts::start_parts(Channel& channel, Sender::Start& start) {
    if (const Status status = core_.sender.pass_gate_message(channel); status != Status::ok) return status;
    if (!whole) whole = std::make_unique<std::byte[]>(core_.config.segment + kMaxUserHeader);
    if (room_for_parts(channel)) return core_.sender.start_gated(channel, core_.large, 0, start);
    // The room may be there already, but neither the peer nor our adapter tells before it is asked.
    if (std::exchange(channel.moving.parts_asked, channel.next_sequence + 1) != channel.next_sequence + 1) {
        if (channel.in_flight()) (void)core_.acks.send_ack(channel, Kind::ack_request);
        (void)core_.epochs.push_out(channel);
    }
    return Status::no_resource;
}

void Parts::finish_parts(Channel& channel, const Sender::Start& start, std::uint8_t am_id, std::uint32_t length) {
    const std::uint32_t segment = part_size(channel);
    const std::byte* from = whole.get();
    std::uint32_t left = length, bytes = std::min(left, segment);
    std::memcpy(start.buffer->data() + kHeader, from, bytes);
    std::uint8_t flags = left > segment ? flag::part | flag::more : 0;
    core_.sender.finish_message(channel, start, Kind::am, am_id, kHeader + bytes, flags); // it carries the fence
    while ((left -= bytes) != 0 && !(channel.gates & gate::failed)) {
        from += bytes;
        bytes = std::min(left, segment);
        flags = left > segment ? flag::part | flag::more : flag::part;
        Buffer* const next = core_.large.get();
        if (!next) return mark_failed(core_, channel, Status::no_memory); // room_for_parts() has checked it
        Buffer& buffer = *next;
        std::memcpy(buffer.data() + kHeader, from, bytes);
        core_.sender.compose(channel, buffer, start.path, Kind::am, am_id, kHeader + bytes, flags);
        if (start.queue->room(1)) {
            core_.sender.post_message(channel, buffer, *start.queue, start.path, 0);
        } else { // the path has failed with an earlier part: this one goes again with it
            buffer.path = kNoPath;
            core_.observer->repeats.not_posted(channel);
        }
    }
}

Status Parts::am_zcopy_parts(Channel& channel, std::uint8_t id, const void* header, unsigned header_length,
                             const Iov* iov, std::size_t count) {
    Sender::Start start;
    if (const Status status = start_parts(channel, start); status != Status::ok) return status;
    std::byte* to = whole.get();
    const auto add = [&](const void* data, std::size_t bytes) {
        if (bytes) std::memcpy(to, data, bytes);
        to += bytes;
    };
    add(header, header_length);
    for (std::size_t i = 0; i < count; ++i) add(iov[i].buffer, iov[i].length);
    finish_parts(channel, start, id, static_cast<std::uint32_t>(to - whole.get()));
    return Status::ok;
}

// -- Receiving

// Grows in doubling steps: the peer's announced maximum alone is no reason to take so much memory.
bool Parts::grow_joined(Channel& channel, std::uint32_t bytes) {
    auto& joining = channel.joining;
    const std::uint64_t wanted = std::max<std::uint64_t>(bytes, 2 * std::uint64_t{joining.capacity});
    const auto capacity = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, channel.connection.peer_segment));
    const std::size_t size = (core_.layout.message_offset + kHeader + std::size_t{capacity} + 63) / 64 * 64;
    void* const memory = std::aligned_alloc(64, size);
    if (!memory) return false;
    auto* const larger = new (memory) ReceiveBuffer{};
    larger->adapter = ReceiveBuffer::kJoined;
    if (joining.buffer) {
        std::memcpy(core_.layout.message(larger) + kHeader, core_.layout.message(joining.buffer) + kHeader,
                    joining.bytes);
        std::free(joining.buffer);
    }
    joining.buffer = larger;
    joining.capacity = capacity;
    return true;
}

void Parts::join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes) {
    auto& joining = channel.joining;
    const std::uint64_t total = std::uint64_t{joining.bytes} + bytes;
    if (!(channel.connection.features & connect::feature::parts) || total > channel.connection.peer_segment)
        return broken(core_, channel, "parts of a message that is larger than it has told", total);
    if ((!joining.buffer || total > joining.capacity) && !grow_joined(channel, static_cast<std::uint32_t>(total))) {
        core_.services.say(LogLevel::error, "no memory for a message of %llu bytes of %s: its channel ends",
                           static_cast<unsigned long long>(total), connect::describe(channel.connection).c_str());
        return mark_failed(core_, channel, Status::no_memory);
    }
    std::memcpy(core_.layout.message(joining.buffer) + kHeader + joining.bytes, payload, bytes);
    joining.bytes = static_cast<std::uint32_t>(total);
    if (header.flags & flag::more) return;
    ReceiveBuffer* const buffer = std::exchange(joining, {}).buffer; // the handler may end the channel
    if (hand_over(core_, header, core_.layout.message(buffer) + kHeader, static_cast<std::uint32_t>(total)))
        std::free(buffer);
}

} // namespace ucx_mp::channel
