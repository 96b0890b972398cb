// The registry opens the device once for all interfaces of the process (verbs/registry.h). Peers hear of the new life
// and its queue pair numbers by the list of rails. The ports then come up like late ones (joining.h).
#include <sys/epoll.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/recover/members.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::recover {

namespace {
constexpr Nanos kSoon = 1'000'000; // pause while something of the old life is in use
}

void Reopening::device_died(unsigned device) {
    if (!core_.config.recovery.enabled) return;
    const std::lock_guard lock(core_.services);
    for (verbs::Rail& rail : core_.rails) {
        if (rail.device != device) continue;
        rail.active = false;
        core_.control->renew(rail);
    }
    tell_rails();
    if (reopen_timer[device]) return;
    if (const verbs::Device& dead = core_.devices.devices()[device]; dead.life >= verbs::kLastLife)
        return core_.services.say(LogLevel::error, "%s has died %u times: it is not opened again", dead.name.c_str(),
                                  dead.life + 1u);
    reopen_attempts[device] = 0;
    reopen_timer[device] = core_.services.at(core_.services.now() + core_.config.recovery.reopen_interval,
                                             [this, device] { try_reopen(device); });
}

void Reopening::tell_rails() {
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot)
        if (!core_.directory.channels[slot]->self)
            core_.control->tell_rails(core_.directory.channels[slot]->connection);
}

void Reopening::try_reopen(unsigned index) {
    reopen_timer[index] = 0;
    const std::shared_ptr<verbs::Registry>& registry = core_.devices.registry();
    verbs::Device now;
    const auto is_there = [&] { return registry->is_there(index, core_.devices.devices()[index].life, now); };
    const Nanos next = std::min(core_.config.recovery.max_reopen_interval,
                                core_.config.recovery.reopen_interval << std::min(reopen_attempts[index], 16u));
    Nanos pause = next;
    if (!is_there()) {
        reopen_attempts[index] += core_.services.aside([registry, index, &say = core_.services] {
            std::string trouble;
            if (!registry->reopen(index, trouble) && !trouble.empty())
                say.say(LogLevel::debug, "not yet: %s", trouble.c_str());
        });
    }
    if (is_there()) {                                                       // now, or by another interface
        while (core_.completions.poll(core_.adapters[index], true) != 0) {} // flushes
        if (!may_adopt(index))
            pause = kSoon;
        else if (adopt(now))
            return;
        else
            ++reopen_attempts[index];
    }
    reopen_timer[index] = core_.services.at(core_.services.now() + pause, [this, index] { try_reopen(index); });
}

// True: nothing of the old life is in use. Everything posted is back, and no handshake has made queue pairs there.
// Losses need not be settled yet, since that may need the device.
bool Reopening::may_adopt(unsigned device) {
    const std::lock_guard lock(core_.services);
    if (!core_.ends.graves.empty()) return false;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        const Channel& channel = *core_.directory.channels[slot];
        for (unsigned i = 0; channel.wiring.prepared.paths && i < channel.wiring.prepared.count; ++i)
            if (channel.wiring.prepared.paths[i].device == device &&
                (channel.wiring.prepared.paths[i].own[0] || channel.wiring.prepared.paths[i].dc.ah))
                return false;
        for (PathIndex i = 0; channel.wiring.paths && i < channel.wiring.places; ++i) {
            const Path& sub = channel.wiring.paths[i];
            if (sub.device != device) continue;
            if (sub.open || (sub.own[0] && !sub.own[0]->idle())) return false;
            if ((channel.gates & gate::failed) || sub.phase == Phase::absent) continue;
            if (!channel.wiring.recovery) return false; // it has not heard of the failure yet
            const Phase phase = channel.wiring.paths[i].phase;
            if (phase == Phase::up || phase == Phase::draining || phase == Phase::half) return false;
        }
    }
    for (const verbs::Rail& rail : core_.rails)
        for (unsigned i = 0;
             rail.device == device && !core_.dc.rails.empty() && i < core_.dc.rails[rail.index].initiators.size(); ++i)
            if (!core_.dc.rails[rail.index].initiators[i]->idle()) return false;
    return true;
}

// Takes the partition keys of the new life and their indices, which queue pairs are made with. False: a key is missing.
bool Reopening::take_keys(const verbs::Device& now) {
    bool any = false;
    for (verbs::Rail& rail : core_.rails) {
        if (rail.device != now.index) continue;
        verbs::Rail here = rail;
        if (!verbs::refresh(now, here)) return false;
        any |= here.ethernet || here.pkey != 0;
        if (here.ethernet) continue;
        if (here.pkey == 0 && rail.in_use != 0) return false;
        const bool moved = here.pkey_index != rail.pkey_index;
        rail.pkey = here.pkey;
        rail.pkey_index = here.pkey_index;
        if (moved) core_.control->renew(rail);
    }
    return any;
}

