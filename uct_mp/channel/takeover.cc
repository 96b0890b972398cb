#include "uct_mp/channel/takeover.h"

#include <algorithm>
#include <mutex>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

using connect::Connection;

void Takeover::establish(Channel& channel) {
    const std::lock_guard lock(core_.services);
    Connection& connection = channel.connection;
    if (!(channel.gates & gate::not_ready) || (channel.gates & gate::failed) || !channel.wiring.prepared.paths) return;
    if (connection.state != connect::State::established && connection.state != connect::State::confirming) return;
    channel.wiring.paths = std::move(channel.wiring.prepared.paths);
    channel.wiring.places = channel.wiring.prepared.count;
    channel.wiring.has_dc =
        std::ranges::any_of(connection.paths, [](const path::PathSpec& path) { return path.kind == path::Kind::dc; });
    // A single path is used as the only one until another joins it: recover/joining.h.
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
    agree(core_, channel);
    channel.window_mask = core_.ring - 1;
    channel.remote_id = connection.remote_id;
    channel.header = std::uint64_t{connection.remote_id} << 32 | kWireVersion << 4;
    core_.visibility.note_devices(channel);
    if (channel.wiring.path_count == 1 && plain) {
        channel.wiring.only = channel.wiring.paths[0].queue[0];
        channel.wiring.only->sole = true;
        // The scheduler learns nothing from completions here, so there are only as many as keep the queue from filling.
        channel.wiring.only->set_signal_interval(
            std::max(core_.config.signal_interval, std::min(64u, core_.config.send_depth / 4)));
    }
    channel.wiring.by_lane = channel.wiring.path_count > 1 && plain;
    channel.gates &= ~gate::not_ready;
    channel.parked = false;
    channel.set_live();
    ++core_.directory.connected;
    core_.rounds.provide_due = true;
    core_.due |= due::lists;
    core_.admission.connected(channel);
    core_.observer->life.established(channel);
    core_.services.say(LogLevel::debug, "channel %u to %016llx: %u paths, %u not yet, %s", channel.local_id & kSlotMask,
                       static_cast<unsigned long long>(connection.peer.uid), unsigned{channel.wiring.places},
                       unsigned{connection.absent},
                       channel.self        ? "self"
                       : connection.server ? "server"
                                           : "client");
}

void Takeover::describe_self(Connection& connection) const {
    const std::lock_guard lock(core_.services); // statistics() reads them
    connection.names = core_.config.names;
    connection.names.ports = connect::port_names(core_.rails);
    connection.remote_rails.clear();
    for (const verbs::Rail& rail : core_.rails) {
        path::RemoteRail& remote = connection.remote_rails.emplace_back(path::describe(rail));
        remote.life = core_.devices.device_of(rail).life;
        remote.probe_key = core_.ends.probe_key(rail);
        if (core_.has_targets()) remote.dct_number = core_.dc.rails[rail.index].targets.front()->qp_num;
    }
}

// Each rail has a path to itself.
void Takeover::connect_self(Channel& channel) {
    Connection& connection = channel.connection;
    connection.remote_id = channel.local_id;
    connection.paths.clear();
    connection.absent = 0;
    // A rail that is down may have no LID, and gets no path, unless all are down.
    const bool any_active = std::ranges::any_of(core_.rails, &verbs::Rail::active);
    for (const verbs::Rail& rail : core_.rails) {
        const auto i = static_cast<std::uint8_t>(rail.index);
        for (const path::Kind kind : {path::Kind::rc, path::Kind::dc})
            if (path::has(core_.kinds, kind) && (kind == path::Kind::dc || !core_.config.rc_on_demand()) &&
                (rail.active || !any_active))
                connection.paths.push_back({.client_rail = i, .server_rail = i, .kind = kind});
    }
    describe_self(connection);
    connection.dc_key = core_.dc.key;
    const connect::Terms terms = own_terms(core_);
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
        core_.services.say(channel.usage.endpoints ? LogLevel::error : LogLevel::info,
                           "cannot connect to %s: loop-back queue pairs can't be made",
                           connect::describe(connection).c_str());
        mark_failed(core_, channel, status);
        return;
    }
    connection.state = connect::State::established;
    establish(channel);
}

} // namespace ucx_mp::channel
