// Messages that are larger than the peer's segment (Terms).
//
// Such a message goes in parts. Each has a sequence number, and they follow each other directly on one path. The
// receiver joins them. All parts find room at once, or the operation is refused.
//
// Callers: Sender and Interface send; Receiver joins. Sizes are bytes.
// Errors: no_resource: nothing has happened. The channel fails if memory is short, or if the peer sends parts that it
// had not announced.
// Threads: the interface's. Slow path.
#pragma once

#include "uct_mp/channel/sender.h"

namespace ucx_mp::channel {

class Parts {
public:
    explicit Parts(Core& core) : core_(core) {}

    // -- Sending
    [[nodiscard]] bool room_for_parts(Channel& channel);
    // Begins a message of any size. The caller then writes it to `whole`, and finish_parts() sends `length` bytes.
    Status start_parts(Channel& channel, Sender::Start& start);
    void finish_parts(Channel& channel, const Sender::Start& start, std::uint8_t am_id, std::uint32_t length);
    // Copies the message: the caller may reuse its memory on return.
    Status am_zcopy_parts(Channel& channel, std::uint8_t id, const void* header, unsigned header_length, const Iov* iov,
                          std::size_t count);

    // -- Receiving
    void join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes);

    // -- What others use
    std::unique_ptr<std::byte[]> whole; // the message that is being sent in parts

private:
    [[nodiscard]] std::uint32_t part_size(const Channel& channel) const;
    [[nodiscard]] unsigned most_parts(const Channel& channel) const;
    [[nodiscard]] bool grow_joined(Channel& channel, std::uint32_t bytes);

    Core& core_;
};

} // namespace ucx_mp::channel
