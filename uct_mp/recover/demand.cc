#include "uct_mp/recover/demand.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

using adapt::Service;
using connect::NewsKind;
using connect::PathNews;

namespace {
constexpr Nanos kRepeat = 2'000'000, kMaxRepeat = 200'000'000; // pauses before a wish is repeated
constexpr Nanos kRest = 1'000'000; // the peer hears that the path is not wanted, and its requests there complete
bool same_route(const path::PathSpec& a, const path::PathSpec& b) {
    return a.client_rail == b.client_rail && a.server_rail == b.server_rail && a.client_bits == b.client_bits &&
           a.server_bits == b.server_bits && a.reads == b.reads && a.writes == b.writes;
}
} // namespace

// -- Wishes

unsigned Demand::places(const Channel& channel) const {
    return static_cast<unsigned>(std::ranges::count(channel.connection.paths, true, &path::PathSpec::on_demand));
}

bool Demand::has_room(const Channel& channel) const {
    return channel.wiring.recovery->wishes.counted || in_use < core_.config.adapt.max_rc;
}

bool Demand::is_wanted(const Channel& channel) const {
    if (!channel.wiring.recovery) return false;
    const Wishes& wishes = channel.wiring.recovery->wishes;
    return wishes.ours == Service::rc || wishes.theirs == Service::rc;
}

bool Demand::is_agreed(const Channel& channel) const {
    if (!is_wanted(channel)) return false;
    const Wishes& wishes = channel.wiring.recovery->wishes;
    return wishes.theirs == Service::rc || wishes.answered;
}

Status Demand::serve_by(Channel& channel, Service service, channel::Reason why) {
    if (service == Service::dc_ring) return Status::unsupported;
    if (!recoverable(core_, channel) || (channel.gates & gate::not_ready)) return Status::busy;
    if (!channel.wiring.recovery || places(channel) == 0) return Status::unsupported;
    Wishes& wishes = channel.wiring.recovery->wishes;
    if (wishes.ours == service) {
        if (wishes.refused || service == Service::rc) wishes.why = why;
        wishes.refused = false;
        return Status::ok;
    }
    if (service == Service::rc && !has_room(channel)) return Status::no_resource;
    wishes.why = why;
    set_wish(channel, service);
    refresh(channel);
    return Status::ok;
}

void Demand::set_wish(Channel& channel, Service service) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    wishes.ours = service;
    if (++wishes.number == 0) ++wishes.number;
    wishes.answered = wishes.refused = false;
    wishes.attempts = 0;
    if (wishes.timer) core_.services.cancel(std::exchange(wishes.timer, 0));
    tell_wish(channel);
}

// Repeats the wish until it is answered. There is no bound: a live peer answers, and a dead peer's channel fails.
void Demand::tell_wish(Channel& channel) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    {
        const std::lock_guard lock(core_.services);
        core_.control->wish(channel.connection, {.number = wishes.number, .service = wishes.ours}, wishes.attempts);
    }
    const Nanos pause = std::min(kMaxRepeat, kRepeat << std::min(wishes.attempts++, 16u));
    wishes.timer = core_.services.at(core_.services.now() + pause, [this, &channel] {
        channel.wiring.recovery->wishes.timer = 0;
        tell_wish(channel);
    });
}

void Demand::take_verdict(Channel& channel, std::uint32_t number, bool taken) {
    if (!recoverable(core_, channel) || !channel.wiring.recovery) return;
    Wishes& wishes = channel.wiring.recovery->wishes;
    if (number != wishes.number) return;
    if (wishes.answered) {
        if (taken) return;
        // The peer takes back what it had granted. Our next number tells it that we know. If this is only a copy of an
        // earlier refusal, one message too many is sent.
        wishes.why = channel::Reason::refusal;
        set_wish(channel, Service::shared);
        wishes.refused = true;
        return refresh(channel);
    }
    if (wishes.timer) core_.services.cancel(std::exchange(wishes.timer, 0));
    wishes.answered = true;
    if (wishes.ours == Service::rc) wishes.refused = !taken; // else this wish only said that we know of the refusal
    wishes.switches += taken;
    if (!taken) wishes.ours = Service::shared, wishes.why = channel::Reason::refusal;
    refresh(channel);
}

