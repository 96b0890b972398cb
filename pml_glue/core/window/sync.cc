// The order of operations: flushes, locks, and the epochs of both sides.
#include <algorithm>
#include <utility>

#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
constexpr unsigned kLooks = 4;
constexpr std::uint64_t kMostPatience = 1'000'000'000; // ns
} // namespace

void Window::on_sync(Target& origin, const wire::WindowSync& message) {
    switch (message.what) {
    case wire::Sync::flush: {
        const mp_error_t error = origin.owed;
        origin.owed = MP_OK;
        return tell(origin, wire::Sync::flushed, message.number, error);
    }
    case wire::Sync::flushed:
        if (message.number > origin.asked || message.error > MP_RANGE)
            return all_.dropped("more is flushed than was asked about");
        origin.executed = std::max<std::uint64_t>(origin.executed, message.number);
        origin.loose &= origin.executed < origin.started;
        if (message.error) origin.error = static_cast<mp_error_t>(message.error);
        return;
    case wire::Sync::lock_shared:
    case wire::Sync::lock_exclusive:
        if (origin.failed) return; // it would have it for ever
        if (origin.held != Lock::none) return all_.dropped("a lock is asked for twice");
        origin.held = Lock::wanted;
        waiters_.push_back({&origin, message.what == wire::Sync::lock_shared ? Lock::shared : Lock::exclusive});
        ++all_.locks_wanted_;
        looks_ = 0;
        return grant_locks();
    case wire::Sync::granted:
        if (origin.lock != Lock::wanted) return all_.dropped("a lock is granted that nobody wants");
        origin.lock = Lock::shared;
        return;
    case wire::Sync::unlock:
        if (!origin.holds()) return all_.dropped("a lock is given back that nobody has");
        return release_lock(origin);
    case wire::Sync::post:
        ++origin.posts_seen;
        return;
    case wire::Sync::done:
        ++origin.dones_seen;
        return;
    case wire::Sync::barrier:
        ++origin.barriers_seen;
        origin.barrier_lost |= message.error != MP_OK;
        return;
    case wire::Sync::fence:
        ++origin.fences_seen;
        return;
    case wire::Sync::through:
        ++origin.throughs_seen;
        return;
    }
    all_.dropped("a synchronization of no kind");
}

// In the order of asking, but for look_at_locks.
void Window::grant_locks() {
    while (!waiters_.empty()) {
        const Waiter next = waiters_.front();
        if (exclusive_ || (next.kind == Lock::exclusive && sharers_)) return;
        waiters_.pop_front();
        --all_.locks_wanted_;
        looks_ = 0;
        if (next.kind == Lock::exclusive) {
            exclusive_ = true;
            patience_ = kPatience;
        } else {
            ++sharers_;
        }
        next.target->held = next.kind;
        tell(*next.target, wire::Sync::granted);
    }
}

// A rank that shares the lock may wait for a rank that wants to share it, too, and stands behind one that wants it
// alone: by a message, or by a lock of another rank or window (MPI-3.1 11.5.3, crossed locks). None would ever go on.
// So when nobody asks, gets or gives back for long, those behind go first. Sharers that keep the lock for long would do
// so again and again, hence it takes twice as long each time, up to a second, until the rank that waits has had it.
// This process may have been away: messages that came meanwhile are found between the looks.
void Window::look_at_locks(std::uint64_t now) {
    if (waiters_.empty() || exclusive_) return;
    if (looks_++ == 0) stuck_since_ = now;
    if (looks_ < kLooks || now - stuck_since_ < patience_) return;
    looks_ = 0;
    std::stable_partition(waiters_.begin(), waiters_.end(), [](const Waiter& w) { return w.kind == Lock::shared; });
    if (waiters_.front().kind != Lock::shared) return;
    patience_ = std::min(2 * patience_, kMostPatience);
    grant_locks();
}

void Window::release_lock(Target& origin) {
    looks_ = 0;
    if (origin.held == Lock::exclusive) exclusive_ = false;
    if (origin.held == Lock::shared) --sharers_;
    origin.held = Lock::none;
    grant_locks();
}

void Window::want_lock(std::uint32_t rank, bool exclusive) {
    Target& to = target(rank);
    to.lock = Lock::wanted;
    tell(to, exclusive ? wire::Sync::lock_exclusive : wire::Sync::lock_shared);
}

bool Window::locked(std::uint32_t rank) {
    Target& to = target(rank);
    if (to.failed) to.error = MP_FAILED;
    return to.failed || to.lock != Lock::wanted;
}

