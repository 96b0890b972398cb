// What both sides tell each other: what had arrived (path_down), and how a path is made anew (path_open, path_opened).
#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

using connect::Connection;
using connect::PathKind;
using connect::PathNews;
using recover::PathRecovery;
using recover::Phase;
using recover::Recovery;

namespace {
constexpr Nanos doubled(Nanos first, unsigned attempts, Nanos most) {
    return std::min(most, first << std::min(attempts, 16u));
}
} // namespace

void Interface::Impl::set_path_timer(Channel& channel, PathIndex path, Nanos at,
                                     void (Impl::*fn)(Channel&, PathIndex)) {
    PathRecovery& r = channel.recovery->paths[path];
    if (r.timer) services.cancel(r.timer);
    r.timer = services.at(at, [this, &channel, path, fn] {
        channel.recovery->paths[path].timer = 0;
        (this->*fn)(channel, path);
    });
}

// -- What had arrived

void Interface::Impl::ask(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    const Nanos now = services.now();
    if (r.phase != Phase::asking) return;
    if (r.not_before > now) return set_path_timer(channel, path, r.not_before, &Impl::ask);
    if (channel.self) {
        questions.push_back({&channel, channel.local_id, path, r.life, looks});
        alert = true;
        return list_recovering(channel);
    }
    tell_peer(channel, PathKind::down, r.mine, r.attempts);
    // Without any path nothing goes on before the answer.
    const bool needed = channel.scheduler->paths().usable() == 0;
    const Nanos most = needed ? config.recovery.max_needed_interval : config.recovery.max_ask_interval;
    const Nanos wait = doubled(config.recovery.ask_interval, r.attempts++, most);
    set_path_timer(channel, path, now + wait, &Impl::ask);
}

// mp_dc. Over mp_rc the other half learns it by our path_down.
void Interface::Impl::tell_gone(Channel& channel, PathIndex path) {
    if (config.transport != connect::Transport::dc || channel.self) return;
    tell_peer(channel, PathKind::down, {.path = path, .answer = true, .gone = true, .end = {}}, question_attempts++);
}

void Interface::Impl::on_path_down(Channel& channel, const PathNews& news) {
    const PathIndex path = news.path;
    if (is_absent(channel, path)) return;
    if (config.transport == connect::Transport::dc) {
        if (news.gone) {
            const Phase phase = recovery_of(channel).paths[path].phase;
            if (phase == Phase::up || channel.recovery->paths[path].stays)
                path_failed(channel, path, "the port at the other side is down", false);
        } else if (news.answer) {
            if (!channel.recovery) return;
            PathRecovery& r = channel.recovery->paths[path];
            if (r.phase != Phase::asking || r.life != news.life || r.theirs_known) return;
            r.theirs = news;
            r.theirs_known = true;
            list_recovering(channel);
        } else {
            // Answered when our completion queues have been seen empty: a marker may lie there.
            questions.push_back({&channel, channel.local_id, path, news.life, looks});
            alert = true;
        }
        return;
    }
    PathRecovery& r = recovery_of(channel).paths[path];
    if (static_cast<std::int32_t>(news.life - r.life) < 0) return; // of an older life, long settled
    if (news.life != r.life) {
        // The server gave up the life that we were about to accept: nothing has been sent in it.
        if (news.life != r.life + 1 || r.phase != Phase::reopening || !r.next) return;
        r.life = news.life;
        r.next.reset();
        r.mine.life = r.life;
        r.mine.psn = connect::kUnknownPsn; // it has nothing to ask
        r.theirs = news;
    } else if (r.phase == Phase::up || r.phase == Phase::half) {
        path_failed(channel, path, "the other side has given it up", false);
    }
    if (!r.theirs_known) {
        r.theirs = news;
        r.theirs_known = true;
        list_recovering(channel);
    }
    if (!news.answer && r.mine_known) {
        PathNews mine = r.mine;
        mine.answer = true;
        tell_peer(channel, PathKind::down, mine, question_attempts++);
    }
}

