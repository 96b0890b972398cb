// The agreement of both sides in the handshake, and messages that are larger than the peer's segment.
//
// Such a message goes in parts, one number each, one right behind the other on one path; the receiver joins them. All
// parts have room at once, or the operation is refused.
//
// Callers: Peers asks and agrees; Sender and Interface send; Receiver joins. Sizes are bytes.
// Errors: no_resource: nothing has happened. The channel fails if memory is short, or the peer breaks its word.
// Threads: the interface's; own_terms() and misfit() either side of the lock, with it held. Slow path.
#pragma once

#include "uct_mp/channel/sender.h"

namespace ucx_mp::channel {

class Parts {
public:
    explicit Parts(Core& core) : core_(core) {}

    // -- The handshake
    [[nodiscard]] connect::Terms own_terms() const;
    // Why nothing can be exchanged with such a peer, as one line; empty: it fits.
    [[nodiscard]] std::string misfit(const connect::Terms& theirs);
    // The connection is made and its terms fit: sets the window, and the gate if parts are needed.
    void agree(Channel& channel);
    static void set_ack_threshold(Channel& channel); // what it is without a ring

    // -- Sending
    [[nodiscard]] bool room_for_parts(Channel& channel);
    // Begins a message of any size. Its bytes are then written to `whole`, and finish_parts() sends them.
    Status start_parts(Channel& channel, Sender::Start& start);
    void finish_parts(Channel& channel, const Sender::Start& start, std::uint8_t am_id,
                      std::uint32_t length); // of `whole`
    // Copies: the caller has its memory back at once.
    Status am_zcopy_parts(Channel& channel, std::uint8_t id, const void* header, unsigned header_length, const Iov* iov,
                          std::size_t count);

    // -- Receiving
    void join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes);
    void drop_joined(Channel& channel);

    // -- What others use
    std::unique_ptr<std::byte[]> whole; // a message that goes in parts; made when first needed

private:
    [[nodiscard]] std::uint32_t part_size(const Channel& channel) const;
    [[nodiscard]] unsigned most_parts(const Channel& channel) const;
    [[nodiscard]] bool grow_joined(Channel& channel, std::uint32_t bytes);

    Core& core_;
};

} // namespace ucx_mp::channel