// The unlock is behind all operations; it needs no answer, since those have theirs.
bool Window::unlocked(std::uint32_t rank) {
    if (rank != MP_ALL_RANKS) return target_unlocked(target(rank));
    bool all = true;
    for (Target* to : made_) all &= target_unlocked(*to);
    return all;
}

bool Window::target_unlocked(Target& to) {
    if (to.failed) {
        if (to.lock != Lock::none) to.error = MP_FAILED;
        to.lock = Lock::none;
        to.unlock_told = false;
        return true;
    }
    if (!to.unlock_told) {
        if (to.lock == Lock::wanted || !target_flushed(to, false)) return false;
        if (to.lock == Lock::none) return true;
        tell_in_order(to, wire::Sync::unlock);
        to.unlock_told = to.loose = true;
    }
    if (!to.messages.empty()) return false;
    to.unlock_told = false;
    to.lock = Lock::none;
    return true;
}

void Window::ask_flush(Target& to) {
    to.asked = to.started;
    tell_in_order(to, wire::Sync::flush, to.started);
}

void Window::writes_flushed(Completion& completion, bool ok) {
    Target& to = *reinterpret_cast<Target*>(reinterpret_cast<char*>(&completion) - offsetof(Target, flush));
    to.flush_posted = false;
    if (ok)
        to.flushed = to.flushing;
    else
        to.window->all_.engine_.give_up(*to.peer);
}

Posted Window::post_flush(Target& to, std::uint64_t left) {
    to.flushing = left;
    to.flush.done = writes_flushed;
    to.flush_posted = true;
    const Posted outcome = to.peer->endpoint->flush(to.flush);
    if (outcome == Posted::in_progress) [[likely]]
        return outcome;
    to.flush_posted = false;
    if (outcome == Posted::failed || outcome == Posted::refused) all_.engine_.give_up(*to.peer);
    if (outcome == Posted::done) to.flushed = to.flushing;
    return outcome;
}

// True: so many writes are visible to everybody. Others may wait for room meanwhile, behind them.
[[gnu::always_inline]] inline bool Window::flush_writes_now(Target& to, std::uint64_t until) {
    if (to.flushed >= until) return true;
    const std::uint64_t left = to.writes - to.moves[0].count;
    if (to.flush_posted || left < until) return false;
    return post_flush(to, left) == Posted::done && to.flushed >= until;
}

bool Window::flush_writes(Target& to, std::uint64_t until) { return flush_writes_now(to, until); }

[[gnu::always_inline]] inline bool Window::flushed_there(Target& to) {
    if (to.failed) [[unlikely]] { // said each time: somebody else may have asked what had gone wrong
        to.error = MP_FAILED;
        return to.open == 0 && !to.flush_posted;
    }
    if (!to.held_puts.empty()) [[unlikely]]
        let_go(to);
    if (to.executed < to.started && to.asked < to.started) [[unlikely]]
        ask_flush(to);
    return flush_writes_now(to, to.writes) && to.executed >= to.started && to.open == 0;
}

bool Window::target_flushed(Target& to, bool local) {
    if (!local) return flushed_there(to);
    if (to.failed) to.error = MP_FAILED;
    return to.open == 0 && !(to.failed && to.flush_posted);
}

// A rank alone: one loop for all of it, since there is little more to do for a small put.
bool Window::flush(std::uint32_t rank, unsigned& polls, mp_error_t& error) {
    Target* const to = targets_[rank].get();
    error = MP_OK;
    if (!to) return true;
    while (!flushed_there(*to)) do {
            if (polls == 0) return false;
            --polls;
            all_.engine_.progress();
            all_.progress();
        } while (to->flush_posted && !to->failed);
    error = std::exchange(to->error, MP_OK);
    return true;
}

// All flushes are begun before one is waited for.
bool Window::flushed(std::uint32_t rank, bool local) {
    if (rank != MP_ALL_RANKS) return !targets_[rank] || target_flushed(*targets_[rank], local);
    bool all = true;
    for (Target* to : made_) all &= target_flushed(*to, local);
    return all;
}

bool Window::over(Target& to, Round& round, bool local) {
    if (local) return to.over(round.generation);
    if (!round.counted) {
        if (!to.over(round.generation)) return false;
        round.writes = to.writes;
        round.started = to.started;
        round.counted = true;
    }
    if (to.executed < round.started && to.asked < round.started) ask_flush(to);
    return flush_writes(to, round.writes) && to.executed >= round.started && to.over(round.generation);
}

