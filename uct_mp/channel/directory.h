// The channels of an interface: by id for messages, by the peer's uid for everybody else.
//
// Ownership: it owns all channels. attach() and Endings::detach() count the endpoints of one. A channel without
// endpoints stays until Endings takes it back.
//
// Callers: Interface attaches, Peers makes channels for the handshake; whoever finds that one ends lists it.
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
    // A new one with the next free id. Null: the table is full.
    Channel* make_channel(std::uint64_t uid);
    // The channel that takes the place of a buried one, made if need be; itself if it is not buried.
    Channel* successor(Channel& channel);
    // Endings gives it back when progress has its turn, if nobody uses it then.
    void list_ending(Channel& channel);

    // -- What others read
    unsigned connected = 0;    // channels that have been established, and not been given back
    unsigned unused = 0;       // channels without an endpoint. Under the lock
    unsigned endpoints = 0;    // in all channels; the same
    schedule::Commons commons; // of the channels' schedulers, see there. Before them
    Channel nobody;            // stands in free slots, and matches no message
    // Ids carry a generation, so that late messages of an earlier run are recognised.
    ChannelTable channels{nobody};
    // The channel with this id of ours; null: there is none.
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
    std::vector<Channel*> ending; // failed or unused, and to be given back
    bool trim_due = false;        // there are many of those that are unused. Under the lock
    std::uint64_t parks = 0;      // connections that have been taken away, and their channels have stayed

private:
    Core& core_;
};

} // namespace ucx_mp::channel
