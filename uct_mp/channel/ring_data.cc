// Sending and receiving a message by a ring. Data path.
#include <bit>
#include <cstring>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

// -- Sending

// Only the post differs from a usual message. A slot is free if the message after its last one has been acknowledged,
// too. A handler reads its message in place, and the messages that it sends acknowledge that message already.
Status Sender::start_ring(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start) {
    const Status status = start_plain(channel, pool, size, start);
    if (channel.in_flight() + 1 < channel.rings->out.shape.slots) start.way = Start::Way::ring;
    return status;
}

void Sender::finish_other(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                          std::uint8_t flags) {
    if (start.way == Start::Way::fenced) return finish_fenced(channel, start, kind, am_id, length, flags);
    if (kind == Kind::am && flags == 0 && length <= channel.rings->out.shape.longest()) [[likely]]
        return finish_ring(channel, start, am_id, length);
    Start plain = start;
    plain.way = Start::Way::plain;
    finish_message(channel, plain, kind, am_id, length, flags);
}

void Sender::finish_ring(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length) {
    RingOut& ring = channel.rings->out;
    const std::uint32_t sequence = channel.next_sequence;
    Buffer& buffer = *start.buffer;
    compose(channel, buffer, start.path, Kind::am, am_id, length, 0);
    const std::uint32_t bytes = link::seal_ring_message(buffer.data(), length, sequence, ring.key);
    if (bytes > start.placed && !channel.wiring.only)
        channel.wiring.scheduler->place_rest(start.path, Direction::write, bytes - start.placed);
    ++ring.messages;
    ++ring.aside;
    const link::RemotePiece to{ring.address + ring.shape.end_of(sequence) - bytes,
                               ring.rkey[channel.wiring.paths[start.path].remote_device]};
    post_ring(channel, buffer, *start.queue, start.path, to,
              start.queue->signal_due() || bytes >= schedule::PathTable::kRateBytes);
}

// Posts to any kind of queue pair. Also for messages that begin or end a group with one completion.
void Sender::post_ring(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, const link::RemotePiece& to,
                       bool signaled) {
    const std::uint32_t bytes = link::ring_bytes(buffer.length);
    Path& sub = channel.wiring.paths[path];
    sub.open += queue.dc;
    const Nanos t_post = signaled && !channel.wiring.only ? core_.services.now() : 0;
    ++channel.epoch_open[channel.epoch];
    if (!queue.write_whole({&channel, path, channel.epoch}, sub.dc, buffer,
                           {.to = to, .bytes = bytes, .signaled = signaled, .t_post = t_post})) [[unlikely]]
        post_refused(core_, channel, queue,
                     {.channel = &channel, .bytes = bytes, .path = path, .epoch = channel.epoch});
}

void Sender::post_ring_refused(Channel& channel, SendQueue& queue) {
    const Buffer& buffer = *channel.wiring.retained[(channel.next_sequence - 1) & channel.window_mask];
    const std::uint32_t bytes = link::ring_bytes(buffer.length);
    (void)queue.take_back(bytes, true);
    post_refused(core_, channel, queue,
                 {.channel = &channel, .bytes = bytes, .path = buffer.path, .epoch = channel.epoch});
}

// -- Receiving

// Handlers read in place, and cannot keep the memory. The peer could write there again, so the header is read only
// once.
unsigned Receiver::take_from_ring(RingIn& ring) {
    // Local copies, which no handler can change. They are constant for the life of the ring.
    const link::RingShape shape = ring.shape;
    std::byte* const memory = ring.memory;
    const std::uint64_t key = ring.key;
    unsigned n = 0;
    while (Channel* const found = ring.channel) {
        Channel& channel = *found;
        if (channel.gates & (gate::failed | gate::not_ready)) [[unlikely]]
            break;
        const std::uint32_t sequence = channel.expected;
        std::byte* message;
        std::uint32_t length;
        const link::RingEntry entry = link::look_into_ring(memory, shape, key, sequence, kHeader, message, length);
        if (entry == link::RingEntry::none) {
            ++core_.rings.misses;
            break;
        }
        // A MessageHeader as two words, see compose(). Handler id and path vary; all other fields are compared at once.
        std::uint64_t words[2] = {};
        if (entry == link::RingEntry::message) [[likely]]
            std::memcpy(words, message, sizeof words);
        static_assert(std::has_single_bit(kAmIds));
        constexpr std::uint64_t kVaries = std::uint64_t{kAmIds - 1} << 16 | std::uint64_t{0xff} << 24;
        if ((words[0] & ~kVaries) != (std::uint64_t{channel.local_id} << 32 | kPlainAm) ||
            static_cast<std::uint32_t>(words[1]) != sequence) [[unlikely]] {
            core_.rings.garbled(channel);
            break;
        }
        const auto header = std::bit_cast<MessageHeader>(words);
        (void)deliver_next(
            core_, channel, header, [&]() __attribute__((always_inline)) {
                if (header.ack != channel.ack_seen) {
                    channel.ack_seen = header.ack;
                    take_ack(channel, header.ack);
                }
                const AmHandler& handler = core_.handlers[header.am_id];
                (void)handler.callback(handler.arg, message + kHeader, length - kHeader, 0);
                return true;
            });
        if (channel.early_count) [[unlikely]]
            drain_early(channel);
        if (++n == shape.slots) break; // other rings have their turn
    }
    ring.messages += n;
    core_.rings.hits += n;
    return n;
}

} // namespace ucx_mp::channel
