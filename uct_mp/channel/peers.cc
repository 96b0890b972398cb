#include "uct_mp/channel/peers.h"

#include <algorithm>
#include <mutex>

#include "uct_mp/channel/core.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

using connect::Connection;

Channel& Peers::channel_of(Connection& connection) {
    return *core_.directory.channels[connection.local_id & kSlotMask];
}

Connection* Peers::accept(std::uint64_t peer_uid) {
    Channel* channel = core_.directory.make_channel(peer_uid);
    return channel ? &channel->connection : nullptr;
}

// Peers that nobody here has an endpoint to are so many at most, whoever they are: others wait until some of those are
// used, or idle and ended.
bool Peers::hears(std::uint64_t peer_uid) {
    // Requests make queue pairs, and only progress ends those that were dropped: no more of them before it has.
    if (core_.ends.graves.size() >= std::size_t{4} * path::kMaxPathsPerPeer) return false;
    const auto known = core_.directory.by_uid.find(peer_uid);
    if (known != core_.directory.by_uid.end()) {
        Ending& ending = known->second->ending;
        if (ending.renewing) return false;
        if (ending.parted && !ending.buried) {
            // Ours has not ended yet. One that no endpoint uses need not be waited for: another takes its place.
            if (known->second->usage.endpoints) return false;
            ending.buried = true;
        }
    }
    if (core_.directory.unused < core_.config.max_unused - core_.config.max_unused / 8) return true;
    core_.endings.trim_due = true;
    core_.attention.store(true, std::memory_order_relaxed);
    return core_.directory.unused < core_.config.max_unused ||
           (known != core_.directory.by_uid.end() && known->second->usage.endpoints != 0);
}

bool Peers::admits(Connection& connection) {
    return core_.admission.may_connect(channel_of(connection), Admission::Side::server);
}

// What a peer repeats until it is answered is taken later, if the program makes no progress meanwhile.
bool Peers::mail_is_full() const { return mail.size() > 64 + std::size_t{4} * core_.directory.channels.size(); }

void Peers::ended(Connection& connection, const connect::Goodbye& goodbye) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::ended, .channel = &channel_of(connection), .status = Status::ok, .goodbye = goodbye});
}

void Peers::parted(Connection& connection, connect::Answer answer) {
    channel_of(connection).ending.parted = answer == connect::Answer::lost;
    tell({.what = Mail::What::parted, .channel = &channel_of(connection), .status = Status::ok, .answer = answer});
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
    const Channel& channel = channel_of(*present);
    return channel.parked || channel.ending.renewing ? present : nullptr;
}

Connection* Peers::find_local(std::uint32_t local_id) {
    Channel* const channel = core_.directory.channel_with(local_id);
    return channel && !channel->ending.buried ? &channel->connection : nullptr;
}

void Peers::tell(Mail news) {
    mail.push_back(std::move(news));
    core_.attention.store(true, std::memory_order_relaxed);
}

