// Ports that come up late. A handshake has kept places for paths over them (path::add_absent_paths): nothing has been
// made for those, and they are in phase `absent`. When both ends of one are known to be up (our port by its event, the
// peer's by its list of rails), the client opens it as it opens a path that has been lost: PROTOCOL.md. A subnet
// manager may also give a port other LIDs; whoever reopens a path uses the present ones.
#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <tuple>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using recover::PathRecovery;
using recover::Phase;
using recover::Recovery;

// What has happened since the devices were opened, perhaps long ago.
void Interface::Impl::read_rails() {
    rails.assign(devices.rails().begin(), devices.rails().end());
    for (verbs::Rail& rail : rails) {
        const verbs::Device& device = devices.device_of(rail);
        const verbs::DeviceEvents::Seen seen = seen_events[rail.index] = device.events->seen(rail.port);
        (void)verbs::refresh(device,
                             rail); // events that come from now on are read later, and harmless if known already
        more_downs[rail.index] = seen.downs - seen.ups - !rail.active;
    }
}

void Interface::Impl::renew_rail(unsigned index) {
    verbs::Rail now = rails[index];
    if (!verbs::refresh(devices.device_of(now), now) || !now.active) return; // the next event tells
    more_downs[index] = seen_events[index].downs - seen_events[index].ups;
    const auto facts = [](const verbs::Rail& r) {
        return std::tuple(r.lid, r.lmc, r.gid, r.gid_index, r.subnet_prefix, r.mtu, r.rate, r.active);
    };
    if (facts(now) == facts(rails[index])) return test_numbers(now.device);
    services.say(
        LogLevel::info, "rail %s is %s: %s, LMC %u", now.name.c_str(), rails[index].active ? "another one" : "up",
        now.ethernet ? verbs::to_string(now.gid).c_str() : ("LID " + std::to_string(now.lid)).c_str(), now.lmc);
    {
        const std::lock_guard lock(services);
        rails[index] = now;
        polled_count = std::max(polled_count, now.device + 1);
        control->renew(now);
        tell_rails();
    }
    test_numbers(now.device);
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        Channel& channel = *channels[slot];
        tell_self(channel);
        join_paths(channel);
    }
}

// Until it is known that the adapter tells packet numbers it counts as one that does not.
void Interface::Impl::test_numbers(unsigned device) {
    if (!(untested >> device & 1)) return;
    numbers_wanted |= 1u << device;
    if (!numbers_timer) take_numbers();
}

void Interface::Impl::take_numbers() {
    constexpr Nanos kLook = 10'000'000;
    numbers_timer = 0;
    for (const verbs::Device& device : devices.devices()) {
        const std::uint32_t bit = 1u << device.index;
        if (!(numbers_wanted & bit)) continue;
        std::unique_ptr<verbs::PacketNumberTest>& test = number_tests[device.index];
        if (!test) {
            const auto rail =
                std::ranges::find_if(rails, [&](const verbs::Rail& r) { return r.device == device.index && r.active; });
            if (rail != rails.end())
                test = verbs::PacketNumberTest::begin(services, device, *rail);
            else
                numbers_wanted &= ~bit; // a port that comes up wants it again
        }
        if (!test || test->state() == verbs::PacketNumberTest::State::running) continue;
        const bool tells = test->state() == verbs::PacketNumberTest::State::yes && test->life() == device.life;
        test.reset();
        numbers_wanted &= ~bit;
        if (tells) untested &= ~bit;
        services.say(LogLevel::info, "%s %s packet numbers", device.name.c_str(),
                     tells ? "tells" : "has not been found to tell");
    }
    if (numbers_wanted) numbers_timer = services.at(services.now() + kLook, [this] { take_numbers(); });
}

void Interface::Impl::tell_self(Channel& channel) {
    if (!channel.self || !recoverable(channel)) return;
    describe_self(channel.connection);
    note_lives(channel);
    note_devices(channel);
}

void Interface::Impl::join_paths(Channel& channel) {
    if (!recoverable(channel) || !channel.connection.absent) return;
    std::vector<path::RemoteRail> ours;
    for (const verbs::Rail& rail : rails) ours.push_back(path::describe(rail));
    const bool routed = path::must_route(ours, channel.connection.remote_rails);
    for (PathIndex path = 0; path < channel.places; ++path)
        if (is_absent(channel, path) && may_join(channel, path, routed) && wanted(channel, path)) {
            if (!has_places(channel)) return; // widen() comes back here
            if (!may_open(channel)) return;   // the other side will
            join(channel, path);
            time_to_open(channel, path);
        }
}

// Both of its ports are known, and belong together.
bool Interface::Impl::may_join(const Channel& channel, PathIndex path, bool routed) const {
    return path::reach(path::describe(rails[channel.subs[path].rail]), channel.connection.remote_rail(path), routed);
}

// While a single path of mp_rc is there it is used as if there were no places (Channel::only: no accounts, no markers,
// the adapter keeps the order). Before another one joins, what was posted that way must be back: nothing new is let
// through until then. False: not yet.
bool Interface::Impl::has_places(Channel& channel) {
    if (channel.path_count == channel.places) return true;
    Recovery& recovery = *channel.recovery;
    if (!std::exchange(recovery.widening, true)) {
        recovery.widening_told = false;
        channel.gates |= gate::recovering;
        list_recovering(channel);
    }
    return false;
}

