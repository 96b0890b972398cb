#include "uct_mp/channel/adaptation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

using adapt::Service;
using Mode = AdaptConfig::Mode;

namespace {
constexpr double kTrialMessages = 64;                          // per window: fewer teach nothing about RC
constexpr unsigned kSilentSlices = 4 * adapt::Tuning::kSlices; // a trial ends after so many with too few messages
constexpr unsigned kSamples = 32; // latencies of a path, after which its first guess no longer matters
// A trial ends after so many operations over RC. It needs kSamples latencies: 1024 operations, if one in 32 asks for a
// completion. The limit is four times that.
constexpr double kMostTried = 4096;
constexpr double kHeavier = 1.5;   // a peer takes another's place only if it is so much heavier: no swapping to and fro
constexpr double kGain = 0.25;     // weight of a new value in the smoothed share of messages that turn
constexpr Nanos kAway = 1'000'000; // between two calls of note_poll(): the processor has done something else
// The saving of RC is not known before the first trial. This part of a message's time by DC is assumed. A trial waits
// until that saving would have paid for it, so trials never cost more than was missed before them.
constexpr double kHope = 0.25;
constexpr unsigned kStale = 32; // windows after which DC's latency is measured anew, or RC is tried again
// Time that each side spends on the datagrams (about a dozen) that set up a path of RC and end it, ns. An estimate, not
// measured.
constexpr double kTalk = 10'000;

bool is_known(const schedule::Path& path) { return path.latencies >= kSamples; }
bool is_known(const Wiring& wiring, path::Kind kind) {
    for (PathIndex path = 0; path < wiring.places; ++path)
        if (wiring.paths[path].kind == kind && is_known(wiring.scheduler->paths()[path])) return true;
    return false;
}

double count_of(std::uint32_t slot, const std::vector<adapt::Source>& counts) {
    const auto at = std::ranges::lower_bound(counts, slot, {}, &adapt::Source::id);
    return at != counts.end() && at->id == slot ? at->count : 0.0;
}
} // namespace

Adaptation::Adaptation(Core& core)
    : turns(core), core_(core), mode_(core.config.rc_on_demand() ? core.config.adapt.mode : Mode::off) {}

void Adaptation::note_commands(Nanos took) { commands_.add(static_cast<double>(took)); }

double Adaptation::both_halves() const { return 2 * (kTalk + commands_.value()); }

double Adaptation::rc_saves() const {
    if (!core_.config.adapt.measured) return core_.config.adapt.tuning.costs.rc;
    const double turned = turning_ * turns.cost();
    return saving_.known() ? std::max(saving_.value(), turned) : turned;
}

// Where a limit parks connections, each new one would need new queue pairs of RC. The counts say there which peers are
// worth it.
bool Adaptation::all_have_room() const {
    return mode_ == Mode::eager && !(core_.config.max_connections && core_.directory.parks) &&
           core_.directory.connected <= core_.config.adapt.max_rc;
}

void Adaptation::connected(Channel& channel) {
    if (!all_have_room() || channel.self || (channel.gates & (gate::not_ready | gate::failed))) return;
    if (core_.observer->wiring.served(channel).places && channel.usage.endpoints)
        (void)core_.observer->wiring.serve_by(channel, Service::rc, Reason::first_peers);
}

// All peers get RC, so nothing is measured, and no peer goes by DC as a reference. A peer that has refused is asked
// again, at growing intervals: it may have had no endpoint yet.
void Adaptation::serve_all() {
    reference_ = kSlotMask;
    const Nanos now = windows_->counts().end();
    const bool again = now >= next_trial_;
    if (again) next_trial_ = now + (windows_->interval() << std::min(trials_++, 6u));
    for (const Peer& peer : peers_)
        if (!peer.has_rc() && (again || !peer.served.refused)) connected(*peer.channel);
}

void Adaptation::attend(Nanos now) {
    if (mode_ != Mode::on && mode_ != Mode::eager) return;
    if (!windows_) windows_.emplace(core_.config.adapt.tuning, now);
    leave_out_absence();
    if (core_.config.adapt.measured && core_.directory.endpoints && !all_have_room()) turns.attend(now);
    if (now >= windows_->slice_end()) end_slice(now);
}

void Adaptation::note_poll(Nanos now) {
    was_away_ = was_away_ || now - polled_ > kAway;
    polled_ = now;
}

