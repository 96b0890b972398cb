#include "uct_mp/channel/adaptation.h"

#include <algorithm>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

using adapt::Service;
using Mode = AdaptConfig::Mode;

namespace {
constexpr double kTrialMessages = 64; // in a window: fewer show nothing
constexpr unsigned kSamples = 32;     // of a path's latency: by then the first guess of it is forgotten
constexpr double kHeavier = 1.5;      // an asker must be, for taking another one's place: no to and fro
constexpr double kGain = 0.25;        // of the means
} // namespace

Adaptation::Adaptation(Core& core) : core_(core), mode_(core.rc_on_demand() ? core.config.adapt.mode : Mode::off) {}

void Adaptation::note_commands(Nanos took) {
    const auto ns = static_cast<double>(took);
    commands_.value = commands_.known ? commands_.value + kGain * (ns - commands_.value) : ns;
    commands_.known = true;
}

void Adaptation::connected(Channel& channel) {
    if (mode_ != Mode::eager || channel.self || (channel.gates & (gate::not_ready | gate::failed))) return;
    const unsigned places = core_.observer->served(channel).places;
    if (places && channel.usage.endpoints && core_.directory.connected * places <= core_.config.adapt.max_rc)
        (void)core_.observer->serve_by(channel, Service::rc);
}

void Adaptation::attend(Nanos now) {
    if (mode_ != Mode::on && mode_ != Mode::eager) return;
    if (!windows_) windows_.emplace(core_.config.adapt.tuning, now);
    if (now >= windows_->slice_end()) end_slice(now);
}

// What came and went since the last time, by slot: a peer that is parked and connects again is the same one.
std::vector<adapt::Counts::Entry> Adaptation::read_counts() {
    std::vector<adapt::Counts::Entry> entries;
    peers_.clear();
    seen_.resize(core_.directory.channels.size());
    for (std::uint32_t slot = 0; slot < seen_.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        Seen& seen = seen_[slot];
        if (channel.self || (channel.gates & (gate::not_ready | gate::failed))) continue;
        if (seen.id != channel.local_id) seen = {.id = channel.local_id};
        const std::uint32_t received = channel.expected - std::exchange(seen.expected, channel.expected);
        const std::uint32_t sent = channel.next_sequence - std::exchange(seen.next, channel.next_sequence);
        const Served served = core_.observer->served(channel);
        if (served.places == 0) continue;
        peers_.push_back({.channel = &channel, .served = served, .sent = static_cast<double>(sent)});
        if (received + sent) entries.push_back({slot, static_cast<float>(received) + static_cast<float>(sent)});
    }
    return entries;
}

void Adaptation::end_slice(Nanos now) {
    const bool due = windows_->end_slice(now, read_counts());
    unsigned endpoints = 0;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot)
        endpoints += core_.directory.channels[slot]->usage.endpoints;
    if (endpoints == 0) return leave_all();
    if (core_.config.adapt.measured) measure();
    if (core_.config.adapt.measured && !(dc_.known && rc_.known))
        give_trial();
    else if (due)
        look();
}

// Nobody here sends: whoever sends to us has DC.
void Adaptation::leave_all() {
    for (const Peer& peer : peers_) {
        if (peer.served.ours != Service::shared) (void)core_.observer->serve_by(*peer.channel, Service::shared);
        if (peer.served.theirs != Service::shared) core_.observer->revoke(*peer.channel);
    }
    core_.observer->trim_services();
}

// Paths that have shown something since the last slice began.
void Adaptation::measure() {
    double sum[2] = {}, weight[2] = {};
    const Nanos since = windows_->counts().end() - std::min(windows_->counts().end(), windows_->interval());
    for (const Peer& peer : peers_) {
        const Wiring& wiring = peer.channel->wiring;
        for (PathIndex path = 0; path < wiring.places && peer.sent > 0; ++path) {
            const schedule::Path& state = wiring.scheduler->paths()[path];
            if (state.latency_at <= since) continue;
            if (wiring.paths[path].requests < std::uint64_t{kSamples} * core_.config.signal_interval) continue;
            const auto kind = static_cast<unsigned>(wiring.paths[path].kind);
            sum[kind] += peer.sent * state.latency;
            weight[kind] += peer.sent;
        }
    }
    for (const path::Kind kind : {path::Kind::rc, path::Kind::dc}) {
        const auto i = static_cast<unsigned>(kind);
        Mean& mean = kind == path::Kind::rc ? rc_ : dc_;
        if (weight[i] <= 0) continue;
        const double now = sum[i] / weight[i];
        mean.value = mean.known ? mean.value + kGain * (now - mean.value) : now;
        mean.known = true;
    }
}

