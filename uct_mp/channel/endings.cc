// How a channel ends, and gives back what it has. Slow path.
//
// A channel that has failed, or was never connected, is removed when no endpoint uses it any more. So is one whose peer
// has gone. (A peer says goodbye when its interface closes. Asking its adapter now and then finds one that has died.)
// First, everything posted and all other references are awaited (tell_failures, is_forgotten). Then clear() takes the
// channel apart, and its slot is free.
//
// A channel is parked when both sides agree. Its connection ends with all queue pairs, retained messages and
// schedulers. Lasting (channel.h) is what stays. The next operation of either side connects again. One side asks, and
// sends nothing from then on (gate::retiring). The other side agrees if it is idle as well and has sent nothing since
// the question was made, and it ends its side in the same step. Else the connection stays. So when they part, each
// message has been delivered and acknowledged, each write is visible, and no operation is open. Both may count from
// zero again. Operations that come while one side asks have to wait: they go over the next connection, or over this one
// if the peer refuses. Each question has a number and one answer (connect/goodbye.cc). A peer that does not know the
// connection counts as agreeing: its answer was lost, or it has failed while nothing was under way.
//
// Parked sides still tell each other new lists of rails, as connected sides do. A side without an endpoint forgets the
// peer instead.
//
// Connections that no endpoint here uses are kept for the peer, up to Config::max_unused. When there are many, those
// that have been idle for longest are ended by the same agreement. A side without an endpoint removes the whole channel
// then.
#include <algorithm>
#include <cassert>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
// So long after the peer's goodbye we wait for completions of what it has received: they come soon, since its adapter
// has acknowledged that.
constexpr Nanos kGrace = 20'000'000;
} // namespace

// The program has an operation under way here, or waits until it can start one.
bool Endings::has_outstanding(const Channel& channel) {
    return channel.in_flight() != 0 || !channel.epochs_empty() || channel.moving.pulled_count != 0 ||
           !channel.moving.atomics.empty() || channel.usage.waiting || (channel.gates & gate::held);
}

// An operation of the program may not have been executed. A delivered message counts as executed even if its completion
// is missing: it may have asked for none, and a peer that has left answers no more. A read back does not count: it only
// tells when a write is visible.
bool Endings::may_be_lost(const Channel& channel) {
    return channel.in_flight() != 0 || channel.moving.pulled_count != 0 || !channel.moving.atomics.empty() ||
           channel.usage.waiting || (channel.gates & gate::held) ||
           channel.moving.rdma_open != channel.visible.read_backs_open;
}

// The answer to our question whether the connection may end counts as well, since operations may wait for it. So do
// answers about rings: until they come, this side may not sleep, and has no place for another ring.
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

// Nothing would be lost if the connection ended now. Open works count in their epochs, and so does everything lost with
// a path until it is settled.
bool Endings::is_idle(const Channel& channel) const {
    if (channel.gates & (gate::not_ready | gate::failed | gate::recovering | gate::keys)) return false;
    if (has_outstanding(channel) || channel.wiring.unsettled.may_not_tell()) return false;
    if (!has_settled_paths(channel)) return false;
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    return channel.usage.cancels == 0 && std::ranges::none_of(core_.atomics.replies, is_its);
}

// Ends a channel with nothing outstanding, so the user need not be told. `renew`: it is parked.
void Endings::end_quietly(Channel& channel, bool renew) {
    if (renew) core_.observer->life.parting(channel);
    channel.ending.quiet = channel.ending.whole = true;
    {
        const std::lock_guard lock(core_.services);
        channel.ending.renewing = renew && !channel.ending.buried;
    }
    mark_failed(core_, channel, Status::connection_reset);
}

// -- The peer says goodbye

