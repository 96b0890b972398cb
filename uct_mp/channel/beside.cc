#include "uct_mp/channel/beside.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
constexpr Nanos kNext = 50'000;  // until the next turn, where one was too short for all that is to be done
constexpr Nanos kBusy = 200'000; // until it looks again for what it has asked adapters to do
// ... while something is not as it should be, since nothing tells that a message has come: doubled while turns find
// nothing. A cable may be dead for a whole job.
constexpr Nanos kAway = 10'000'000, kLongAway = 40'000'000;
// Messages that are kept. Their senders may go on sending; more are not taken before the program comes.
constexpr std::size_t kMostMessages = 1024;
constexpr std::size_t kMostWorks = 1024; // that a turn looks at: some 50 us, most of it cache misses

// They wait for this thread, or it for them; the others' wait for the program.
bool concerns_recovery(const Mail& mail) {
    return mail.what == Mail::What::path || mail.what == Mail::What::rails || mail.what == Mail::What::keys ||
           mail.what == Mail::What::answered;
}
} // namespace

Beside::Beside(Core& core) : core_(core), away_for_(kAway) {
    for (std::uint8_t id = 0; id < kAmIds; ++id) {
        by_id_[id] = {this, id};
        keepers_[id] = {keep, &by_id_[id], 0};
    }
}

bool Beside::is_full() const {
    return kept_messages_ >= std::min<std::size_t>(kMostMessages, core_.config.receive_depth / 2);
}

std::vector<int> Beside::fault_fds() const {
    std::vector<int> fds;
    for (unsigned i = 0; i < core_.adapter_count; ++i) fds.push_back(core_.adapters[i].device->context->async_fd);
    return fds;
}

std::vector<int> Beside::failure_fds() const {
    std::vector<int> fds;
    for (unsigned i = 0; i < core_.adapter_count; ++i) fds.push_back(core_.adapters[i].send_channel->fd);
    return fds;
}

std::vector<int> Beside::hearsay_fds() const {
    std::vector<int> fds;
    for (unsigned i = 0; i < core_.adapter_count; ++i) fds.push_back(core_.adapters[i].device->events->told_fd());
    return fds;
}

bool Beside::fault_is_told() const { return std::ranges::any_of(core_.mail.list, concerns_recovery); }

// -- A turn

void Beside::stand_in_for(Work& work) {
    // Recovery's own reads end in the turn: the rest of it waits for them.
    const bool reads = work.kind == WorkKind::get_bcopy;
    if (!(work.completion || reads) || work.kind == WorkKind::read_back) return;
    if (work.completion && work.completion->callback == completed) return;
    StandIn& stand_in = unused_ ? *unused_ : stand_ins_.emplace_back();
    if (unused_) unused_ = unused_->next;
    stand_in.callback = completed;
    stand_in.count = 1;
    stand_in.status = Status::ok;
    stand_in.owner = this;
    stand_in.user = std::exchange(work.completion, &stand_in);
    stand_in.flushed = work.kind == WorkKind::flush ? work.channel : nullptr;
    if (!reads) return;
    stand_in.unpack = std::exchange(work.unpack, unpacked);
    stand_in.arg = std::exchange(work.unpack_arg, &stand_in);
}

bool Beside::begin() {
    WorkPool& works = core_.works.pool;
    const bool more = std::exchange(taken_, works.taken()) != works.taken();
    const bool fewer = std::exchange(in_use_, works.in_use()) != works.in_use();
    if (more || (fewer && !all_have_)) all_have_ = false, walk_ = {};
    if (!all_have_)
        all_have_ = works.in_use() == 0 || works.go_on(walk_, kMostWorks, [this](Work& work) { stand_in_for(work); });
    if (!all_have_) return false;
    handlers_ = std::exchange(core_.handlers, keepers_);
    active_ = true;
    return true;
}

void Beside::end(unsigned found) {
    active_ = false;
    core_.handlers = handlers_;
    taken_ = core_.works.pool.taken(); // by recovery: these are nobody's
    if (!found && kept_.empty()) return;
    found_ += found;
    core_.aside |= aside::kept;
    core_.services.wake(); // a sleeper's event may have been taken in the turn
}

