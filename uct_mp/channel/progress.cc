#include "uct_mp/channel/progress.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
// An adapter that so many polls in a row have found empty is polled less often (quiet), and after more of them still
// less often (silent). The adapter that had something last is always polled. Small messages stay on one rail, and each
// adapter that is polled adds to their latency.
constexpr std::uint32_t kQuiet = 64, kSilent = 1024;
} // namespace

Progress::Progress(Core& core, const Config& config)
    : beside(core), parking(core), core_(core), silent_mask_(std::bit_ceil(std::max(config.silent_interval, 1u)) - 1) {
    core.rounds.quiet_mask = std::bit_ceil(std::max(config.quiet_interval, 1u)) - 1;
}

unsigned Interface::progress() { return core_->progress.round<false>(); }
unsigned Interface::progress_and_leave() { return core_->progress.round<true>(); }

template <bool marked> unsigned Progress::round() {
    if (core_.aside) [[unlikely]]
        return hand_out_and_step<marked>();
    return step<marked>();
}

template <bool marked> unsigned Progress::hand_out_and_step() {
    const unsigned handed_out = beside.hand_out(); // before anything else is polled
    return handed_out + step<marked>();
}

template <bool marked> unsigned Progress::step() {
    const bool look = core_.alert; // recovery waits until all queues have been looked at
    const bool all = (++rounds_ & silent_mask_) == 0 || look;
    const unsigned n =
        core_.rounds.polled_count == 1 ? core_.completions.poll(core_.adapters[0], all) : poll_several(all);
    // The control plane is quiet nearly always. So it is polled now and then, and always during a handshake of ours.
    if (--until_control_ == 0 || look || core_.due || core_.alert || core_.recovery_steps ||
        core_.attention.load(std::memory_order_relaxed)) {
        const unsigned all_found = serve(n, look);
        if constexpr (marked) mp_turn_leave(&beside.turn);
        return all_found;
    }
    if constexpr (marked) mp_turn_leave(&beside.turn);
    return n;
}

template unsigned Progress::step<false>();

unsigned Progress::poll_several(bool all) {
    unsigned n = 0;
    const bool look_around = (rounds_ & core_.rounds.quiet_mask) == 0 || all;
    for (unsigned i = 0; i < core_.rounds.polled_count; ++i) {
        Adapter& adapter = core_.adapters[i];
        if (adapter.quiet >= kQuiet && !(adapter.quiet < kSilent ? look_around : all) && i != latest_adapter_ &&
            adapter.owed <= 0 && !adapter.peeked_count)
            continue;
        const unsigned found = core_.completions.poll(adapter, all);
        if (found) {
            n += found;
            adapter.quiet = 0;
            latest_adapter_ = i;
        } else if (adapter.quiet < kSilent) {
            ++adapter.quiet;
        }
    }
    return n;
}

unsigned Progress::serve(unsigned n, bool look) {
    if (!core_.lists.failed.empty()) [[unlikely]]
        core_.failures.end_failed(); // those that polling has found
    if (look) [[unlikely]]
        count_look(n);
    if (until_control_ == 0 || core_.attention.load(std::memory_order_relaxed) || look) [[unlikely]]
        n += attend(n);
    if (core_.alert) [[unlikely]] {
        core_.observer->step();
        beside.hand_over();
    }
    if (core_.recovery_steps) [[unlikely]]
        n += std::exchange(core_.recovery_steps, 0);
    if (core_.due) {
        if (core_.due & due::rings) n += core_.rings.poll();
        if (core_.due & due::turns) core_.adaptation.turns.poll();
        serve_lists(n);
        n += std::exchange(core_.recovery_steps, 0);
    }
    return n;
}

