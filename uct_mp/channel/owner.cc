// What the handshake asks of the interface: our half of every path. Slow path.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "uct_mp/channel/interface_impl.h"

namespace ucx_mp::channel {

using connect::Connection;

Channel& Interface::Impl::channel_of(Connection& connection) { return *channels[connection.local_id & kSlotMask]; }

Connection* Interface::Impl::accept(std::uint64_t peer_uid) {
    Channel* channel = make_channel(peer_uid);
    return channel ? &channel->connection : nullptr;
}

// Peers that nobody here has an endpoint to are so many at most, whoever they are: others wait until some of those are
// used, or idle and ended.
bool Interface::Impl::hears(std::uint64_t peer_uid) {
    if (closing) return false;
    // Requests make queue pairs, and only progress ends those that were dropped: no more of them before it has.
    if (graves.size() >= 4 * path::kMaxPathsPerPeer) return false;
    const auto known = by_uid.find(peer_uid);
    if (known != by_uid.end() && (known->second->renewing || known->second->parted))
        return false; // ours has not ended yet
    if (unused < config.max_unused - config.max_unused / 8) return true;
    trim_due = true;
    attention.store(true, std::memory_order_relaxed);
    return unused < config.max_unused || (known != by_uid.end() && known->second->references != 0);
}

// What a peer repeats until it is answered is taken later, if the program makes no progress meanwhile.
bool Interface::Impl::mail_is_full() const { return mail.size() > 64 + 4 * std::size_t{channels.size()}; }

void Interface::Impl::ended(Connection& connection, const connect::Goodbye& goodbye) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::ended, .channel = &channel_of(connection), .status = Status::ok, .goodbye = goodbye});
}

void Interface::Impl::parted(Connection& connection, connect::Answer answer) {
    channel_of(connection).parted = answer == connect::Answer::lost;
    tell({.what = Mail::What::parted, .channel = &channel_of(connection), .status = Status::ok, .answer = answer});
}

Connection* Interface::Impl::find(std::uint64_t peer_uid) {
    const auto found = by_uid.find(peer_uid);
    if (found == by_uid.end()) return nullptr;
    Channel* const channel = successor(*found->second);
    return channel ? &channel->connection : nullptr;
}

Connection* Interface::Impl::find_local(std::uint32_t local_id) {
    Channel* const channel = channel_with(local_id);
    return channel && !channel->buried ? &channel->connection : nullptr;
}

Status Interface::Impl::make_end(Connection& connection, std::size_t path) {
    Channel& channel = channel_of(connection);
    if (channel.renewing) return Status::busy;
    if (channel.prepared.taken) return Status::connection_reset; // it has been in use: see drop_ends()
    if (path == 0) {
        const std::size_t count = connection.paths.size();
        drop_prepared(channel); // there is nothing; if there were, progress has to destroy it
        channel.prepared.subs = std::make_unique<Subchannel[]>(count);
        channel.prepared.count = static_cast<std::uint8_t>(count);
    }
    Subchannel& sub = channel.prepared.subs[path];
    sub.rail = static_cast<std::uint8_t>(connection.local_rail(path));
    if (sub.rail >= rails.size()) return Status::invalid_param;
    const verbs::Rail& rail = rails[sub.rail];
    sub.device = static_cast<std::uint8_t>(rail.device);
    if (config.transport == connect::Transport::dc || connection.is_absent(path)) return Status::ok;
    verbs::QueuePair broken, qp = make_half(rail, LogLevel::debug, &broken);
    const int error = errno;
    if (broken) entomb(std::move(broken), rail);
    sub.unconnected = (!qp && may_do_without(channel, rail)) || is_news(connection, rail);
    if (!qp && !sub.unconnected) {
        services.say(LogLevel::error, "cannot create a queue pair on %s: %s", rail.name.c_str(), std::strerror(error));
        return Status::no_memory;
    }
    constexpr std::uint32_t kNobody =
        0xfffffe; // what a dead adapter's is told to be: nothing that comes there is answered
    connection.ends[path].qp_number = qp ? qp->qp_num : kNobody;
    sub.own[0] = std::make_unique<SendQueue>(std::move(qp), adapters[rail.device], config, inline_bytes, false);
    sub.queue[0] = sub.queue[1] = sub.own[0].get();
    return Status::ok;
}

