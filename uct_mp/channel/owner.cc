// What the handshake asks of the interface: our half of every path. Slow path.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "uct_mp/channel/interface_impl.h"

namespace ucx_mp::channel {

using connect::Connection;

Channel& Interface::Impl::channel_of(Connection& connection) {
    return *channels[connection.local_id & kSlotMask];
}

Connection* Interface::Impl::accept(std::uint64_t peer_uid) {
    Channel* channel = make_channel(peer_uid);
    return channel ? &channel->connection : nullptr;
}

Connection* Interface::Impl::find(std::uint64_t peer_uid) {
    const auto found = by_uid.find(peer_uid);
    return found == by_uid.end() ? nullptr : &found->second->connection;
}

Connection* Interface::Impl::find_local(std::uint32_t local_id) {
    const std::uint32_t slot = local_id & kSlotMask;
    if (slot >= channels.size() || !channels[slot] || channels[slot]->local_id != local_id) return nullptr;
    return &channels[slot]->connection;
}

Status Interface::Impl::make_ends(Connection& connection) {
    Channel& channel = channel_of(connection);
    const std::size_t count = connection.paths.size();
    channel.subs = std::make_unique<Subchannel[]>(count);
    channel.path_count = static_cast<std::uint8_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
        const path::PathSpec& spec = connection.paths[i];
        Subchannel& sub = channel.subs[i];
        sub.rail = connection.server ? spec.server_rail : spec.client_rail;
        if (sub.rail >= devices.rails().size()) return Status::invalid_param;
        const verbs::Rail& rail = devices.rails()[sub.rail];
        sub.device = static_cast<std::uint8_t>(rail.device);
        if (config.transport == connect::Transport::dc) continue;
        Adapter& adapter = adapters[rail.device];
        verbs::QueuePair qp = verbs::create_rc(*adapter.device, rail, adapter.cq.get(), adapter.srq.get(),
                                               {config.send_depth + 1, limits.max_iov + 2, inline_bytes}, nullptr);
        if (!qp) {
            services.say(LogLevel::error, "cannot create a queue pair on %s: %s", rail.name.c_str(),
                         std::strerror(errno));
            return Status::no_memory;
        }
        connection.ends[i].qp_number = qp->qp_num;
        sub.own[0] = std::make_unique<SendQueue>(std::move(qp), adapter, config, inline_bytes, false);
        sub.queue[0] = sub.queue[1] = sub.own[0].get();
    }
    return Status::ok;
}

Status Interface::Impl::connect_ends(Connection& connection) {
    Channel& channel = channel_of(connection);
    for (std::size_t i = 0; i < connection.paths.size(); ++i) {
        const path::PathSpec& spec = connection.paths[i];
        const unsigned theirs = connection.server ? spec.client_rail : spec.server_rail;
        if (theirs >= connection.remote_rails.size()) return Status::invalid_param;
        const path::RemoteRail& remote = connection.remote_rails[theirs];
        Subchannel& sub = channel.subs[i];
        const verbs::Rail& rail = devices.rails()[sub.rail];
        sub.remote_device = remote.device;
        const verbs::RemoteEnd end = remote_end(connection, i, connection.remote_ends[i]);
        if (config.transport == connect::Transport::dc) {
            sub.dc.ah = address_handle(sub.rail, end.dlid, end.source_path_bits);
            sub.dc.dct_number = remote.dct_number;
            sub.dc.key = connection.dc_key;
            if (!sub.dc.ah) return Status::io_error;
            continue;
        }
        if (const int error = verbs::connect_rc(sub.own[0]->qp.get(), rail, end, config.reliability,
                                                connection.ends[i].psn)) {
            services.say(LogLevel::error, "cannot connect a queue pair on %s: %s", rail.name.c_str(),
                         std::strerror(error));
            return Status::io_error;
        }
        sub.own[0]->begin_packets(connection.ends[i].psn, end.mtu);
    }
    return Status::ok;
}

verbs::RemoteEnd Interface::Impl::remote_end(const Connection& connection, std::size_t path,
                                             const connect::LocalEnd& end) const {
    const path::PathSpec& spec = connection.paths[path];
    const bool server = connection.server;
    const path::RemoteRail& remote = connection.remote_rails[server ? spec.client_rail : spec.server_rail];
    const verbs::Rail& rail = devices.rails()[server ? spec.server_rail : spec.client_rail];
    return {static_cast<std::uint16_t>(remote.lid + (server ? spec.client_bits : spec.server_bits)),
            server ? spec.server_bits : spec.client_bits, std::min(rail.mtu, remote.mtu), end.qp_number, end.psn};
}