void Interface::Impl::answer_questions() {
    for (const Question& question : std::exchange(questions, {})) {
        ++recovery_steps; // progress is wanted
        if (!looked_since(question.round)) {
            questions.push_back(question);
            continue;
        }
        if (channel_with(question.id) != question.channel) continue;
        Channel& channel = *question.channel;
        if (question.path >= channel.path_count || !recoverable(channel)) continue;
        const PathNews news{.path = question.path,
                            .answer = true,
                            .life = question.life,
                            .marker = channel.subs[question.path].last_marker,
                            .delivered = channel.expected,
                            .end = {}};
        if (channel.self)
            on_path_down(channel, news);
        else
            tell_peer(channel, PathKind::down, news, question_attempts++);
    }
}

// -- Making it anew

// mp_rc: the client does.
bool Interface::Impl::may_open(const Channel& channel) const {
    return config.transport == connect::Transport::dc || channel.self || !channel.connection.server;
}

void Interface::Impl::schedule_open(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    if (!may_open(channel)) return;
    // A path that keeps failing soon after its return is left alone for longer and longer; not if it is needed: any
    // path is better than none.
    const bool needed = channel.scheduler->paths().usable() == 0;
    const Nanos hold =
        r.flaps && !needed ? doubled(config.recovery.hold_down, r.flaps - 1, config.recovery.max_hold_down) : 0;
    set_path_timer(channel, path, std::max(services.now() + pause_between_tries(channel, r), r.since + hold),
                   &Impl::time_to_open);
}

Nanos Interface::Impl::pause_between_tries(const Channel& channel, const PathRecovery& r) const {
    const bool needed = channel.scheduler->paths().usable() == 0;
    return doubled(config.recovery.open_interval, r.attempts,
                   needed ? config.recovery.max_needed_interval : config.recovery.max_open_interval);
}

// `qp` becomes the queue pair of the path, in RTS.
bool Interface::Impl::connect_half(Channel& channel, PathIndex path, verbs::QueuePair& qp,
                                   const connect::LocalEnd& ours, const connect::LocalEnd& theirs) {
    Connection& connection = channel.connection;
    const verbs::Rail& rail = rails[channel.subs[path].rail];
    const verbs::RemoteEnd remote = remote_end(connection, connection.paths[path], theirs);
    if (const int error = verbs::connect_rc(qp.get(), rail, remote, config.reliability, ours.psn)) {
        services.say(LogLevel::debug, "cannot connect a queue pair on %s: %s", rail.name.c_str(), std::strerror(error));
        return false;
    }
    Subchannel& sub = channel.subs[path];
    if (sub.own[0]) {
        sub.own[0]->replace(std::move(qp));
    } else { // its first life
        sub.own[0] = std::make_unique<SendQueue>(std::move(qp), adapters[rail.device], config, inline_bytes, false);
        sub.queue[0] = sub.queue[1] = sub.own[0].get();
        sub.own[0]->fail(); // until path_is_up()
    }
    SendQueue& queue = *sub.own[0];
    queue.begin_packets(ours.psn, remote.mtu);
    channel.subs[path].unconnected = false;
    if (!channel.self) load_first_alternate(connection, path, channel.subs[path]);
    const std::lock_guard lock(services); // the control plane may be reading them
    connection.ends[path] = ours;
    connection.remote_ends[path] = theirs;
    return true;
}

void Interface::Impl::time_to_open(Channel& channel, PathIndex path) {
    const PathRecovery& r = channel.recovery->paths[path];
    if (r.next) return try_open(channel, path); // without commands
    add_path_job(channel, recover::Job::What::open, {.path = path, .end = {}});
}

void Interface::Impl::try_open(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    if (r.phase != Phase::reopening) return;
    const bool dc = config.transport == connect::Transport::dc;
    if (!is_ready(channel, path))
        return set_path_timer(channel, path, services.now() + config.recovery.open_interval, &Impl::time_to_open);
    if (!dc && !r.next) {
        r.next = make_half(rails[channel.subs[path].rail], LogLevel::debug);
        if (r.next) r.next_end = {r.next->qp_num, random_psn()};
    }
    if (channel.self) { // nobody to ask: what does not work fails again
        if ((dc && address_target(channel, path)) ||
            (r.next && connect_half(channel, path, r.next, r.next_end, r.next_end))) {
            ++r.life;
            return path_is_up(channel, path);
        }
        r.next.reset();
    } else if (dc || r.next) {
        if (r.port) tell_gone(channel, path); // it may not have heard
        const PathNews open{.path = path, .life = r.life + !dc, .end = dc ? connect::LocalEnd{} : r.next_end};
        if (!tell_over_path(channel, PathKind::open,
                            open)) { // many others want to, too: soon again, not later and later
            constexpr Nanos kSoon = 100'000;
            return set_path_timer(channel, path, services.now() + kSoon, &Impl::time_to_open);
        }
    }
    ++r.attempts;
    set_path_timer(channel, path, services.now() + pause_between_tries(channel, r), &Impl::time_to_open);
}

