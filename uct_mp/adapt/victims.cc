#include "uct_mp/adapt/victims.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace ucx_mp::adapt {

namespace {

constexpr double kHalfLives[] = {1, 4, 16, 64}; // in uses per place
constexpr double kMemory = 20;                  // searches per place after which a loss counts 1/e
constexpr double kClearly = 0.97;               // an expert with fewer losses than this part of the leader's
constexpr double kAFew = 4;                     // ... and so many fewer takes the lead
constexpr double kMostDear = 16;                // times as dear as others, or as cheap
constexpr std::uint16_t kMostTorn = 7;          // lru_m counts no further

} // namespace

Victims::Victims(VictimPolicy policy, unsigned places) : policy_(policy), places_(places) {
    assert(places > 0);
    static_assert(std::size(kHalfLives) == kCounts);
    static_assert(kExperts <= 8, "Peer::held");
}

double Victims::halved(unsigned count, const Peer& peer) const {
    const double half = kHalfLives[count] * static_cast<double>(places_);
    return double{peer.count[count]} * std::exp2(-static_cast<double>(now_ - peer.at) / half);
}

double Victims::price(const Peer& peer) const {
    return peer.took > 0 ? std::clamp(double{peer.took} / took_, 1 / kMostDear, kMostDear) : 1;
}

void Victims::connected(Key peer, double took) {
    constexpr double kOwn = 0.5, kAll = 1.0 / 16; // part of a new value in the mean
    if (!(took > 0)) return;
    float& known = peers_[peer].took;
    known = static_cast<float>(known > 0 ? known + kOwn * (took - known) : took);
    took_ = took_ > 0 ? took_ + kAll * (took - took_) : took;
}

double Victims::worth(Expert expert, const Peer& peer) const {
    if (expert == recent) return peer.credit;
    if (expert == old) return -static_cast<double>(peer.at);
    return halved(expert - often, peer) * price(peer);
}

void Victims::hold(Expert expert, Entry& entry) {
    const auto bit = static_cast<std::uint8_t>(1u << expert);
    if (entry.second.held & bit) return;
    losses_[expert] += price(entry.second);
    entry.second.held |= bit;
    std::vector<Entry*>& held = held_[expert];
    if (held.size() < places_) return held.push_back(&entry);
    // Uses of connections of equal worth are equally good: the older one goes.
    const auto out = std::ranges::min_element(
        held, {}, [&](const Entry* one) { return std::pair(worth(expert, one->second), one->second.at); });
    if (expert == recent) credit_ = (*out)->second.credit;
    (*out)->second.held &= static_cast<std::uint8_t>(~bit);
    *out = &entry;
}

void Victims::used(Key peer) {
    Entry& entry = *peers_.try_emplace(peer).first;
    ++now_;
    if (policy_ == VictimPolicy::leader) {
        for (unsigned i = 0; i < kCounts; ++i) entry.second.count[i] = static_cast<float>(halved(i, entry.second) + 1);
        entry.second.credit = credit_ + price(entry.second);
        for (unsigned e = 0; e < kExperts; ++e) hold(static_cast<Expert>(e), entry);
    }
    entry.second.at = now_;
    if (peers_.size() > 8 * places_ + 4096) forget_some();
}

Victims::Rank Victims::rank(const Peer& peer) const {
    const auto at = static_cast<double>(peer.at);
    switch (policy_) {
    case VictimPolicy::lru:
        return {at};
    case VictimPolicy::lru_m:
        return {static_cast<double>(peer.torn), at};
    case VictimPolicy::leader:
        return {static_cast<double>(peer.held >> leader_ & 1), worth(leader_, peer), at};
    }
    __builtin_unreachable();
}

std::size_t Victims::choose(std::span<const Key> idle) {
    assert(!idle.empty());
    if (policy_ == VictimPolicy::leader) {
        for (double& losses : losses_) losses *= 1 - 1 / (kMemory * static_cast<double>(places_));
        const auto best = static_cast<Expert>(std::ranges::min_element(losses_) - losses_);
        if (losses_[best] + kAFew < kClearly * losses_[leader_]) leader_ = best;
    }
    const Peer never;
    std::size_t victim = 0;
    Rank least{};
    for (std::size_t i = 0; i < idle.size(); ++i) {
        const auto found = peers_.find(idle[i]);
        const Rank mine = rank(found == peers_.end() ? never : found->second);
        if (i == 0 || mine < least) least = mine, victim = i;
    }
    return victim;
}

void Victims::torn_down(Key peer) {
    std::uint16_t& torn = peers_[peer].torn;
    torn = std::min<std::uint16_t>(torn + 1, kMostTorn);
}

unsigned Victims::tear_downs(Key peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? 0 : found->second.torn;
}

// Forgets those that nobody has wanted for longest, unless an expert holds them.
void Victims::forget_some() {
    std::vector<std::uint64_t> times;
    for (const auto& [key, peer] : peers_)
        if (!peer.held) times.push_back(peer.at);
    if (times.empty()) return;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    std::erase_if(peers_, [&](const Entry& entry) { return !entry.second.held && entry.second.at <= *middle; });
}

} // namespace ucx_mp::adapt