void Endings::take_leave(Channel& channel, const connect::Goodbye& goodbye) {
    if (channel.gates & gate::failed) {
        if (!channel.ending.renewing || goodbye.idle) return;
        // It was being parked, but the peer has closed meanwhile.
        {
            const std::lock_guard lock(core_.services);
            channel.ending.renewing = false;
            channel.ending.buried = true;
        }
        if (channel.usage.waiting) (void)refusal(core_, channel);
        return;
    }
    // A repeated question that came before our verdict: each question has one verdict.
    if (goodbye.idle && goodbye.number) {
        const std::lock_guard lock(core_.services);
        const std::uint16_t heard = channel.connection.parting.heard;
        if (heard && static_cast<std::int16_t>(heard - goodbye.number) >= 0) return;
    }
    if (channel.ending.leaving && (channel.ending.goodbye.idle == goodbye.idle || goodbye.idle))
        return;                        // repeated, or late
    core_.takeover.establish(channel); // the mail that says it is established may not have been read yet
    channel.ending.goodbye = goodbye;
    channel.ending.left_at = core_.services.now();
    channel.ending.leaving_since = core_.rounds.looks;
    channel.ending.pushed = false;
    if (!std::exchange(channel.ending.leaving, true)) leavers.push_back(&channel);
    core_.alert = true;
}

// The peer's earlier messages lie in our completion queues, and are handled first: hence the wait for looked_since().
void Endings::judge_leavers() {
    for (Channel* channel : std::exchange(leavers, {})) {
        const bool looked = core_.rounds.looked_since(channel->ending.leaving_since);
        if (!looked) ++core_.recovery_steps; // so that the caller calls progress again
        channel->ending.leaving = !looked || judge_leaver(*channel);
        if (channel->ending.leaving) leavers.push_back(channel);
    }
}

// True: not decided yet, try again later.
bool Endings::judge_leaver(Channel& channel) {
    if (channel.gates & gate::failed) return false;
    const bool idle = channel.ending.goodbye.idle;
    if (!(channel.gates & gate::not_ready)) core_.receiver.take_ack(channel, channel.ending.goodbye.delivered);
    if (channel.gates & gate::failed) return false; // by the user, in a callback
    // The next connection knows nothing of these writes, and may use another adapter of the peer. So they are made
    // visible before this one ends.
    if (idle && channel.has_unread(true)) core_.visibility.read_back(channel);
    if (channel.gates & gate::failed) return false;
    // Completions may be missing: small messages have not asked for theirs, and those of larger ones may be on the way.
    const bool lost = channel.in_flight() != 0 || channel.moving.pulled_count != 0 || !channel.moving.atomics.empty() ||
                      channel.usage.waiting || (channel.gates & gate::held);
    if (!lost && !core_.failures.all_back(channel) && core_.services.now() - channel.ending.left_at < kGrace) {
        (void)core_.epochs.push_out(channel);
        if (channel.gates & gate::failed) return false;
        if (!std::exchange(channel.ending.pushed, true))
            (void)core_.services.at(channel.ending.left_at + kGrace, [] {}); // so that progress is called then
        return true;
    }
    if (idle) {
        // If we have sent anything since the question was made, the peer may have received it, so we refuse.
        const bool agreed = is_idle(channel) && channel.ending.goodbye.delivered == channel.next_sequence &&
                            !(channel.asked && core_.admission.is_unused(channel)); // we have just asked for it
        {
            const std::lock_guard lock(core_.services);
            core_.control->say_known(channel.connection, channel.ending.goodbye.number, agreed);
            if (agreed) channel.ending.parted = true; // a new request of the peer waits until our side has ended
        }
        if (agreed) end_quietly(channel, channel.usage.endpoints != 0);
        return false;
    }
    if (!may_be_lost(channel)) return end_quietly(channel, false), false;
    {
        const std::lock_guard lock(core_.services); // a handshake may be changing the peer's names
        core_.services.say(LogLevel::info, "%s has closed while something was under way to it",
                           connect::describe(channel.connection).c_str());
    }
    mark_failed(core_, channel, Status::connection_reset);
    return false;
}

// -- Connections that no endpoint uses

// Called in each round of watch_peers(), for a channel whose peer owes nothing. A peer that has died is found as in
// other cases: its adapter does not acknowledge, and no path is left.
void Endings::watch_unused(Channel& channel, Nanos now) {
    const std::uint32_t count = channel.expected + channel.next_sequence;
    if (std::exchange(channel.watch.counted, count) != count) channel.usage.used_at = now;
    if (now - std::max(channel.usage.used_at, channel.watch.asked_at) < core_.config.unused_interval) return;
    channel.watch.asked_at = now;
    core_.observer->life.check(channel);
}

