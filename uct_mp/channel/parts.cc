// Each side tells its limits in the handshake (connect/wire.h, Terms), and both use the smaller window. The segment
// cannot be lowered for one peer: UCT has one limit for all peers. So a message that is too large for the peer's
// receive buffers goes in parts. All parts must fit into the queue and the window at once. If the settings of two
// interfaces never allow that, they do not connect (misfit()).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

connect::Terms Parts::own_terms() const {
    const std::uint64_t without =
        (core_.config.recovery.enabled ? 0 : connect::feature::on_demand) |
        (core_.has_rings() ? 0 : connect::feature::rings) |
        (core_.config.recovery.packet_numbers && !core_.config.recovery.untested ? 0
                                                                                 : connect::feature::packet_numbers);
    return {.features = connect::feature::known & core_.config.features & ~without,
            .probe_address = reinterpret_cast<std::uint64_t>(core_.ends.probe_bytes),
            .window = core_.config.window,
            .ring = core_.ring,
            .segment = core_.config.segment + kMaxUserHeader,
            .kinds = core_.kinds};
}

namespace {

[[nodiscard]] std::uint32_t common_window(const connect::Terms& a, const connect::Terms& b) {
    return std::min(std::min(a.window, b.window), std::min(a.ring, b.ring));
}

// The bytes of a part between sides with these segments. A part is sent without a user's header of its own.
[[nodiscard]] std::uint32_t part_between(std::uint32_t from, std::uint32_t to) {
    return std::max(1u, std::min(to, from - std::min(from, kMaxUserHeader)));
}
[[nodiscard]] std::uint64_t parts_between(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t part = part_between(from, to);
    return (std::uint64_t{from} + part - 1) / part;
}

} // namespace

void Parts::agree(Channel& channel) {
    const connect::Connection& connection = channel.connection;
    const connect::Terms ours = own_terms(), theirs{.window = connection.peer_window,
                                                    .ring = connection.peer_ring,
                                                    .segment = connection.peer_segment};
    channel.window = common_window(ours, theirs);
    set_ack_threshold(channel);
    if (theirs.segment >= ours.segment) return;
    channel.gates |= gate::parts;
    if (!whole) whole = std::make_unique<std::byte[]>(ours.segment);
    core_.services.say(LogLevel::info, "SEG_SIZE is %u here and %u at %s: large messages go in up to %u parts",
                       core_.config.segment, theirs.segment - std::min(theirs.segment, kMaxUserHeader),
                       connect::describe(channel.connection).c_str(), most_parts(channel));
}

// The peer stops sending when a whole window is not acknowledged, so acknowledgments go well before that.
void Parts::set_ack_threshold(Channel& channel) { channel.ack_threshold = std::max(1u, channel.window / 4); }

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
    if (room_for_parts(channel)) return core_.sender.start_gated(channel, core_.large, 0, start);
    // The room may be there already, but neither the peer nor our adapter tells before it is asked.
    if (std::exchange(channel.moving.parts_asked, channel.next_sequence + 1) != channel.next_sequence + 1) {
        if (channel.in_flight()) (void)core_.sender.send_ack(channel, Kind::ack_request);
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
        if (!next) return core_.failures.fail_channel(channel, Status::no_memory); // room_for_parts() has checked it
        Buffer& buffer = *next;
        std::memcpy(buffer.data() + kHeader, from, bytes);
        core_.sender.compose(channel, buffer, start.path, Kind::am, am_id, kHeader + bytes, flags);
        if (start.queue->room(1)) {
            core_.sender.post_message(channel, buffer, *start.queue, start.path, 0);
        } else { // the path has failed with an earlier part: this one goes again with it
            buffer.path = kNoPath;
            core_.observer->not_posted(channel);
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

void Parts::drop_joined(Channel& channel) {
    std::free(channel.joining.buffer);
    channel.joining = {};
}

void Parts::join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes) {
    auto& joining = channel.joining;
    const std::uint64_t total = std::uint64_t{joining.bytes} + bytes;
    if (!(channel.connection.features & connect::feature::parts) || total > channel.connection.peer_segment)
        return core_.receiver.broken(channel, "parts of a message that is larger than it has told", total);
    if ((!joining.buffer || total > joining.capacity) && !grow_joined(channel, static_cast<std::uint32_t>(total))) {
        core_.services.say(LogLevel::error, "no memory for a message of %llu bytes of %s: its channel ends",
                           static_cast<unsigned long long>(total), connect::describe(channel.connection).c_str());
        return core_.failures.fail_channel(channel, Status::no_memory);
    }
    std::memcpy(core_.layout.message(joining.buffer) + kHeader + joining.bytes, payload, bytes);
    joining.bytes = static_cast<std::uint32_t>(total);
    if (header.flags & flag::more) return;
    ReceiveBuffer* const buffer = std::exchange(joining, {}).buffer; // the handler may end the channel
    if (Receiver::hand_over(core_, header, core_.layout.message(buffer) + kHeader, static_cast<std::uint32_t>(total)))
        std::free(buffer);
}

std::string Parts::misfit(const connect::Terms& theirs) {
    const connect::Terms ours = own_terms();
    // Without feature::kinds the peer sends as if we had only the transport's own kind of paths: with tags for mp_dc,
    // without for mp_rc.
    const path::Kind own = core_.config.transport == connect::Transport::dc ? path::Kind::dc : path::Kind::rc;
    if (!(theirs.features & connect::feature::kinds) &&
        (!path::has(core_.kinds, own) || core_.has_targets() != (own == path::Kind::dc)))
        return "it does not know paths of several kinds";
    if (theirs.segment == ours.segment) return {};
    const auto size = [](std::uint32_t segment) { return std::to_string(segment - std::min(segment, kMaxUserHeader)); };
    const std::string sizes = "SEG_SIZE is " + size(ours.segment) + " here and " + size(theirs.segment) + " there: ";
    if (!(theirs.features & ours.features & connect::feature::parts))
        return sizes + "with such a peer they must be the same";
    const std::uint64_t parts = theirs.segment < ours.segment ? parts_between(ours.segment, theirs.segment)
                                                              : parts_between(theirs.segment, ours.segment);
    const std::uint32_t window = common_window(ours, theirs);
    if (parts > window)
        return sizes + "a message would have " + std::to_string(parts) + " parts, and TX_WINDOW allows " +
               std::to_string(window);
    const std::uint64_t requests = parts + SendQueue::kReserve + (core_.has_targets() ? path::kMaxPathsPerPeer : 0);
    if (theirs.segment < ours.segment && requests > core_.config.send_depth)
        return sizes + "a message would take " + std::to_string(requests) + " requests, and TX_QUEUE_LEN allows " +
               std::to_string(core_.config.send_depth);
    if (theirs.segment < ours.segment && parts > core_.config.max_send_buffers)
        return sizes + "a message would have " + std::to_string(parts) + " parts, and TX_MAX_BUFS allows " +
               std::to_string(core_.config.max_send_buffers);
    if (theirs.segment < core_.limits.max_am_short)
        return sizes + "short messages have up to " + std::to_string(core_.limits.max_am_short) + " bytes (MAX_INLINE)";
    return {};
}

} // namespace ucx_mp::channel
