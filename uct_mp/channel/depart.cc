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
bool Interface::Impl::has_outstanding(const Channel& channel) {
    return channel.in_flight() != 0 || !channel.epochs_empty() || channel.pulled_count != 0 ||
           !channel.atomics.empty() || channel.waiting || (channel.gates & gate::held);
}

// Who uses a channel that has ended without anybody being told is told now.
Status Interface::Impl::refusal(Channel& channel) {
    if (channel.renewing) return Status::no_resource;
    if (std::exchange(channel.quiet, false) && !std::exchange(channel.failing, true)) enlist(failures, &channel);
    return channel.error;
}

// Nothing is outstanding: nobody need be told.
void Interface::Impl::end_quietly(Channel& channel, bool renew) {
    channel.quiet = true;
    {
        const std::lock_guard lock(services);
        channel.renewing = renew && !channel.buried;
    }
    fail_channel(channel, Status::connection_reset);
}

// -- The peer says goodbye

void Interface::Impl::take_leave(Channel& channel, const connect::Goodbye& goodbye) {
    if ((channel.gates & gate::failed) || (channel.leaving && channel.goodbye.idle == goodbye.idle)) return; // repeated
    establish(channel); // our mail of it may still be on its way
    channel.goodbye = goodbye;
    channel.left_at = services.now();
    channel.leaving_since = looks;
    channel.pushed = false;
    if (!std::exchange(channel.leaving, true)) leavers.push_back(&channel);
    alert = true;
}

// What the peer has sent before is handled first: it lies in our completion queues.
void Interface::Impl::judge_leavers() {
    for (Channel* channel : std::exchange(leavers, {})) {
        const bool looked = looked_since(channel->leaving_since);
        if (!looked) ++recovery_steps; // progress is wanted
        channel->leaving = !looked || judge_leaver(*channel);
        if (channel->leaving) leavers.push_back(channel);
    }
}

// True: later again.
bool Interface::Impl::judge_leaver(Channel& channel) {
    if (channel.gates & gate::failed) return false;
    const bool idle = channel.goodbye.idle;
    if (!(channel.gates & gate::not_ready)) take_ack(channel, channel.goodbye.delivered);
    if (channel.gates & gate::failed) return false;       // by the user, in a callback
    if (idle && channel.has_unread()) read_back(channel); // a connection that begins anew knows nothing of such writes
    if (channel.gates & gate::failed) return false;
    // Small messages have not asked for their completions, and larger ones may not have them yet.
    const bool lost = channel.in_flight() != 0 || channel.pulled_count != 0 || !channel.atomics.empty() ||
                      channel.waiting || (channel.gates & gate::held);
    if (!lost && !all_back(channel) && services.now() - channel.left_at < kGrace) {
        (void)push_out(channel);
        if (channel.gates & gate::failed) return false;
        if (!std::exchange(channel.pushed, true))
            (void)services.at(channel.left_at + kGrace, [] {}); // progress is wanted then
        return true;
    }
    if (idle) {
        const bool agreed = !(channel.gates & gate::not_ready) && !has_outstanding(channel);
        {
            const std::lock_guard lock(services);
            control->say_known(channel.connection, agreed);
        }
        if (agreed) end_quietly(channel, channel.references != 0);
        return false;
    }
    if (!has_outstanding(channel)) return end_quietly(channel, false), false;
    services.say(LogLevel::info, "peer %016llx has closed while something was under way to it",
                 static_cast<unsigned long long>(channel.uid));
    fail_channel(channel, Status::connection_reset);
    return false;
}

// -- Connections that no endpoint uses

// In each round of watch_peers(), of one that owes nothing. A peer that has died is found as any other: its adapter
// does not acknowledge, and no path is left.
void Interface::Impl::watch_unused(Channel& channel, Nanos now) {
    const std::uint32_t count = channel.expected + channel.next_sequence;
    if (std::exchange(channel.used_count, count) != count) channel.used_at = now;
    if (now - std::max(channel.used_at, channel.checked_at) < config.unused_interval) return;
    channel.checked_at = now;
    check(channel);
}

// There are many of them.
void Interface::Impl::trim_unused() {
    constexpr Nanos kHalfOpen = 2'000'000'000; // a peer that asks and then says nothing
    const Nanos now = services.now();
    std::vector<Channel*> idle;
    std::size_t ending = 0;
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        Channel& channel = *channels[slot];
        if (channels.is_free(slot) || channel.references || channel.self) continue;
        if (channel.gates & (gate::failed | gate::retiring)) {
            ++ending;
        } else if (channel.gates & gate::not_ready) {
            const std::lock_guard lock(services);
            if (channel.connection.state != connect::State::accepting || now - channel.used_at < kHalfOpen) continue;
            control->forget(channel.connection);
            drop_prepared(channel);
            list_ending(channel);
            ++ending;
        } else if (!has_outstanding(channel) && !channel.leaving &&
                   channel.connection.state == connect::State::established) {
            if (channel.has_unread())
                read_back(channel); // and the next time it is idle
            else
                idle.push_back(&channel);
        }
    }
    std::size_t many = 0;
    {
        const std::lock_guard lock(services);
        many = unused;
    }
    const std::size_t wanted = config.max_unused - config.max_unused / 4;
    if (many <= wanted + ending) return;
    const std::size_t count = std::min(idle.size(), many - wanted - ending);
    const auto older = [](const Channel* a, const Channel* b) { return a->used_at < b->used_at; };
    std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end(), older);
    for (std::size_t i = 0; i < count; ++i) {
        Channel& channel = *idle[i];
        channel.gates |= gate::retiring;
        const std::lock_guard lock(services);
        control->say_idle(channel.connection, channel.expected);
    }
    services.say(LogLevel::debug, "%zu connections without an endpoint: %zu idle ones are to end", many, count);
}