// Without timestamps a completion counts from when it is found. If nobody has looked for a while some are too late.
void Adaptation::leave_out_absence() {
    if (!std::exchange(was_away_, false)) return;
    bool timed = true;
    for (unsigned i = 0; i < core_.adapter_count; ++i) timed &= core_.adapters[i].timestamps;
    for (std::uint32_t slot = 0; !timed && slot < core_.directory.channels.size(); ++slot)
        if (Channel& channel = *core_.directory.channels[slot]; channel.wiring.scheduler)
            channel.wiring.scheduler->forget_latencies();
}

// Completed requests include messages, writes, reads and a few of our own. Posted messages are known earlier than
// their completions. So the larger of the two counts is taken.
std::uint64_t Adaptation::Seen::note_sent(const Channel& channel, std::uint32_t posted) {
    messages += channel.next_sequence - std::exchange(next, channel.next_sequence);
    aside += posted;
    requests = 0;
    for (PathIndex path = 0; channel.wiring.paths && path < channel.wiring.places; ++path)
        requests += channel.wiring.paths[path].requests;
    const std::uint64_t all = std::max({messages, requests - std::min(requests, aside), sent});
    return all - std::exchange(sent, all);
}

// Messages since the last call, in both directions, by slot: a channel keeps its slot while it is parked.
std::vector<adapt::Counts::Entry> Adaptation::read_counts() {
    std::vector<adapt::Counts::Entry> entries;
    std::vector<std::uint32_t> heard;
    peers_.clear();
    seen_.resize(core_.directory.channels.size());
    for (std::uint32_t slot = 0; slot < seen_.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        Seen& seen = seen_[slot];
        if (core_.directory.channels.is_free(slot)) seen = {};
        const std::uint32_t parked = std::exchange(seen.parked, 0);
        if (channel.self || (channel.gates & (gate::not_ready | gate::failed))) {
            if (parked) entries.push_back({slot, static_cast<float>(parked)});
            continue;
        }
        if (seen.id != channel.local_id) seen = {.id = channel.local_id};
        const std::uint32_t received = parked + channel.expected - std::exchange(seen.expected, channel.expected);
        const std::uint64_t completed = seen.requests;
        const std::uint64_t sent = seen.note_sent(channel, turns.take_posted(channel.local_id));
        if (received != parked || seen.requests != completed) heard.push_back(channel.local_id);
        const Served served = core_.observer->wiring.served(channel);
        if (served.places == 0) continue;
        peers_.push_back({.channel = &channel,
                          .served = served,
                          .sent = static_cast<double>(sent),
                          .received = static_cast<double>(received)});
        if (received + sent) entries.push_back({slot, static_cast<float>(received) + static_cast<float>(sent)});
    }
    turns.drop_posted();
    turns.consider(std::move(heard));
    return entries;
}

// The next connection of this channel has another id, and counts from zero. So the counts of this one are saved.
void Adaptation::parking(const Channel& channel) {
    if (!windows_ || channel.self || core_.observer->wiring.served(channel).places == 0) return;
    const std::uint32_t slot = channel.local_id & kSlotMask;
    if (seen_.size() <= slot) seen_.resize(slot + 1);
    Seen& seen = seen_[slot];
    if (seen.id != channel.local_id) seen = {.id = channel.local_id, .parked = seen.parked};
    seen.parked += channel.expected - std::exchange(seen.expected, channel.expected) +
                   static_cast<std::uint32_t>(seen.note_sent(channel, turns.take_posted(channel.local_id)));
}

void Adaptation::end_slice(Nanos now) {
    const bool due = windows_->end_slice(now, read_counts());
    if (core_.directory.endpoints == 0) return leave_all();
    if (all_have_room()) return serve_all();
    const bool measured = core_.config.adapt.measured;
    if (measured) measure();
    // One half is made ahead, so that a peer that gets RC waits less.
    if (measured && (rc_saves() > 0 || (!saving_.known() && dc_latency_.known()))) core_.halves.keep(1);
    if (due) choose_among_askers();
    if (due) end_reference();
    if (measured && !saving_.known() && rc_saves() <= 0)
        give_trial();
    else if (due)
        look();
    if (due && measured && saving_.known()) renew_reference();
    if (due && measured) doubt_saving();
    if (due) clear_refusals();
}

// "RC saves nothing" may come from a moment of load. No peer has RC then, so nothing could correct it: after a while it
// is forgotten, and RC is tried again.
void Adaptation::doubt_saving() {
    const Nanos now = windows_->counts().end();
    const bool nobody = std::ranges::none_of(peers_, [](const Peer& peer) { return peer.has_rc(); });
    if (!saving_.known() || rc_saves() > 0 || !nobody) {
        doubted_ = 0;
    } else if (!doubted_) {
        doubted_ = now;
    } else if (now - doubted_ >= (kStale * windows_->interval()) << std::min(trials_, 6u)) {
        doubted_ = 0;
        saving_ = {};
    }
}