Beside::Recovered Beside::recover(const std::function<unsigned()>& run_timers) {
    ++turns;
    const Nanos start = core_.services.now();
    if (!begin()) return {0, core_.services.now() + kNext};
    unsigned found = 0; // events, too: a sleeper may have asked for them
    for (unsigned i = 0; i < core_.adapter_count; ++i) found += core_.adapters[i].take_failure_events();
    core_.observer->read_events();
    bool again = false;
    for (Nanos now = start; !is_full();) {
        const unsigned before = found;
        core_.alert = true; // looks everywhere; what is there to be done is found out anew
        found += run_timers();
        found += core_.progress.step();
        if (again && found == before) break;
        // Completions from before the request raise no event: so they are looked for once more behind it.
        if (found == before) {
            for (unsigned i = 0; i < core_.adapter_count; ++i) core_.adapters[i].tell_failures();
            again = true;
        } else {
            again = false;
        }
        now = core_.services.now();
        if (now - start >= MP_TURN_SLICE) break;
    }
    const bool more = !again, busy = core_.observer->busy(), away = core_.observer->recovers();
    end(found);
    const Nanos now = core_.services.now();
    if (more || busy) return {found, now + (is_full() ? kAway : kBusy)};
    away_for_ = found || !away ? kAway : std::min(2 * away_for_, kLongAway);
    return {found, away ? now + away_for_ : 0};
}

Status Beside::keep(void* handler, void* data, std::size_t length, unsigned flags) {
    const Handler& by = *static_cast<const Handler*>(handler);
    Beside& self = *by.self;
    Kept kept{.length = length, .am_id = by.am_id};
    if (flags & kCallbackMayKeep) {
        kept.data = static_cast<std::byte*>(data);
    } else {
        kept.copy = std::make_unique<std::byte[]>(length);
        kept.data = kept.copy.get();
        if (length) std::memcpy(kept.data, data, length);
    }
    self.kept_.push_back(std::move(kept));
    ++self.kept_messages_;
    ++self.kept;
    return flags & kCallbackMayKeep ? Status::in_progress : Status::ok;
}

void Beside::completed(Completion* completion) {
    StandIn& stand_in = *static_cast<StandIn*>(completion);
    Beside& self = *stand_in.owner;
    Completion* const user = stand_in.user;
    const Status status = stand_in.status;
    stand_in.next = std::exchange(self.unused_, &stand_in);
    if (!self.active_) return complete(user, status); // the program has completed it
    if (!user) return;
    self.kept_.push_back({.completion = user, .status = status, .flushed = stand_in.flushed});
    ++self.kept;
}

// Behind it the work's completion comes: that is the stand-in.
void Beside::unpacked(void* arg, const void* data, std::size_t length) {
    const StandIn& stand_in = *static_cast<const StandIn*>(arg);
    if (!stand_in.owner->active_) return stand_in.unpack(stand_in.arg, data, length);
    Kept kept{.length = length, .unpack = stand_in.unpack, .arg = stand_in.arg};
    kept.copy = std::make_unique<std::byte[]>(length);
    kept.data = kept.copy.get();
    std::memcpy(kept.data, data, length);
    stand_in.owner->kept_.push_back(std::move(kept));
    ++stand_in.owner->kept;
}

Completion*& Beside::users(Completion*& completion) {
    return completion && completion->callback == completed ? static_cast<StandIn*>(completion)->user : completion;
}

// -- The program is back