void Interface::Impl::parted(Channel& channel, connect::Answer answer) {
    channel.gates &= ~gate::retiring;
    if (channel.gates & gate::failed) {
        const std::lock_guard lock(services);
        channel.parted = false;
        return;
    }
    if (answer == connect::Answer::lost) return end_quietly(channel, channel.references != 0);
    channel.used_at = services.now();
}

// -- The end

void Interface::Impl::list_ending(Channel& channel) {
    if (std::exchange(channel.ending, true)) return;
    channel.ending_since = looks;
    enlist(endings, &channel);
    alert = true; // for looks
}

void Interface::Impl::end_channels() {
    for (Channel* channel : std::exchange(endings, {})) {
        const std::lock_guard lock(services);
        const bool failed = channel->gates & gate::failed;
        const bool never = (channel->gates & gate::not_ready) && channel->connection.state == connect::State::closed;
        channel->ending = channel->renewing || (channel->references == 0 && (failed || never));
        if (!channel->ending) continue; // it is used again
        if (!looked_since(channel->ending_since) || !is_forgotten(*channel))
            enlist(endings, channel);
        else if (channel->renewing)
            begin_anew(*channel);
        else
            end_channel(*channel);
    }
}

// Nobody refers to it any more; what refers to it in vain is taken out. With the lock held.
bool Interface::Impl::is_forgotten(Channel& channel) {
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    std::erase_if(replies, is_its);
    std::erase_if(questions, is_its);
    if (channel.references == 0 && std::exchange(channel.waiting, false)) std::erase(waiting, &channel);
    if (channel.failing || channel.leaving || channel.ack_due || channel.push_due || channel.pull_due ||
        channel.read_back_due)
        return false;
    if (channel.recovery && channel.recovery->listed) return false;
    if (!all_back(channel) || !channel.epochs_empty() || channel.in_flight() != 0) return false;
    if (std::ranges::any_of(cancels, [&](const auto& cancel) { return cancel->channel == &channel; })) return false;
    for (const auto& list : jobs)
        if (std::ranges::any_of(list, is_its)) return false;
    return std::ranges::none_of(mail, is_its);
}

void Interface::Impl::clear(Channel& channel) {
    assert(channel.pulled_count == 0 && channel.atomics.empty() && channel.early_count == 0);
#ifndef NDEBUG
    works.for_each([&](const Work& work) { assert(work.channel != &channel); });
    for (const DcRail& rail : dc_rails)
        for (const auto& queue : rail.initiators)
            for (std::uint32_t i = queue->tail; i != queue->head; ++i) assert(queue->at(i).channel != &channel);
    for (const auto* list : {&pushes_due, &acks_due, &failures, &pulls_due, &read_backs_due, &recovering, &leavers})
        assert(std::ranges::find(*list, &channel) == list->end());
#endif
    control->forget(channel.connection);
    drop_prepared(channel);
    if (channel.recovery) {
        abandon_recovery(channel, channel.error); // timers; it has nothing else any more
        recover::Recovery& recovery = *channel.recovery;
        assert(!recovery.partition && !recovery.nudge && recovery.asked.empty());
        for (recover::PathRecovery& path : recovery.paths) {
            assert(!path.timer && !path.next && path.lost.empty() && !path.detour[0] && !path.detour[1]);
            (void)path;
        }
    }
    for (unsigned i = 0; channel.subs && i < channel.places; ++i)
        for (auto& own : channel.subs[i].own)
            if (own) graves.push_back(std::move(own));
    if (!std::exchange(channel.prepared.taken, false)) return;
    --connected;
    provide_due = listed = true;
    attention.store(true, std::memory_order_relaxed);
}

// With the lock held.
void Interface::Impl::end_channel(Channel& channel) {
    clear(channel);
    if (const auto known = by_uid.find(channel.uid); known != by_uid.end() && known->second == &channel)
        by_uid.erase(known);
    --unused;
    channels.remove(channel.local_id & kSlotMask);
}

// In its place, for the endpoints that use it, as if nothing had ever been sent; under another id. With the lock held.
void Interface::Impl::begin_anew(Channel& channel) {
    clear(channel);
    const Channel& before = channel;
    connect::Connection connection;
    connection.follow(before.connection);
    const std::uint32_t id = channels.renew_id(before.local_id);
    const auto [uid, references, self, user, hint, asked_for] =
        std::tuple(before.uid, before.references, before.self, before.user, before.hint, before.waiting);
    const std::uint32_t held = before.gates & gate::held;
    std::destroy_at(&channel);
    std::construct_at(&channel);
    channel.impl = this;
    channel.uid = uid;
    channel.references = references;
    channel.self = self;
    channel.user = user;
    channel.hint = hint;
    channel.waiting = asked_for;
    channel.gates |= held;
    channel.used_at = services.now();
    channel.connection = std::move(connection);
    channel.local_id = channel.connection.local_id = id;
    channel.set_live();
    if (channel.references == 0)
        list_ending(channel); // meanwhile: as one that has never been connected
    else if (channel.waiting)
        (void)blocked(channel);
}

} // namespace ucx_mp::channel
