// What both sides agree on, and messages that are larger than the segment of the peer.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/sender.h"

namespace ucx_mp::channel {

class Parts {
public:
    explicit Parts(Core& core) : core_(core) {}
    [[nodiscard]] connect::Terms own_terms() const;
    [[nodiscard]] std::string misfit(const connect::Terms& theirs); // why nothing can be exchanged with such a peer
    void agree(Channel& channel);
    [[nodiscard]] bool room_for_parts(Channel& channel);
    Status start_parts(Channel& channel, Sender::Start& start);
    void finish_parts(Channel& channel, const Sender::Start& start, std::uint8_t am_id,
                      std::uint32_t length); // of `whole`
    Status am_zcopy_parts(Channel& channel, std::uint8_t id, const void* header, unsigned header_length, const Iov* iov,
                          std::size_t count);
    void join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes);
    void drop_joined(Channel& channel);
    std::unique_ptr<std::byte[]> whole; // a message that goes in parts; made when first needed

private:
    [[nodiscard]] std::uint32_t part_size(const Channel& channel) const;
    [[nodiscard]] unsigned most_parts(const Channel& channel) const;
    [[nodiscard]] bool grow_joined(Channel& channel, std::uint32_t bytes);
    Core& core_;
};

} // namespace ucx_mp::channel
