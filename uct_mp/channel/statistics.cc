#include "uct_mp/channel/statistics.h"

#include <mutex>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

std::string describe(const Channel& channel) { return connect::describe(channel.connection); }

void Interface::statistics(Statistics& out) const {
    Core& m = *core_;
    const std::lock_guard lock(m.services);
    out = {};
    out.uid = m.control->address().uid;
    out.send_buffer_bytes = m.small.bytes() + m.large.bytes();
    for (unsigned i = 0; i < m.adapter_count; ++i) out.receive_buffer_bytes += m.adapters[i].chunks.bytes();
    out.dropped = m.receiver.dropped;
    out.forged = m.receiver.forged;
    m.observer->describe(out);
    m.adaptation.describe(out.adaptation);
    m.rings.describe(out.rings);
    out.rings.costs = m.ring_choice.costs();
    out.control = m.control->counters();
    out.parks = m.directory.parks;
    out.admission = m.admission.spent;
    out.queue_pairs = out.pooled = m.ends.pool.count() + m.halves.ready();
    out.reused = m.ends.pool.reused;
    for (const auto& dc : m.dc.rails)
        out.queue_pairs += static_cast<unsigned>(dc.initiators.size() + dc.targets.size());
    for (std::uint32_t slot = 0; slot < m.directory.channels.size(); ++slot) {
        const Channel* const channel = m.directory.channels[slot];
        if (m.directory.channels.is_free(slot)) continue;
        ChannelStatistics& to = out.channels.emplace_back();
        to.peer_uid = channel->connection.peer.uid;
        to.peer = channel->connection.names;
        to.state = channel->connection.state;
        to.rails_known = channel->self || m.control->knows_rails(channel->connection);
        to.sent = channel->next_sequence;
        to.delivered = channel->expected;
        to.early = channel->counts.early;
        to.duplicates = channel->counts.duplicates;
        to.acks_sent = channel->counts.acks_sent;
        to.markers_sent = channel->counts.markers_sent;
        to.acked = channel->acked;
        to.gates = channel->gates;
        to.parked = channel->parked;
        to.parks = channel->usage.parks;
        Rings::describe(*channel, to.ring);
        out.parked += channel->parked;
        for (unsigned i = 0; i < channel->wiring.path_count; ++i) {
            const Path& sub = channel->wiring.paths[i];
            for (const auto& own : sub.own) out.queue_pairs += own != nullptr;
            if (!channel->wiring.scheduler) continue;
            PathStatistics& path = to.paths.emplace_back();
            const connect::Connection& connection = channel->connection;
            const verbs::Rail& rail = m.rails[sub.rail];
            path.local_rail = rail.name;
            path.kind = sub.kind;
            path.local_lid = static_cast<std::uint16_t>(rail.lid + connection.local_bits(i));
            path.remote_lid = connection.remote_lid(i);
            path.remote_port = connect::describe_port(connection, connection.remote_rail_index(i));
            path.from = rail.ethernet ? verbs::to_string(rail.gid) : std::to_string(path.local_lid);
            path.to = rail.ethernet ? verbs::to_string(connection.remote_rail(i).gid) : std::to_string(path.remote_lid);
            path.qp_number = sub.queue[0] && sub.queue[0]->qp ? sub.queue[0]->qp->qp_num : 0;
            const schedule::Path& state = channel->wiring.scheduler->paths()[static_cast<PathIndex>(i)];
            path.state = state.state;
            path.weight = state.weight;
            path.write_rate = state.account[0].rate;
            path.read_rate = state.account[1].rate;
            path.latency = state.latency;
            path.write_rate_known = state.account[0].sampled_at != 0;
            path.read_rate_known = state.account[1].sampled_at != 0;
            path.latency_known = state.latency_at != 0;
            path.written = sub.bytes[0];
            path.read = sub.bytes[1];
            path.requests = sub.requests;
            path.migrations = sub.migrations;
            path.posted = sub.queue[0] ? sub.queue[0]->outstanding() : 0;
            path.recovery = path::name(sub.phase);
            if (channel->wiring.scheduler->paths().apart())
                path.carries = connection.paths[i].reads ? "reads" : "writes";
            if (channel->wiring.scheduler->paths().is_spare(static_cast<PathIndex>(i))) path.carries = "spare";
            path.in_flight = state.account[0].in_flight + state.account[1].in_flight;
        }
        const bool ready = !(channel->gates & (gate::failed | gate::not_ready));
        to.cut_off = ready && channel->wiring.scheduler && channel->wiring.scheduler->paths().usable() == 0;
        m.observer->describe(*channel, to);
    }
}

void Interface::look_at_paths(const Channel& channel, std::vector<PathLook>& out) const {
    const Wiring& wiring = channel.wiring;
    out.clear();
    if (!wiring.scheduler) return;
    out.resize(wiring.path_count);
    for (unsigned i = 0; i < wiring.path_count; ++i) {
        const schedule::Path& state = wiring.scheduler->paths()[static_cast<PathIndex>(i)];
        out[i].phase = wiring.paths[i].phase;
        out[i].writing = state.account[0].in_flight;
        out[i].reading = state.account[1].in_flight;
    }
    for (std::uint32_t n = channel.acked; wiring.retained && n != channel.next_sequence; ++n) {
        const Buffer* const buffer = wiring.retained[n & channel.window_mask];
        if (!buffer || buffer->path >= out.size()) continue;
        std::uint64_t& sum = out[buffer->path].unacknowledged;
        sum += buffer->length + buffer->trailer;
        const Work* const work = buffer->work && buffer->work->kind == WorkKind::message ? buffer->work : nullptr;
        for (unsigned i = 0; work && i < work->pieces; ++i) sum += work->local[i].length;
    }
    core_->observer->describe(channel, out);
}

} // namespace ucx_mp::channel