// The path counts as one that has failed: over RoCE the kernel wants to know the way to the other end, a port that is
// down is an error; and an adapter may die while a connection is made.
bool Interface::Impl::may_do_without(const Channel& channel, const verbs::Rail& rail) const {
    if (!config.recovery.enabled || channel.self) return false;
    verbs::DeviceEvents& events = *devices.device_of(rail).events;
    events.read();
    return rail.ethernet || events.seen(0).fatal;
}

// The handshake has told the peer of a life of this adapter that is over: so his keys are of that, too.
bool Interface::Impl::is_news(const Connection& connection, const verbs::Rail& rail) const {
    return devices.device_of(rail).life != 0 && config.recovery.enabled &&
           !channels[connection.local_id & kSlotMask]->self && !control->knows_rails(connection);
}

// Our half of a path: a queue pair in INIT.
verbs::QueuePair Interface::Impl::make_half(const verbs::Rail& rail, LogLevel level, verbs::QueuePair* broken) {
    Adapter& adapter = adapters[rail.device];
    verbs::QueuePair qp = verbs::create_rc(*adapter.device, rail, adapter.queues(),
                                           {config.send_depth + 1, limits.max_iov + 2, inline_bytes}, nullptr, broken);
    if (!qp) {
        const int error = errno;
        services.say(level, "cannot create a queue pair on %s: %s", rail.name.c_str(), std::strerror(error));
        errno = error;
    }
    return qp;
}

Status Interface::Impl::connect_end(Connection& connection, std::size_t path) {
    Channel& channel = channel_of(connection);
    if (channel.prepared.taken || channel.prepared.count != connection.paths.size()) return Status::connection_reset;
    if (connection.remote_rail_index(path) >= connection.remote_rails.size()) return Status::invalid_param;
    const path::RemoteRail& remote = connection.remote_rail(path);
    Subchannel& sub = channel.prepared.subs[path];
    const verbs::Rail& rail = rails[sub.rail];
    sub.remote_device = remote.device;
    if (connection.is_absent(path)) return Status::ok;
    sub.unconnected |= is_news(connection, rail);
    const verbs::RemoteEnd end = remote_end(connection, connection.paths[path], connection.remote_ends[path]);
    if (config.transport == connect::Transport::dc) {
        if (sub.unconnected) return Status::ok;
        sub.dc.ah = address_handles.get(devices, rail, end.destination(), config.reliability.service_level);
        sub.dc.dct_number = remote.dct_number;
        sub.dc.key = key_of_life(connection.dc_key, remote.life);
        sub.dc.tag = connection.dc_tag;
        sub.unconnected = !sub.dc.ah && config.recovery.enabled && !channel.self;
        if (!sub.dc.ah)
            services.say(sub.unconnected ? LogLevel::warn : LogLevel::error, "cannot make an address handle on %s: %s",
                         rail.name.c_str(), std::strerror(errno));
        return sub.dc.ah || sub.unconnected ? Status::ok : Status::io_error;
    }
    const int error = sub.unconnected ? 0
                                      : verbs::connect_rc(sub.own[0]->qp.get(), rail, end, config.reliability,
                                                          connection.ends[path].psn);
    if (error) {
        sub.unconnected = may_do_without(channel, rail);
        services.say(sub.unconnected ? LogLevel::warn : LogLevel::error, "cannot connect a queue pair on %s: %s",
                     rail.name.c_str(), std::strerror(error));
        if (!sub.unconnected) return Status::io_error;
    }
    sub.own[0]->begin_packets(connection.ends[path].psn, end.mtu);
    if (!channel.self && !sub.unconnected) load_first_alternate(connection, static_cast<PathIndex>(path), sub);
    return Status::ok;
}

