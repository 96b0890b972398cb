#include "fabric/network_turns.h"

#include <algorithm>

namespace softhca {

namespace {
constexpr Nanos kAbandoned = 100'000'000; // an entry that is overdue by this much may be taken over
constexpr int kSpins = 100;
constexpr int kSkip = 1000; // after a holder that does not go on: so many times without waiting
} // namespace

Nanos reserve(std::atomic<uint64_t>& busy_until, Nanos from, Nanos length) {
    uint64_t busy = busy_until.load(std::memory_order_relaxed);
    for (;;) {
        const Nanos start = std::max<Nanos>(from, busy);
        if (busy_until.compare_exchange_weak(busy, start + length, std::memory_order_acq_rel)) return start;
    }
}

// Reserves at the end, and remembers the time that is left unused before.
Nanos Turns::append(LinkState& link, Nanos ready, Nanos length) {
    uint64_t busy = link.busy_until.load(std::memory_order_relaxed);
    Nanos start;
    do start = std::max<Nanos>(ready, busy);
    while (!link.busy_until.compare_exchange_weak(busy, start + length, std::memory_order_acq_rel));
    if (start <= busy) return start;
    // Several processes may do this at once; then some of it is forgotten.
    LinkTurns& t = link.turns;
    const uint64_t gap = start - busy;
    uint64_t idle = t.idle.load(std::memory_order_relaxed), from = t.idle_from.load(std::memory_order_relaxed);
    if (gap >= kMaxBank || start > from + 4 * kMaxBank) {
        idle = 0;
        from = start - std::min(gap, kMaxBank);
    } else if (start > from + 2 * kMaxBank) { // forget the older half
        idle /= 2;
        from += kMaxBank;
    }
    t.idle.store(std::min(idle + gap, start - from), std::memory_order_relaxed);
    t.idle_from.store(from, std::memory_order_relaxed);
    t.idle_to.store(start, std::memory_order_relaxed);
    return start;
}

// Is there unused time for `length` ns between `ready` and the last gap?
bool Turns::idle_at(const LinkTurns& t, Nanos ready, Nanos length) {
    const uint64_t to = t.idle_to.load(std::memory_order_relaxed), from = t.idle_from.load(std::memory_order_relaxed);
    if (ready + length > to || to <= from) return false;
    const uint64_t idle = t.idle.load(std::memory_order_relaxed);
    return ready <= from ? idle >= length && ready + kMaxBank > from : idle * (to - ready) / (to - from) >= length;
}

// False: it is taken for long (its holder is stopped, or waits for a core): then there is no order for once.
bool Turns::lock(LinkTurns& t) {
    for (int i = 0; i < kSpins; ++i) {
        if (t.lock.try_acquire()) return true;
        if (skip_ != 0) {
            --skip_;
            return false;
        }
        cpu_relax();
    }
    Taken how;
    if (t.lock.acquire_within(1, how)) return true; // from_dead: all values are valid values, nothing to repair
    skip_ = kSkip;
    return false;
}

LinkTurns::Turn* Turns::find(uint32_t link) {
    for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].link == link) {
            Turn& t = seg_.link(link).turns.turn[entries_[i].index];
            if (t.owner == self_) return &t;
            entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i)); // taken over: we were thought to be gone
            return nullptr;
        }
    return nullptr;
}

LinkTurns::Turn* Turns::join(uint32_t link, Nanos due, Nanos length) {
    LinkTurns& turns = seg_.link(link).turns;
    for (uint32_t i = 0; i < kLinkTurns; ++i) {
        Turn& t = turns.turn[i];
        if (t.owner != 0 && due < t.due.load(std::memory_order_relaxed) + kAbandoned) continue;
        if (t.owner == 0) turns.members.fetch_add(1, std::memory_order_relaxed);
        t.owner = self_;
        t.tag = turns.clock;
        t.due.store(due, std::memory_order_relaxed);
        t.period = t.length = std::max<Nanos>(length, 1);
        t.cost = t.length;
        t.weight = 1;
        t.bank = 0;
        entries_.push_back({link, i, due});
        return &t;
    }
    return nullptr;
}

void Turns::leave(uint32_t link) {
    for (size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].link != link) continue;
        LinkTurns& turns = seg_.link(link).turns;
        Turn& t = turns.turn[entries_[i].index];
        if (t.owner == self_) {
            t.owner = 0;
            turns.members.fetch_sub(1, std::memory_order_relaxed);
        }
        entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i));
        return;
    }
}

// Banked time before `ready` is lost, except what is next to it.
void Turns::trim(Turn& t, Nanos ready, Nanos length) {
    if (t.bank == 0 || ready <= t.bank_from + 2 * length) return;
    if (ready >= t.bank_to) {
        t.bank = ready - t.bank_to <= 2 * length ? std::min(t.bank, length) : 0;
        t.bank_from = t.bank_to;
        return;
    }
    t.bank -= t.bank * (ready - t.bank_from) / (t.bank_to - t.bank_from);
    t.bank_from = ready;
}