// Ends idle connections until three quarters of Config::max_unused are left.
void Endings::trim_unused() {
    constexpr Nanos kHalfOpen = 2'000'000'000; // so long a peer may stay silent after its request
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
            // `nobody`: the peer's request was refused, and it has not asked again.
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
                core_.visibility.read_back(channel); // it counts as idle the next time
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

// Until parted() or disowned() this side sends nothing but acknowledgments, which have no sequence number.
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
        // Perhaps only acknowledgments and completions are missing. Small messages do not ask for them, so we do.
        if (channel.in_flight()) (void)core_.acks.send_ack(channel, Kind::ack_request);
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

// Missing acknowledgments and completions are no obstacle here, since park() asks for them.
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
    mark_failed(core_, channel, Status::connection_reset);
}

// -- The end

void Endings::detach(Channel& channel) {
    const std::lock_guard lock(core_.services);
    if (--core_.directory.endpoints == 0) core_.attention.store(true, std::memory_order_relaxed); // to empty Ends::pool
    if (--channel.usage.endpoints != 0) return;
    ++core_.directory.unused;
    channel.usage.used_at = core_.services.now();
    if ((channel.gates & gate::not_ready) && !channel.self && channel.connection.state == connect::State::requesting) {
        // No endpoint wants it any more, and the peer cannot use it yet. An answer that still comes is refused.
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
        if (!looked) ++core_.recovery_steps; // so that the caller calls progress again
        if (!looked || !is_forgotten(*channel))
            core_.enlist(core_.directory.ending, channel);
        else if (channel->ending.renewing)
            begin_anew(*channel);
        else
            end_channel(*channel);
    }
}

// Nothing refers to the channel any more. Entries that have become useless are removed first. With the lock held.
bool Endings::is_forgotten(Channel& channel) {
    const auto is_its = [&](const auto& entry) { return entry.channel == &channel; };
    std::erase_if(core_.atomics.replies, is_its);
    if (channel.usage.endpoints == 0 && std::exchange(channel.usage.waiting, false))
        std::erase(core_.lists.waiting, &channel);
    if (channel.ending.failing || channel.ending.leaving || channel.ack_due || channel.moving.push_due ||
        channel.moving.pull_due || channel.visible.read_back_due)
        return false;
    if (!core_.failures.all_back(channel) || !channel.epochs_empty() || channel.in_flight() != 0) return false;
    if (channel.usage.cancels != 0 || core_.observer->life.names(channel)) return false;
    return std::ranges::none_of(core_.mail.list, is_its);
}

// A work, a request in the queue of an initiator or a list still points to the channel.
bool Endings::is_named(const Channel& channel) const {
    bool named = false;
    core_.works.pool.for_each([&](const Work& work) { named |= work.channel == &channel; });
    for (const DcRail& rail : core_.dc.rails)
        for (const auto& queue : rail.initiators)
            for (std::uint32_t i = queue->tail; i != queue->head; ++i) named |= queue->at(i).channel == &channel;
    const Lists& l = core_.lists;
    for (const auto* list : {&l.failed, &l.told_later, &l.pushes, &l.read_backs, &l.acks, &l.pulls, &leavers})
        named |= std::ranges::find(*list, &channel) != list->end();
    return named;
}

void Endings::clear(Channel& channel) {
    assert(channel.moving.pulled_count == 0 && channel.moving.atomics.empty() && channel.early_count == 0);
    assert(!is_named(channel));
    core_.admission.forget(channel);
    core_.control->forget(channel.connection);
    core_.ends.drop_prepared(channel);
    core_.observer->life.ended(channel, channel.error); // ends recovery's timers; it holds nothing else any more
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

// The channel is parked: it keeps Lasting for its endpoints, and otherwise begins as if never connected. It gets
// another id, so that late messages match no channel. With the lock held.
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
        return core_.directory.list_ending(channel); // its last endpoint has gone meanwhile
    core_.control->tell_rails(channel.connection);   // our list may not have been told yet, or not have arrived
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