// False: no queue has been replaced. The device may have died again.
bool Reopening::adopt(const verbs::Device& now) {
    const std::lock_guard lock(core_.services);
    if (!take_keys(now)) return false;
    const unsigned index = now.index;
    Adapter& adapter = core_.adapters[index];
    std::string error;
    Adapter fresh;
    fresh.tells_failures = core_.config.recovery.thread;
    std::vector<std::pair<unsigned, DcRail>> dc;
    path::TargetNumbers dct_numbers;
    const auto make = [&]() -> Status {
        if (const Status s = fresh.open(now, core_.devices, core_.config, core_.layout, core_.directory.connected,
                                        core_.timed, core_.has_targets(), error);
            ucx_mp::failed(s))
            return s;
        for (const verbs::Rail& rail : core_.rails) {
            if (core_.dc.rails.empty()) break;
            const bool ours = rail.device == index;
            if (ours) { // as many initiators as there were
                const auto count = static_cast<unsigned>(core_.dc.rails[rail.index].initiators.size());
                DcRail& made = dc.emplace_back(rail.index, DcRail{}).second;
                if (const Status s = core_.make_dc_rail(rail, now, fresh, count, made, error); ucx_mp::failed(s))
                    return s;
            }
            dct_numbers.push_back((ours ? dc.back().second : core_.dc.rails[rail.index]).target_numbers());
        }
        return core_.control->reopen(now, dct_numbers, error);
    };
    if (ucx_mp::failed(make())) {
        core_.services.say(LogLevel::warn, "%s is there again, but cannot be used: %s", now.name.c_str(),
                           error.c_str());
        return false;
    }
    let_go(index);
    for (auto& [rail, made] : dc) {
        DcRail& to = core_.dc.rails[rail];
        to.targets = std::move(made.targets);
        for (std::size_t i = 0; i < to.initiators.size(); ++i) {
            to.initiators[i]->replace(std::move(made.initiators[i]->qp));
            to.initiators[i]->revive();
        }
        made.initiators.clear();
    }
    adapter.take_over(fresh);
    core_.devices.renew(now);
    all_.migration.seen_migrations[index] = now.events->migrations();
    adapter.timestamps = adapter.timestamps && adapter.clock.calibrate(*adapter.device, core_.services);
    core_.rounds.calibration_interval = 1'000'000; // calibrate all clocks again soon
    core_.rounds.next_calibration = core_.services.now() + core_.rounds.calibration_interval;
    watch_descriptors(index);
    core_.services.say(core_.devices.registry()->is_first_to_find(now) ? LogLevel::warn : LogLevel::debug,
                       "%s is there again", now.name.c_str());
    for (verbs::Rail& rail : core_.rails) {
        if (rail.device != index) continue;
        verbs::DeviceEvents::Seen& seen = all_.ports.seen[rail.index] = now.events->seen(rail.port);
        seen.fatal = 0; // so that read_events() finds it if the device has died again
        all_.ports.more_downs[rail.index] = seen.downs - seen.ups - 1; // down, until renew_rail() has asked it
        core_.control->renew(rail);                                    // has new numbers
    }
    tell_rails();
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot)
        all_.joining.tell_self(*core_.directory.channels[slot]);
    for (const verbs::Rail& rail : core_.rails) {
        if (rail.device != index) continue;
        all_.rail_events.renew_rail(rail.index); // if it is up already
        all_.rail_events.rail_active(rail.index);
    }
    return true;
}

// Drops all references to queues of the old life.
void Reopening::let_go(unsigned device) {
    // Descriptors are taken out of the epoll set by hand. Closing does not do that while another user keeps the device
    // open, or a forked child still has the descriptor.
    const std::span<const verbs::Device> devices = core_.devices.devices();
    const auto ours = devices[device].context;
    if (core_.rounds.event_fd >= 0) {
        for (const auto* channel : {&core_.adapters[device].channel, &core_.adapters[device].send_channel})
            if (*channel) (void)epoll_ctl(core_.rounds.event_fd, EPOLL_CTL_DEL, (*channel)->fd, nullptr);
        // A device that was dead when the interface opened has another device's context, and that one may live.
        if (std::ranges::none_of(devices,
                                 [&](const verbs::Device& d) { return d.context == ours && !d.events->seen(0).fatal; }))
            (void)epoll_ctl(core_.rounds.event_fd, EPOLL_CTL_DEL, ours->async_fd, nullptr);
    }
    core_.halves.halt();
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        for (PathIndex i = 0; channel.wiring.paths && i < channel.wiring.places; ++i) {
            Path& sub = channel.wiring.paths[i];
            if (sub.device != device) continue;
            if (sub.own[0]) sub.own[0]->replace({});
            sub.dc.ah = nullptr;
            if (channel.wiring.recovery) channel.wiring.recovery->paths[i].next.reset();
        }
    }
    core_.ends.pool.drop(static_cast<std::uint8_t>(device));
    for (const verbs::Rail& rail : core_.rails) {
        if (rail.device != device) continue;
        (void)core_.dc.handles.take(rail.index);
        if (core_.dc.rails.empty()) continue;
        core_.dc.rails[rail.index].targets.clear();
        for (auto& initiator : core_.dc.rails[rail.index].initiators) initiator->replace({});
    }
}

// A thread that sleeps must be woken by the new queues, too.
void Reopening::watch_descriptors(unsigned device) {
    if (core_.rounds.event_fd >= 0) {
        core_.rounds.watch_descriptor(core_.adapters[device].channel->fd);
        if (core_.adapters[device].send_channel) core_.rounds.watch_descriptor(core_.adapters[device].send_channel->fd);
        core_.rounds.watch_descriptor(core_.adapters[device].device->context->async_fd);
    }
    const int control_fd = core_.control->event_fds()[device];
    if (core_.config.background) {
        core_.events.new_control_fd(control_fd);
        if (core_.config.recovery.thread) {
            core_.events.new_fault_fds();
            (void)core_.adapters[device].tell_failures();
        }
        (void)core_.control->arm(); // the next poll finds what has come already
    } else if (core_.rounds.event_fd >= 0) {
        core_.rounds.watch_descriptor(control_fd);
    }
}

bool Reopening::is_ready(Channel& channel, PathIndex path) {
    const verbs::Device& device = core_.devices.devices()[channel.wiring.paths[path].device];
    if (device.events->seen(0).fatal) return false;
    if (channel.self) return true;
    if (channel.wiring.recovery && !channel.wiring.recovery->asked.empty()) return false;
    if (device.life == 0) return true;
    const std::lock_guard lock(core_.services);
    return core_.control->knows_rails(channel.connection);
}

} // namespace ucx_mp::recover