// The route works in this direction; the answer takes the same one back.
void Interface::Impl::on_path_open(Channel& channel, const PathNews& news) {
    const PathIndex path = news.path;
    const bool client = config.transport == connect::Transport::rc && !channel.connection.server;
    if (!is_ready(channel, path)) return; // it will ask again
    // Whether a network is routed to another the client has decided.
    if (is_absent(channel, path) && !client && may_join(channel, path, true)) {
        if (!has_places(channel)) return; // it will ask again
        join(channel, path);
    }
    if (config.transport == connect::Transport::dc) {
        tell_over_path(channel, PathKind::opened, {.path = path, .life = news.life, .end = {}});
        if (!channel.recovery || channel.recovery->paths[path].phase != Phase::reopening) return;
        channel.recovery->paths[path].attempts = 0; // ours may work again as well
        return schedule_open(channel, path);
    }
    if (!channel.recovery || !channel.connection.server) return;
    PathRecovery& r = channel.recovery->paths[path];
    const bool again = r.phase == Phase::half && news.life == r.life && news.end.qp_number == r.their_end.qp_number &&
                       news.end.psn == r.their_end.psn;
    if (!again) {
        // Both must have heard what had arrived before: else the client has not, and this is not for us.
        // Or it could not connect the half that it had offered, and has made another.
        if (r.phase == Phase::half && news.life == r.life)
            return path_failed(channel, path, "the client offers another queue pair", false);
        if (r.phase != Phase::reopening || news.life != r.life + 1) return;
        verbs::QueuePair qp = make_half(rails[channel.subs[path].rail], LogLevel::debug);
        if (!qp) return;
        const connect::LocalEnd ours{qp->qp_num, random_psn()};
        if (!connect_half(channel, path, qp, ours, news.end)) return;
        r.life = news.life;
        r.their_end = news.end;
        set_phase(r, Phase::half);
        r.mine_known = r.theirs_known = false;
        channel.scheduler->set_state(path, schedule::PathState::recovering);
    }
    tell_over_path(channel, PathKind::opened, {.path = path, .life = r.life, .end = channel.connection.ends[path]});
}

void Interface::Impl::on_path_opened(Channel& channel, const PathNews& news) {
    if (!channel.recovery) return;
    const PathIndex path = news.path;
    PathRecovery& r = channel.recovery->paths[path];
    if (r.phase != Phase::reopening || !is_ready(channel, path)) return;
    if (config.transport == connect::Transport::dc) {
        if (news.life == r.life && address_target(channel, path)) path_is_up(channel, path);
        return;
    }
    if (channel.connection.server || !r.next || news.life != r.life + 1) return;
    if (!connect_half(channel, path, r.next, r.next_end, news.end)) {
        r.next.reset();
        return; // the timer tries again; the server hears of it from our next end
    }
    r.life = news.life;
    r.next.reset();
    r.greet = true;
    path_is_up(channel, path);
}

// The first thing on the new queue pair: the server may send when it has come. Again from recover() if there is no
// room.
void Interface::Impl::greet(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.recovery->paths[path];
    const PathUpBody body{r.life};
    if (send_control(channel, Kind::path_up, &body, sizeof body, path, *channel.subs[path].own[0])) r.greet = false;
}

void Interface::Impl::take_path_up(Channel& channel, PathIndex path, std::uint32_t life) {
    if (!channel.recovery || path >= channel.path_count) return;
    PathRecovery& r = channel.recovery->paths[path];
    if (r.phase == Phase::half && r.life == life) path_is_up(channel, path);
}

