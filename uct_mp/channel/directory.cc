// Makes channels, gives them to endpoints, and lists those that end. Slow path.
#include "uct_mp/channel/directory.h"

#include <cstdlib>
#include <mutex>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

Channel::~Channel() {
    for (unsigned i = 0; core && i < core->adapter_count; ++i)
        if (core->adapters[i].heard_channel == this || core->adapters[i].knows(*this)) core->adapters[i].forget();
}

void Channel::drop_joined() {
    std::free(joining.buffer);
    joining = {};
}

Directory::Directory(Core& core) : core_(core) {
    nobody.gates = gate::not_ready | gate::failed;
    nobody.local_id = nobody.live_id = nobody.connection.local_id = ChannelTable::kMaxSlots;
}

Channel* Directory::make_channel(std::uint64_t uid) {
    // The first generation is random. Else a late message for an earlier interface would often match a new one's first
    // channels.
    std::uint32_t id = 0;
    if (!channels.next_id(static_cast<std::uint32_t>((uid ^ core_.services.now()) * 0x9e3779b97f4a7c15ull >> 52), id))
        return nullptr;
    auto made = std::make_unique<Channel>(&core_);
    Channel& channel = *made;
    channel.uid = uid;
    channel.usage.used_at = core_.services.now();
    channel.local_id = id;
    channel.connection.local_id = channel.local_id;
    channel.set_live();
    channel.connection.peer.uid = uid;
    channels.add(std::move(made));
    by_uid[uid] = &channel;
    ++unused;
    return &channel;
}

Channel* Directory::successor(Channel& channel) {
    if (!channel.ending.buried) return &channel;
    Channel* const next = make_channel(channel.uid);
    if (!next) return nullptr;
    next->connection.follow(channel.connection);
    next->self = channel.self;
    return next;
}

Channel* Directory::attach(const connect::InterfaceAddress& peer, std::string& error) {
    const std::lock_guard lock(core_.services);
    Channel* channel = nullptr;
    if (const auto known = by_uid.find(peer.uid); known != by_uid.end()) {
        // A peer that has failed may live again, or never have been dead: a new connection will tell.
        channel = successor(*known->second);
        if (!channel) {
            error = "too many peers";
            return nullptr;
        }
        channel->connection.take_address(peer); // a peer that connected to us has not told its full address
    } else {
        if (!connect::reachable(peer, core_.rails, core_.control->address())) {
            error = "no rail in the peer's subnet, or another transport or protocol version";
            return nullptr;
        }
        channel = make_channel(peer.uid);
        if (!channel) {
            error = "too many peers";
            return nullptr;
        }
        channel->connection.peer = peer;
        channel->self = peer.uid == core_.control->address().uid;
    }
    if (channel->usage.endpoints++ == 0) --unused;
    ++endpoints;
    return channel;
}

void Directory::list_ending(Channel& channel) {
    if (std::exchange(channel.ending.listed, true)) return;
    channel.ending.ending_since = core_.rounds.looks;
    core_.enlist(ending, &channel);
    core_.alert = true; // so that progress counts Rounds::looks
}

} // namespace ucx_mp::channel