verbs::RemoteEnd Interface::Impl::remote_end(const Connection& connection, const path::PathSpec& route,
                                             const connect::LocalEnd& end) const {
    const bool server = connection.server;
    const verbs::Rail& rail = rails[server ? route.server_rail : route.client_rail];
    const path::RemoteRail& remote = connection.remote_rails[server ? route.client_rail : route.server_rail];
    return {static_cast<std::uint16_t>(remote.lid + (server ? route.client_bits : route.server_bits)),
            server ? route.server_bits : route.client_bits,
            std::min(rail.mtu, remote.mtu),
            end.qp_number,
            end.psn,
            remote.gid};
}

void Interface::Impl::drop_ends(Connection& connection) {
    Channel& channel = channel_of(connection);
    drop_prepared(channel);
    connection.ends.clear();
    // Data had come before the handshake was over, and the peer knows nothing of it any more.
    if (channel.prepared.taken && !channel.renewing) tell({Mail::What::failed, &channel, Status::connection_reset});
}

// One that the handshake's thread cannot use: with the lock held.
void Interface::Impl::entomb(verbs::QueuePair qp, const verbs::Rail& rail) {
    graves.push_back(std::make_unique<SendQueue>(std::move(qp), adapters[rail.device], config, inline_bytes, false));
    attention.store(true, std::memory_order_relaxed);
}

void Interface::Impl::drop_prepared(Channel& channel) {
    for (unsigned i = 0; i < channel.prepared.count && channel.prepared.subs; ++i)
        for (auto& own : channel.prepared.subs[i].own)
            if (own) graves.push_back(std::move(own));
    channel.prepared.subs.reset();
    channel.prepared.count = 0;
    attention.store(true, std::memory_order_relaxed);
}

// As handshakes work (connect/turns.cc): for a while, then something else.
unsigned Interface::Impl::clear_graves(bool occupied) {
    constexpr Nanos kTurn = 200'000;
    const Nanos begin = services.now();
    Nanos now = begin;
    if (occupied && begin < next_clearing) return 0;
    unsigned n = 0;
    for (; now - begin < kTurn; now = services.now(), ++n) {
        std::unique_ptr<SendQueue> dead;
        const std::lock_guard lock(services);
        if (graves.empty()) break;
        dead = std::move(graves.back());
        graves.pop_back();
    }
    next_clearing = now + (now - begin);
    return n;
}

// -- What progress has to know

void Interface::Impl::tell(Mail news) {
    mail.push_back(std::move(news));
    attention.store(true, std::memory_order_relaxed);
}

unsigned Interface::Impl::read_mail() {
    std::vector<Mail> news;
    {
        const std::lock_guard lock(services);
        news.swap(mail);
    }
    for (const Mail& m : news) {
        Channel& channel = *m.channel;
        switch (m.what) {
        case Mail::What::established:
            establish(channel);
            connect_later(channel);
            join_paths(channel); // ports that came up meanwhile
            break;
        case Mail::What::failed:
            fail_channel(channel, m.status);
            break;
        case Mail::What::answered:
            hear_answer(channel, m.answer);
            break;
        case Mail::What::path:
            take_news(channel, m.kind, m.news);
            break;
        case Mail::What::rails: {
            const std::lock_guard lock(services);
            control->take_rails(channel.connection, m.number, m.rails);
        }
            note_lives(channel);
            if (!(channel.gates & gate::not_ready)) note_devices(channel);
            join_paths(channel);
            break;
        case Mail::What::keys:
            take_keys(channel, m.found, m.keys);
            break;
        case Mail::What::abandoned:
            // The peer had wanted a connection, and what we have to send has waited for that.
            channel.asked = false;
            if (channel.waiting) (void)blocked(channel);
            if (channel.references == 0 && !(channel.gates & gate::failed)) list_ending(channel);
            break;
        case Mail::What::ended:
            take_leave(channel, m.goodbye);
            break;
        case Mail::What::parted:
            parted(channel, m.answer);
            break;
        }
    }
    return static_cast<unsigned>(news.size());
}

