// When a device of the peer has been opened again, all memory registered with it has another key there. UCX unpacks a
// key once and keeps it, so the user cannot renew it. Operations under way get the new keys here, and no path to that
// device is opened before they have them.
#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/recover/members.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::recover {

namespace {

// True: one of the keys is of an earlier life of its device than the present one. A key of a later life is good: we
// have not heard of that life yet, and use no path there. The difference is taken modulo 256, so what seems much later
// is old.
bool is_old(const verbs::RemoteKeys& keys, std::uint64_t now) {
    constexpr std::uint8_t kLater = 8;
    for (unsigned i = 0; i < verbs::kMaxDevices; ++i)
        if (static_cast<std::uint8_t>(keys.life(i) - static_cast<std::uint8_t>(now >> (8 * i))) > kLater) return true;
    return false;
}

bool accesses_memory(const Work& work) {
    switch (work.kind) {
    case WorkKind::put:
    case WorkKind::get:
    case WorkKind::get_bcopy:
    case WorkKind::replayed_put:
    case WorkKind::replayed_get:
        return true;
    default:
        return false;
    }
}

} // namespace

void Renewal::note_lives(Channel& channel) {
    std::uint64_t lives = 0;
    for (const path::RemoteRail& rail : channel.connection.remote_rails) {
        lives &= ~(std::uint64_t{0xff} << (8 * rail.device));
        lives |= std::uint64_t{rail.life} << (8 * rail.device);
    }
    if (std::exchange(channel.remote_lives, lives) == lives || (channel.gates & (gate::not_ready | gate::failed)))
        return;
    core_.rings.path_failed(channel); // we know only the ring's old keys
    if (channel.wiring.recovery)
        std::erase_if(channel.wiring.recovery->renewed, [&](const auto& entry) { return is_old(entry.second, lives); });
    if (channel.epochs_empty()) return; // then the channel has no works, since each counts in an epoch
    core_.works.pool.for_each([&](Work& work) {
        if (work.channel != &channel || !accesses_memory(work) || !is_old(work.keys, lives)) return;
        const verbs::RemoteKeys* keys = &work.keys;
        if (present_keys(channel, keys)) work.keys = *keys; // else take_keys() sets them
    });
}

bool Renewal::present_keys(Channel& channel, const verbs::RemoteKeys*& keys) {
    if (!is_old(*keys, channel.remote_lives)) return true;
    auto& renewed = recovery_of(channel).renewed;
    auto known = renewed.find(keys->id);
    if ((known == renewed.end() || is_old(known->second, channel.remote_lives)) && channel.self) {
        verbs::RemoteKeys present;
        const bool found = core_.devices.registry()->find(keys->id, present);
        take_keys(channel, found, found ? present : *keys);
        known = renewed.find(keys->id);
    }
    if (known != renewed.end() && !is_old(known->second, channel.remote_lives)) {
        keys = &known->second;
        return true;
    }
    ask_keys(channel, keys->id);
    return false;
}

void Renewal::ask_keys(Channel& channel, std::uint64_t region) {
    auto& asked = channel.wiring.recovery->asked;
    enlist_once(core_, core_.lists.waiting, channel, channel.usage.waiting);
    if (std::ranges::find(asked, region, &Recovery::AskedKeys::region) != asked.end()) return;
    channel.gates |= gate::keys;
    asked.push_back({region});
    repeat_question(channel, region);
}

void Renewal::repeat_question(Channel& channel, std::uint64_t region) {
    auto& asked = channel.wiring.recovery->asked;
    const auto question = std::ranges::find(asked, region, &Recovery::AskedKeys::region);
    if (question == asked.end()) return;
    {
        const std::lock_guard lock(core_.services);
        core_.control->ask_keys(channel.connection, region, question->attempts);
    }
    constexpr unsigned kDoubt = 6;
    const unsigned attempt = question->attempts++;
    const Nanos pause =
        std::min(core_.config.recovery.max_ask_interval, core_.config.recovery.ask_interval << std::min(attempt, 16u));
    question->timer =
        core_.services.at(core_.services.now() + pause, [this, &channel, region] { repeat_question(channel, region); });
    if (attempt == kDoubt)
        all_.liveness.check(
            channel); // without it a dead peer would be asked for ever. May fail the channel, which ends the question
}

void Renewal::take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) {
    if ((channel.gates & gate::failed) || !channel.wiring.recovery) return;
    Recovery& recovery = *channel.wiring.recovery;
    verbs::RemoteKeys keys = told;
    if (!found) { // the peer has released the memory: its adapter refuses these keys
        keys = {.count = verbs::kMaxDevices, .id = told.id, .lives = channel.remote_lives};
    } else if (is_old(keys, channel.remote_lives)) {
        return; // a late answer
    }
    recovery.renewed[told.id] = keys;
    core_.works.pool.for_each([&](Work& work) {
        if (work.channel == &channel && accesses_memory(work) && work.keys.id == told.id) work.keys = keys;
    });
    std::erase_if(recovery.asked, [&](Recovery::AskedKeys& question) {
        if (question.region != told.id) return false;
        if (question.timer) core_.services.cancel(question.timer);
        return true;
    });
    if (recovery.asked.empty()) channel.gates &= ~gate::keys;
}

} // namespace ucx_mp::recover
