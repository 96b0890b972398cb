#include "uct_mp/recover/asking.h"

#include <bit>
#include <mutex>

namespace ucx_mp::recover {

using connect::NewsKind;
using connect::PathNews;

void Asking::ask(Channel& channel, PathIndex path) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    const Nanos now = core_.services.now();
    if (channel.wiring.paths[path].phase != Phase::asking) return;
    if (r.not_before > now)
        return set_path_timer(core_, channel, path, r.not_before, [this](Channel& c, PathIndex p) { ask(c, p); });
    if (channel.self) {
        questions.push_back(
            {.channel = &channel, .id = channel.local_id, .path = path, .life = r.life, .round = core_.rounds.looks});
        core_.alert = true;
        return phases_.list_recovering(channel);
    }
    tell_peer(channel, NewsKind::down, r.mine, r.attempts);
    // If no path is usable, nothing goes on before the answer: ask more often.
    const bool needed = channel.wiring.scheduler->paths().usable() == 0;
    const Nanos most = needed ? core_.config.recovery.max_needed_interval : core_.config.recovery.max_ask_interval;
    const Nanos wait = doubled(core_.config.recovery.ask_interval, r.attempts++, most);
    set_path_timer(core_, channel, path, now + wait, [this](Channel& c, PathIndex p) { ask(c, p); });
}

// Only DC needs it: with RC the peer hears our path_down.
void Asking::tell_gone(Channel& channel, PathIndex path) {
    if (channel.wiring.paths[path].kind != path::Kind::dc || channel.self) return;
    tell_peer(channel, NewsKind::down, {.path = path, .answer = true, .gone = true, .end = {}}, question_attempts++);
}

// -- Calls into the control plane, which another thread may be using

// The path that the news is about is avoided. It may count as usable here (DC, silent loss), but one side has given it
// up.
void Asking::tell_peer(Channel& channel, NewsKind kind, const PathNews& news, unsigned attempt) {
    constexpr unsigned kOther = 4;
    PathMask usable = channel.wiring.scheduler->paths().usable();
    if (const PathMask others = usable & ~(PathMask{1} << news.path)) usable = others;
    const std::lock_guard lock(core_.services);
    if (!usable) return core_.control->tell(channel.connection, kind, news, attempt);
    if (attempt % kOther == kOther - 1) return core_.control->tell(channel.connection, kind, news, attempt / kOther);
    unsigned skip = attempt % static_cast<unsigned>(std::popcount(usable));
    for (const PathIndex path : schedule::each(usable))
        if (skip-- == 0) (void)core_.control->tell_over_path(channel.connection, path, kind, news);
}

bool Asking::tell_over_path(Channel& channel, NewsKind kind, const PathNews& news) {
    const std::lock_guard lock(core_.services);
    return core_.control->tell_over_path(channel.connection, news.path, kind, news);
}

} // namespace ucx_mp::recover