void Interface::Impl::established(Connection& connection) {
    tell({Mail::What::established, &channel_of(connection), Status::ok});
}

void Interface::Impl::failed(Connection& connection, Status status, const char* why) {
    services.say(LogLevel::error, "cannot connect to peer %016llx: %s",
                 static_cast<unsigned long long>(connection.peer.uid), why);
    // A silent peer is as good as one whose adapter is silent.
    const Status told = status == Status::timed_out ? Status::endpoint_timeout : status;
    tell({Mail::What::failed, &channel_of(connection), told});
}

void Interface::Impl::rails_told(Connection& connection, std::uint32_t number,
                                 const std::vector<path::RemoteRail>& list) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::rails,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .number = number,
          .rails = list});
}

void Interface::Impl::abandoned(Connection& connection) {
    tell({Mail::What::abandoned, &channel_of(connection), Status::ok});
}

void Interface::Impl::answered(Connection& connection, connect::Answer answer) {
    tell({Mail::What::answered, &channel_of(connection), Status::ok, answer});
}

// The peer has ended its channel with us (it was told that we had failed, or has been made to close by force) and
// begins anew. What is outstanding on ours is lost, and a new one takes its place.
Connection* Interface::Impl::renew(Connection& connection) {
    Channel& channel = channel_of(connection);
    if (channel.self) return nullptr;
    channel.buried = true;
    tell({Mail::What::failed, &channel, Status::connection_reset});
    Channel* const next = successor(channel);
    return next ? &next->connection : nullptr;
}

void Interface::Impl::establish(Channel& channel) {
    const std::lock_guard lock(services);
    Connection& connection = channel.connection;
    if (!(channel.gates & gate::not_ready) || (channel.gates & gate::failed) || !channel.prepared.subs) return;
    if (connection.state != connect::State::established && connection.state != connect::State::confirming) return;
    channel.subs = std::move(channel.prepared.subs);
    channel.places = channel.prepared.count;
    // A single path is the only one until another joins it: Impl::has_places().
    const bool rc = config.transport == connect::Transport::rc;
    channel.path_count = rc && channel.places == connection.absent + 1 ? 1 : channel.places;
    channel.prepared.taken = true;
    std::vector<schedule::PathSetup> setup(channel.places);
    for (unsigned i = 0; i < channel.places; ++i) {
        const double rate = std::min(rails[channel.subs[i].rail].rate, connection.remote_rail(i).rate);
        setup[i].rail = channel.subs[i].rail;
        setup[i].writes = connection.paths[i].writes;
        setup[i].reads = connection.paths[i].reads;
        if (connection.is_absent(i)) {
            setup[i].state = schedule::PathState::down;
            recovery_of(channel).paths[i].phase = recover::Phase::absent;
            continue;
        }
        setup[i].nominal_rate = rate;
        setup[i].rail_rate = rate;
        // Weights that learn start equal (8.2.1); those that don't are the rates.
        if (config.policy.kind == schedule::PolicyKind::weighted ||
            config.policy.kind == schedule::PolicyKind::weighted_rr)
            setup[i].weight = rate;
    }
    channel.scheduler.emplace(config.policy, setup, static_cast<unsigned>(connection.local_id & kSlotMask));
    channel.retained = std::make_unique<Buffer*[]>(ring);
    agree(channel);
    channel.window_mask = ring - 1;
    channel.remote_id = connection.remote_id;
    channel.header = std::uint64_t{connection.remote_id} << 32 | kWireVersion << 4;
    note_lives(channel);
    note_devices(channel);
    if (channel.path_count == 1 && rc) {
        channel.only = channel.subs[0].queue[0];
        channel.only->set_sole(true);
        // Completions teach nothing here: as few as keep the queue from filling.
        channel.only->set_signal_interval(std::max(config.signal_interval, std::min(64u, config.send_depth / 4)));
    }
    channel.by_lane = channel.path_count > 1 && rc;
    channel.gates &= ~gate::not_ready;
    channel.set_live();
    ++connected;
    provide_due = listed = true;
    for (PathIndex i = 0; i < channel.path_count; ++i)
        if (channel.subs[i].loaded) exchange_migration(channel, i);
    services.say(LogLevel::debug, "channel %u to %016llx: %u paths, %u not yet, %s", channel.local_id & kSlotMask,
                 static_cast<unsigned long long>(connection.peer.uid), unsigned{channel.places},
                 unsigned{connection.absent},
                 channel.self        ? "self"
                 : connection.server ? "server"
                                     : "client");
}

