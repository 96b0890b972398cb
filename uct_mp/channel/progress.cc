// The heartbeat, and a look from outside.
#include <algorithm>
#include <cstring>
#include <utility>

#include "uct_mp/channel/interface_impl.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::channel {

namespace {
// An adapter that so many polls have found empty is asked less often, unless it is the one that had something last:
// small messages stay on a rail, and looking for one costs as much as the rails that are asked. Still less after more.
constexpr std::uint32_t kQuiet = 64, kSilent = 1024;
} // namespace

unsigned Interface::progress() {
    Impl& m = *impl_;
    unsigned n = 0;
    const bool look = m.alert; // recovery wants to know what has come
    const bool all = (++m.rounds & m.silent_mask) == 0 || look;
    if (m.polled_count == 1) {
        n = m.poll(m.adapters[0], all);
    } else {
        const bool look_around = (m.rounds & m.quiet_mask) == 0 || all;
        for (unsigned i = 0; i < m.polled_count; ++i) {
            Adapter& adapter = m.adapters[i];
            if (adapter.quiet >= kQuiet && !(adapter.quiet < kSilent ? look_around : all) && i != m.latest_adapter &&
                adapter.owed <= 0 && !adapter.peeked_count)
                continue;
            const unsigned found = m.poll(adapter, all);
            if (found) {
                n += found;
                adapter.quiet = 0;
                m.latest_adapter = i;
            } else if (adapter.quiet < kSilent) {
                ++adapter.quiet;
            }
        }
    }
    if (look) [[unlikely]]
        m.count_look(n);
    // The control plane is quiet nearly always: asked now and then, and always while a handshake of ours is under way.
    if (--m.until_control == 0 || m.attention.load(std::memory_order_relaxed) || look) [[unlikely]]
        n += m.attend(n);
    if (m.alert) [[unlikely]]
        m.recover();
    if (m.recovery_steps) [[unlikely]]
        n += std::exchange(m.recovery_steps, 0);
    if (m.listed) m.serve_lists(n);
    if (n == 0) m.at_work = 0;
    return n;
}

void Interface::Impl::serve_lists(unsigned found) {
    if (std::exchange(provide_due, false))
        for (unsigned i = 0; i < adapter_count; ++i)
            if (const int error = adapters[i].provide(connected, devices, config, layout))
                services.say(LogLevel::info, "%s: no room for more receives: %s", adapters[i].device->name.c_str(),
                             std::strerror(error));
    if (!replies.empty()) serve_replies();
    if (!pushes_due.empty()) push_due();
    if (!read_backs_due.empty()) read_backs_due_again();
    if (!acks_due.empty()) send_due_acks();
    if (!failures.empty()) tell_failures();
    if (!endings.empty()) end_channels();
    if (found) {
        if (!pulls_due.empty()) pull_due();
        if (!waiting.empty()) wake_waiting();
    }
    listed = provide_due || !(replies.empty() && pushes_due.empty() && read_backs_due.empty() && acks_due.empty() &&
                              failures.empty() && endings.empty() && pulls_due.empty() && waiting.empty());
}

unsigned Interface::Impl::attend(unsigned found) {
    unsigned n = 0;
    if (services.try_lock()) { // else the other side is at it
        n += control->poll(found != 0);
        const bool dead = !graves.empty();
        const bool trim = std::exchange(trim_due, false);
        attention.store(control->busy() || !mail.empty() || dead, std::memory_order_relaxed);
        services.unlock();
        n += read_mail();
        if (trim) trim_unused();
        if (dead) n += clear_graves(found != 0);
    }
    if (until_control == 0) {
        until_control = config.control_interval;
        ++tick;
        if (tick % config.event_interval == 0) read_events();
        if (tick % 64 == 0) calibrate();
        if (tick % (2 * config.event_interval) == 0) {
            const Nanos now = services.now();
            if (now >= next_watch) watch_peers(now);
            if (now >= next_path_watch && config.recovery.watch_interval) watch_paths(now);
        }
    }
    return n;
}

