// The channels of an interface: by id for messages, by uid for everybody else.
//
// Threads: the interface's.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/table.h"

namespace ucx_mp::channel {

class Directory {
public:
    explicit Directory(Core& core);
    Channel* attach(const connect::InterfaceAddress& peer, std::string& error);
    void detach(Channel& channel);
    Channel* make_channel(std::uint64_t uid);
    // The channel that has taken or takes the place of one that is buried; itself if it is not. With the lock held.
    Channel* successor(Channel& channel);
    void bury(Channel& channel);
    unsigned connected = 0; // channels that have been established, and not been given back
    unsigned unused = 0;    // channels without an endpoint. Under the lock
    // Ids carry a generation, so that late messages of an earlier run are recognised.
    Channel nobody; // in free slots
    ChannelTable channels{nobody};
    // The channel with this id of ours; null: there is none.
    [[nodiscard]] Channel* channel_with(std::uint32_t id) const {
        const std::uint32_t slot = id & kSlotMask;
        if (slot >= channels.size()) return nullptr;
        Channel* channel = channels[slot];
        return channel->local_id == id ? channel : nullptr;
    }
    // Under the lock
    std::unordered_map<std::uint64_t, Channel*> by_uid;

private:
    Core& core_;
};

} // namespace ucx_mp::channel