unsigned Beside::hand_out() {
    if (!core_.aside) return 0;
    // Taken first: a callback below may make progress, and then it is awake already.
    const bool slept = core_.aside & aside::slept;
    core_.aside &= aside::kept;
    if (slept) wakes_up();
    kept_messages_ = 0;
    core_.recovery_steps += std::exchange(found_, 0); // whoever waits for room is woken after something has happened
    const std::size_t count = kept_.size();
    // Callbacks may add to the list. A flush in one of them stands behind what is still in it.
    for (std::size_t left = count; left > 0 && !kept_.empty(); --left) {
        const Kept one = std::move(kept_.front());
        kept_.pop_front();
        if (one.completion || one.flushed) {
            complete(one.completion, one.status);
        } else if (one.unpack) {
            one.unpack(one.arg, one.data, one.length);
        } else {
            const AmHandler& handler = core_.handlers[one.am_id];
            const unsigned flags = one.copy ? 0 : kCallbackMayKeep;
            const Status status = handler.callback(handler.arg, one.data, one.length, flags);
            if (!one.copy && status != Status::in_progress)
                core_.receiver.release(core_.layout.buffer_of_message(one.data - kHeader));
        }
    }
    core_.aside = static_cast<std::uint8_t>((core_.aside & aside::slept) | (kept_.empty() ? 0 : aside::kept));
    return static_cast<unsigned>(count);
}

Status Beside::behind_kept(Status status, Completion* completion, const Channel& channel) {
    if (!(core_.aside & aside::kept) || status == Status::in_progress || status == Status::no_resource) return status;
    if (completion) kept_.push_back({.completion = completion, .status = status, .flushed = &channel});
    return Status::in_progress;
}

std::vector<Beside::KeptFlush> Beside::kept_flushes() {
    std::vector<KeptFlush> flushes;
    for (Kept& one : kept_)
        if (one.flushed) flushes.push_back({one.flushed, one.completion});
    return flushes;
}

// -- Sleep

// For its sleep the program asks for the event of the next completion, good or bad. One that has been raised before
// stays: whoever finds that he can't sleep may compute as well, and then it is the thread's to look.
bool Beside::falls_asleep() {
    if (!(sleep() & 1)) sleep_.fetch_add(1, std::memory_order_release);
    core_.aside |= aside::slept;
    return std::ranges::any_of(std::span(core_.adapters.get(), core_.adapter_count), [](const Adapter& adapter) {
        pollfd polled{adapter.send_channel->fd, POLLIN, 0};
        return poll(&polled, 1, 0) > 0 && (polled.revents & POLLIN);
    });
}

// Events tell of failed requests again. Those of requests that have failed before are taken here, so this progress
// looks for them. No event will tell of those that it leaves in a queue, and the program may not call again for long.
// So the thread looks then.
void Beside::wakes_up() {
    for (unsigned i = 0; i < core_.adapter_count; ++i) (void)core_.adapters[i].take_failure_events();
    sleep_.fetch_add(1, std::memory_order_release);
    for (unsigned i = 0; i < core_.adapter_count; ++i) (void)core_.adapters[i].tell_failures();
    core_.alert = woken_ = true;
}

void Beside::hand_over() {
    if (!core_.config.recovery.thread || active_) return;
    if (core_.alert) {
        if (!core_.observer->recovers()) return;
        if (dealing_ == done_.load(std::memory_order_relaxed)) deal_with(heard_.fetch_add(1) + 1);
        core_.events.recover_soon();
    } else if (dealing_ != done_.load(std::memory_order_relaxed)) {
        if (core_.rounds.looked_since(dealing_since_))
            done_.store(dealing_);
        else
            core_.alert = true;
    }
}

// An adapter tells of one failed request, so it is asked again first: the looks behind that find what came before.
void Beside::deal_with(std::uint32_t heard) {
    dealing_ = heard;
    dealing_since_ = core_.rounds.looks;
    for (unsigned i = 0; i < core_.adapter_count; ++i) {
        (void)core_.adapters[i].take_failure_events();
        (void)core_.adapters[i].tell_failures();
    }
    core_.observer->read_events();
}

void Beside::look_for_faults() {
    if (active_) return;
    const std::uint32_t heard = heard_.load();
    if (heard != dealing_)
        deal_with(heard);
    else if (dealing_ == done_.load(std::memory_order_relaxed))
        return;
    core_.alert = true;
}

void Beside::has_looked(bool more) {
    if (!std::exchange(woken_, false) || !more || active_) return;
    heard_.fetch_add(1); // the program is not done
    core_.events.recover_soon();
}

} // namespace ucx_mp::channel
