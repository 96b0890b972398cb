#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/settling.h"
#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

using connect::Connection;
using connect::NewsKind;
using connect::PathNews;

// -- What had arrived

void Exchange::on_path_down(Channel& channel, const PathNews& news) {
    const PathIndex path = news.path;
    // An absent path on demand may have lived before, and the peer may have missed our answer about that life.
    if (is_absent(channel, path) && !all_.demand.was_there(channel, path)) return;
    if (channel.wiring.paths[path].kind == path::Kind::dc) {
        if (news.gone) {
            const Phase phase = channel.wiring.paths[path].phase;
            if (phase == Phase::up || channel.wiring.recovery->paths[path].stays)
                all_.failure.path_failed(channel, path, "the port at the other side is down", false);
        } else if (news.answer) {
            if (!channel.wiring.recovery) return;
            PathRecovery& r = channel.wiring.recovery->paths[path];
            if (channel.wiring.paths[path].phase != Phase::asking || r.life != news.life || r.theirs_known) return;
            r.theirs = news;
            r.theirs_known = true;
            all_.phases.list_recovering(channel);
        } else {
            // Answered when all that has come is handled: a marker of this path may still lie in a completion queue.
            all_.asking.questions.push_back({.channel = &channel,
                                             .id = channel.local_id,
                                             .path = path,
                                             .life = news.life,
                                             .round = core_.rounds.looks});
            core_.alert = true;
        }
        return;
    }
    PathRecovery& r = recovery_of(channel).paths[path];
    if (static_cast<std::int32_t>(news.life - r.life) < 0) return; // an older life, long settled
    if (news.life != r.life) {
        // The server has given up the next life before we entered it, so nothing has been sent in it. The half that we
        // offered may be gone with its adapter.
        if (news.life != r.life + 1 || channel.wiring.paths[path].phase != Phase::reopening || !r.offered) return;
        r.life = news.life;
        const verbs::Rail& rail = core_.rails[channel.wiring.paths[path].rail];
        is_aside(channel, path) ? core_.halves.take_back(std::move(r.next), rail) : r.next.reset();
        r.order = 0;
        r.offered = false;
        r.mine.life = r.life;
        r.mine.psn = connect::kUnknownPsn; // the server has sent nothing that this could settle
        r.theirs = news;
        all_.demand.refresh(channel);
        // Starts the timer: none runs if commands for this life were under way.
        if (channel.wiring.paths[path].phase == Phase::reopening) all_.jobs.schedule_open(channel, path);
    } else if (channel.wiring.paths[path].phase == Phase::up || channel.wiring.paths[path].phase == Phase::half) {
        // The peer gives up an unwanted path when nothing of its own is under way there. Its acknowledgment is taken
        // first, so that path_failed() does not send again what has arrived.
        if (news.home) core_.receiver.take_ack(channel, news.delivered);
        if (!recoverable(core_, channel)) return; // a callback of the user has ended it
        r.retired = news.home;
        all_.failure.path_failed(channel, path, "the other side has given it up", false);
    }
    if (!r.theirs_known) {
        r.theirs = news;
        r.theirs_known = true;
        all_.phases.list_recovering(channel);
    }
    if (!news.answer && r.mine_known) {
        PathNews mine = r.mine;
        mine.answer = true;
        all_.asking.tell_peer(channel, NewsKind::down, mine, all_.asking.question_attempts++);
    }
}

void Exchange::answer_questions() {
    for (const Asking::Question& question : std::exchange(all_.asking.questions, {})) {
        ++core_.recovery_steps; // the caller of progress() shall call again
        if (!core_.rounds.looked_since(question.round)) {
            all_.asking.questions.push_back(question);
            continue;
        }
        if (core_.directory.channel_with(question.id) != question.channel) continue;
        Channel& channel = *question.channel;
        if (question.path >= channel.wiring.path_count || !recoverable(core_, channel)) continue;
        const PathNews news{.path = question.path,
                            .answer = true,
                            .life = question.life,
                            .marker = channel.wiring.paths[question.path].last_marker,
                            .delivered = channel.expected,
                            .end = {}};
        if (channel.self)
            on_path_down(channel, news);
        else
            all_.asking.tell_peer(channel, NewsKind::down, news, all_.asking.question_attempts++);
    }
}