// The busiest peer goes by DC for a window, which renews DC's latency. Its paths of RC stay, so neither switch costs a
// command.
void Adaptation::renew_reference() {
    const Nanos now = windows_->counts().end();
    if (!referred_) referred_ = now;
    if (now - referred_ < (kStale * windows_->interval()) << std::min(references_, 6u)) return;
    const Peer* busiest = nullptr;
    for (const Peer& peer : peers_)
        if (peer.served.ours == Service::rc && peer.served.theirs != Service::rc &&
            peer.sent >= kTrialMessages / adapt::Tuning::kSlices && (!busiest || peer.sent > busiest->sent))
            busiest = &peer;
    if (!busiest) return;
    referred_ = now;
    ++references_;
    send_for_reference(*busiest);
}

void Adaptation::send_for_reference(const Peer& peer) {
    reference_ = peer.channel->local_id;
    reference_why_ = peer.served.why;
    (void)core_.observer->wiring.serve_by(*peer.channel, Service::shared, Reason::reference);
}

// Runs before look(), which must see that peer with RC, as it usually has it.
void Adaptation::end_reference() {
    const std::uint32_t id = std::exchange(reference_, kSlotMask);
    for (Peer& peer : peers_)
        if (peer.channel->local_id == id)
            (void)core_.observer->wiring.serve_by(*peer.channel, Service::rc, reference_why_);
}

// So that the next look may ask these peers again.
void Adaptation::clear_refusals() {
    for (const Peer& peer : peers_)
        if (peer.served.refused) (void)core_.observer->wiring.serve_by(*peer.channel, Service::shared, Reason::refusal);
}

// Nobody here has an endpoint, so nothing is sent. Peers that send to us can do so by DC.
void Adaptation::leave_all() {
    for (const Peer& peer : peers_) {
        if (peer.served.ours != Service::shared)
            (void)core_.observer->wiring.serve_by(*peer.channel, Service::shared, Reason::no_sender);
        if (peer.served.theirs != Service::shared) core_.observer->wiring.revoke(*peer.channel);
    }
    core_.observer->wiring.trim();
    core_.halves.keep(0);
}

// Compares the latencies of messages to the same peer: a far peer, or one that many send to, is slow by DC and by RC.
// RC counts only if it was used in the last window. DC may be spare now: then its latency is that of before, which
// renew_reference() keeps from growing too old.
void Adaptation::measure() {
    std::vector<std::pair<double, double>> saved; // ns, and the messages that have been sent there
    std::vector<double> by_dc;
    const Nanos since = windows_->counts().end() - std::min(windows_->counts().end(), windows_->interval());
    for (const Peer& peer : peers_) {
        const Wiring& wiring = peer.channel->wiring;
        double sum[2] = {};
        unsigned count[2] = {};
        for (PathIndex path = 0; path < wiring.places && peer.sent > 0; ++path) {
            const schedule::Path& state = wiring.scheduler->paths()[path];
            const auto kind = static_cast<unsigned>(wiring.paths[path].kind);
            if (wiring.paths[path].kind == path::Kind::rc && state.latency_at <= since) continue;
            if (!is_known(state)) continue;
            sum[kind] += state.typical_latency();
            ++count[kind];
        }
        constexpr auto kRc = static_cast<unsigned>(path::Kind::rc), kDc = static_cast<unsigned>(path::Kind::dc);
        if (count[kDc]) by_dc.push_back(sum[kDc] / count[kDc]);
        if (count[kRc] && count[kDc]) saved.emplace_back(sum[kDc] / count[kDc] - sum[kRc] / count[kRc], peer.sent);
    }
    if (!by_dc.empty()) {
        std::ranges::nth_element(by_dc, by_dc.begin() + static_cast<std::ptrdiff_t>(by_dc.size() / 2));
        dc_latency_.add(by_dc[by_dc.size() / 2]);
    }
    if (!saved.empty()) saving_.add(adapt::weighted_median(saved));
    note_turns();
}

