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

// If the program makes no progress, messages that the peer repeats until they are answered are dropped here.
bool Peers::mail_is_full() const {
    return core_.mail.list.size() > 64 + std::size_t{4} * core_.directory.channels.size();
}

void Peers::ended(Connection& connection, const connect::Goodbye& goodbye) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::ended,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .goodbye = goodbye});
}

void Peers::parted(Connection& connection, connect::Answer answer) {
    core_.directory.channel_of(connection).ending.parted = answer == connect::Answer::lost;
    core_.mail.tell({.what = Mail::What::parted,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .answer = answer});
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
    for (const Mail& m : news) {
        Channel& channel = *m.channel;
        switch (m.what) {
        case Mail::What::established:
            core_.takeover.establish(channel);
            core_.observer->life.connected(channel);
            core_.adaptation.connected(channel);
            break;
        case Mail::What::failed:
            mark_failed(core_, channel, m.status);
            break;
        case Mail::What::answered:
            core_.observer->news.hear_answer(channel, m.answer);
            break;
        case Mail::What::path:
            core_.observer->news.take_news(channel, m.kind, m.news);
            break;
        case Mail::What::rails: {
            const std::lock_guard lock(core_.services);
            core_.control->take_rails(channel.connection, m.number, m.rails);
        }
            core_.observer->news.rails_changed(channel);
            break;
        case Mail::What::keys:
            core_.observer->news.take_keys(channel, m.found, m.keys);
            break;
        case Mail::What::wish:
            core_.observer->wiring.take_wish(channel, m.wish);
            break;
        case Mail::What::verdict:
            core_.observer->wiring.take_verdict(channel, m.number, m.found);
            break;
        case Mail::What::ring:
            core_.rings.take_offer(channel, m.ring);
            break;
        case Mail::What::ring_verdict:
            core_.rings.take_verdict(channel, m.number, m.found, m.until);
            break;
        case Mail::What::abandoned:
            // The peer has given up a connection that it had asked for, and our operations have waited for it. So we
            // ask now.
            channel.asked = false;
            if (channel.usage.waiting) (void)core_.sender.blocked(channel);
            if (channel.usage.endpoints == 0 && !(channel.gates & gate::failed)) core_.directory.list_ending(channel);
            break;
        case Mail::What::ended:
            core_.endings.take_leave(channel, m.goodbye);
            break;
        case Mail::What::parted:
            core_.endings.parted(channel, m.answer);
            break;
        }
    }
    return static_cast<unsigned>(news.size());
}

void Peers::established(Connection& connection) {
    core_.mail.tell({.what = Mail::What::established, .channel = &core_.directory.channel_of(connection)});
}

void Peers::failed(Connection& connection, Status status, const char* why) {
    const bool wanted = core_.directory.channel_of(connection).usage.endpoints != 0;
    core_.services.say(wanted ? LogLevel::error : LogLevel::info, "cannot connect to %s: %s",
                       connect::describe(connection).c_str(), why);
    // A peer whose control plane is silent is reported like one whose adapter is silent.
    const Status told = status == Status::timed_out ? Status::endpoint_timeout : status;
    core_.mail.tell({.what = Mail::What::failed, .channel = &core_.directory.channel_of(connection), .status = told});
}

void Peers::abandoned(Connection& connection) {
    core_.mail.tell({.what = Mail::What::abandoned, .channel = &core_.directory.channel_of(connection)});
}

void Peers::answered(Connection& connection, connect::Answer answer) {
    core_.mail.tell(
        {.what = Mail::What::answered, .channel = &core_.directory.channel_of(connection), .answer = answer});
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
    core_.mail.tell({.what = Mail::What::failed, .channel = &channel, .status = Status::connection_reset});
    Channel* const next = core_.directory.successor(channel);
    return next ? &next->connection : nullptr;
}

void Peers::path_news(Connection& connection, connect::NewsKind kind, const connect::PathNews& news) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::path,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .kind = kind,
                     .news = news});
}

void Peers::rails_told(Connection& connection, std::uint32_t number, const std::vector<path::RemoteRail>& list) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::rails,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .number = number,
                     .rails = list});
}

bool Peers::find_keys(std::uint64_t region, verbs::RemoteKeys& out) {
    return core_.devices.registry()->find(region, out);
}

void Peers::keys_told(connect::Connection& connection, bool found, const verbs::RemoteKeys& told) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::keys,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .keys = told,
                     .found = found});
}

void Peers::wished(Connection& connection, const connect::ServiceWish& wish) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::wish,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .wish = wish});
}

void Peers::wish_answered(Connection& connection, std::uint32_t number, bool taken) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::verdict,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .number = number,
                     .found = taken});
}

void Peers::ring_offered(Connection& connection, const connect::RingOffer& offer) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::ring,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .ring = offer});
}

void Peers::ring_answered(Connection& connection, std::uint32_t number, bool taken, std::uint32_t until) {
    if (mail_is_full()) return;
    core_.mail.tell({.what = Mail::What::ring_verdict,
                     .channel = &core_.directory.channel_of(connection),
                     .status = Status::ok,
                     .number = number,
                     .found = taken,
                     .until = until});
}

std::string Peers::misfit(const connect::Terms& theirs) { return channel::misfit(core_, theirs); }

} // namespace ucx_mp::channel
