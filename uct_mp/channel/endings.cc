// Peers come and go: how a channel ends, and how it gives back what it has. Slow path.
//
// A channel that has failed, or that has never been connected, goes when no endpoint uses it any more; so does one
// whose peer has gone (its interface says goodbye when it closes; a peer that has died is found by asking its adapter
// now and then). What it has posted is awaited before (tell_failures), and whatever else refers to it; then one
// function takes it apart (clear) and its slot is free.
//
// Connections that no endpoint here uses are the peer's to use, and bounded by Config::max_unused. When there are many,
// those that have been idle for longest are ended, and the peers are asked first: who needs the connection (has
// something outstanding) keeps it. Who does not ends its side as well, at once; its channel begins anew (renewing) if
// endpoints use it, so that their next operation connects again. Nothing goes through the channel on our side while we
// ask (gate::retiring), and nothing on theirs when they have agreed: so nothing is lost.
#include <algorithm>
#include <cassert>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
// After the peer's goodbye, for completions of what it has executed and delivered: its adapter has acknowledged that.
constexpr Nanos kGrace = 20'000'000;
} // namespace

// The program has something under way here, or waits for being able to.
bool Endings::has_outstanding(const Channel& channel) {
    return channel.in_flight() != 0 || !channel.epochs_empty() || channel.moving.pulled_count != 0 ||
           !channel.moving.atomics.empty() || channel.usage.waiting || (channel.gates & gate::held);
}

// Who uses a channel that has ended without anybody being told is told now.
Status Endings::refusal(Channel& channel) {
    if (channel.ending.renewing) return Status::no_resource;
    if (std::exchange(channel.ending.quiet, false) && !std::exchange(channel.ending.failing, true))
        core_.enlist(core_.failures.list, &channel);
    return channel.error;
}

// Nothing is outstanding: nobody need be told.
void Endings::end_quietly(Channel& channel, bool renew) {
    channel.ending.quiet = true;
    {
        const std::lock_guard lock(core_.services);
        channel.ending.renewing = renew && !channel.ending.buried;
    }
    core_.failures.fail_channel(channel, Status::connection_reset);
}

// -- The peer says goodbye

void Endings::take_leave(Channel& channel, const connect::Goodbye& goodbye) {
    if ((channel.gates & gate::failed) || (channel.ending.leaving && channel.ending.goodbye.idle == goodbye.idle))
        return;                     // repeated
    core_.peers.establish(channel); // our mail of it may still be on its way
    channel.ending.goodbye = goodbye;
    channel.ending.left_at = core_.services.now();
    channel.ending.leaving_since = core_.progress.looks;
    channel.ending.pushed = false;
    if (!std::exchange(channel.ending.leaving, true)) leavers.push_back(&channel);
    core_.alert = true;
}

// What the peer has sent before is handled first: it lies in our completion queues.
void Endings::judge_leavers() {
    for (Channel* channel : std::exchange(leavers, {})) {
        const bool looked = core_.progress.looked_since(channel->ending.leaving_since);
        if (!looked) ++core_.recovery_steps; // progress is wanted
        channel->ending.leaving = !looked || judge_leaver(*channel);
        if (channel->ending.leaving) leavers.push_back(channel);
    }
}

// True: later again.
bool Endings::judge_leaver(Channel& channel) {
    if (channel.gates & gate::failed) return false;
    const bool idle = channel.ending.goodbye.idle;
    if (!(channel.gates & gate::not_ready)) core_.receiver.take_ack(channel, channel.ending.goodbye.delivered);
    if (channel.gates & gate::failed) return false; // by the user, in a callback
    if (idle && channel.has_unread())
        core_.visibility.read_back(channel); // a connection that begins anew knows nothing of such writes
    if (channel.gates & gate::failed) return false;
    // Small messages have not asked for their completions, and larger ones may not have them yet.
    const bool lost = channel.in_flight() != 0 || channel.moving.pulled_count != 0 || !channel.moving.atomics.empty() ||
                      channel.usage.waiting || (channel.gates & gate::held);
    if (!lost && !core_.failures.all_back(channel) && core_.services.now() - channel.ending.left_at < kGrace) {
        (void)core_.epochs.push_out(channel);
        if (channel.gates & gate::failed) return false;
        if (!std::exchange(channel.ending.pushed, true))
            (void)core_.services.at(channel.ending.left_at + kGrace, [] {}); // progress is wanted then
        return true;
    }
    if (idle) {
        const bool agreed = !(channel.gates & gate::not_ready) && !has_outstanding(channel);
        {
            const std::lock_guard lock(core_.services);
            core_.control->say_known(channel.connection, channel.ending.goodbye.number, agreed);
        }
        if (agreed) end_quietly(channel, channel.usage.endpoints != 0);
        return false;
    }
    if (!has_outstanding(channel)) return end_quietly(channel, false), false;
    core_.services.say(LogLevel::info, "peer %016llx has closed while something was under way to it",
                       static_cast<unsigned long long>(channel.uid));
    core_.failures.fail_channel(channel, Status::connection_reset);
    return false;
}