// Reserves for those who should have been served before us.
void Turns::serve_others(LinkState& link, Nanos ready, Nanos length, uint64_t tag) {
    LinkTurns& turns = link.turns;
    for (bool again = true; again;) {
        again = false;
        for (Turn& t : turns.turn) {
            if (t.owner == 0 || t.owner == self_) continue;
            const Nanos due = t.due.load(std::memory_order_relaxed);
            const bool before_us = due <= ready && t.tag <= tag;
            const bool behind = due <= ready + length && t.tag + length / 2 < tag;
            if (!before_us && !behind) continue;
            const Nanos busy = link.busy_until.load(std::memory_order_relaxed);
            if (t.bank != 0 && std::max(busy, due) > t.bank_from + kMaxBank) continue; // does not come
            if (t.bank == 0 && busy > due + kMaxBank) continue;
            const Nanos start = append(link, due, t.length);
            if (t.bank == 0) t.bank_from = start;
            t.bank += t.length;
            t.bank_to = start + t.length;
            t.tag = std::max(t.tag, turns.clock - std::min(turns.clock, 2 * length)) + t.cost;
            t.due.store(due + t.period, std::memory_order_relaxed);
            again = true;
        }
    }
}

Turns::Share Turns::port_share(uint32_t first_link) {
    LinkTurns& turns = seg_.link(first_link).turns;
    if (entries_.empty() || turns.members.load(std::memory_order_relaxed) < 2) return {};
    Share s{0, 0};
    for (const Turn& t : turns.turn) { // unlocked: an estimate
        if (t.owner == 0) continue;
        s.of += t.weight;
        if (t.owner == self_) s.part = t.weight;
    }
    return s.part == 0 ? Share{} : s;
}

Nanos Turns::take(uint32_t link, Nanos ready, Nanos length, Share share) {
    LinkState& state = seg_.link(link);
    LinkTurns& turns = state.turns;
    if (turns.members.load(std::memory_order_relaxed) == 0 && state.busy_until.load(std::memory_order_relaxed) <= ready)
        [[likely]]
        return append(state, ready, length); // nobody waits
    if (!lock(turns)) return append(state, ready, length);
    Turn* me = find(link);
    Nanos start;
    if (me) trim(*me, ready, length);
    if (me && me->bank * 4 >= length * 3) {
        start = std::max(ready, me->bank_from);
        if (me->bank <= length) {
            me->bank = 0;
        } else {
            me->bank_from += (me->bank_to - me->bank_from) * length / me->bank;
            me->bank -= length;
        }
    } else if (idle_at(turns, ready, length)) {
        turns.idle.fetch_sub(length, std::memory_order_relaxed);
        start = ready;
    } else {
        if (me) me->bank = 0; // too little to be of use
        const uint64_t least = turns.clock - std::min(turns.clock, 2 * length);
        const uint64_t tag = me ? std::max(me->tag, least) : turns.clock;
        serve_others(state, ready, length, tag);
        start = append(state, ready, length);
        if (start > ready && !me) me = join(link, start + length, length);
        if (start > ready && me) {
            turns.clock = std::max(turns.clock, tag);
            me->tag = tag + std::max<uint64_t>(1, length * share.of / share.part);
            me->cost = me->tag - tag;
            me->weight = share.part;
            me->length = std::max<Nanos>(1, length);
        } else if (me)
            leave(link);
    }
    turns.lock.release();
    return start;
}

Nanos Turns::available(uint32_t link, Nanos ready, Nanos length) {
    LinkState& state = seg_.link(link);
    const Nanos busy = state.busy_until.load(std::memory_order_relaxed);
    if (busy <= ready || idle_at(state.turns, ready, length)) return ready;
    for (const Entry& e : entries_)
        if (e.link == link) {
            const Turn& t = state.turns.turn[e.index]; // unlocked: an estimate
            if (t.owner == self_ && t.bank != 0 && ready <= t.bank_to) return std::max(ready, t.bank_from);
        }
    return busy;
}

void Turns::wait(uint32_t link, Nanos due, Nanos length) {
    LinkTurns& turns = seg_.link(link).turns;
    if (!lock(turns)) return;
    Turn* me = find(link);
    if (!me) me = join(link, due, length);
    if (me) {
        trim(*me, due, length); // else others would think that it never comes for it
        me->due.store(due, std::memory_order_relaxed);
    }
    turns.lock.release();
}

void Turns::next(uint32_t link, Nanos due, Nanos period) {
    for (Entry& e : entries_)
        if (e.link == link) {
            Turn& t = seg_.link(link).turns.turn[e.index];
            t.period = std::max(t.length, period);
            t.due.store(due, std::memory_order_relaxed);
            e.used = due;
        }
}

void Turns::postpone(Nanos due) {
    for (const Entry& e : entries_) seg_.link(e.link).turns.turn[e.index].due.store(due, std::memory_order_relaxed);
}

void Turns::leave_all() {
    while (!entries_.empty()) {
        const uint32_t link = entries_.back().link;
        LinkTurns& turns = seg_.link(link).turns;
        if (!lock(turns)) return; // others will find it abandoned
        leave(link);
        turns.lock.release();
    }
}

void Turns::sweep(Nanos before) {
    for (size_t i = entries_.size(); i-- > 0;)
        if (entries_[i].used < before) {
            const uint32_t link = entries_[i].link;
            LinkTurns& turns = seg_.link(link).turns;
            if (!lock(turns)) return;
            leave(link);
            turns.lock.release();
        }
}

Nanos Turns::oldest_bank() {
    Nanos oldest = kNever;
    for (const Entry& e : entries_) {
        const Turn& t = seg_.link(e.link).turns.turn[e.index];
        if (t.owner == self_ && t.bank != 0) oldest = std::min<Nanos>(oldest, t.bank_from);
    }
    return oldest;
}

} // namespace softhca