// Estimates the part of messages that would make an initiator turn. It assumes that all go by DC, so that it does not
// depend on who has RC, and that an initiator's messages to its peers are mixed evenly. Several initiators turn at the
// same time, so the result is divided by their number.
void Adaptation::note_turns() {
    std::vector<std::pair<const SendQueue*, double>> sent; // by initiator
    double all = 0, turned = 0;
    unsigned initiators = 0;
    for (const Peer& peer : peers_) {
        all += peer.sent + peer.received;
        const Wiring& wiring = peer.channel->wiring;
        for (PathIndex path = 0; path < wiring.places && peer.sent > 0; ++path)
            if (wiring.paths[path].kind == path::Kind::dc && wiring.paths[path].queue[0]) {
                sent.emplace_back(wiring.paths[path].queue[0], peer.sent);
                break;
            }
    }
    std::ranges::sort(sent, std::less<>(), &std::pair<const SendQueue*, double>::first);
    for (auto begin = sent.begin(); begin != sent.end();) {
        const auto end = std::find_if(begin, sent.end(), [&](const auto& one) { return one.first != begin->first; });
        double sum = 0, squares = 0;
        const bool alone = end - begin == 1;
        ++initiators;
        for (; begin != end; ++begin) sum += begin->second, squares += begin->second * begin->second;
        turned += alone ? 0 : sum - squares / sum;
    }
    if (all <= 0) return;
    const double now = turned / all / std::max(initiators, 1u);
    turning_ = turning_ > 0 ? turning_ + kGain * (now - turning_) : now;
}

// Messages that are under way together take no longer than the time in which they were sent: hence the minimum.
bool Adaptation::has_paid(const Peer& peer, const std::vector<adapt::Source>& counts) const {
    const auto passed = static_cast<double>(windows_->counts().end() - windows_->begin());
    const double took = std::min(count_of(peer.slot(), counts) * dc_latency_.value(), passed);
    return kHope * took >= both_halves() * peer.served.places;
}

// True: a trial goes on, or ends now. It may teach nothing: large messages give no latency, and DC's latency is unknown
// where DC carried little. So after a while the peer goes by DC again.
bool Adaptation::on_trial() {
    const Peer* busiest = nullptr;
    bool up = false;
    for (const Peer& peer : peers_)
        if (peer.served.ours == Service::rc && (!busiest || peer.sent > busiest->sent)) busiest = &peer;
    if (!busiest) return silent_ = 0, tried_ = 0, false;
    const Wiring& wiring = busiest->channel->wiring;
    for (PathIndex path = 0; path < wiring.places; ++path)
        up |= wiring.paths[path].kind == path::Kind::rc && wiring.stands(path);
    tried_ += up ? busiest->sent : 0;
    silent_ = busiest->sent >= kTrialMessages / adapt::Tuning::kSlices ? 0 : silent_ + 1;
    if (silent_ < kSilentSlices && tried_ < kMostTried * (1u << std::min(mute_, 10u))) return true;
    silent_ = 0;
    tried_ = 0;
    ++mute_;
    mute_peer_ = busiest->channel->local_id;
    if (mode_ == Mode::eager) { // it has RC in any case, but for a window
        if (reference_ == kSlotMask) send_for_reference(*busiest);
        return true;
    }
    (void)core_.observer->wiring.serve_by(*busiest->channel, Service::shared, Reason::trial);
    return true;
}

void Adaptation::give_trial() {
    if (on_trial() || !dc_latency_.known()) return;
    const std::vector<adapt::Source> counts = windows_->counts().since(0);
    const Peer* busiest = nullptr;
    for (const Peer& peer : peers_)
        if (!peer.has_rc() && !peer.served.refused && peer.channel->local_id != mute_peer_ &&
            peer.sent >= kTrialMessages / adapt::Tuning::kSlices && (!busiest || peer.sent > busiest->sent) &&
            has_paid(peer, counts) &&
            is_known(peer.channel->wiring, path::Kind::dc)) // else there is nothing to compare RC with
            busiest = &peer;
    const Nanos now = windows_->counts().end();
    if (now < next_trial_) return;
    // The peer of the last fruitless trial comes again after another one, or when there has been no other for some
    // time: the others may be between two bursts.
    if (!busiest && mute_peer_ != kSlotMask && ++passed_over_ < kSilentSlices) return;
    passed_over_ = 0;
    mute_peer_ = kSlotMask;
    if (!busiest) return;
    // Each trial costs commands at both sides, even if it shows nothing: so the intervals grow.
    next_trial_ = now + (windows_->interval() << std::min(trials_++, 10u));
    (void)core_.observer->wiring.serve_by(*busiest->channel, Service::rc, Reason::trial);
}