void Interface::Impl::path_is_up(Channel& channel, PathIndex path) {
    Recovery& recovery = *channel.recovery;
    PathRecovery& r = recovery.paths[path];
    const Nanos now = services.now();
    if (r.timer) services.cancel(std::exchange(r.timer, 0));
    if (recovery.partition) services.cancel(std::exchange(recovery.partition, 0));
    const bool alone = channel.scheduler->paths().usable() == 0;
    set_phase(r, Phase::up);
    channel.subs[path].stale = 0; // the watchdog's looks were at the life before
    r.probed_since = 0;
    r.port = false;
    r.came_up = now;
    ++r.returns;
    if (config.transport == connect::Transport::rc) channel.subs[path].own[0]->revive();
    channel.scheduler->set_state(path, schedule::PathState::up);
    find_spares(channel);
    if (alone) note(channel, recover::Transition::What::reached, kNoPath, recovery.partition_since);
    note(channel, recover::Transition::What::up, path, r.since);
    services.say(alone ? LogLevel::warn : LogLevel::info, "path %u to %016" PRIx64 ": up%s after %.3f ms", path,
                 channel.uid, r.failures ? " again" : ", its port has come up",
                 static_cast<double>(now - r.since) * 1e-6);
    list_recovering(channel);
    if (r.greet) greet(channel, path);
    resume(channel);
}

// Acknowledgments, requests for them and waiting works may have been lost or stuck.
void Interface::Impl::resume(Channel& channel) {
    owe_ack(channel, true);
    if (channel.ack_sent == channel.expected) channel.ack_sent = channel.expected - 1;
    if (!channel.epochs_empty()) push(channel);
    if (channel.pulled_count && !channel.only) pull(channel);
}

void Interface::Impl::take_news(Channel& channel, PathKind kind, const PathNews& news) {
    if (!recoverable(channel) || news.path >= channel.places) return;
    switch (kind) {
    case PathKind::down:
        return on_path_down(channel, news);
    case PathKind::open:
    case PathKind::opened: {
        const bool open = kind == PathKind::open;
        if (channel.recovery)
            add_path_job(channel, open ? recover::Job::What::take_open : recover::Job::What::take_opened, news);
        else if (open)
            on_path_open(channel, news); // mp_dc answers; mp_rc has nothing to say
        return;
    }
    case PathKind::probed:
        if (news.home) return home_answers(channel, news.path);
        if (channel.recovery) channel.recovery->answered_at = services.now();
        return path_answers(channel, news.path);
    case PathKind::probe: // it has come over the very path, which we are waiting for, perhaps
        if (!news.home && channel.recovery && channel.recovery->paths[news.path].phase == Phase::reopening) {
            channel.recovery->paths[news.path].attempts = 0;
            schedule_open(channel, news.path);
        }
        return;
    }
}

// -- The control plane, which another thread may be using

void Interface::Impl::path_news(Connection& connection, PathKind kind, const PathNews& news) {
    if (mail_is_full()) return;
    tell({.what = Mail::What::path,
          .channel = &channel_of(connection),
          .status = Status::ok,
          .kind = kind,
          .news = news});
}

// Over a path that works, as far as we know; now and then over any route. Not over the path that it is about: it is up
// here perhaps (mp_dc, silent loss), but one side has given it up.
void Interface::Impl::tell_peer(Channel& channel, PathKind kind, const PathNews& news, unsigned attempt) {
    constexpr unsigned kOther = 4;
    PathMask usable = channel.scheduler->paths().usable();
    if (const PathMask others = usable & ~(PathMask{1} << news.path)) usable = others;
    const std::lock_guard lock(services);
    if (!usable) return control->tell(channel.connection, kind, news, attempt);
    if (attempt % kOther == kOther - 1) return control->tell(channel.connection, kind, news, attempt / kOther);
    unsigned skip = attempt % static_cast<unsigned>(std::popcount(usable));
    for (const PathIndex path : schedule::each(usable))
        if (skip-- == 0) (void)control->tell_over_path(channel.connection, path, kind, news);
}

bool Interface::Impl::tell_over_path(Channel& channel, PathKind kind, const PathNews& news) {
    const std::lock_guard lock(services);
    return control->tell_over_path(channel.connection, news.path, kind, news);
}

std::uint32_t Interface::Impl::random_psn() {
    const std::lock_guard lock(services);
    return control->random_psn();
}

} // namespace ucx_mp::channel
