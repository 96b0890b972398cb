#include "uct_mp/channel/peers.h"

#include <algorithm>
#include <mutex>

#include "uct_mp/channel/core.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

using connect::Connection;

Connection* Peers::accept(std::uint64_t peer_uid) {
    Channel* channel = core_.directory.make_channel(peer_uid);
    return channel ? &channel->connection : nullptr;
}

// Channels to peers that no endpoint here uses are limited to Config::max_unused. Further peers wait until some of
// these are used, or have been ended since they are idle.
bool Peers::hears(std::uint64_t peer_uid) {
    // Each request makes queue pairs, and only progress destroys dropped ones. So none is taken while many wait for
    // that.
    if (core_.ends.graves.size() >= std::size_t{4} * path::kMaxPathsPerPeer) return false;
    const auto known = core_.directory.by_uid.find(peer_uid);
    if (known != core_.directory.by_uid.end()) {
        Ending& ending = known->second->ending;
        if (ending.renewing) return false;
        if (ending.parted && !ending.buried) {
            // Our side of the last connection has not ended yet. If no endpoint uses the channel, a new one replaces
            // it.
            if (known->second->usage.endpoints) return false;
            ending.buried = true;
        }
    }
    if (core_.directory.unused < core_.config.max_unused - core_.config.max_unused / 8) return true;
    core_.directory.trim_due = true;
    core_.attention.store(true, std::memory_order_relaxed);
    return core_.directory.unused < core_.config.max_unused ||
           (known != core_.directory.by_uid.end() && known->second->usage.endpoints != 0);
}

bool Peers::admits(Connection& connection) {
    return core_.admission.may_connect(core_.directory.channel_of(connection), Admission::Side::server);
}

void Peers::put(Connection& connection, Mail mail) {
    mail.channel = &core_.directory.channel_of(connection);
    core_.mail.tell(std::move(mail));
}

// If the program makes no progress, messages that the peer repeats until they are answered are dropped here.
void Peers::put_if_room(Connection& connection, Mail mail) {
    if (core_.mail.list.size() <= 64 + std::size_t{4} * core_.directory.channels.size())
        put(connection, std::move(mail));
}

void Peers::ended(Connection& connection, const connect::Goodbye& goodbye) {
    put_if_room(connection, {.what = Mail::What::ended, .goodbye = goodbye});
}

void Peers::parted(Connection& connection, connect::Answer answer) {
    core_.directory.channel_of(connection).ending.parted = answer == connect::Answer::lost;
    put(connection, {.what = Mail::What::parted, .answer = answer});
}

Connection* Peers::find(std::uint64_t peer_uid) {
    const auto found = core_.directory.by_uid.find(peer_uid);
    if (found == core_.directory.by_uid.end()) return nullptr;
    Channel* const channel = core_.directory.successor(*found->second);
    return channel ? &channel->connection : nullptr;
}

Connection* Peers::find_present(std::uint64_t peer_uid) {
    const auto found = core_.directory.by_uid.find(peer_uid);
    if (found == core_.directory.by_uid.end() || found->second->ending.buried) return nullptr;
    return &found->second->connection;
}

Connection* Peers::find_parked(std::uint64_t peer_uid) {
    Connection* const present = find_present(peer_uid);
    if (!present) return nullptr;
    const Channel& channel = core_.directory.channel_of(*present);
    return channel.parked || channel.ending.renewing ? present : nullptr;
}

Connection* Peers::find_local(std::uint32_t local_id) {
    Channel* const channel = core_.directory.channel_with(local_id);
    return channel && !channel->ending.buried ? &channel->connection : nullptr;
}

unsigned Peers::read_mail() {
    std::vector<Mail> news;
    {
        const std::lock_guard lock(core_.services);
        news.swap(core_.mail.list);
    }
    for (const Mail& m : news) take(*m.channel, m);
    return static_cast<unsigned>(news.size());
}