// -- Making it anew

// Connects `qp` (to RTS) and makes it the path's queue pair. False: it could not be connected.
bool Exchange::connect_half(Channel& channel, PathIndex path, verbs::QueuePair& qp, const connect::LocalEnd& ours,
                            const connect::LocalEnd& theirs) {
    const verbs::Rail& rail = core_.rails[channel.wiring.paths[path].rail];
    const verbs::RemoteEnd remote = core_.ends.remote_end(channel.connection, channel.connection.paths[path], theirs);
    if (const int error = verbs::connect_rc(qp.get(), rail, remote, core_.config.reliability, ours.psn)) {
        core_.services.say(LogLevel::debug, "cannot connect a queue pair on %s: %s", rail.name.c_str(),
                           std::strerror(error));
        return false;
    }
    use_half(channel, path, std::move(qp), ours, theirs);
    return true;
}

void Exchange::use_half(Channel& channel, PathIndex path, verbs::QueuePair qp, const connect::LocalEnd& ours,
                        const connect::LocalEnd& theirs) {
    Connection& connection = channel.connection;
    const verbs::RemoteEnd remote = core_.ends.remote_end(connection, connection.paths[path], theirs);
    Path& sub = channel.wiring.paths[path];
    if (is_on_demand(channel, path)) core_.adaptation.note_commands(core_.halves.paid());
    if (sub.own[0]) {
        sub.own[0]->replace(std::move(qp));
    } else { // its first life
        core_.ends.make_queue(connection, sub, std::move(qp));
        sub.own[0]->fail(); // until path_is_up()
    }
    SendQueue& queue = *sub.own[0];
    queue.begin_packets(ours.psn, remote.mtu);
    sub.unconnected = false;
    if (!channel.self) all_.migration.load_first_alternate(connection, path, sub);
    const std::lock_guard lock(core_.services); // the control plane may be reading them
    connection.ends[path] = ours;
    connection.remote_ends[path] = theirs;
}

void Exchange::try_open(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    if (channel.wiring.paths[path].phase != Phase::reopening) return;
    const bool dc = channel.wiring.paths[path].kind == path::Kind::dc;
    if (!all_.reopening.is_ready(channel, path))
        return all_.jobs.open_at(channel, path, core_.services.now() + core_.config.recovery.open_interval);
    if (r.order) return; // its command is under way
    if (!dc && !r.next && is_aside(channel, path)) return make_aside(channel, path);
    if (!dc && !r.next) {
        r.next = core_.ends.make_half(core_.rails[channel.wiring.paths[path].rail], LogLevel::debug);
        if (r.next) r.next_end = {r.next->qp_num, random_psn()};
    }
    if (channel.self) { // no peer to ask: a path that does not work fails again
        if ((dc && all_.joining.address_target(channel, path)) ||
            (r.next && connect_half(channel, path, r.next, r.next_end, r.next_end))) {
            ++r.life;
            return path_is_up(channel, path);
        }
        r.next.reset();
    } else if (dc || r.next) {
        if (r.port) all_.asking.tell_gone(channel, path); // again, since the first message may have been lost
        const PathNews open{.path = path, .life = r.life + !dc, .end = dc ? connect::LocalEnd{} : r.next_end};
        if (!all_.asking.tell_over_path(channel, NewsKind::open,
                                        open)) { // no room, others send, too: try soon, without a growing pause
            constexpr Nanos kSoon = 100'000;
            return all_.jobs.open_at(channel, path, core_.services.now() + kSoon);
        }
        r.offered = !dc;
    }
    all_.jobs.open_later(channel, path);
}