void Interface::Impl::calibrate() {
    const Nanos now = services.now();
    if (now < next_calibration) return;
    next_calibration = now + calibration_interval;
    calibration_interval = std::min<Nanos>(4 * calibration_interval, 1'000'000'000);
    for (unsigned i = 0; i < adapter_count; ++i)
        if (adapters[i].timestamps && !adapters[i].clock.calibrate(*adapters[i].device, services))
            adapters[i].timestamps = false;
}

void Interface::statistics(Statistics& out) const {
    Impl& m = *impl_;
    const std::lock_guard lock(m.services);
    out = {};
    out.uid = m.control->address().uid;
    out.send_buffer_bytes = m.small.bytes() + m.large.bytes();
    for (unsigned i = 0; i < m.adapter_count; ++i) out.receive_buffer_bytes += m.adapters[i].chunks.bytes();
    out.dropped = m.dropped;
    out.forged = m.forged;
    const Nanos now = m.services.now();
    out.transitions = m.history.count();
    m.history.for_each([&](const recover::Transition& t) {
        out.history.push_back({t.peer, t.path == kNoPath ? -1 : int{t.path}, recover::name(t.what), now - t.at, t.took,
                               t.again, t.cause});
    });
    out.control = m.control->counters();
    for (const auto& dc : m.dc_rails) out.queue_pairs += static_cast<unsigned>(dc.initiators.size()) + 1;
    for (std::uint32_t slot = 0; slot < m.channels.size(); ++slot) {
        const Channel* const channel = m.channels[slot];
        if (m.channels.is_free(slot)) continue;
        ChannelStatistics& to = out.channels.emplace_back();
        to.peer_uid = channel->connection.peer.uid;
        to.state = channel->connection.state;
        to.rails_known = channel->self || m.control->knows_rails(channel->connection);
        to.sent = channel->next_sequence;
        to.delivered = channel->expected;
        to.early = channel->early_total;
        to.duplicates = channel->duplicates;
        to.acks_sent = channel->acks_sent;
        to.markers_sent = channel->markers_sent;
        if (const auto& r = channel->recovery)
            to.recovery = {
                true,       r->messages_again, r->puts_again,   r->gets_again,     r->bytes_again, r->puts_found_done,
                r->damaged, r->puts_open,      r->holds.size(), r->markers.size(), r->resend,      r->listed};
        to.acked = channel->acked;
        to.gates = channel->gates;
        for (unsigned i = 0; i < channel->path_count; ++i) {
            const Subchannel& sub = channel->subs[i];
            for (const auto& own : sub.own) out.queue_pairs += own != nullptr;
            if (!channel->scheduler) continue;
            PathStatistics& path = to.paths.emplace_back();
            const connect::Connection& connection = channel->connection;
            const verbs::Rail& rail = m.rails[sub.rail];
            path.local_rail = rail.name;
            path.local_lid = static_cast<std::uint16_t>(rail.lid + connection.local_bits(i));
            path.remote_lid = connection.remote_lid(i);
            path.from = rail.ethernet ? verbs::to_string(rail.gid) : std::to_string(path.local_lid);
            path.to = rail.ethernet ? verbs::to_string(connection.remote_rail(i).gid) : std::to_string(path.remote_lid);
            path.qp_number = sub.queue[0] && sub.queue[0]->qp ? sub.queue[0]->qp->qp_num : 0;
            const schedule::Path& state = channel->scheduler->paths()[static_cast<PathIndex>(i)];
            path.state = state.state;
            path.weight = state.weight;
            path.write_rate = state.account[0].rate;
            path.read_rate = state.account[1].rate;
            path.latency = state.latency;
            path.written = sub.bytes[0];
            path.read = sub.bytes[1];
            path.requests = sub.requests;
            path.migrations = sub.migrations;
            path.posted = sub.queue[0] ? sub.queue[0]->outstanding() : 0;
            if (channel->recovery) {
                path.failures = channel->recovery->paths[i].failures;
                path.returns = channel->recovery->paths[i].returns;
                path.recovery = recover::name(channel->recovery->paths[i].phase);
                path.life = channel->recovery->paths[i].life;
            }
            if (channel->scheduler->paths().apart()) path.carries = connection.paths[i].reads ? "reads" : "writes";
            if (channel->scheduler->paths().is_spare(static_cast<PathIndex>(i))) path.carries = "spare";
            path.in_flight = state.account[0].in_flight + state.account[1].in_flight;
        }
    }
}

} // namespace ucx_mp::channel