void Adaptation::give_trial() {
    if (!dc_.known) return;
    const Peer* busiest = nullptr;
    for (const Peer& peer : peers_) {
        const bool has_rc = peer.served.ours == Service::rc || peer.served.theirs == Service::rc;
        if (has_rc) return; // it will show
        if (!peer.served.refused && peer.sent >= kTrialMessages / adapt::Tuning::kSlices &&
            (!busiest || peer.sent > busiest->sent))
            busiest = &peer;
    }
    if (busiest) (void)core_.observer->serve_by(*busiest->channel, Service::rc);
}

void Adaptation::look() {
    ++looks_;
    choose_among_askers();
    adapt::Mapping present;
    std::vector<std::uint32_t> refusing;
    unsigned places = 1, others = 0;
    for (const Peer& peer : peers_) {
        const std::uint32_t slot = peer.channel->local_id & kSlotMask;
        const Served served = core_.observer->served(*peer.channel);
        places = std::max(places, served.places);
        // Who has RC because it has wished so itself needs no wish of ours.
        const bool theirs = served.theirs == Service::rc && served.ours != Service::rc;
        others += theirs ? served.places : 0;
        refusals_ += served.refused;
        if (served.ours == Service::rc)
            present.set(slot, Service::rc);
        else if (served.refused || theirs)
            refusing.push_back(slot);
    }
    std::ranges::sort(refusing);
    adapt::Tuning tuning = core_.config.adapt.tuning;
    tuning.limits.rings = 0;
    tuning.limits.rc = std::max(others ? 0u : 1u, // as Demand::has_room()
                                (core_.config.adapt.max_rc - std::min(core_.config.adapt.max_rc, others)) / places);
    if (core_.config.adapt.measured) tuning.costs = {.rc = dc_.value - rc_.value, .make_rc = commands_.value * places};
    windows_->set(tuning.costs, tuning.limits);
    const adapt::Windows::Verdict verdict = windows_->look(present, refusing);
    if (verdict.why != adapt::Windows::Why::nothing && verdict.map.choices != present.choices) {
        ++changes_;
        core_.services.say(LogLevel::debug, "RC for %u peers (%s window, %.1f ns a message)",
                           verdict.map.count(Service::rc), name(verdict.why),
                           std::max(verdict.extended_gain, verdict.shrunk_gain));
        apply(verdict.map);
    }
    // Who has refused may be asked again when we look next.
    for (const Peer& peer : peers_)
        if (peer.served.refused) (void)core_.observer->serve_by(*peer.channel, Service::shared);
}

// What is left makes room for what is wished.
void Adaptation::apply(const adapt::Mapping& map) {
    for (const Service service : {Service::shared, Service::rc})
        for (const Peer& peer : peers_) {
            const Service wanted = map.of(peer.channel->local_id & kSlotMask);
            if (wanted == service && (wanted == Service::rc || peer.served.ours == Service::rc))
                (void)core_.observer->serve_by(*peer.channel, wanted);
        }
}

// The destination chooses: of those that have asked for RC, the heaviest keep it.
void Adaptation::choose_among_askers() {
    const std::vector<adapt::Source> counts = windows_->counts().since(windows_->begin());
    const auto count_of = [&](const Peer& peer) {
        const auto at = std::ranges::lower_bound(counts, peer.channel->local_id & kSlotMask, {}, &adapt::Source::id);
        return at != counts.end() && at->id == (peer.channel->local_id & kSlotMask) ? at->count : 0.0;
    };
    const Peer *lightest = nullptr, *heaviest = nullptr;
    for (const Peer& peer : peers_) {
        if (peer.served.theirs == Service::rc && peer.served.ours != Service::rc &&
            (!lightest || count_of(peer) < count_of(*lightest)))
            lightest = &peer;
        if (peer.served.asks && (!heaviest || count_of(peer) > count_of(*heaviest))) heaviest = &peer;
    }
    if (lightest && heaviest && count_of(*heaviest) > kHeavier * count_of(*lightest))
        core_.observer->revoke(*lightest->channel);
}

void Adaptation::describe(AdaptationStatistics& out) const {
    out.looks = looks_;
    out.changes = changes_;
    out.refusals = refusals_;
    out.interval = windows_ ? windows_->interval() : 0;
    out.count_bytes = windows_ ? windows_->counts().bytes() + seen_.capacity() * sizeof(Seen) : 0;
    if (!core_.config.adapt.measured)
        out.costs = core_.config.adapt.tuning.costs;
    else if (dc_.known && rc_.known)
        out.costs = {.rc = dc_.value - rc_.value, .make_rc = commands_.value};
}

} // namespace ucx_mp::channel
