#include "uct_mp/channel/admission.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {

constexpr unsigned kBeyond = 2;         // places beyond the limit
constexpr unsigned kFewest = 4;         // with so many places or more, one is kept free
constexpr unsigned kAhead = 8;          // times that one is kept free after a channel has had to wait
constexpr Nanos kPatience = 10'000'000; // after such a wait kBeyond more places may be used: peers may be computing
constexpr Nanos kDespair = 100'000'000; // a wait after which the limit does not count
constexpr Nanos kAnswer = 1'000'000;    // a peer that makes progress has answered by then
constexpr Nanos kAway = 2'000'000;      // our program, if it makes progress, has parked a connection by then
constexpr unsigned kMostDoublings = 7;

bool holds_place(const Channel& channel) {
    if (channel.self || channel.ending.buried) return false;
    const connect::State state = channel.connection.state;
    return channel.ending.renewing || state == connect::State::established || state == connect::State::requesting ||
           state == connect::State::confirming || state == connect::State::accepting;
}

} // namespace

Admission::Admission(Core& core)
    : victims(core.config.victims, std::max(core.config.max_connections, 1u)), core_(core) {}

bool Admission::limited() const { return core_.config.max_connections != 0; }

void Admission::hold(Channel& channel) {
    if (std::ranges::find(holders_, &channel) == holders_.end()) holders_.push_back(&channel);
}

void Admission::grant(Channel& channel, unsigned all, Nanos since) {
    hold(channel); // its state follows before held() counts again
    const Nanos now = core_.services.now();
    channel.usage.granted_at = now;
    spent.most = std::max(spent.most, all);
    if (since) {
        ++spent.waits;
        spent.for_places += now - since;
        ahead_left_ = kAhead;
    }
    if (core_.config.max_connections < kFewest || all < core_.config.max_connections || ahead_left_ == 0) return;
    --ahead_left_;
    ahead_ = due = true;
    core_.attention.store(true, std::memory_order_relaxed);
}

Admission::Held Admission::held() {
    Held held;
    const Nanos now = core_.services.now();
    std::erase_if(holders_, [](const Channel* one) { return !holds_place(*one); });
    for (const Channel* const one : holders_) {
        const Channel& channel = *one;
        ++held.all;
        if (channel.ending.renewing || channel.ending.parted)
            ++held.ending;
        else if (channel.connection.parting.timer)
            ++(now - channel.ending.asked_at < kAnswer ? held.ending : held.silent);
        else if (channel.connection.state == connect::State::established)
            ++held.parkable;
    }
    return held;
}

bool Admission::may_connect(Channel& channel, Side side) {
    if (!limited() || channel.self) return true;
    if (holds_place(channel)) return hold(channel), true;
    const Held now = held();
    const auto place = std::ranges::find(waiting_, &channel, &Waiting::channel);
    const bool first = waiting_.empty() || place == waiting_.begin();
    // Nothing can be parked: the places hold handshakes, with peers that may be full of handshakes with us.
    const bool stuck = side == Side::server && now.parkable == 0 && now.ending == 0;
    // Nothing is parked while our program computes: so the limit gives way for peers that have waited.
    const Nanos waited = side == Side::server && place != waiting_.end() ? core_.services.now() - place->since : 0;
    const bool patient = waited >= kAway;
    const unsigned beyond = patient ? core_.config.max_connections : stuck ? kBeyond : 0;
    if (waited >= kDespair || (now.all < core_.config.max_connections + beyond && (first || stuck || patient))) {
        const Nanos since = place != waiting_.end() ? place->since : 0;
        if (since) waiting_.erase(place);
        grant(channel, now.all + 1, since);
        return true;
    }
    if (place == waiting_.end()) waiting_.push_back({&channel, core_.services.now()});
    due = true;
    core_.attention.store(true, std::memory_order_relaxed);
    return false;
}

void Admission::forget(const Channel& channel) {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.channel == &channel; });
    std::erase(holders_, &channel);
    if (!limited()) return;
    due = true; // its place, if it had one, is free
    core_.attention.store(true, std::memory_order_relaxed);
}

