// Terms that both sides agree on in the handshake, and messages that are larger than the peer's segment.
//
// Such a message goes in parts. Each has a sequence number, and they follow each other directly on one path. The
// receiver joins them. All parts find room at once, or the operation is refused.
//
// Callers: Peers and Takeover in the handshake; Sender and Interface send; Receiver joins. Sizes are bytes.
// Errors: no_resource: nothing has happened. The channel fails if memory is short, or if the peer sends parts that it
// had not announced.
// Threads: the interface's; own_terms() and misfit() also the handshake's, with the lock held. Slow path.
#pragma once

#include "uct_mp/channel/sender.h"

namespace ucx_mp::channel {

class Parts {
public:
    explicit Parts(Core& core) : core_(core) {}

    // -- The handshake
    [[nodiscard]] connect::Terms own_terms() const;
    // One line that says why we cannot connect to such a peer; empty: we can.
    [[nodiscard]] std::string misfit(const connect::Terms& theirs);
    // The connection is made: sets the window, and gate::parts if the peer's segment is smaller than ours.
    void agree(Channel& channel);
    static void set_ack_threshold(Channel& channel); // for a channel without a message ring

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
    void drop_joined(Channel& channel);

    // -- What others use
    std::unique_ptr<std::byte[]> whole; // the message that is being sent in parts; made by agree()

private:
    [[nodiscard]] std::uint32_t part_size(const Channel& channel) const;
    [[nodiscard]] unsigned most_parts(const Channel& channel) const;
    [[nodiscard]] bool grow_joined(Channel& channel, std::uint32_t bytes);

    Core& core_;
};

} // namespace ucx_mp::channel
