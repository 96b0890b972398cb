// Channels are made, given to endpoints and taken back. Slow path.
#include "uct_mp/channel/directory.h"

#include <mutex>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

Channel::~Channel() {
    for (unsigned i = 0; core && i < core->adapter_count; ++i)
        if (core->adapters[i].heard_channel == this) core->adapters[i].forget();
}

Directory::Directory(Core& core) : core_(core) {
    nobody.gates = gate::not_ready | gate::failed;
    nobody.local_id = nobody.live_id = nobody.connection.local_id = ChannelTable::kMaxSlots;
}

Channel* Directory::make_channel(std::uint64_t uid) {
    // The generation differs from run to run: a stranger's message does not match by chance of both being young.
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
        channel->connection.take_address(peer); // it may be known only from its request
    } else {
        if (!connect::reachable(peer, core_.rails, core_.config.transport, core_.config.min_version,
                                core_.config.max_version)) {
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

void Directory::detach(Channel& channel) {
    const std::lock_guard lock(core_.services);
    if (--endpoints == 0) core_.attention.store(true, std::memory_order_relaxed); // Ends::pool
    if (--channel.usage.endpoints != 0) return;
    ++unused;
    channel.usage.used_at = core_.services.now();
    if ((channel.gates & gate::not_ready) && !channel.self && channel.connection.state == connect::State::requesting) {
        // Nobody wants it any more, and the peer holds nothing yet that it might use: an answer that comes is refused.
        core_.control->give_up(channel.connection);
        core_.ends.drop_prepared(channel);
        core_.admission.forget(channel);
        channel.usage.granted_at = 0;
        channel.asked = false;
    }
    const bool never = (channel.gates & gate::not_ready) && channel.connection.state == connect::State::closed;
    if ((channel.gates & gate::failed) ? !channel.ending.failing : never) core_.endings.list_ending(channel);
}

// A failed channel's legacy to a successor, and things that nobody will come for.
void Directory::bury(Channel& channel) {
    const std::lock_guard lock(core_.services);
    channel.ending.buried = !channel.ending.renewing;
    const connect::State state = channel.connection.state;
    if (state == connect::State::requesting || state == connect::State::confirming ||
        state == connect::State::accepting || channel.ending.renewing)
        core_.control->forget(channel.connection);
    core_.ends.drop_prepared(channel);
    if (channel.early) {
        for (std::uint32_t i = 0; i < core_.ring; ++i)
            if (ReceiveBuffer* const buffer = std::exchange(channel.early[i], nullptr))
                core_.receiver.drop_early(buffer);
        channel.early_count = 0;
        channel.set_live();
    }
    core_.parts.drop_joined(channel);
}

} // namespace ucx_mp::channel