void Peers::take(Channel& channel, const Mail& m) {
    switch (m.what) {
    case Mail::What::established:
        core_.takeover.establish(channel);
        core_.observer->life.connected(channel);
        return core_.adaptation.connected(channel);
    case Mail::What::failed:
        return mark_failed(core_, channel, m.status);
    case Mail::What::answered:
        return core_.observer->news.hear_answer(channel, m.answer);
    case Mail::What::path:
        return core_.observer->news.take_news(channel, m.kind, m.news);
    case Mail::What::rails: {
        const std::lock_guard lock(core_.services);
        core_.control->take_rails(channel.connection, m.number, m.rails);
    }
        return core_.observer->news.rails_changed(channel);
    case Mail::What::keys:
        return core_.observer->news.take_keys(channel, m.found, m.keys);
    case Mail::What::wish:
        return core_.observer->wiring.take_wish(channel, m.wish);
    case Mail::What::verdict:
        return core_.observer->wiring.take_verdict(channel, m.number, m.found);
    case Mail::What::ring:
        return core_.rings.take_offer(channel, m.ring);
    case Mail::What::ring_verdict:
        return core_.rings.take_verdict(channel, m.number, m.found, m.until);
    case Mail::What::abandoned:
        // The peer has given up a connection that it had asked for, and our operations have waited for it. So we
        // ask now.
        channel.asked = false;
        if (channel.usage.waiting) (void)core_.sender.blocked(channel);
        if (channel.usage.endpoints == 0 && !(channel.gates & gate::failed)) core_.directory.list_ending(channel);
        break;
    case Mail::What::ended:
        return core_.endings.take_leave(channel, m.goodbye);
    case Mail::What::parted:
        return core_.endings.parted(channel, m.answer);
    }
}

void Peers::established(Connection& connection) { put(connection, {.what = Mail::What::established}); }

void Peers::failed(Connection& connection, Status status, const char* why) {
    const bool wanted = core_.directory.channel_of(connection).usage.endpoints != 0;
    core_.services.say(wanted ? LogLevel::error : LogLevel::info, "cannot connect to %s: %s",
                       connect::describe(connection).c_str(), why);
    // A peer whose control plane is silent is reported like one whose adapter is silent.
    const Status told = status == Status::timed_out ? Status::endpoint_timeout : status;
    put(connection, {.what = Mail::What::failed, .status = told});
}

void Peers::abandoned(Connection& connection) { put(connection, {.what = Mail::What::abandoned}); }

void Peers::answered(Connection& connection, connect::Answer answer) {
    put(connection, {.what = Mail::What::answered, .answer = answer});
}

bool Peers::carries_data(Connection& connection) {
    return core_.directory.channel_of(connection).wiring.prepared.taken;
}

// The peer has ended its channel with us and begins anew: it took us for dead, or was closed by force. The requests of
// our channel are lost, and a new channel takes its place.
Connection* Peers::renew(Connection& connection) {
    Channel& channel = core_.directory.channel_of(connection);
    if (channel.self) return nullptr;
    channel.ending.buried = true;
    put(connection, {.what = Mail::What::failed, .status = Status::connection_reset});
    Channel* const next = core_.directory.successor(channel);
    return next ? &next->connection : nullptr;
}

void Peers::path_news(Connection& connection, connect::NewsKind kind, const connect::PathNews& news) {
    put_if_room(connection, {.what = Mail::What::path, .kind = kind, .news = news});
}

void Peers::rails_told(Connection& connection, std::uint32_t number, const std::vector<path::RemoteRail>& list) {
    put_if_room(connection, {.what = Mail::What::rails, .number = number, .rails = list});
}

bool Peers::find_keys(std::uint64_t region, verbs::RemoteKeys& out) {
    return core_.devices.registry()->find(region, out);
}

void Peers::keys_told(connect::Connection& connection, bool found, const verbs::RemoteKeys& told) {
    put_if_room(connection, {.what = Mail::What::keys, .keys = told, .found = found});
}

void Peers::wished(Connection& connection, const connect::ServiceWish& wish) {
    put_if_room(connection, {.what = Mail::What::wish, .wish = wish});
}

void Peers::wish_answered(Connection& connection, std::uint32_t number, bool taken) {
    put_if_room(connection, {.what = Mail::What::verdict, .number = number, .found = taken});
}

void Peers::ring_offered(Connection& connection, const connect::RingOffer& offer) {
    put_if_room(connection, {.what = Mail::What::ring, .ring = offer});
}

void Peers::ring_answered(Connection& connection, std::uint32_t number, bool taken, std::uint32_t until) {
    put_if_room(connection, {.what = Mail::What::ring_verdict, .number = number, .found = taken, .until = until});
}

std::string Peers::misfit(const connect::Terms& theirs) { return channel::misfit(core_, theirs); }

} // namespace ucx_mp::channel
