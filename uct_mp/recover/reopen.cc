// Adapters that have died and are there again (verbs/registry.h): opened anew, with queues anew. To the paths over them
// their ports then are like ports that come up late (join.cc), with other numbers; the peers are told by the list of
// rails.
#include <sys/epoll.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/channel/data_path.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

using recover::Phase;

namespace {
constexpr Nanos kSoon = 1'000'000; // until its paths are settled
}

// Its ports are no longer offered to anybody, and somebody looks whether it is there again.
void Interface::Impl::device_died(unsigned device) {
    if (!config.recovery.enabled) return;
    const std::lock_guard lock(services);
    for (verbs::Rail& rail : rails) {
        if (rail.device != device) continue;
        rail.active = false;
        control->renew(rail);
    }
    tell_rails();
    if (reopen_timer[device]) return;
    reopen_attempts[device] = 0;
    reopen_timer[device] =
        services.at(services.now() + config.recovery.reopen_interval, [this, device] { try_reopen(device); });
}

void Interface::Impl::tell_rails() {
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot)
        if (!channels[slot]->self) control->tell_rails(channels[slot]->connection);
}

void Interface::Impl::try_reopen(unsigned index) {
    reopen_timer[index] = 0;
    const std::shared_ptr<verbs::Registry>& registry = devices.registry();
    verbs::Device now;
    const auto is_there = [&] { return registry->is_there(index, devices.devices()[index].life, now); };
    const Nanos next = std::min(config.recovery.max_reopen_interval,
                                config.recovery.reopen_interval << std::min(reopen_attempts[index], 16u));
    Nanos pause = next;
    if (!is_there()) {
        reopen_attempts[index] += services.aside([registry, index, &say = services] {
            std::string trouble;
            if (!registry->reopen(index, trouble) && !trouble.empty())
                say.say(LogLevel::debug, "not yet: %s", trouble.c_str());
        });
    }
    if (is_there()) {                               // now, or by another interface
        while (poll(adapters[index], true) != 0) {} // flushes
        if (!may_adopt(index))
            pause = kSoon;
        else if (adopt(now))
            return;
        else
            ++reopen_attempts[index];
    }
    reopen_timer[index] = services.at(services.now() + pause, [this, index] { try_reopen(index); });
}

// Nothing of the life before is in use: everything posted is back (to settle it we may need the new one), and no
// handshake has made queue pairs there.
bool Interface::Impl::may_adopt(unsigned device) {
    const std::lock_guard lock(services);
    if (!graves.empty()) return false;
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        const Channel& channel = *channels[slot];
        for (unsigned i = 0; channel.prepared.subs && i < channel.prepared.count; ++i)
            if (channel.prepared.subs[i].device == device &&
                (channel.prepared.subs[i].own[0] || channel.prepared.subs[i].dc.ah))
                return false;
        for (PathIndex i = 0; channel.subs && i < channel.places; ++i) {
            const Subchannel& sub = channel.subs[i];
            if (sub.device != device) continue;
            if (sub.open || (sub.own[0] && !sub.own[0]->idle())) return false;
            if (channel.gates & gate::failed) continue;
            if (!channel.recovery) return false; // has not been told yet
            const Phase phase = channel.recovery->paths[i].phase;
            if (phase == Phase::up || phase == Phase::draining || phase == Phase::half) return false;
        }
    }
    for (const verbs::Rail& rail : rails)
        for (unsigned i = 0; rail.device == device && !dc_rails.empty() && i < dc_rails[rail.index].initiators.size();
             ++i)
            if (!dc_rails[rail.index].initiators[i]->idle()) return false;
    return true;
}