// The path_open has come over the path, so its route works in this direction. The answer takes the same route back.
void Exchange::on_path_open(Channel& channel, const PathNews& news) {
    const PathIndex path = news.path;
    const bool dc = channel.wiring.paths[path].kind == path::Kind::dc;
    const bool client = !dc && !channel.connection.server;
    if (!all_.reopening.is_ready(channel, path)) return; // the peer repeats it
    if (all_.demand.is_void(channel, news)) return all_.demand.void_life(channel, news);
    // routed = true: the client has decided whether one IP network reaches another.
    if (is_absent(channel, path) && !client && all_.joining.may_join(channel, path, true)) {
        if (!all_.joining.has_places(channel)) return; // the peer repeats it
        all_.joining.join(channel, path);
    }
    if (dc) {
        all_.asking.tell_over_path(channel, NewsKind::opened, {.path = path, .life = news.life, .end = {}});
        if (!channel.wiring.recovery || channel.wiring.paths[path].phase != Phase::reopening) return;
        channel.wiring.recovery->paths[path].attempts = 0; // our direction may work again, too
        return all_.jobs.schedule_open(channel, path);
    }
    if (!channel.wiring.recovery || !channel.connection.server) return;
    PathRecovery& r = channel.wiring.recovery->paths[path];
    const bool again = channel.wiring.paths[path].phase == Phase::half && news.life == r.life &&
                       news.end.qp_number == r.their_end.qp_number && news.end.psn == r.their_end.psn;
    if (!again) {
        // The client could not connect the half that it had offered, and has made another.
        if (channel.wiring.paths[path].phase == Phase::half && news.life == r.life)
            return all_.failure.path_failed(channel, path, "the client offers another queue pair", false);
        // A new life begins only when both sides know what had arrived in the last one.
        if (channel.wiring.paths[path].phase != Phase::reopening || news.life != r.life + 1) return;
        if (is_aside(channel, path)) return connect_aside(channel, path, nullptr, {0, random_psn()}, news);
        verbs::QueuePair qp = core_.ends.make_half(core_.rails[channel.wiring.paths[path].rail], LogLevel::debug);
        if (!qp) return;
        const connect::LocalEnd ours{qp->qp_num, random_psn()};
        if (!connect_half(channel, path, qp, ours, news.end)) return;
        return half_is_there(channel, news);
    }
    all_.asking.tell_over_path(channel, NewsKind::opened,
                               {.path = path, .life = r.life, .end = channel.connection.ends[path]});
}

// Server: our half is connected. Nothing is sent on it before the client's first message has come.
void Exchange::half_is_there(Channel& channel, const PathNews& open) {
    PathRecovery& r = channel.wiring.recovery->paths[open.path];
    r.life = open.life;
    r.their_end = open.end;
    all_.phases.set_phase(channel, open.path, Phase::half);
    r.mine_known = r.theirs_known = false;
    all_.asking.tell_over_path(channel, NewsKind::opened,
                               {.path = open.path, .life = r.life, .end = channel.connection.ends[open.path]});
}

void Exchange::on_path_opened(Channel& channel, const PathNews& news) {
    if (!channel.wiring.recovery) return;
    const PathIndex path = news.path;
    PathRecovery& r = channel.wiring.recovery->paths[path];
    if (channel.wiring.paths[path].phase != Phase::reopening || !all_.reopening.is_ready(channel, path)) return;
    if (channel.wiring.paths[path].kind == path::Kind::dc) {
        if (news.life == r.life && all_.joining.address_target(channel, path)) path_is_up(channel, path);
        return;
    }
    if (channel.connection.server || !r.next || news.life != r.life + 1) return;
    if (is_aside(channel, path)) return connect_aside(channel, path, std::move(r.next), r.next_end, news);
    if (!connect_half(channel, path, r.next, r.next_end, news.end)) {
        r.next.reset();
        return; // the timer offers another half, and the server then gives this one up
    }
    both_are_there(channel, news);
}

// Client: both halves are connected.
void Exchange::both_are_there(Channel& channel, const PathNews& opened) {
    PathRecovery& r = channel.wiring.recovery->paths[opened.path];
    r.life = opened.life;
    r.next.reset();
    r.offered = false;
    r.greet = true;
    path_is_up(channel, opened.path);
}