void Progress::serve_lists(unsigned found) {
    if (std::exchange(core_.rounds.provide_due, false))
        for (unsigned i = 0; i < core_.adapter_count; ++i)
            if (const int error =
                    core_.adapters[i].provide(core_.directory.connected, core_.devices, core_.config, core_.layout))
                core_.services.say(LogLevel::info, "%s: no room for more receives: %s",
                                   core_.adapters[i].device->name.c_str(), std::strerror(error));
    if (!core_.atomics.replies.empty()) core_.atomics.serve_replies();
    if (!core_.lists.failed.empty()) core_.failures.end_failed();
    if (!core_.lists.pushes.empty()) core_.epochs.push_due();
    if (!core_.lists.read_backs.empty()) core_.visibility.read_backs_due_again();
    if (!core_.lists.acks.empty()) core_.acks.send_due_acks();
    const bool aside = beside.active(); // another thread's turn must not call the user
    if (!core_.lists.told_later.empty() && !aside) core_.failures.tell_failures();
    if (!core_.directory.ending.empty() && !aside) core_.endings.end_channels();
    if (found) {
        if (!core_.lists.pulls.empty()) core_.mover.pull_due();
        if (!core_.lists.waiting.empty() && !aside) wake_waiting(core_);
    }
    const bool more = core_.rounds.provide_due || !core_.atomics.replies.empty() || !core_.directory.ending.empty() ||
                      !core_.lists.empty();
    core_.due = static_cast<std::uint8_t>((core_.due & ~due::lists) | (more ? due::lists : 0));
}

unsigned Progress::attend(unsigned found) {
    unsigned n = 0;
    if (core_.services.try_lock()) { // else the handshake's thread does this work
        n += core_.control->poll(found != 0);
        const bool dead = core_.ends.has_graves();
        const bool trim = std::exchange(core_.directory.trim_due, false);
        const bool admit = core_.admission.due;
        core_.attention.store(core_.control->busy() || !core_.mail.list.empty() || dead, std::memory_order_relaxed);
        core_.services.unlock();
        n += core_.peers.read_mail();
        if (trim) core_.endings.trim_unused();
        if (admit) parking.step();
        if (dead) n += core_.ends.clear_graves(found != 0);
    }
    if (until_control_ == 0) {
        until_control_ = core_.config.control_interval;
        ++tick_;
        beside.look_for_faults();
        if (core_.adaptation.measures()) core_.adaptation.note_poll(core_.services.now());
        if (tick_ % core_.config.event_interval == 0) core_.observer->read_events();
        if (tick_ % 64 == 0) calibrate();
        if (core_.small.starved || core_.large.starved) core_.sender.ask_for_buffers();
        if (tick_ % (2 * core_.config.event_interval) == 0) {
            const Nanos now = core_.services.now();
            if (now >= core_.rounds.next_watch) core_.observer->watch_peers(now);
            core_.observer->watch_paths(now);
            core_.adaptation.attend(now);
            core_.rings.attend(now);
            core_.ring_choice.attend(now);
        }
    }
    return n;
}

void Progress::calibrate() {
    const Nanos now = core_.services.now();
    if (now < core_.rounds.next_calibration) return;
    core_.rounds.next_calibration = now + core_.rounds.calibration_interval;
    core_.rounds.calibration_interval = std::min<Nanos>(4 * core_.rounds.calibration_interval, 1'000'000'000);
    for (unsigned i = 0; i < core_.adapter_count; ++i)
        if (core_.adapters[i].timestamps &&
            !core_.adapters[i].clock.calibrate(*core_.adapters[i].device, core_.services))
            core_.adapters[i].timestamps = false;
}

// A look ends when all completion queues have been seen empty. It also ends when as many completions have been taken as
// the queues can hold, since peers that go on sending must not keep recovery from its work. A look that began before
// some moment does not cover that moment, but the next one does: Rounds::looked_since().
void Progress::count_look(unsigned found) {
    const Config& config = core_.config;
    const unsigned enough = (config.receive_depth + config.completion_depth) / config.poll_batch + 8;
    const bool more = found >= config.poll_batch;
    beside.has_looked(more);
    if (more && ++crowded_ < enough) return;
    crowded_ = 0;
    ++core_.rounds.looks;
}

} // namespace ucx_mp::channel