unsigned Peers::read_mail() {
    std::vector<Mail> news;
    {
        const std::lock_guard lock(core_.services);
        news.swap(mail);
    }
    for (const Mail& m : news) {
        Channel& channel = *m.channel;
        switch (m.what) {
        case Mail::What::established:
            establish(channel);
            core_.observer->connected(channel);
            core_.adaptation.connected(channel);
            break;
        case Mail::What::failed:
            core_.failures.fail_channel(channel, m.status);
            break;
        case Mail::What::answered:
            core_.observer->hear_answer(channel, m.answer);
            break;
        case Mail::What::path:
            core_.observer->take_news(channel, m.kind, m.news);
            break;
        case Mail::What::rails: {
            const std::lock_guard lock(core_.services);
            core_.control->take_rails(channel.connection, m.number, m.rails);
        }
            core_.observer->rails_changed(channel);
            break;
        case Mail::What::keys:
            core_.observer->take_keys(channel, m.found, m.keys);
            break;
        case Mail::What::wish:
            core_.observer->take_wish(channel, m.wish);
            break;
        case Mail::What::verdict:
            core_.observer->take_verdict(channel, m.number, m.found);
            break;
        case Mail::What::ring:
            core_.rings.take_offer(channel, m.ring);
            break;
        case Mail::What::ring_verdict:
            core_.rings.take_verdict(channel, m.number, m.found, m.until);
            break;
        case Mail::What::abandoned:
            // The peer had wanted a connection, and what we have to send has waited for that.
            channel.asked = false;
            if (channel.usage.waiting) (void)core_.sender.blocked(channel);
            if (channel.usage.endpoints == 0 && !(channel.gates & gate::failed)) core_.endings.list_ending(channel);
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
    tell({.what = Mail::What::established, .channel = &channel_of(connection)});
}

void Peers::failed(Connection& connection, Status status, const char* why) {
    const bool wanted = channel_of(connection).usage.endpoints != 0;
    core_.services.say(wanted ? LogLevel::error : LogLevel::info, "cannot connect to %s: %s",
                       connect::describe(connection).c_str(), why);
    // A silent peer is as good as one whose adapter is silent.
    const Status told = status == Status::timed_out ? Status::endpoint_timeout : status;
    tell({.what = Mail::What::failed, .channel = &channel_of(connection), .status = told});
}

void Peers::abandoned(Connection& connection) {
    tell({.what = Mail::What::abandoned, .channel = &channel_of(connection)});
}

void Peers::answered(Connection& connection, connect::Answer answer) {
    tell({.what = Mail::What::answered, .channel = &channel_of(connection), .answer = answer});
}

bool Peers::carries_data(Connection& connection) { return channel_of(connection).wiring.prepared.taken; }

// The peer has ended its channel with us (it was told that we had failed, or has been made to close by force) and
// begins anew. What is outstanding on ours is lost, and a new one takes its place.
Connection* Peers::renew(Connection& connection) {
    Channel& channel = channel_of(connection);
    if (channel.self) return nullptr;
    channel.ending.buried = true;
    tell({.what = Mail::What::failed, .channel = &channel, .status = Status::connection_reset});
    Channel* const next = core_.directory.successor(channel);
    return next ? &next->connection : nullptr;
}

void Peers::establish(Channel& channel) {
    const std::lock_guard lock(core_.services);
    Connection& connection = channel.connection;
    if (!(channel.gates & gate::not_ready) || (channel.gates & gate::failed) || !channel.wiring.prepared.paths) return;
    if (connection.state != connect::State::established && connection.state != connect::State::confirming) return;
    channel.wiring.paths = std::move(channel.wiring.prepared.paths);
    channel.wiring.places = channel.wiring.prepared.count;
    channel.wiring.has_dc =
        std::ranges::any_of(connection.paths, [](const path::PathSpec& path) { return path.kind == path::Kind::dc; });
    // A single path is the only one until another joins it: recover/joining.h.
    const bool plain = !channel.wiring.has_dc && !connection.wants_tag();
    channel.wiring.path_count = plain && channel.wiring.places == connection.absent + 1 ? 1 : channel.wiring.places;
    channel.wiring.prepared.taken = true;
    std::vector<schedule::PathSetup> setup(channel.wiring.places);
    for (unsigned i = 0; i < channel.wiring.places; ++i) {
        const double rate = std::min(core_.rails[channel.wiring.paths[i].rail].rate, connection.remote_rail(i).rate);
        setup[i].rail = channel.wiring.paths[i].rail;
        setup[i].writes = connection.paths[i].writes;
        setup[i].reads = connection.paths[i].reads;
        if (connection.is_absent(i)) {
            setup[i].state = schedule::PathState::down;
            channel.wiring.paths[i].phase = path::Phase::absent;
            continue;
        }
        setup[i].nominal_rate = rate;
        setup[i].rail_rate = rate;
        setup[i].weight = core_.config.policy.weight(setup[i].rail, connection.routes_of_rail(i), rate);
    }
    channel.wiring.scheduler.emplace(core_.config.policy, setup, static_cast<unsigned>(connection.local_id & kSlotMask),
                                     &core_.directory.commons);
    channel.wiring.retained = std::make_unique<Buffer*[]>(core_.ring);
    core_.parts.agree(channel);
    channel.window_mask = core_.ring - 1;
    channel.remote_id = connection.remote_id;
    channel.header = std::uint64_t{connection.remote_id} << 32 | kWireVersion << 4;
    core_.visibility.note_devices(channel);
    if (channel.wiring.path_count == 1 && plain) {
        channel.wiring.only = channel.wiring.paths[0].queue[0];
        channel.wiring.only->sole = true;
        // Completions teach nothing here: as few as keep the queue from filling.
        channel.wiring.only->set_signal_interval(
            std::max(core_.config.signal_interval, std::min(64u, core_.config.send_depth / 4)));
    }
    channel.wiring.by_lane = channel.wiring.path_count > 1 && plain;
    channel.gates &= ~gate::not_ready;
    channel.parked = false;
    channel.set_live();
    ++core_.directory.connected;
    core_.progress.provide_due = true;
    core_.due |= due::lists;
    core_.admission.connected(channel);
    core_.observer->established(channel);
    core_.services.say(LogLevel::debug, "channel %u to %016llx: %u paths, %u not yet, %s", channel.local_id & kSlotMask,
                       static_cast<unsigned long long>(connection.peer.uid), unsigned{channel.wiring.places},
                       unsigned{connection.absent},
                       channel.self        ? "self"
                       : connection.server ? "server"
                                           : "client");
}

void Peers::describe_self(Connection& connection) const {
    connection.names = core_.config.names;
    connection.names.ports = connect::port_names(core_.rails);
    connection.remote_rails.clear();
    for (const verbs::Rail& rail : core_.rails) {
        path::RemoteRail& remote = connection.remote_rails.emplace_back(path::describe(rail));
        remote.life = core_.devices.device_of(rail).life;
        remote.probe_key = core_.visibility.probe_key_of(rail);
        if (core_.has_targets()) remote.dct_number = core_.dc.rails[rail.index].targets.front()->qp_num;
    }
}

// Every rail talks to itself: no handshake, since we know both ends.
void Peers::connect_self(Channel& channel) {
    Connection& connection = channel.connection;
    connection.remote_id = channel.local_id;
    connection.paths.clear();
    connection.absent = 0;
    // A rail that was down when it was opened may have no LID; it has no paths to others, either.
    const bool any_active = std::ranges::any_of(core_.rails, &verbs::Rail::active);
    for (const verbs::Rail& rail : core_.rails) {
        const auto i = static_cast<std::uint8_t>(rail.index);
        for (const path::Kind kind : {path::Kind::rc, path::Kind::dc})
            if (path::has(core_.kinds, kind) && (kind == path::Kind::dc || !core_.rc_on_demand()) &&
                (rail.active || !any_active))
                connection.paths.push_back({.client_rail = i, .server_rail = i, .kind = kind});
    }
    describe_self(connection);
    connection.dc_key = core_.dc.key;
    const connect::Terms terms = core_.parts.own_terms();
    connection.features = terms.features;
    connection.peer_kinds = core_.kinds;
    connection.probe_address = terms.probe_address;
    connection.peer_window = terms.window;
    connection.peer_ring = terms.ring;
    connection.peer_segment = terms.segment;
    connection.dc_tag = connection.own_dc_tag = core_.control->random_tag();
    connection.ends.assign(connection.paths.size(), {});
    Status status = Status::ok;
    for (std::size_t i = 0; i < connection.paths.size() && !ucx_mp::failed(status); ++i)
        status = core_.ends.make_end(connection, i);
    connection.remote_ends = connection.ends;
    for (std::size_t i = 0; i < connection.paths.size() && !ucx_mp::failed(status); ++i)
        status = core_.ends.connect_end(connection, i);
    if (ucx_mp::failed(status)) {
        failed(connection, status, "loop-back queue pairs can't be made");
        core_.failures.fail_channel(channel, status);
        return;
    }
    connection.state = connect::State::established;
    establish(channel);
}

void Peers::path_news(Connection& connection, connect::NewsKind kind, const connect::PathNews& news) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::path,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .kind = kind,
          .news = news});
}

void Peers::rails_told(Connection& connection, std::uint32_t number, const std::vector<path::RemoteRail>& list) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::rails,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .number = number,
          .rails = list});
}

bool Peers::find_keys(std::uint64_t region, verbs::RemoteKeys& out) {
    return core_.devices.registry()->find(region, out);
}

void Peers::keys_told(connect::Connection& connection, bool found, const verbs::RemoteKeys& told) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::keys,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .keys = told,
          .found = found});
}

void Peers::wished(Connection& connection, const connect::ServiceWish& wish) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::wish, .channel = &channel_of(connection), .status = Status::ok, .wish = wish});
}

void Peers::wish_answered(Connection& connection, std::uint32_t number, bool taken) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::verdict,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .number = number,
          .found = taken});
}

void Peers::ring_offered(Connection& connection, const connect::RingOffer& offer) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::ring, .channel = &channel_of(connection), .status = Status::ok, .ring = offer});
}

void Peers::ring_answered(Connection& connection, std::uint32_t number, bool taken, std::uint32_t until) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::ring_verdict,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .number = number,
          .found = taken,
          .until = until});
}

std::string Peers::misfit(const connect::Terms& theirs) { return core_.parts.misfit(theirs); }

} // namespace ucx_mp::channel
