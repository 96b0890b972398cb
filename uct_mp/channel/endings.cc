// Peers come and go: how a channel ends, and how it gives back what it has. Slow path.
//
// A channel that has failed, or that has never been connected, goes when no endpoint uses it any more; so does one
// whose peer has gone (its interface says goodbye when it closes; a peer that has died is found by asking its adapter
// now and then). Before that, its posted requests and all other references are awaited (tell_failures). Then one
// function takes it apart (clear) and its slot is free.
//
// A channel is parked by the agreement of both sides: its connection ends with all queue pairs, copies and schedulers,
// and what lasts is in Lasting (channel.h). The next operation of either side connects again. One side asks, and sends
// nothing from then on (gate::retiring). The other one agrees if it is idle as well, has sent nothing since the
// question was made, and ends its side in the same step; else the connection stays. So when they part, each message has
// been delivered and acknowledged, each write is visible, and no operation is open: both may count from zero again, and
// no numbers have to be kept. Operations that come while one side asks wait: they are the first of the next connection,
// or go when the peer needs this one. Each question has a number and one answer (connect/goodbye.cc). A peer that does
// not know the connection has agreed, too: it has lost the answer on the way, or it has failed while nothing was under
// way.
//
// A parked side still hears where its peers are: new lists of rails are told as to connected sides. But who has no
// endpoint forgets the peer.
//
// Connections that no endpoint here uses are the peer's to use, and bounded by Config::max_unused. When there are many,
// those that have been idle for longest are ended by the same agreement. A side without an endpoint gives the whole
// channel back.
#include <algorithm>
#include <cassert>
#include <memory>
#include <mutex>
#include <span>
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

// Something of the program's may not have happened. A message that was delivered has, though its completion is missing:
// its sender has asked for none, and who has left answers no more. A read back only asks when a write is visible.
bool Endings::may_be_lost(const Channel& channel) {
    return channel.in_flight() != 0 || channel.moving.pulled_count != 0 || !channel.moving.atomics.empty() ||
           channel.usage.waiting || (channel.gates & gate::held) ||
           channel.moving.rdma_open != channel.visible.read_backs_open;
}

// An answer to our question whether the connection may end counts as well: operations may wait for it. A side that
// waits for one about a ring may not sleep, and has no place for another ring.
bool Endings::is_owed(const Channel& channel) {
    return channel.in_flight() != 0 || !channel.moving.atomics.empty() || (channel.gates & gate::retiring) ||
           Rings::awaits_peer(channel);
}

bool Endings::has_settled_paths(const Channel& channel) {
    return std::ranges::all_of(std::span(channel.wiring.paths.get(), channel.wiring.places), [](const Path& path) {
        return path.phase == path::Phase::up || path.phase == path::Phase::absent ||
               path.phase == path::Phase::reopening;
    });
}

// Nothing would be missed if the connection ended now. Works that are open count in their epochs; what is lost with a
// path, too, until it is settled.
bool Endings::is_idle(const Channel& channel) const {
    if (channel.gates & (gate::not_ready | gate::failed | gate::recovering | gate::keys)) return false;
    if (has_outstanding(channel) || channel.wiring.unsettled.may_not_tell()) return false;
    if (!has_settled_paths(channel)) return false;
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    return channel.usage.cancels == 0 && std::ranges::none_of(core_.atomics.replies, is_its);
}

// Nothing is outstanding: nobody need be told.
void Endings::end_quietly(Channel& channel, bool renew) {
    if (renew) core_.observer->parting(channel);
    channel.ending.quiet = channel.ending.whole = true;
    {
        const std::lock_guard lock(core_.services);
        channel.ending.renewing = renew && !channel.ending.buried;
    }
    core_.failures.fail_channel(channel, Status::connection_reset);
}

// -- The peer says goodbye

void Endings::take_leave(Channel& channel, const connect::Goodbye& goodbye) {
    if (channel.gates & gate::failed) {
        if (!channel.ending.renewing || goodbye.idle) return;
        // It was to begin anew, and there is nobody any more.
        {
            const std::lock_guard lock(core_.services);
            channel.ending.renewing = false;
            channel.ending.buried = true;
        }
        if (channel.usage.waiting) (void)core_.failures.refusal(channel);
        return;
    }
    // A copy that was mailed before the verdict: each question has one.
    if (goodbye.idle && goodbye.number) {
        const std::lock_guard lock(core_.services);
        const std::uint16_t heard = channel.connection.parting.heard;
        if (heard && static_cast<std::int16_t>(heard - goodbye.number) >= 0) return;
    }
    if (channel.ending.leaving && (channel.ending.goodbye.idle == goodbye.idle || goodbye.idle))
        return;                        // repeated, or late
    core_.takeover.establish(channel); // our mail of it may still be on its way
    channel.ending.goodbye = goodbye;
    channel.ending.left_at = core_.services.now();
    channel.ending.leaving_since = core_.rounds.looks;
    channel.ending.pushed = false;
    if (!std::exchange(channel.ending.leaving, true)) leavers.push_back(&channel);
    core_.alert = true;
}