// In each progress while has_places() waits. Acknowledgments that are posted meanwhile may be anywhere.
void Interface::Impl::widen(Channel& channel) {
    Recovery& recovery = *channel.recovery;
    SendQueue& queue = *channel.subs[0].own[0];
    const Phase phase = recovery.paths[0].phase;
    const bool whole = !recovery.damaged && !recovery.puts_open && !recovery.resend && channel.pulled_count == 0;
    // Lost: all of it is settled, and will go again over whatever is there then, in the same order (resend()).
    if (phase != Phase::reopening && (phase != Phase::up || !whole)) {
        recovery.widening_told = false;
        return;
    }
    if (phase == Phase::up) {
        if (!recovery.widening_told) {
            if (!push_out(channel) || (channel.gates & gate::failed)) return;
            recovery.widening_told = true;
            recovery.widen_behind = queue.head;
        }
        if (static_cast<std::int32_t>(queue.tail - recovery.widen_behind) < 0) return;
    }
    recovery.widening = false;
    queue.close();
    queue.set_sole(false);
    queue.set_signal_interval(config.signal_interval);
    channel.only = nullptr;
    channel.by_lane = true;
    channel.path_count = channel.places;
    channel.put_paths |= 1; // perhaps
    channel.unread |= 1;
    note_devices(channel);
    ++recovery_steps;
    join_paths(channel);
}

// Places have been kept for more pairs of rails than are of use (path::add_absent_paths): taken is one of a rail that
// has no path yet, and all routes of such a pair. The LMC may be less than was guessed: no two paths for one route
// then.
bool Interface::Impl::wanted(const Channel& channel, PathIndex path) const {
    const connect::Connection& connection = channel.connection;
    const path::PathSpec& spec = connection.paths[path];
    bool same_pair = false, our_rail = false, their_rail = false;
    const unsigned ours = connection.local_rail(path), theirs = connection.remote_rail_index(path);
    const auto lids = [](unsigned lmc) { return 1u << lmc; };
    const unsigned local_bits = connection.local_bits(path) & (lids(rails[ours].lmc) - 1);
    const unsigned remote_bits =
        (connection.server ? spec.client_bits : spec.server_bits) & (lids(connection.remote_rail(path).lmc) - 1);
    const bool cut = local_bits != connection.local_bits(path) ||
                     remote_bits != (connection.server ? spec.client_bits : spec.server_bits);
    for (PathIndex i = 0; i < channel.places; ++i) {
        if (is_absent(channel, i)) continue;
        const bool our = connection.local_rail(i) == ours, their = connection.remote_rail_index(i) == theirs;
        our_rail |= our;
        their_rail |= their;
        same_pair |= our && their;
        const path::PathSpec& other = connection.paths[i];
        if (our && their && cut && other.reads == spec.reads && connection.local_bits(i) == local_bits &&
            (connection.server ? other.client_bits : other.server_bits) == remote_bits)
            return false;
    }
    return same_pair || !our_rail || !their_rail || config.paths.cross_rails;
}

// Its ends are known now: it is down like any path that has been lost.
void Interface::Impl::join(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    connect::Connection& connection = channel.connection;
    const verbs::Rail& ours = rails[channel.subs[path].rail];
    const path::RemoteRail& theirs = connection.remote_rail(path);
    {
        const std::lock_guard lock(services); // the control plane may be reading it
        path::PathSpec& spec = connection.paths[path];
        const unsigned client_lmc = connection.server ? theirs.lmc : ours.lmc,
                       server_lmc = connection.server ? ours.lmc : theirs.lmc;
        spec.client_bits &= static_cast<std::uint8_t>((1u << client_lmc) - 1);
        spec.server_bits &= static_cast<std::uint8_t>((1u << server_lmc) - 1);
    }
    const double rate = std::min(ours.rate, theirs.rate);
    channel.scheduler->set_nominal_rate(path, rate);
    channel.scheduler->set_rail_rate(static_cast<std::uint8_t>(ours.index), rate);
    if (config.policy.kind == schedule::PolicyKind::weighted || config.policy.kind == schedule::PolicyKind::weighted_rr)
        channel.scheduler->set_weight(path, rate);
    r.since = services.now();
    r.attempts = 0;
    // If the server gives the first life up before we have entered it, it asks for this: nothing has come over it.
    r.mine = {.path = path,
              .life = r.life,
              .marker = channel.subs[path].last_marker,
              .delivered = channel.expected,
              .end = {}};
    r.mine_known = true;
    set_phase(r, Phase::reopening);
}

// After a path of such a peer has come up or was lost: with unequal rails a spare path may add rate when another is
// gone.
void Interface::Impl::find_spares(Channel& channel) {
    if (!channel.connection.absent || config.paths.cross_rails) return;
    channel.scheduler->set_spare(path::spare_paths(channel.connection.paths, channel.scheduler->paths().usable()));
}

// mp_dc: where the other side's target is, with the present LIDs.
bool Interface::Impl::address_target(Channel& channel, PathIndex path) {
    const connect::Connection& connection = channel.connection;
    Subchannel& sub = channel.subs[path];
    const verbs::RemoteEnd end = remote_end(connection, connection.paths[path], {});
    sub.dc.dct_number = connection.remote_rail(path).dct_number;
    sub.dc.key = key_of_life(connection.dc_key, connection.remote_rail(path).life);
    sub.dc.tag = connection.dc_tag;
    sub.dc.ah = address_handles.get(devices, rails[sub.rail], end.destination(), config.reliability.service_level);
    return sub.dc.ah != nullptr;
}

} // namespace ucx_mp::channel
