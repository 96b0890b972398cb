#include "uct_mp/channel/parking.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
constexpr Nanos kLook = 5'000;          // first pause between two looks for idle connections, while a channel waits
constexpr Nanos kMostPause = 5'000'000; // ... and the longest, after doublings
constexpr unsigned kMostNudges = 4;     // in a row; then a connection that is still busy is left alone for a while
constexpr unsigned kMostStalls = 13;    // doublings of the pause after nudges in vain
constexpr unsigned kMostVictims = 8;    // chosen in one look
} // namespace

Parking::~Parking() {
    if (timer_) core_.services.cancel(timer_);
}

void Parking::step() {
    if (!core_.admission.limited()) return;
    pause_ = kLook;
    if (core_.services.now() - looked_ >= took_) return look();
    // Events come one by one. A pause as long as the last look keeps looks to half of the time.
    {
        const std::lock_guard lock(core_.services);
        core_.admission.due = false;
    }
    look_in(took_);
}

void Parking::look_in(Nanos pause) {
    if (timer_) core_.services.cancel(timer_);
    timer_ = core_.services.at(core_.services.now() + pause, [this] {
        timer_ = 0;
        look();
    });
}

void Parking::look() {
    if (timer_) core_.services.cancel(std::exchange(timer_, 0));
    const Nanos now = core_.services.now();
    const unsigned places = core_.config.max_connections;
    const auto [wanted, ending, waits] = core_.admission.connect_waiting(now, pause_ < kMostPause);
    looked_ = core_.services.now();
    took_ = looked_ - now;
    if (wanted <= places) return;
    const unsigned missing = wanted - places;
    // Answers and ended connections set `due`. So no timer is needed while a peer computes.
    if (!waits && missing <= ending) return;
    // Not for all at once: by the time that it is their turn, the others may have been connected by their peers.
    const unsigned most = (places + 1) / 2;
    if (missing > ending && most > ending) seek(std::min(std::min(missing, most) - ending, kMostVictims), now);
    looked_ = core_.services.now();
    took_ = looked_ - now;
    // Events set `due`, but a connection that becomes idle raises none: so a timer looks.
    look_in(std::max(pause_, took_));
    pause_ = std::min(2 * pause_, kMostPause);
}

void Parking::note_used(const std::vector<Channel*>& holders) {
    for (Channel* const holder : holders) {
        Channel& channel = *holder;
        if (!channel.wiring.paths) continue;
        const std::uint32_t count = Admission::moved(channel);
        if (std::exchange(channel.usage.moved, count) != count) core_.admission.victims.used(channel.uid);
    }
}

// False: the peer has refused lately, or the connection was nudged and nothing has been acknowledged since.
bool Parking::may_ask(const Channel& channel, Nanos now) {
    const Usage& usage = channel.usage;
    return now >= usage.spared_until && (now >= usage.nudged_until || channel.acked != usage.acked);
}

// Endings::park() has just asked for missing acknowledgments or completions. may_ask() allows another try when they
// have come, or after a pause. The pause doubles while the peer acknowledges nothing: it computes.
void Parking::nudged(Channel& channel, Nanos now) {
    Usage& usage = channel.usage;
    if (std::exchange(usage.acked, channel.acked) != channel.acked) usage.stalls = 0;
    if (++usage.nudges % kMostNudges == 0) usage.spared_until = now + Admission::kSpared;
    const Nanos pause =
        channel.in_flight() ? Admission::kSpared : kLook; // completions come sooner, from our own adapter
    usage.nudged_until = now + (pause << std::min(usage.stalls++, kMostStalls));
}

void Parking::seek(unsigned count, Nanos now) {
    const std::vector<Channel*> holders = core_.admission.holders();
    note_used(holders);
    unsigned expected = 0; // nudged just now: most of them will be idle soon
    std::vector<Channel*> idle;
    std::vector<adapt::Victims::Key> keys;
    for (Channel* const holder : holders) {
        Channel& channel = *holder;
        if (core_.admission.is_unused(channel) || !core_.endings.may_park(channel)) continue;
        if (!may_ask(channel, now)) {
            expected += channel.usage.stalls == 1 && now < channel.usage.nudged_until;
            continue;
        }
        idle.push_back(&channel);
        keys.push_back(channel.uid);
    }
    while (count > expected && !idle.empty()) {
        const auto victim = static_cast<std::ptrdiff_t>(core_.admission.victims.choose(keys));
        Channel& channel = *idle[static_cast<std::size_t>(victim)];
        const Status status = core_.endings.park(channel);
        if (status == Status::busy && !(channel.gates & gate::failed)) nudged(channel, now);
        count -= status == Status::in_progress || status == Status::busy;
        idle.erase(idle.begin() + victim);
        keys.erase(keys.begin() + victim);
    }
}

} // namespace ucx_mp::channel