// Each number has one verdict, and every copy gets it.
void Demand::take_wish(Channel& channel, const connect::ServiceWish& wish) {
    if (!recoverable(core_, channel) || !channel.wiring.recovery) return; // the peer repeats it
    Wishes& wishes = channel.wiring.recovery->wishes;
    if (static_cast<std::int32_t>(wish.number - wishes.heard) < 0) return;
    if (wish.number != wishes.heard) {
        stop_revoking(channel);
        wishes.heard = wish.number;
        const bool refused = wish.service == Service::rc &&
                             (core_.directory.endpoints == 0 || places(channel) == 0 || !has_room(channel));
        wishes.heard_refused = wishes.asks = refused;
        wishes.theirs = refused ? Service::shared : wish.service;
        wishes.answers = 0;
    }
    {
        const std::lock_guard lock(core_.services);
        core_.control->answer(channel.connection, wishes.heard, !wishes.heard_refused, wishes.answers++);
    }
    refresh(channel);
}

void Demand::forget(Channel& channel) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    stop_revoking(channel);
    if (wishes.timer) core_.services.cancel(std::exchange(wishes.timer, 0));
    in_use -= std::exchange(wishes.counted, false);
    wishes.ours = wishes.theirs = Service::shared;
    wishes.why = channel::Reason::none;
}

void Demand::revoke(Channel& channel) {
    if (!recoverable(core_, channel) || !channel.wiring.recovery) return;
    Wishes& wishes = channel.wiring.recovery->wishes;
    if (wishes.theirs == Service::shared) return;
    wishes.theirs = Service::shared;
    wishes.heard_refused = true;
    tell_revoked(channel);
    refresh(channel);
}

// Repeated like a wish, until the peer's next number comes.
void Demand::tell_revoked(Channel& channel) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    {
        const std::lock_guard lock(core_.services);
        core_.control->answer(channel.connection, wishes.heard, false, wishes.answers++);
    }
    const Nanos pause = std::min(kMaxRepeat, kRepeat << std::min(wishes.revoked++, 16u));
    wishes.revoking = core_.services.at(core_.services.now() + pause, [this, &channel] {
        channel.wiring.recovery->wishes.revoking = 0;
        tell_revoked(channel);
    });
}

void Demand::stop_revoking(Channel& channel) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    if (wishes.revoking) core_.services.cancel(std::exchange(wishes.revoking, 0));
    wishes.revoked = 0;
}

channel::Served Demand::served(const Channel& channel) const {
    if (!channel.wiring.recovery) return {};
    const Wishes& wishes = channel.wiring.recovery->wishes;
    return {.ours = wishes.ours,
            .theirs = wishes.theirs,
            .refused = wishes.refused,
            .asks = wishes.asks ? wishes.heard : 0,
            .places = places(channel),
            .why = wishes.why};
}

// -- Paths

bool Demand::was_there(const Channel& channel, PathIndex path) const {
    return channel.wiring.recovery && is_on_demand(channel, path) && channel.wiring.recovery->paths[path].life != 0;
}

bool Demand::lets_go(const Channel& channel, PathIndex path) const {
    return is_on_demand(channel, path) && !is_wanted(channel);
}

void Demand::give_back(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    Path& sub = channel.wiring.paths[path];
    if (r.timer) core_.services.cancel(std::exchange(r.timer, 0));
    all_.phases.set_phase(channel, path, Phase::absent);
    r.retired = false;
    core_.halves.take_back(std::move(r.next), core_.rails[sub.rail]); // it has never been connected
    r.order = 0;
    sub.queue[0] = sub.queue[1] = nullptr;
    if (!sub.own[0]) return; // it has never been up
    const std::lock_guard lock(core_.services);
    core_.ends.graves.push_back(std::move(sub.own[0]));
    core_.attention.store(true, std::memory_order_relaxed);
}

