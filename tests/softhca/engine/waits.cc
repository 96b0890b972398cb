#include "engine/waits.h"

#include <algorithm>
#include <bit>

#include "core/guarded_copy.h"
#include "engine/engine.h"
#include "engine/requester.h"

namespace softhca {

namespace {
constexpr uint64_t kWord = 8;
constexpr Nanos kLookAgain = 500000; // real time: it costs the helper thread's sleep
Waits* g_waits = nullptr;            // virtual time
} // namespace

bool wait_op_known(uint32_t op) { return (op & ~kWaitInverted) <= static_cast<uint32_t>(WaitOp::cyclic_smaller); }

bool wait_holds(uint32_t op, uint64_t word, uint64_t value, uint64_t mask, bool big_endian) {
    if (big_endian != (std::endian::native == std::endian::big)) {
        word = __builtin_bswap64(word);
        value = __builtin_bswap64(value);
        mask = __builtin_bswap64(mask);
    }
    const uint64_t left = value & mask, right = word & mask;
    const uint64_t behind = (right - left) & mask; // on the circle that the mask is
    bool holds = true;
    switch (static_cast<WaitOp>(op & ~kWaitInverted)) {
    case WaitOp::always:
        break;
    case WaitOp::equal:
        holds = left == right;
        break;
    case WaitOp::bigger:
        holds = left > right;
        break;
    case WaitOp::smaller:
        holds = left < right;
        break;
    case WaitOp::cyclic_bigger:
        holds = behind > mask / 2;
        break;
    case WaitOp::cyclic_smaller:
        holds = behind != 0 && behind <= mask / 2;
        break;
    }
    return holds != ((op & kWaitInverted) != 0);
}

Waits::Waits(Engine& engine) : engine_(engine), rows_(engine.seg().img().devices) {
    if (!engine.process().virtual_time()) return;
    g_waits = this;
    g_written = [](uint64_t address, uint64_t length) { g_waits->written(address, length); };
}

Waits::~Waits() {
    if (g_waits == this) g_waits = nullptr;
}

Waits::Row& Waits::row_of(const Requester& requester) { return rows_[requester.rec_.device]; }

size_t Waits::looked_at(uint32_t device, const Row& row) const {
    const uint32_t limit = engine_.seg().img().device(device).limits.wait_limit;
    return limit == 0 ? row.size() : std::min<size_t>(limit, row.size());
}

Waits::Seen Waits::test(Requester& r, uint64_t position) {
    const SendWqe& w = r.wqe(position);
    Segment& seg = engine_.seg();
    const MrRec& mr = seg.mr(w.rkey >> 8 & (kMaxMrs - 1));
    if (w.rkey == 0 || mr.key.load(std::memory_order_relaxed) != w.rkey || mr.pd != r.qp_.pd->number ||
        w.remote_addr < mr.iova || mr.length < kWord || w.remote_addr - mr.iova > mr.length - kWord)
        return Seen::gone;
    uint64_t word;
    static_assert(sizeof word == kWord);
    if (softhca_guarded_copy(&word, reinterpret_cast<const void*>(mr.addr + (w.remote_addr - mr.iova)), kWord))
        return Seen::gone;
    const bool big_endian = seg.device(r.rec_.device).wait_endian.load(std::memory_order_relaxed) != 0;
    return wait_holds(w.imm, word, w.compare_add, w.swap, big_endian) ? Seen::holds : Seen::not_yet;
}

Nanos Waits::next_look(const Standing& s, Nanos now) const {
    const uint32_t poll = engine_.seg().img().device(s.requester->rec_.device).limits.wait_poll_ns;
    return poll == 0 ? now : s.since + (now - s.since + poll - 1) / poll * poll;
}

Waits::Seen Waits::turn(Requester& r, Nanos now) {
    Row& row = row_of(r);
    if (r.stands_) {
        const auto at = std::find_if(row.begin(), row.end(), [&r](const Standing& s) { return s.requester == &r; });
        if (static_cast<size_t>(at - row.begin()) >= looked_at(r.rec_.device, row)) return Seen::not_yet;
        if (at->due > now && next_look(*at, now) > now) return Seen::not_yet;
        at->due = kNever;
        const Seen seen = test(r, at->position);
        if (seen != Seen::not_yet) leave(r, now);
        return seen;
    }
    const Seen seen = test(r, r.next_);
    if (seen != Seen::not_yet) return seen;
    const uint64_t address = r.wqe(r.next_).remote_addr;
    row.push_back({&r, r.next_, address, now, kNever});
    r.stands_ = true;
    engine_.seg().proc(engine_.process().slot()).waiting.fetch_add(1);
    if (engine_.process().virtual_time())
        words_.emplace(address, &r);
    else if (!timer_on_)
        look_again(now);
    return seen;
}

void Waits::leave(Requester& r, Nanos now) {
    Row& row = row_of(r);
    const auto at = std::find_if(row.begin(), row.end(), [&r](const Standing& s) { return s.requester == &r; });
    const auto [first, last] = words_.equal_range(at->address);
    const auto word = std::find_if(first, last, [&r](const auto& entry) { return entry.second == &r; });
    if (word != last) words_.erase(word);
    row.erase(at);
    r.stands_ = false;
    engine_.seg().proc(engine_.process().slot()).waiting.fetch_sub(1);
    // The first of those that were not looked at.
    if (const size_t n = looked_at(r.rec_.device, row); n != 0) ask(row[n - 1], now);
}

// It is worth a look.
void Waits::ask(Standing& s, Nanos now) {
    if (test(*s.requester, s.position) == Seen::not_yet) return;
    const Nanos when = next_look(s, now);
    if (s.due <= when) return;
    s.due = when;
    s.requester->wake_at(when);
}

void Waits::look(uint32_t device, Nanos now) {
    Row& row = rows_[device];
    for (size_t i = 0, n = looked_at(device, row); i < n; ++i) ask(row[i], now);
}

void Waits::look_all(Nanos now) {
    for (uint32_t device = 0; device < rows_.size(); ++device)
        if (!rows_[device].empty()) look(device, now);
}

void Waits::written(uint64_t address, uint64_t length) {
    const auto end = words_.lower_bound(address + length);
    for (auto it = words_.upper_bound(address - std::min(address, kWord)); it != end; ++it) {
        Row& row = row_of(*it->second);
        const auto at =
            std::find_if(row.begin(), row.end(), [&](const Standing& s) { return s.requester == it->second; });
        if (static_cast<size_t>(at - row.begin()) < looked_at(it->second->rec_.device, row)) ask(*at, engine_.now());
    }
}

void Waits::look_again(Nanos now) {
    timer_on_ = true;
    engine_.scheduler().at(
        now + kLookAgain,
        [](void* self, uint64_t, Nanos when) {
            Waits& waits = *static_cast<Waits*>(self);
            waits.timer_on_ = false;
            waits.look_all(when);
            const bool some = std::ranges::any_of(waits.rows_, [](const Row& row) { return !row.empty(); });
            // Late: the next one counts from now, or they would all come at once.
            if (some) waits.look_again(std::max(when, waits.engine_.now()));
        },
        this);
}

// ---- the requester's part ----

bool Requester::pass_wait(Nanos now) {
    SendWqe& w = wqe(next_);
    if (w.posted > now) [[unlikely]]
        return false;
    if (!w.bad && !w.received) {
        if (draining_ || ((w.flags & IBV_SEND_FENCE) && reads_out_)) return false;
        switch (engine_.waits().turn(*this, now)) {
        case Waits::Seen::not_yet:
            return false;
        case Waits::Seen::gone:
            w.bad = IBV_WC_LOC_PROT_ERR;
            break;
        case Waits::Seen::holds:
            w.received = 1;
            if (const uint32_t cost = engine_.seg().img().device(rec_.device).limits.wait_ns; cost != 0) {
                paused_until_ = now + cost;
                wake_at(paused_until_);
                return false;
            }
        }
    }
    if (w.bad) { // its turn comes when all before it are complete
        if (head_ == next_) fail(static_cast<ibv_wc_status>(w.bad), now);
        return false;
    }
    w.assigned = w.done = 1;
    w.first_psn = next_psn;
    if (head_ == next_) {
        ++next_; // complete_done() may end the whole queue
        complete_done(now);
        --next_;
    }
    return true;
}

// Fault wait-prefetch. A fence keeps what is behind it from being read, too.
void Requester::read_early(SendWqe& w) {
    constexpr uint32_t fences = IBV_SEND_FENCE | kSmallFence;
    if (w.opcode == kWait || reads(w.opcode) || w.inlined || w.bad || w.total == 0 || rec_.kind != QpKind::rc) return;
    if (w.flags & fences) return;
    for (uint64_t pos = tail_; pos-- > next_;) {
        const SendWqe& before = wqe(pos);
        if (before.opcode != kWait) {
            if (before.flags & fences) return;
            continue;
        }
        if (before.done) return;
        auto data = std::make_unique<char[]>(w.total);
        if (!data_of(w).gather(0, w.total, data.get())) return; // found when its turn comes
        w.dc_key = reinterpret_cast<uint64_t>(data.release());
        w.early = 1;
        return;
    }
}

void Requester::forget_early(SendWqe& w) {
    if (!w.early) [[likely]]
        return;
    delete[] reinterpret_cast<char*>(w.dc_key);
    w.early = 0;
}

} // namespace softhca