// -- Connections that no endpoint uses

// In each round of watch_peers(), of one that owes nothing. A peer that has died is found as any other: its adapter
// does not acknowledge, and no path is left.
void Endings::watch_unused(Channel& channel, Nanos now) {
    const std::uint32_t count = channel.expected + channel.next_sequence;
    if (std::exchange(channel.usage.used_count, count) != count) channel.usage.used_at = now;
    if (now - std::max(channel.usage.used_at, channel.usage.checked_at) < core_.config.unused_interval) return;
    channel.usage.checked_at = now;
    core_.observer->check(channel);
}

// There are many of them.
void Endings::trim_unused() {
    constexpr Nanos kHalfOpen = 2'000'000'000; // a peer that asks and then says nothing
    const Nanos now = core_.services.now();
    std::vector<Channel*> idle;
    std::size_t ending = 0;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        if (core_.directory.channels.is_free(slot) || channel.usage.endpoints || channel.self) continue;
        if (channel.gates & (gate::failed | gate::retiring)) {
            ++ending;
        } else if (channel.gates & gate::not_ready) {
            const std::lock_guard lock(core_.services);
            if (channel.connection.state != connect::State::accepting || now - channel.usage.used_at < kHalfOpen)
                continue;
            core_.control->forget(channel.connection);
            core_.ends.drop_prepared(channel);
            list_ending(channel);
            ++ending;
        } else if (!has_outstanding(channel) && !channel.ending.leaving &&
                   channel.connection.state == connect::State::established) {
            if (channel.has_unread())
                core_.visibility.read_back(channel); // and the next time it is idle
            else
                idle.push_back(&channel);
        }
    }
    std::size_t many = 0;
    {
        const std::lock_guard lock(core_.services);
        many = core_.directory.unused;
    }
    const std::size_t wanted = core_.config.max_unused - core_.config.max_unused / 4;
    if (many <= wanted + ending) return;
    const std::size_t count = std::min(idle.size(), many - wanted - ending);
    const auto older = [](const Channel* a, const Channel* b) { return a->usage.used_at < b->usage.used_at; };
    std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end(), older);
    for (std::size_t i = 0; i < count; ++i) {
        Channel& channel = *idle[i];
        channel.gates |= gate::retiring;
        const std::lock_guard lock(core_.services);
        core_.control->say_idle(channel.connection, channel.expected);
    }
    core_.services.say(LogLevel::debug, "%zu connections without an endpoint: %zu idle ones are to end", many, count);
}

// -- The end

void Endings::list_ending(Channel& channel) {
    if (std::exchange(channel.ending.listed, true)) return;
    channel.ending.ending_since = core_.progress.looks;
    core_.enlist(list, &channel);
    core_.alert = true; // for looks
}

void Endings::end_channels() {
    for (Channel* channel : std::exchange(list, {})) {
        const std::lock_guard lock(core_.services);
        const bool failed = channel->gates & gate::failed;
        const bool never = (channel->gates & gate::not_ready) && channel->connection.state == connect::State::closed;
        channel->ending.listed = channel->ending.renewing || (channel->usage.endpoints == 0 && (failed || never));
        if (!channel->ending.listed) continue; // it is used again
        if (!core_.progress.looked_since(channel->ending.ending_since) || !is_forgotten(*channel))
            core_.enlist(list, channel);
        else if (channel->ending.renewing)
            begin_anew(*channel);
        else
            end_channel(*channel);
    }
}