bool Demand::is_void(const Channel& channel, const PathNews& open) const {
    if (!channel.connection.server || !is_on_demand(channel, open.path) || !channel.wiring.recovery) return false;
    const Phase phase = channel.wiring.paths[open.path].phase;
    if (phase == Phase::absent && !is_wanted(channel)) return true;
    // It was made void before, and our message about that was lost.
    return (phase == Phase::absent || phase == Phase::reopening) &&
           open.life == channel.wiring.recovery->paths[open.path].life;
}

// Without this answer the client would repeat its offer for ever. Neither side has sent anything in this life.
void Demand::void_life(Channel& channel, const PathNews& news) {
    PathRecovery& r = channel.wiring.recovery->paths[news.path];
    if (news.life == r.life + 1) {
        r.life = news.life;
        r.mine = {.path = news.path,
                  .life = r.life,
                  .marker = channel.wiring.paths[news.path].last_marker,
                  .delivered = channel.expected,
                  .end = {}};
        r.mine_known = r.theirs_known = true;
    }
    if (news.life != r.life) return;
    PathNews mine = r.mine;
    mine.answer = mine.home = true;
    all_.asking.tell_peer(channel, NewsKind::down, mine, all_.asking.question_attempts++);
}

void Demand::refresh(Channel& channel) {
    if (!channel.wiring.recovery || places(channel) == 0) return;
    Wishes& wishes = channel.wiring.recovery->wishes;
    const bool wanted = is_wanted(channel);
    if (wanted != wishes.counted) {
        wishes.counted = wanted;
        wanted ? ++in_use : --in_use;
        wishes.left_at = core_.services.now();
    }
    if (wanted) {
        all_.joining.join_paths(channel);
    } else {
        for (PathIndex path = 0; path < channel.wiring.places; ++path) {
            // A client that has offered a life goes on until the server has taken or refused it, even if the client's
            // half is gone. Else the server might wait in that life.
            if (!is_on_demand(channel, path) || channel.wiring.paths[path].phase != Phase::reopening) continue;
            if (!channel.wiring.recovery->paths[path].offered) give_back(channel, path);
        }
        trim_due = core_.alert = true;
    }
    find_spares(channel);
}

bool Demand::is_of_use(const Channel& channel, PathIndex path) const {
    const std::vector<path::PathSpec>& paths = channel.connection.paths;
    PathMask there = 0, twins = 0; // paths of DC, whether they work just now or not
    for (PathIndex dc = 0; dc < channel.wiring.places; ++dc) {
        if (paths[dc].kind != path::Kind::dc || !is_there(channel.wiring.paths[dc].phase)) continue;
        there |= PathMask{1} << dc;
        if (same_route(paths[dc], paths[path])) twins |= PathMask{1} << dc;
    }
    const bool choosy = channel.connection.absent && !core_.config.paths.cross_rails; // as find_spares()
    return twins & ~(choosy ? static_cast<PathMask>(path::spare_paths(paths, there)) : 0);
}

PathMask Demand::twins(const Channel& channel, PathIndex path) const {
    const std::vector<path::PathSpec>& paths = channel.connection.paths;
    PathMask found = 0;
    for (PathIndex other = 0; other < channel.wiring.places; ++other)
        if (paths[other].kind != paths[path].kind && same_route(paths[other], paths[path]))
            found |= PathMask{1} << other;
    return found;
}

// All routes change between DC and RC at once. The scheduler compares paths, and would take the difference between RC
// and DC for one between routes.
PathMask Demand::spares(const Channel& channel) const {
    PathMask rc_up = 0, dc_up = 0, beside_rc = 0;
    for (PathIndex path = 0; path < channel.wiring.places; ++path) {
        if (channel.wiring.paths[path].phase != Phase::up) continue;
        (channel.connection.paths[path].on_demand ? rc_up : dc_up) |= PathMask{1} << path;
    }
    bool whole = is_wanted(channel);
    for (PathIndex rc = 0; rc < channel.wiring.places; ++rc) {
        if (!is_on_demand(channel, rc)) continue;
        const PathMask dc = twins(channel, rc);
        if (rc_up >> rc & 1)
            beside_rc |= dc;
        else if (dc & dc_up && is_of_use(channel, rc))
            whole = false;
    }
    return whole ? beside_rc : rc_up;
}