void Adaptation::look() {
    ++looks_;
    adapt::Mapping present;
    std::vector<std::uint32_t> refusing;
    unsigned places = 1, others = 0;
    for (const Peer& peer : peers_) {
        const std::uint32_t slot = peer.channel->local_id & kSlotMask;
        const Served served = core_.observer->wiring.served(*peer.channel);
        places = std::max(places, served.places);
        // A peer that has RC by its own wish is served both ways by it, and needs no wish of ours.
        const bool theirs = served.theirs == Service::rc && served.ours != Service::rc;
        others += theirs;
        refusals_ += served.refused;
        if (served.ours == Service::rc)
            present.set(slot, Service::rc);
        else if (served.refused || theirs)
            refusing.push_back(slot);
    }
    std::ranges::sort(refusing);
    adapt::Tuning tuning = core_.config.adapt.tuning;
    tuning.limits.rings = 0;
    tuning.limits.rc = core_.config.adapt.max_rc - std::min(core_.config.adapt.max_rc, others);
    if (core_.config.adapt.measured) tuning.costs = {.rc = rc_saves(), .make_rc = both_halves() * places};
    windows_->set(tuning.costs, tuning.limits);
    const adapt::Windows::Verdict verdict = windows_->look(present, refusing);
    if (verdict.why != adapt::Windows::Why::nothing && verdict.map.choices != present.choices) {
        ++changes_;
        core_.services.say(LogLevel::debug, "RC for %u peers (%s window, %.1f ns a message)",
                           verdict.map.count(Service::rc), name(verdict.why),
                           std::max(verdict.extended_gain, verdict.shrunk_gain));
        apply(verdict.map);
    }
}

// Those that lose RC come first, to make room for those that get it.
void Adaptation::apply(const adapt::Mapping& map) {
    for (const Service service : {Service::shared, Service::rc})
        for (const Peer& peer : peers_) {
            const Service wanted = map.of(peer.channel->local_id & kSlotMask);
            if (wanted == service && (wanted == Service::rc || peer.served.ours == Service::rc))
                (void)core_.observer->wiring.serve_by(*peer.channel, wanted, Reason::counts);
        }
}

// The receiver chooses. The heaviest peer that has asked for RC, or that we want it for, may take the place of the
// lightest one that has it by its own wish. Each wish of a peer counts once: a peer that still wants RC asks again. Our
// own wishes count only where look() would take them once there is room.
void Adaptation::choose_among_askers() {
    const std::vector<adapt::Source> counts = windows_->counts().since(windows_->begin());
    const auto count = [&](const Peer& peer) { return count_of(peer.slot(), counts); };
    const bool measured = core_.config.adapt.measured;
    double all = 0;
    for (const adapt::Source& source : counts) all += source.count;
    unsigned in_use = 0;
    for (const Peer& peer : peers_) in_use += peer.has_rc();
    const Peer *lightest = nullptr, *heaviest = nullptr;
    for (const Peer& peer : peers_) {
        if (peer.served.theirs == Service::rc && peer.served.ours != Service::rc &&
            (!lightest || count(peer) < count(*lightest)))
            lightest = &peer;
        const bool asks = peer.served.asks && peer.served.asks != seen_[peer.slot()].judged;
        const double make = measured ? both_halves() * peer.served.places : core_.config.adapt.tuning.costs.make_rc;
        const bool wished = !peer.has_rc() && !peer.served.refused && in_use >= core_.config.adapt.max_rc &&
                            count(peer) * rc_saves() > make + windows_->least_gain() * all;
        if ((asks || wished) && (!heaviest || count(peer) > count(*heaviest))) heaviest = &peer;
    }
    if (!lightest || !heaviest || count(*heaviest) <= kHeavier * count(*lightest)) return;
    seen_[heaviest->slot()].judged = heaviest->served.asks;
    core_.observer->wiring.revoke(*lightest->channel);
}

void Adaptation::describe(AdaptationStatistics& out) const {
    out.looks = looks_;
    out.changes = changes_;
    out.refusals = refusals_;
    out.interval = windows_ ? windows_->interval() : 0;
    out.count_bytes = windows_ ? windows_->counts().bytes() + seen_.capacity() * sizeof(Seen) : 0;
    if (!core_.config.adapt.measured)
        out.costs = core_.config.adapt.tuning.costs;
    else if (saving_.known() || turns.known())
        out.costs = {.rc = rc_saves(), .make_rc = both_halves(), .turn = turns.cost()};
}

} // namespace ucx_mp::channel