// Everything is made before anything is replaced. False: it has died again, perhaps.
bool Interface::Impl::adopt(const verbs::Device& now) {
    const std::lock_guard lock(services);
    const unsigned index = now.index;
    Adapter& adapter = adapters[index];
    std::string error;
    Adapter fresh;
    std::vector<std::pair<unsigned, DcRail>> dc;
    std::vector<std::uint32_t> dct_numbers;
    const auto make = [&]() -> Status {
        if (const Status s = fresh.open(now, devices, config, layout, connected, timed, error); ucx_mp::failed(s))
            return s;
        for (const verbs::Rail& rail : rails) {
            if (dc_rails.empty()) break;
            const bool ours = rail.device == index;
            if (ours)
                if (const Status s =
                        make_dc_rail(rail, now, fresh, dc.emplace_back(rail.index, DcRail{}).second, error);
                    ucx_mp::failed(s))
                    return s;
            dct_numbers.push_back((ours ? dc.back().second : dc_rails[rail.index]).target->qp_num);
        }
        return control->reopen(now, dct_numbers, error);
    };
    if (ucx_mp::failed(make())) {
        services.say(LogLevel::warn, "%s is there again, but cannot be used: %s", now.name.c_str(), error.c_str());
        return false;
    }
    let_go(index);
    for (auto& [rail, made] : dc) {
        DcRail& to = dc_rails[rail];
        to.target = std::move(made.target);
        for (std::size_t i = 0; i < to.initiators.size(); ++i) {
            to.initiators[i]->replace(std::move(made.initiators[i]->qp));
            to.initiators[i]->revive();
        }
        made.initiators.clear();
    }
    adapter.take_over(fresh);
    devices.renew(now);
    seen_migrations[index] = now.events->migrations();
    adapter.timestamps = adapter.timestamps && adapter.clock.calibrate(*adapter.device, services);
    calibration_interval = 1'000'000; // all of them soon again
    next_calibration = services.now() + calibration_interval;
    watch_descriptors(index);
    services.say(LogLevel::warn, "%s is there again", now.name.c_str());
    for (verbs::Rail& rail : rails) {
        if (rail.device != index) continue;
        verbs::DeviceEvents::Seen& seen = seen_events[rail.index] = now.events->seen(rail.port);
        seen.fatal = 0;                                     // if it has died again, read_events() is to find that
        more_downs[rail.index] = seen.downs - seen.ups - 1; // until renew_rail() knows better
        control->renew(rail);                               // its numbers
    }
    tell_rails();
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) tell_self(*channels[slot]);
    for (const verbs::Rail& rail : rails) {
        if (rail.device != index) continue;
        renew_rail(rail.index); // if it is up already
        rail_active(rail.index);
    }
    return true;
}

// What refers to the queues of the life that is over.
void Interface::Impl::let_go(unsigned device) {
    // Other users may keep the device open, and closing takes no descriptor out that a forked child still has.
    if (event_fd >= 0)
        for (const int fd : {adapters[device].channel->fd, adapters[device].device->context->async_fd})
            (void)epoll_ctl(event_fd, EPOLL_CTL_DEL, fd, nullptr);
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        Channel& channel = *channels[slot];
        for (PathIndex i = 0; channel.subs && i < channel.places; ++i) {
            Subchannel& sub = channel.subs[i];
            if (sub.device != device) continue;
            if (sub.own[0]) sub.own[0]->replace({});
            sub.dc.ah = nullptr;
            if (channel.recovery) channel.recovery->paths[i].next.reset();
        }
    }
    for (const verbs::Rail& rail : rails) {
        if (rail.device != device) continue;
        (void)address_handles.take(rail.index);
        if (dc_rails.empty()) continue;
        dc_rails[rail.index].target.reset();
        for (auto& initiator : dc_rails[rail.index].initiators) initiator->replace({});
    }
}

// Who sleeps has to hear of its new queues.
void Interface::Impl::watch_descriptors(unsigned device) {
    if (event_fd >= 0) {
        watch_descriptor(adapters[device].channel->fd);
        watch_descriptor(adapters[device].device->context->async_fd);
    }
    const int control_fd = control->event_fds()[device];
    if (config.background) {
        events.new_control_fd(control_fd);
        (void)control->arm(); // what is there already the next poll finds
    } else if (event_fd >= 0) {
        watch_descriptor(control_fd);
    }
}

// Nothing begins over an adapter that is dead, nor over one that is there again before the peer knows its new numbers,
// nor while we wait for the peer's new keys.
bool Interface::Impl::is_ready(Channel& channel, PathIndex path) {
    const verbs::Device& device = devices.devices()[channel.subs[path].device];
    if (device.events->seen(0).fatal) return false;
    if (channel.self) return true;
    if (channel.recovery && !channel.recovery->asked.empty()) return false;
    if (device.life == 0) return true;
    const std::lock_guard lock(services);
    return control->knows_rails(channel.connection);
}

} // namespace ucx_mp::channel