// Earlier messages of the peer are handled first: they lie in our completion queues.
void Endings::judge_leavers() {
    for (Channel* channel : std::exchange(leavers, {})) {
        const bool looked = core_.rounds.looked_since(channel->ending.leaving_since);
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
    // A connection that begins anew knows nothing of such writes, and the peer may have another adapter then.
    if (idle && channel.has_unread(true)) core_.visibility.read_back(channel);
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
        // Messages since the question may have been answered, over the connection that is to end.
        const bool agreed = is_idle(channel) && channel.ending.goodbye.delivered == channel.next_sequence &&
                            !(channel.asked && core_.admission.is_unused(channel)); // we want it for something
        {
            const std::lock_guard lock(core_.services);
            core_.control->say_known(channel.connection, channel.ending.goodbye.number, agreed);
            if (agreed) channel.ending.parted = true; // a new request of the peer waits until this side has ended, too
        }
        if (agreed) end_quietly(channel, channel.usage.endpoints != 0);
        return false;
    }
    if (!may_be_lost(channel)) return end_quietly(channel, false), false;
    {
        const std::lock_guard lock(core_.services); // a handshake may be changing its names
        core_.services.say(LogLevel::info, "%s has closed while something was under way to it",
                           connect::describe(channel.connection).c_str());
    }
    core_.failures.fail_channel(channel, Status::connection_reset);
    return false;
}

// -- Connections that no endpoint uses

// In each round of watch_peers(), of one that owes nothing. A peer that has died is found as any other: its adapter
// does not acknowledge, and no path is left.
void Endings::watch_unused(Channel& channel, Nanos now) {
    const std::uint32_t count = channel.expected + channel.next_sequence;
    if (std::exchange(channel.watch.counted, count) != count) channel.usage.used_at = now;
    if (now - std::max(channel.usage.used_at, channel.watch.asked_at) < core_.config.unused_interval) return;
    channel.watch.asked_at = now;
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
            const connect::State state = channel.connection.state;
            // Or its request has been turned away, and it has not come again.
            const bool nobody = state == connect::State::closed && !channel.asked && !core_.admission.waits(channel);
            if ((state != connect::State::accepting && !nobody) || now - channel.usage.used_at < kHalfOpen) continue;
            core_.control->forget(channel.connection);
            core_.ends.drop_prepared(channel);
            core_.directory.list_ending(channel);
            ++ending;
        } else if (is_idle(channel) && !channel.ending.leaving &&
                   channel.connection.state == connect::State::established &&
                   (channel.connection.features & connect::feature::park)) {
            if (channel.has_unread(true))
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
    for (std::size_t i = 0; i < count; ++i) ask_to_end(*idle[i]);
    core_.services.say(LogLevel::debug, "%zu connections without an endpoint: %zu idle ones are to end", many, count);
}

// -- Parking

// Until parted() or disowned() nothing of ours goes but acknowledgments: they are outside of the sequence.
void Endings::ask_to_end(Channel& channel) {
    channel.gates |= gate::retiring;
    const std::lock_guard lock(core_.services);
    channel.ending.asked_at = core_.services.now();
    core_.control->say_idle(channel.connection, channel.expected);
}

Status Endings::park(Channel& channel) {
    if (channel.gates & gate::failed) return channel.ending.renewing ? Status::in_progress : channel.error;
    if (channel.gates & gate::retiring) return Status::in_progress;
    {
        const std::lock_guard lock(core_.services);
        const connect::State state = channel.connection.state;
        if ((channel.gates & gate::not_ready) && state == connect::State::closed && !channel.asked) return Status::ok;
        if (state != connect::State::established) return Status::busy;
    }
    if (channel.self || !(channel.connection.features & connect::feature::park)) return Status::unsupported;
    if (channel.ending.leaving) return Status::busy;
    if (!is_idle(channel)) {
        // Perhaps only acknowledgments and completions are missing, which small messages do not ask for.
        if (channel.in_flight()) (void)core_.sender.send_ack(channel, Kind::ack_request);
        if (!(channel.gates & gate::failed)) (void)core_.epochs.push_out(channel);
        return Status::busy;
    }
    if (channel.has_unread(true)) {
        core_.visibility.read_back(channel);
        return Status::busy;
    }
    ask_to_end(channel);
    return Status::in_progress;
}