ibv_ah* Interface::Impl::address_handle(unsigned rail, std::uint16_t dlid, std::uint8_t bits) {
    verbs::AddressHandle& handle =
        address_handles[std::uint64_t{rail} << 32 | std::uint64_t{bits} << 16 | dlid];
    if (!handle) {
        const verbs::Rail& from = devices.rails()[rail];
        handle = verbs::create_ah(devices.device_of(from), from, dlid, bits, config.reliability.service_level);
    }
    return handle.get();
}

void Interface::Impl::drop_ends(Connection& connection) {
    Channel& channel = channel_of(connection);
    channel.only = nullptr;
    channel.recovery.reset();
    channel.by_lane = false;
    channel.subs.reset();
    channel.path_count = 0;
    connection.ends.clear();
}

void Interface::Impl::established(Connection& connection) {
    Channel& channel = channel_of(connection);
    if (!(channel.gates & gate::not_ready)) return;
    std::vector<schedule::PathSetup> setup(channel.path_count);
    for (unsigned i = 0; i < channel.path_count; ++i) {
        const path::PathSpec& spec = connection.paths[i];
        const path::RemoteRail& remote =
            connection.remote_rails[connection.server ? spec.client_rail : spec.server_rail];
        const double rate = std::min(devices.rails()[channel.subs[i].rail].rate, remote.rate);
        setup[i].nominal_rate = rate;
        setup[i].rail = channel.subs[i].rail;
        setup[i].rail_rate = rate;
        // Weights that learn start equal (8.2.1); those that don't are the rates.
        if (config.policy.kind == schedule::PolicyKind::weighted ||
            config.policy.kind == schedule::PolicyKind::weighted_rr)
            setup[i].weight = rate;
    }
    channel.scheduler.emplace(config.policy, setup, static_cast<unsigned>(connection.local_id & kSlotMask));
    channel.retained = std::make_unique<Buffer*[]>(config.window);
    channel.window = config.window;
    channel.window_mask = config.window - 1;
    channel.remote_id = connection.remote_id;
    channel.header = std::uint64_t{connection.remote_id} << 32 | kWireVersion << 4;
    if (channel.path_count == 1 && config.transport == connect::Transport::rc) {
        channel.only = channel.subs[0].queue[0];
        channel.only->set_sole(true);
        // Completions teach nothing here: as few as keep the queue from filling.
        channel.only->set_signal_interval(std::max(config.signal_interval, std::min(64u, config.send_depth / 4)));
    }
    channel.by_lane = channel.path_count > 1 && config.transport == connect::Transport::rc;
    channel.gates &= ~gate::not_ready;
    services.say(LogLevel::debug, "channel %u to %016llx: %u paths, %s", channel.local_id & kSlotMask,
                 static_cast<unsigned long long>(connection.peer.uid), channel.path_count,
                 channel.self ? "self" : connection.server ? "server" : "client");
}

void Interface::Impl::failed(Connection& connection, Status status, const char* why) {
    Channel& channel = channel_of(connection);
    services.say(LogLevel::error, "cannot connect to peer %016llx: %s",
                 static_cast<unsigned long long>(connection.peer.uid), why);
    fail_channel(channel, status);
}

// The peer had wanted a connection, and what we have to send has waited for that.
void Interface::Impl::abandoned(Connection& connection) {
    Channel& channel = channel_of(connection);
    if (channel.waiting) (void)blocked(channel);
}

// Every rail talks to itself: no handshake, since we know both ends.
void Interface::Impl::connect_self(Channel& channel) {
    Connection& connection = channel.connection;
    connection.remote_id = channel.local_id;
    connection.paths.clear();
    connection.remote_rails.clear();
    for (const verbs::Rail& rail : devices.rails()) {
        const auto i = static_cast<std::uint8_t>(rail.index);
        connection.paths.push_back({i, i, 0, 0});
        path::RemoteRail remote = path::describe(rail);
        if (config.transport == connect::Transport::dc) remote.dct_number = dc_rails[i].target->qp_num;
        connection.remote_rails.push_back(remote);
    }
    connection.dc_key = dc_key;
    connection.ends.assign(connection.paths.size(), {});
    Status status = make_ends(connection);
    connection.remote_ends = connection.ends;
    if (!ucx_mp::failed(status)) status = connect_ends(connection);
    if (ucx_mp::failed(status)) {
        failed(connection, status, "loop-back queue pairs can't be made");
        return;
    }
    connection.state = connect::State::established;
    established(connection);
}

} // namespace ucx_mp::channel