// With unequal rails, a path that was spare may add rate when another path is gone.
void Demand::find_spares(Channel& channel) {
    if (!channel.connection.absent) return;
    PathMask spare = spares(channel);
    schedule::Scheduler& scheduler = *channel.wiring.scheduler;
    for (const PathIndex left : schedule::each(spare))
        for (const PathIndex next : schedule::each(twins(channel, left) & ~spare)) scheduler.inherit(next, left);
    if (!core_.config.paths.cross_rails)
        spare |= path::spare_paths(channel.connection.paths, scheduler.paths().usable());
    scheduler.set_spare(spare);
}

// -- Giving back

// Each request takes a receive buffer of the peer beyond its window (Adapter::kControl), and a peer that computes gives
// none back. So the pauses between requests double.
void Demand::ask_for_acknowledgment(Channel& channel) {
    Wishes& wishes = channel.wiring.recovery->wishes;
    const Nanos now = core_.services.now();
    if (std::exchange(wishes.asked_acked, channel.acked) != channel.acked) wishes.asked = 0, wishes.ask_at = 0;
    if (now < wishes.ask_at || !core_.acks.send_ack(channel, channel::Kind::ack_request)) return;
    wishes.ask_at = now + (kRest << std::min(wishes.asked++, 30u));
}

// True: nothing of ours is under way on the path, and the peer has acknowledged all messages that took it. If writes
// there still need a marker or a read back, another path can take that over.
bool Demand::is_quiet(Channel& channel, PathIndex path) {
    SendQueue& queue = *channel.wiring.paths[path].own[0];
    if (!queue.idle()) {
        if (!queue.all_signaled()) (void)core_.epochs.write_nothing(channel, path, queue);
        return false;
    }
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i)
        if (channel.wiring.retained[i & channel.window_mask]->path == path) {
            ask_for_acknowledgment(channel);
            return false;
        }
    if (core_.visibility.awaits_marker_of(channel, path)) {
        ask_for_acknowledgment(channel);
        return false;
    }
    return core_.visibility.can_hand_over(channel, path);
}

bool Demand::retire(Channel& channel, unsigned& many) {
    bool all = true;
    for (PathIndex path = 0; path < channel.wiring.places && many && recoverable(core_, channel); ++path) {
        if (!is_on_demand(channel, path) || channel.wiring.paths[path].phase != Phase::up) continue;
        if (!is_quiet(channel, path)) {
            all = false;
            continue;
        }
        --many;
        channel.wiring.recovery->paths[path].retired = true;
        all_.failure.path_failed(channel, path, "nobody wants it", false);
    }
    return all;
}

// A path is kept for kRest after it was last wanted. Else the peer's last requests there would be lost and go again.
void Demand::trim() {
    trim_due = false;
    const Nanos now = core_.services.now();
    unsigned endpoints = 0;
    std::vector<Channel*> left;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        endpoints += channel.usage.endpoints;
        if (!recoverable(core_, channel) || !channel.wiring.recovery || is_wanted(channel)) continue;
        for (PathIndex path = 0; path < channel.wiring.places; ++path)
            if (is_on_demand(channel, path) && channel.wiring.paths[path].phase == Phase::up) {
                left.push_back(&channel);
                break;
            }
    }
    const unsigned most = endpoints ? core_.config.adapt.pool : 0;
    if (all_.phases.kept <= most) return;
    unsigned many = all_.phases.kept - most;
    std::ranges::stable_sort(left, {}, [](const Channel* c) { return c->wiring.recovery->wishes.left_at; });
    bool later = false;
    for (Channel* const channel : left) {
        if (many == 0) break;
        later |= now - channel->wiring.recovery->wishes.left_at < kRest || !retire(*channel, many);
    }
    delays = later ? delays + 1 : 0;
    if (!later || trim_timer) return;
    trim_timer = core_.services.at(now + (kRest << std::min(delays / 16, 7u)), [this] {
        trim_timer = 0;
        trim_due = core_.alert = true;
    });
}

} // namespace ucx_mp::recover
