#include "uct_mp/channel/ring_choice.h"

#include <algorithm>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

using adapt::Service;
using Mode = AdaptConfig::Mode;

RingChoice::RingChoice(Core& core)
    : core_(core), at_once_(has_rings(core) && core.config.adapt.rings_at_once),
      weighs_(has_rings(core) && !at_once_ && core.config.adapt.tuning.costs.ring > 0 &&
              (core.config.adapt.mode == Mode::on || core.config.adapt.mode == Mode::eager)),
      tuning_(core.config.adapt.tuning), measures_(has_rings(core) && !at_once_ && !weighs_ &&
                                                   core.config.adapt.rings_measured && core.config.adapt.enabled()) {
    // Adaptation chooses RC.
    tuning_.costs.rc = tuning_.costs.make_rc = 0;
    tuning_.limits.rc = 0;
    tuning_.limits.rings = core.config.adapt.max_rings;
    tuning_.limits.slots = core.config.adapt.ring.slots;
    tuning_.limits.cold_every = core.config.quiet_interval;
}

void RingChoice::attend(Nanos now) {
    if (core_.rings.asleep()) {
        // A sleeping program has no rings.
        if (std::exchange(awake_, false)) test_.reset(), core_.rings.waiting.clear(), core_.rings.expect(0);
        return;
    }
    awake_ = true;
    if (measures_ && core_.directory.endpoints) measure(now);
    if (!at_once_ && !weighs_) return;
    if (!windows_) windows_.emplace(tuning_, now);
    if (now >= windows_->slice_end()) end_slice(now);
}

// Tries now and then to begin the test, until some rail's device takes it. There are no rings before it has succeeded.
// It may fail if the port goes down, or if its thread loses the processor for too long.
void RingChoice::measure(Nanos now) {
    constexpr Nanos kAgain = 10'000'000, kLongest = 60'000'000'000;
    if (!test_) {
        if (now < next_test_) return;
        next_test_ = now + kAgain;
        for (const verbs::Rail& rail : core_.rails)
            if (rail.active && !test_)
                test_ = link::RingCostTest::begin(core_.services, core_.devices, rail, core_.config.adapt.ring);
        if (!test_) core_.halves.give_way(now + 2 * kAgain);
        return;
    }
    if (test_->state() == link::RingCostTest::State::running) return;
    if (test_->state() == link::RingCostTest::State::done) {
        measures_ = false;
        const link::RingCosts& found = test_->costs();
        tuning_.costs.ring = found.saved;
        tuning_.costs.miss = found.miss;
        tuning_.costs.credit = found.credit;
        tuning_.costs.make_ring = found.make;
        weighs_ = found.saved > 0;
        core_.services.say(LogLevel::debug,
                           "a ring saves %.0f ns a message; a look in vain takes %.1f ns, a credit %.0f ns",
                           found.saved, found.miss, found.credit);
    } else {
        core_.services.say(LogLevel::info, "what rings cost cannot be measured now: there are none, next try in %.0f s",
                           static_cast<double>(test_again_) / 1e9);
        next_test_ = now + test_again_;
        test_again_ = std::min(2 * test_again_, kLongest);
    }
    test_.reset();
}

// The messages that each channel has received since the last call, by slot.
std::vector<adapt::Counts::Entry> RingChoice::read_counts() {
    std::vector<adapt::Counts::Entry> entries;
    without_ = 0;
    seen_.resize(core_.directory.channels.size());
    for (std::uint32_t slot = 0; slot < seen_.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        Seen& seen = seen_[slot];
        if (channel.gates & (gate::not_ready | gate::failed) || !core_.rings.may_have(channel)) continue;
        if (seen.id != channel.local_id) seen = {.id = channel.local_id};
        const std::uint32_t received = channel.expected - std::exchange(seen.expected, channel.expected);
        if (!received) continue;
        entries.push_back({slot, static_cast<float>(received)});
        without_ += !(channel.rings && channel.rings->in);
    }
    return entries;
}

void RingChoice::end_slice(Nanos now) {
    if (!weighs_) core_.rings.waiting.clear(); // rings at once: nobody is chosen, and each slice asks again
    std::vector<adapt::Counts::Entry> counts = read_counts();
    const unsigned endpoints = core_.directory.endpoints;
    if (at_once_ && endpoints)
        for (const adapt::Counts::Entry& entry : counts)
            (void)core_.rings.serve(*core_.directory.channels[entry.id], true, Reason::first_peers);
    const bool due = windows_->end_slice(now, std::move(counts));
    if (endpoints == 0) return serve_all({}, Reason::no_sender), core_.rings.expect(0); // then nobody polls
    if (due && weighs_)
        look();
    else
        serve_waiting();
    if (without_) core_.rings.expect(std::min(without_, link::RingStore::kBatch));
}

void RingChoice::look() {
    adapt::Mapping present;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        const Channel& channel = *core_.directory.channels[slot];
        if (channel.rings && channel.rings->wanted) present.set(slot, Service::dc_ring);
    }
    const adapt::Windows::Verdict verdict = windows_->look(present, {});
    if (verdict.why == adapt::Windows::Why::nothing || verdict.map.choices == present.choices) return serve_waiting();
    ++changes;
    core_.services.say(LogLevel::debug, "rings for %u peers (%s window, %.1f ns a message)",
                       verdict.map.count(Service::dc_ring), name(verdict.why),
                       std::max(verdict.extended_gain, verdict.shrunk_gain));
    serve_all(verdict.map, Reason::counts);
}

// First takes rings back, which makes room for new ones.
void RingChoice::serve_all(const adapt::Mapping& map, Reason why) {
    core_.rings.waiting.clear();
    for (const bool wanted : {false, true})
        for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
            Channel& channel = *core_.directory.channels[slot];
            const bool has = channel.rings && channel.rings->wanted;
            if (has == wanted || (map.of(slot) == Service::dc_ring) != wanted) continue;
            if (!wanted)
                (void)core_.rings.serve(channel, false, why);
            else if (!serve(channel))
                core_.rings.waiting.push_back(channel.local_id);
        }
}

// Done only when the ring exists: while its memory is made ready, another channel may take the last place.
bool RingChoice::serve(Channel& channel) {
    const Status status = core_.rings.serve(channel, true, Reason::counts);
    return status == Status::unsupported || status == Status::no_memory || (channel.rings && channel.rings->in);
}

void RingChoice::serve_waiting() {
    std::erase_if(core_.rings.waiting, [&](std::uint32_t id) {
        Channel* const channel = core_.directory.channel_with(id);
        return !channel || (channel->gates & gate::failed) || serve(*channel);
    });
}

} // namespace ucx_mp::channel
