// The channels of an interface. Messages name them by id. The handshake and attach() name them by the peer's uid.
//
// Ownership: it owns all channels. attach() and Endings::detach() count the endpoints of a channel. A channel without
// endpoints stays until Endings removes it.
//
// Callers: Interface attaches, Peers makes channels for the handshake. Any part lists a channel that ends.
// Threads: the interface's. make_channel() and successor() want the lock held; attach() takes it.
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

    // -- Operations
    // See Interface::attach().
    Channel* attach(const connect::InterfaceAddress& peer, std::string& error);
    // Makes a channel with the next free id. Null: the table is full.
    Channel* make_channel(std::uint64_t uid);
    // The channel itself, or a new one in its place if it is buried. Null: the table is full.
    Channel* successor(Channel& channel);
    // Progress removes the channel (Endings::end_channels), unless it is used again by then.
    void list_ending(Channel& channel);

    // -- What others read
    unsigned connected = 0;    // channels with a connection that has not been taken away yet
    unsigned unused = 0;       // channels without an endpoint. Under the lock
    unsigned endpoints = 0;    // of all channels. Under the lock
    schedule::Commons commons; // shared by the channels' schedulers, so declared before the channels
    Channel nobody;            // stands in free slots, and matches no message
    // Ids carry a generation, so that late messages to an earlier user of the slot are recognised.
    ChannelTable channels{nobody};
    // The channel with this local_id. Null: there is none.
    [[nodiscard]] Channel* channel_with(std::uint32_t id) const {
        const std::uint32_t slot = id & kSlotMask;
        if (slot >= channels.size()) return nullptr;
        Channel* channel = channels[slot];
        return channel->local_id == id ? channel : nullptr;
    }
    std::unordered_map<std::uint64_t, Channel*> by_uid; // the newest of each peer. Under the lock

    [[nodiscard]] Channel& channel_of(const connect::Connection& connection) const {
        return *channels[connection.local_id & kSlotMask];
    }
    std::vector<Channel*> ending; // failed, unused or renewing: to be removed, or to begin anew
    bool trim_due = false;        // Endings::trim_unused() is. Under the lock
    std::uint64_t parks = 0;      // how often channels have been parked

private:
    Core& core_;
};

} // namespace ucx_mp::channel