// The server sends nothing on the new queue pair before this message has come.
void Exchange::greet(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    const PathUpBody body{r.life};
    if (core_.acks.send_control(channel, Kind::path_up, &body, sizeof body, path, *channel.wiring.paths[path].own[0]))
        r.greet = false;
}

void Exchange::take_path_up(Channel& channel, PathIndex path, std::uint32_t life) {
    if (!channel.wiring.recovery || path >= channel.wiring.path_count) return;
    PathRecovery& r = channel.wiring.recovery->paths[path];
    if (channel.wiring.paths[path].phase == Phase::half && r.life == life) path_is_up(channel, path);
}

void Exchange::path_is_up(Channel& channel, PathIndex path) {
    Recovery& recovery = *channel.wiring.recovery;
    PathRecovery& r = recovery.paths[path];
    const Nanos now = core_.services.now();
    if (r.timer) core_.services.cancel(std::exchange(r.timer, 0));
    if (recovery.partition) core_.services.cancel(std::exchange(recovery.partition, 0));
    const bool alone = channel.wiring.scheduler->paths().usable() == 0;
    all_.phases.set_phase(channel, path, Phase::up);
    channel.wiring.paths[path].stale = 0; // the watchdog counted looks at the life before
    r.probed_since = 0;
    r.port = r.retired = false;
    r.came_up = now;
    ++r.returns;
    if (channel.wiring.paths[path].kind == path::Kind::rc) channel.wiring.paths[path].own[0]->revive();
    all_.demand.find_spares(channel);
    if (alone) all_.reports.note(channel, Transition::What::reached, kNoPath, recovery.partition_since);
    all_.reports.note(channel, Transition::What::up, path, r.since);
    all_.reports.tell(channel, path, "is up%s after %.3f ms",
                      r.failures                    ? " again"
                      : is_on_demand(channel, path) ? ", as it is wanted,"
                                                    : ", its port has come up,",
                      static_cast<double>(now - r.since) * 1e-6);
    if (alone) all_.reports.reached(channel);
    all_.phases.list_recovering(channel);
    all_.demand.refresh(channel);
    if (r.greet) greet(channel, path);
    resume(channel);
}

void Exchange::resume(Channel& channel) {
    core_.acks.owe_ack(channel, true);
    if (channel.ack_sent == channel.expected) channel.ack_sent = channel.expected - 1;
    if (!channel.epochs_empty()) core_.epochs.push(channel);
    if (channel.moving.pulled_count && !channel.wiring.only) core_.mover.pull(channel);
}

void Exchange::take_news(Channel& channel, NewsKind kind, const PathNews& news) {
    if (!recoverable(core_, channel) || news.path >= channel.wiring.places) return;
    switch (kind) {
    case NewsKind::down:
        return on_path_down(channel, news);
    case NewsKind::open:
    case NewsKind::opened: {
        const bool open = kind == NewsKind::open;
        if (channel.wiring.recovery)
            all_.jobs.add_path_job(channel, open ? Job::What::take_open : Job::What::take_opened, news);
        else if (open)
            on_path_open(channel, news); // DC answers; RC has no path to open while none has failed
        return;
    }
    case NewsKind::probed:
        if (news.home) return all_.migration.home_answers(channel, news.path);
        if (channel.wiring.recovery) channel.wiring.recovery->answered_at = core_.services.now();
        return all_.phases.path_answers(channel, news.path);
    case NewsKind::probe: // it has come over the path itself: if we try to open that path, try now
        if (!news.home && channel.wiring.recovery && channel.wiring.paths[news.path].phase == Phase::reopening) {
            channel.wiring.recovery->paths[news.path].attempts = 0;
            all_.jobs.schedule_open(channel, news.path);
        }
        return;
    }
}

std::uint32_t Exchange::random_psn() {
    const std::lock_guard lock(core_.services);
    return core_.control->random_psn();
}

} // namespace ucx_mp::recover