bool Window::target_flushed(Target& to, bool local, std::uint64_t call) {
    if (!to.held_puts.empty() && !local) let_go(to);
    if (to.failed || to.quiet(local)) return target_flushed(to, local);
    Round& round = to.rounds[local];
    while (round.done < call) {
        if (round.call == round.done)
            round = {.call = calls_,
                     .done = round.done,
                     .writes = to.writes,
                     .started = to.started,
                     .generation = to.generation++,
                     .counted = !config_.dynamic};
        if (!over(to, round, local)) return false;
        round.done = round.call;
    }
    return true;
}

// Operations that other threads start meanwhile are not waited for: they may never stop.
bool Window::flushed(std::uint32_t rank, bool local, std::uint64_t& call) {
    if (call == 0) call = ++calls_;
    if (rank != MP_ALL_RANKS) return !targets_[rank] || target_flushed(*targets_[rank], local, call);
    bool all = true;
    for (Target* to : made_) all &= target_flushed(*to, local, call);
    return all;
}

// An unlock or a done may still be on its way when its sender is done with it.
bool Window::settled() {
    bool all = true;
    for (Target* to : made_) {
        if (to->loose && !to->failed) {
            ++to->started;
            to->loose = false;
        }
        all &= target_flushed(*to, false) && to->messages.empty() && to->answers.empty();
        all &= to->failed || to->throughs_seen >= to->throughs_due; // else messages would come after the window is gone
    }
    return all;
}

// By dissemination. Nobody waits for a rank that is gone. A rank that it would have told of others may
// be through before they have come: error() says so to it, and it passes that on in the later rounds.
bool Window::barrier() {
    const std::uint32_t rank = config_.rank, ranks = config_.ranks;
    const auto tell_next = [&] {
        if (barrier_round_ < ranks)
            tell(target((rank + barrier_round_) % ranks), wire::Sync::barrier, 0, barrier_lost_ ? MP_FAILED : MP_OK);
    };
    if (barrier_round_ == 0) {
        barrier_round_ = 1;
        barrier_lost_ = false;
        tell_next();
    }
    while (barrier_round_ < ranks) {
        Target& last = target((rank + ranks - barrier_round_) % ranks);
        if (!last.failed && last.barriers_seen <= barriers_) return false;
        if (last.failed || last.barrier_lost) {
            last.error = MP_FAILED;
            barrier_lost_ = true;
        }
        barrier_round_ *= 2;
        tell_next();
    }
    // The last one told may still wait for room.
    for (std::uint32_t round = 1; round < ranks; round *= 2)
        if (!target((rank + round) % ranks).answers.empty()) return false;
    barrier_round_ = 0;
    ++barriers_;
    return true;
}

void Window::access(std::uint32_t rank, bool check) {
    Target& to = target(rank);
    if (check) ++to.starts;
}

// The end of an access epoch: the writes are there before the target is told. Where messages
// cannot overtake writes a fence is enough, else the writes' completions are waited for.
// Where a fence costs messages (several adapters) a flush costs fewer. True: it is told.
bool Window::tell_over(Target& to, wire::Sync what) {
    if (to.done_told) return true;
    if (!to.may_go() || to.asking || !to.moves[0].empty() || !to.moves[1].empty()) return false;
    if (to.moving[1]) return false; // the target may use its memory otherwise, then
    Endpoint& endpoint = *to.peer->endpoint;
    if (!endpoint.limits().fence_orders && to.moving[0]) return false;
    // Attached memory may be detached then: no write may be repeated any more.
    if (all_.fences_cost_ || config_.dynamic) {
        if (!flush_writes(to, to.writes)) return false;
    } else if (to.fenced != to.writes) {
        const Posted outcome = endpoint.fence();
        if (outcome == Posted::failed || outcome == Posted::refused) all_.engine_.give_up(*to.peer);
        if (outcome != Posted::done) return false;
        to.fenced = to.writes;
    }
    tell_in_order(to, what);
    return to.done_told = to.loose = true;
}

bool Window::completed(std::uint32_t rank) {
    Target& to = target(rank);
    if (to.failed) {
        to.error = MP_FAILED;
        to.done_told = false;
        return to.open == 0;
    }
    // Only an answer says whether an operation that the target executes was in attached memory.
    if (config_.dynamic && to.executed < to.started && to.asked < to.started) ask_flush(to);
    if (!tell_over(to, wire::Sync::done)) return false;
    if (to.open || !to.messages.empty() || (config_.dynamic && to.executed < to.started)) return false;
    to.done_told = false;
    return true;
}

void Window::expose(std::uint32_t rank, bool check) {
    Target& origin = target(rank);
    ++origin.posts;
    if (check) tell(origin, wire::Sync::post);
}

bool Window::closed(std::uint32_t rank) {
    const Target& origin = target(rank);
    return origin.failed || origin.dones_seen >= origin.posts;
}

} // namespace ucx_mp::glue