std::uint32_t Admission::moved(const Channel& channel) {
    std::uint32_t sum = channel.expected + channel.next_sequence;
    for (unsigned i = 0; channel.wiring.paths && i < channel.wiring.places; ++i) {
        const Path& path = channel.wiring.paths[i];
        sum += path.puts + static_cast<std::uint32_t>(path.bytes[1]);
    }
    return sum;
}

void Admission::connected(Channel& channel) {
    if (!limited() || channel.self) return;
    channel.usage.connected_at = core_.services.now();
    if (const Nanos granted = std::exchange(channel.usage.granted_at, 0)) {
        ++spent.connections;
        const Nanos took = channel.usage.connected_at - granted;
        spent.handshakes += took;
        victims.connected(channel.uid, static_cast<double>(took));
    }
    channel.usage.moved = 0;
    const std::lock_guard lock(core_.services);
    hold(channel);
    due = true; // there may be too many
    core_.attention.store(true, std::memory_order_relaxed);
}

void Admission::refused(Channel& channel) {
    if (!limited()) return;
    const unsigned doublings = std::min(channel.usage.refusals++, kMostDoublings);
    channel.usage.spared_until = core_.services.now() + (kSpared << doublings);
    const std::lock_guard lock(core_.services);
    due = true;
    core_.attention.store(true, std::memory_order_relaxed);
}

void Admission::parked(Channel& channel, Nanos asked_at) {
    if (!limited()) return;
    spent.partings += asked_at != 0;
    spent.questions += asked_at ? core_.services.now() - asked_at : 0;
    channel.usage.refusals = channel.usage.nudges = channel.usage.stalls = 0;
    channel.usage.nudged_until = 0;
    victims.torn_down(channel.uid);
}

bool Admission::waits(const Channel& channel) const {
    return std::ranges::find(waiting_, &channel, &Waiting::channel) != waiting_.end();
}

bool Admission::is_unused(const Channel& channel) const {
    return moved(channel) == 0 && core_.services.now() - channel.usage.connected_at < kFresh;
}

Admission::Wanted Admission::connect_waiting(Nanos now, bool tireless) {
    const std::lock_guard lock(core_.services);
    due = false;
    unsigned places = start_waiting(now) + static_cast<unsigned>(waiting_.size());
    const bool waits = !waiting_.empty();
    // Making room ahead ends when it has been in vain for long: all connections are in use.
    ahead_ = ahead_ && places >= core_.config.max_connections && (waits || tireless);
    places += ahead_;
    const Held now_held = held();
    // If no channel waits, connections beyond the limit may stay until their silent peers answer.
    return {.places = places, .ending = now_held.ending + (waits ? 0 : now_held.silent), .waits = waits};
}

std::vector<Channel*> Admission::holders() {
    const std::lock_guard lock(core_.services);
    return holders_;
}

unsigned Admission::start_waiting(Nanos now) {
    const Held places = held();
    unsigned all = places.all;
    // A peer that was asked, and computes, will most likely agree: we send nothing to it any more.
    const unsigned silent = std::min(places.silent, core_.config.max_connections);
    std::erase_if(waiting_, [&](const Waiting& one) {
        return holds_place(*one.channel) || one.channel->ending.buried ||
               one.channel->connection.state != connect::State::closed;
    });
    while (!waiting_.empty()) {
        const Waiting next = waiting_.front();
        const Nanos waited = now - next.since;
        const unsigned beyond = waited < kPatience ? 0 : std::max(silent, kBeyond);
        if (waited < kDespair && all >= core_.config.max_connections + beyond) break;
        waiting_.erase(waiting_.begin());
        if (next.channel->gates & gate::failed) continue;
        next.channel->asked = true;
        core_.control->start(next.channel->connection);
        grant(*next.channel, ++all, next.since);
    }
    return all;
}

} // namespace ucx_mp::channel
