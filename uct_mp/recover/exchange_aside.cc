// Halves of paths on demand. Another thread runs their commands, so each step of exchange.cc is split in two: an order,
// and what follows when it is done. Anything may happen to the path in between. The result of an order that the path
// does not want any more is given back.
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

using connect::PathNews;

bool Exchange::is_aside(const Channel& channel, PathIndex path) const {
    return !channel.self && is_on_demand(channel, path);
}

Demand::Ordered Demand::new_order(Channel& channel, PathIndex path) {
    channel.wiring.recovery->paths[path].order = ++orders_;
    return {.order = orders_, .channel = &channel, .id = channel.local_id, .path = path};
}

PathRecovery* Demand::finish(const Ordered& order, Phase phase) {
    Channel* const channel = core_.directory.channel_with(order.id);
    if (!channel || channel != order.channel || !channel->wiring.recovery) return nullptr;
    std::vector<PathRecovery>& paths = channel->wiring.recovery->paths;
    if (order.path >= paths.size() || paths[order.path].order != order.order) return nullptr;
    paths[order.path].order = 0;
    const bool wanted = recoverable(core_, *channel) && channel->wiring.paths[order.path].phase == phase;
    return wanted ? &paths[order.path] : nullptr;
}

// Client: makes the half that it will offer.
void Exchange::make_aside(Channel& channel, PathIndex path) {
    const verbs::Rail& rail = core_.rails[channel.wiring.paths[path].rail];
    core_.halves.make(rail, [this, rail, order = all_.demand.new_order(channel, path)](verbs::QueuePair half) {
        PathRecovery* const r = all_.demand.finish(order);
        if (!r) return core_.halves.take_back(std::move(half), rail);
        if (!half) return all_.jobs.open_later(*order.channel, order.path);
        r->next_end = {half->qp_num, random_psn()};
        r->next = std::move(half);
        try_open(*order.channel, order.path);
    });
}

// Connects our half with the end in `news`. The server passes no half: one is made.
void Exchange::connect_aside(Channel& channel, PathIndex path, verbs::QueuePair half, connect::LocalEnd ours,
                             const PathNews& news) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    const bool same = news.end.qp_number == r.their_end.qp_number && news.end.psn == r.their_end.psn;
    if (r.order && same) return; // a copy: the command for it is under way
    r.their_end = news.end;
    const verbs::Rail& rail = core_.rails[channel.wiring.paths[path].rail];
    const verbs::RemoteEnd remote = core_.ends.remote_end(channel.connection, channel.connection.paths[path], news.end);
    core_.halves.connect(
        std::move(half), rail, remote, ours.psn,
        [this, rail, ours, news, order = all_.demand.new_order(channel, path)](verbs::QueuePair qp) mutable {
            PathRecovery* const found = all_.demand.finish(order);
            const bool good =
                found && qp && news.life == found->life + 1 && all_.reopening.is_ready(*order.channel, order.path);
            if (!good) {
                core_.halves.give_up(std::move(qp), rail);
                if (found) all_.jobs.open_later(*order.channel, order.path);
                return;
            }
            ours.qp_number = qp->qp_num;
            use_half(*order.channel, order.path, std::move(qp), ours, news.end);
            if (order.channel->connection.server)
                half_is_there(*order.channel, news);
            else
                both_are_there(*order.channel, news);
        });
}

// While the other thread ends the queue pair, our queue has none. Messages that came by it are still known by its
// number. Nothing is under way there, and nothing is posted.
bool Demand::end_aside(Channel& channel, PathIndex path) {
    if (channel.self || !is_on_demand(channel, path) || !channel.wiring.recovery ||
        !channel.wiring.recovery->paths[path].retired)
        return false;
    SendQueue& queue = *channel.wiring.paths[path].own[0];
    if (!queue.qp || !queue.idle()) return false; // completions that are still to come need the queue pair
    const verbs::Rail& rail = core_.rails[channel.wiring.paths[path].rail];
    const bool asks = core_.tells_packet_numbers(static_cast<std::uint8_t>(rail.device));
    core_.halves.retire(std::move(queue.qp), rail, asks,
                        [this, rail, order = new_order(channel, path)](verbs::QueuePair ended, std::uint32_t expected) {
                            PathRecovery* const r = finish(order, Phase::draining);
                            if (!r) return core_.halves.give_up(std::move(ended), rail);
                            SendQueue& own = *order.channel->wiring.paths[order.path].own[0];
                            own.qp = std::move(ended);
                            own.error_due = false;
                            r->ended_aside = true;
                            r->expected = expected == connect::kUnknownPsn ? expected : expected & kPsnMask;
                            r->round = core_.rounds.looks;
                            core_.alert = true;
                        });
    return true;
}

} // namespace ucx_mp::recover