// Nobody refers to it any more; what refers to it in vain is taken out. With the lock held.
bool Endings::is_forgotten(Channel& channel) {
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    std::erase_if(core_.atomics.replies, is_its);
    if (channel.usage.endpoints == 0 && std::exchange(channel.usage.waiting, false))
        std::erase(core_.placement.waiting, &channel);
    if (channel.ending.failing || channel.ending.leaving || channel.ack_due || channel.moving.push_due ||
        channel.moving.pull_due || channel.visible.read_back_due)
        return false;
    if (!core_.failures.all_back(channel) || !channel.epochs_empty() || channel.in_flight() != 0) return false;
    if (std::ranges::any_of(core_.cancels.list, [&](const auto& cancel) { return cancel->channel == &channel; }))
        return false;
    if (core_.observer->names(channel)) return false;
    return std::ranges::none_of(core_.peers.mail, is_its);
}

void Endings::clear(Channel& channel) {
    assert(channel.moving.pulled_count == 0 && channel.moving.atomics.empty() && channel.early_count == 0);
#ifndef NDEBUG
    core_.works.pool.for_each([&](const Work& work) { assert(work.channel != &channel); });
    for (const DcRail& rail : core_.dc.rails)
        for (const auto& queue : rail.initiators)
            for (std::uint32_t i = queue->tail; i != queue->head; ++i) assert(queue->at(i).channel != &channel);
    for (const auto* list : {&core_.epochs.pushes_due, &core_.sender.acks_due, &core_.failures.list,
                             &core_.mover.pulls_due, &core_.visibility.read_backs_due, &leavers})
        assert(std::ranges::find(*list, &channel) == list->end());
#endif
    core_.control->forget(channel.connection);
    core_.ends.drop_prepared(channel);
    core_.observer->ended(channel, channel.error); // timers; it has nothing else any more
    for (unsigned i = 0; channel.wiring.paths && i < channel.wiring.places; ++i)
        for (auto& own : channel.wiring.paths[i].own)
            if (own) core_.ends.graves.push_back(std::move(own));
    if (!std::exchange(channel.wiring.prepared.taken, false)) return;
    --core_.directory.connected;
    core_.progress.provide_due = core_.listed = true;
    core_.attention.store(true, std::memory_order_relaxed);
}

// With the lock held.
void Endings::end_channel(Channel& channel) {
    clear(channel);
    if (const auto known = core_.directory.by_uid.find(channel.uid);
        known != core_.directory.by_uid.end() && known->second == &channel)
        core_.directory.by_uid.erase(known);
    --core_.directory.unused;
    core_.directory.channels.remove(channel.local_id & kSlotMask);
}

// In its place, for the endpoints that use it, as if nothing had ever been sent; under another id. With the lock held.
void Endings::begin_anew(Channel& channel) {
    clear(channel);
    const Channel& before = channel;
    connect::Connection connection;
    connection.follow(before.connection);
    const std::uint32_t id = core_.directory.channels.renew_id(before.local_id);
    const auto [uid, references, self, user, hint, asked_for] =
        std::tuple(before.uid, before.usage.endpoints, before.self, before.user, before.hint, before.usage.waiting);
    const std::uint32_t held = before.gates & gate::held;
    std::destroy_at(&channel);
    std::construct_at(&channel);
    channel.core = &core_;
    channel.uid = uid;
    channel.usage.endpoints = references;
    channel.self = self;
    channel.user = user;
    channel.hint = hint;
    channel.usage.waiting = asked_for;
    channel.gates |= held;
    channel.usage.used_at = core_.services.now();
    channel.connection = std::move(connection);
    channel.local_id = channel.connection.local_id = id;
    channel.set_live();
    if (channel.usage.endpoints == 0)
        list_ending(channel); // meanwhile: as one that has never been connected
    else if (channel.usage.waiting)
        (void)core_.sender.blocked(channel);
}

void Endings::parted(Channel& channel, connect::Answer answer) {
    channel.gates &= ~gate::retiring;
    if (channel.gates & gate::failed) {
        const std::lock_guard lock(core_.services);
        channel.ending.parted = false;
        return;
    }
    if (answer == connect::Answer::lost) return end_quietly(channel, channel.usage.endpoints != 0);
    channel.usage.used_at = core_.services.now();
}

} // namespace ucx_mp::channel