// Paths whose queue pair could not be connected, or that have no address handle, are like any others that have failed;
// so are those whose adapter has died during the handshake.
void Interface::Impl::connect_later(Channel& channel) {
    for (PathIndex i = 0; i < channel.path_count && recoverable(channel); ++i) {
        if (channel.subs[i].unconnected) path_failed(channel, i, "it could not be connected", false);
        if (is_absent(channel, i) || !devices.devices()[channel.subs[i].device].events->seen(0).fatal) continue;
        path_failed(channel, i, "the adapter has failed", false);
        if (!recoverable(channel)) return;
        channel.recovery->paths[i].port = true;
        tell_gone(channel, i);
    }
}

// Others may have opened the device anew already; we have not then, and nobody reads here before we do.
std::uint32_t Interface::Impl::probe_key_of(const verbs::Rail& rail) const {
    verbs::RemoteKeys keys;
    probe_region.look_up(keys);
    return keys.life(rail.device) == devices.device_of(rail).life ? keys.rkey[rail.device] : 0;
}

void Interface::Impl::describe_self(Connection& connection) const {
    connection.remote_rails.clear();
    for (const verbs::Rail& rail : rails) {
        path::RemoteRail& remote = connection.remote_rails.emplace_back(path::describe(rail));
        remote.life = devices.device_of(rail).life;
        remote.probe_key = probe_key_of(rail);
        if (config.transport == connect::Transport::dc) remote.dct_number = dc_rails[rail.index].target->qp_num;
    }
}

// Every rail talks to itself: no handshake, since we know both ends.
void Interface::Impl::connect_self(Channel& channel) {
    Connection& connection = channel.connection;
    connection.remote_id = channel.local_id;
    connection.paths.clear();
    connection.absent = 0;
    // A rail that was down when it was opened may have no LID; it has no paths to others, either.
    const bool any_active = std::ranges::any_of(rails, &verbs::Rail::active);
    for (const verbs::Rail& rail : rails) {
        const auto i = static_cast<std::uint8_t>(rail.index);
        if (rail.active || !any_active) connection.paths.push_back({i, i, 0, 0});
    }
    describe_self(connection);
    connection.dc_key = dc_key;
    const connect::Terms terms = own_terms();
    connection.features = terms.features;
    connection.probe_address = terms.probe_address;
    connection.peer_window = terms.window;
    connection.peer_ring = terms.ring;
    connection.peer_segment = terms.segment;
    connection.dc_tag = connection.own_dc_tag = control->random_tag();
    connection.ends.assign(connection.paths.size(), {});
    Status status = Status::ok;
    for (std::size_t i = 0; i < connection.paths.size() && !ucx_mp::failed(status); ++i)
        status = make_end(connection, i);
    connection.remote_ends = connection.ends;
    for (std::size_t i = 0; i < connection.paths.size() && !ucx_mp::failed(status); ++i)
        status = connect_end(connection, i);
    if (ucx_mp::failed(status)) {
        failed(connection, status, "loop-back queue pairs can't be made");
        fail_channel(channel, status);
        return;
    }
    connection.state = connect::State::established;
    establish(channel);
}

} // namespace ucx_mp::channel
