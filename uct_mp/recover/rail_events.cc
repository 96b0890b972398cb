#include "uct_mp/recover/rail_events.h"

#include <algorithm>
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

void RailEvents::rail_failed(unsigned rail, const char* cause, bool device_gone) {
    for (std::uint32_t c = 0; c < core_.directory.channels.size(); ++c) {
        Channel* const channel = core_.directory.channels[c];
        if (!recoverable(core_, *channel)) continue;
        for (PathIndex i = 0; i < channel->wiring.path_count; ++i) {
            if (channel->wiring.paths[i].rail != rail || is_absent(*channel, i)) continue;
            if (!device_gone && all_.migration.may_migrate(*channel, i)) {
                all_.migration.tell_to_migrate(*channel, i, cause);
                continue;
            }
            all_.failure.path_failed(*channel, i, cause, false);
            if (!recoverable(core_, *channel)) break; // failed in a callback
            channel->wiring.recovery->paths[i].port = true;
            all_.asking.tell_gone(*channel, i);
        }
    }
    for (unsigned i = 0; core_.has_targets() && i < core_.dc.rails[rail].initiators.size(); ++i) {
        SendQueue& queue = *core_.dc.rails[rail].initiators[i];
        if (queue.idle()) continue;
        if (device_gone) {
            all_.failure.drop_posted(queue);
        } else {
            const Posted first = queue.at(queue.tail);
            all_.failure.drain(queue, *first.channel, first.path);
        }
    }
    // Nothing posted to a dead adapter completes any more, so it is lost now. Callbacks may add channels to the table.
    for (std::uint32_t c = 0; device_gone && c < core_.directory.channels.size(); ++c)
        for (PathIndex i = 0; i < core_.directory.channels[c]->wiring.path_count; ++i)
            if (SendQueue* const own = core_.directory.channels[c]->wiring.paths[i].own[0].get();
                own && core_.directory.channels[c]->wiring.paths[i].rail == rail)
                all_.failure.drop_posted(*own);
}

void RailEvents::rail_active(unsigned rail) {
    core_.control->port_active(rail);
    for (std::uint32_t c = 0; c < core_.directory.channels.size(); ++c) {
        Channel* const channel = core_.directory.channels[c];
        if (!channel->wiring.recovery || (channel->gates & gate::failed)) continue;
        for (PathIndex i = 0; i < channel->wiring.path_count; ++i) {
            PathRecovery& r = channel->wiring.recovery->paths[i];
            all_.migration.go_back(*channel, i, rail);
            if (channel->wiring.paths[i].rail != rail) continue;
            r.port = false;
            if (channel->wiring.paths[i].phase != Phase::reopening) continue;
            r.attempts = 0;
            if (may_open(*channel, i))
                all_.jobs.schedule_open(*channel, i);
            else
                all_.asking.tell_over_path(*channel, connect::NewsKind::probe,
                                           {.path = i, .end = {}}); // the client then tries at once
        }
    }
}

void RailEvents::read_events() {
    for (const verbs::Rail& rail : core_.rails) {
        verbs::DeviceEvents& events = *core_.devices.device_of(rail).events;
        events.read();
        const verbs::DeviceEvents::Seen now = events.seen(rail.port);
        const verbs::DeviceEvents::Seen before = std::exchange(all_.ports.seen[rail.index], now);
        if (now.fatal != before.fatal) {
            rail_failed(rail.index, "the adapter has failed", true);
            all_.reopening.device_died(rail.device);
        } else if (now.downs != before.downs)
            rail_failed(rail.index, "its port is down here", false);
        if (now.ups != before.ups || now.renewals != before.renewals) renew_rail(rail.index);
        if (now.ups != before.ups) rail_active(rail.index);
    }
    if (core_.config.apm) all_.migration.take_migrations();
}

void RailEvents::renew_rail(unsigned index) {
    verbs::Rail now = core_.rails[index];
    if (!verbs::refresh(core_.devices.device_of(now), now) || !now.active) return; // an event follows when it is up
    all_.ports.more_downs[index] = all_.ports.seen[index].downs - all_.ports.seen[index].ups;
    const auto facts = [](const verbs::Rail& r) {
        return std::tuple(r.lid, r.lmc, r.gid, r.gid_index, r.subnet_prefix, r.pkey, r.pkey_index, r.mtu, r.rate,
                          r.active);
    };
    if (facts(now) == facts(core_.rails[index])) return all_.numbers.test_numbers(now.device);
    core_.services.say(
        LogLevel::info, "rail %s is %s: %s, LMC %u", now.name.c_str(), core_.rails[index].active ? "another one" : "up",
        now.ethernet ? verbs::to_string(now.gid).c_str() : ("LID " + std::to_string(now.lid)).c_str(), now.lmc);
    if (now.active) all_.reports.port_up(core_.rails[index], now);
    // Queue pairs keep the index of the partition key that they were made with. So they are made anew where possible.
    const bool moved = now.pkey_index != core_.rails[index].pkey_index, worked = core_.rails[index].active;
    {
        const std::lock_guard lock(core_.services);
        core_.rails[index] = now;
        core_.rounds.polled_count = std::max(core_.rounds.polled_count, now.device + 1);
        core_.control->renew(now);
        all_.reopening.tell_rails();
    }
    if (moved) core_.halves.key_has_moved(core_.rails[index]);
    all_.numbers.test_numbers(now.device);
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        all_.joining.tell_self(channel);
        all_.joining.join_paths(channel);
    }
    if (!moved) return;
    if (worked) rail_failed(index, "its partition key has moved", false);
    for (unsigned i = 0; core_.has_targets() && i < core_.dc.rails[index].initiators.size(); ++i)
        if (SendQueue& queue = *core_.dc.rails[index].initiators[i]; queue.idle())
            all_.failure.drop_posted(queue); // restarts it; busy ones restart when their requests are back
    if (worked) rail_active(index);
}

// The devices may have been opened long ago, and ports may have changed since.
void RailEvents::read_rails() {
    core_.rails.assign(core_.devices.rails().begin(), core_.devices.rails().end());
    for (verbs::Rail& rail : core_.rails) {
        const verbs::Device& device = core_.devices.device_of(rail);
        const bool dead = verbs::is_dead(device);
        const verbs::DeviceEvents::Seen seen = all_.ports.seen[rail.index] = device.events->seen(rail.port);
        all_.ports.seen[rail.index].fatal = 0; // so that read_events() finds a device that is dead already
        // Later events are read by read_events(). It does no harm if refresh() has seen their effect already.
        if (dead || !verbs::refresh(device, rail)) rail.active = false;
        all_.ports.more_downs[rail.index] = seen.downs - seen.ups - !rail.active;
    }
}

} // namespace ucx_mp::recover