// Acknowledgments and completions may be missing: park() asks for them.
bool Endings::may_park(const Channel& channel) {
    constexpr std::uint32_t kBusy =
        gate::not_ready | gate::failed | gate::recovering | gate::keys | gate::held | gate::retiring;
    return !channel.self && !channel.ending.leaving && !(channel.gates & kBusy) && !channel.usage.waiting &&
           channel.moving.pulled_count == 0 && channel.moving.atomics.empty() && has_settled_paths(channel) &&
           channel.connection.state == connect::State::established &&
           (channel.connection.features & connect::feature::park);
}

void Endings::disowned(Channel& channel) {
    if (channel.gates & gate::retiring) return end_quietly(channel, channel.usage.endpoints != 0);
    core_.failures.fail_channel(channel, Status::connection_reset);
}

// -- The end

void Endings::detach(Channel& channel) {
    const std::lock_guard lock(core_.services);
    if (--core_.directory.endpoints == 0) core_.attention.store(true, std::memory_order_relaxed); // Ends::pool
    if (--channel.usage.endpoints != 0) return;
    ++core_.directory.unused;
    channel.usage.used_at = core_.services.now();
    if ((channel.gates & gate::not_ready) && !channel.self && channel.connection.state == connect::State::requesting) {
        // Nobody wants it any more, and the peer holds nothing yet that it might use: an answer that comes is refused.
        core_.control->give_up(channel.connection);
        core_.ends.drop_prepared(channel);
        core_.admission.forget(channel);
        channel.usage.granted_at = 0;
        channel.asked = false;
    }
    const bool never = (channel.gates & gate::not_ready) && channel.connection.state == connect::State::closed;
    if ((channel.gates & gate::failed) ? !channel.ending.failing : never) core_.directory.list_ending(channel);
}

void Endings::end_channels() {
    for (Channel* channel : std::exchange(core_.directory.ending, {})) {
        const std::lock_guard lock(core_.services);
        const bool failed = channel->gates & gate::failed;
        const bool never = (channel->gates & gate::not_ready) && channel->connection.state == connect::State::closed;
        channel->ending.listed = channel->ending.renewing || (channel->usage.endpoints == 0 && (failed || never));
        if (!channel->ending.listed) continue; // it is used again
        const bool looked = core_.rounds.looked_since(channel->ending.ending_since);
        if (!looked) ++core_.recovery_steps; // progress is wanted
        if (!looked || !is_forgotten(*channel))
            core_.enlist(core_.directory.ending, channel);
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
    if (channel.usage.cancels != 0 || core_.observer->names(channel)) return false;
    return std::ranges::none_of(core_.mail.list, is_its);
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
    core_.admission.forget(channel);
    core_.control->forget(channel.connection);
    core_.ends.drop_prepared(channel);
    core_.observer->ended(channel, channel.error); // timers; it has nothing else any more
    for (unsigned i = 0; channel.wiring.paths && i < channel.wiring.places; ++i)
        for (auto& own : channel.wiring.paths[i].own)
            if (own) core_.ends.graves.push_back(std::move(own));
    if (!std::exchange(channel.wiring.prepared.taken, false)) return;
    --core_.directory.connected;
    core_.rounds.provide_due = true;
    core_.due |= due::lists;
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

// The connection is taken away, as if there had never been one; what lasts is for the endpoints that use the channel.
// Under another id, so that what is late is nobody's. With the lock held.
void Endings::begin_anew(Channel& channel) {
    core_.adaptation.parking(channel);
    const Nanos asked_at = channel.ending.asked_at;
    clear(channel);
    connect::Connection connection;
    connection.follow_parked(channel.connection);
    const std::uint32_t id = core_.directory.channels.renew_id(channel.local_id);
    const std::uint32_t gates = channel.gates & gate::lasting;
    const Lasting lasting = channel;
    std::destroy_at(&channel);
    std::construct_at(&channel, &core_, lasting);
    channel.gates |= gates;
    channel.parked = true;
    ++channel.usage.parks;
    ++core_.directory.parks;
    core_.admission.parked(channel, asked_at);
    channel.usage.used_at = core_.services.now();
    channel.connection = std::move(connection);
    channel.local_id = channel.connection.local_id = id;
    channel.set_live();
    if (channel.usage.endpoints == 0)
        return core_.directory.list_ending(channel); // meanwhile: as one that has never been connected
    core_.control->tell_rails(channel.connection);   // what has not been told yet, or has not arrived
    if (channel.usage.waiting) (void)core_.sender.blocked(channel);
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
    core_.admission.refused(channel);
}

} // namespace ucx_mp::channel
