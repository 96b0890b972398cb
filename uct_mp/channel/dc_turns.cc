#include "uct_mp/channel/dc_turns.h"

#include <algorithm>

#include "uct_mp/channel/core.h"
#include "uct_mp/link/posting.h"

namespace ucx_mp::channel {

namespace {
constexpr unsigned kRounds = 8; // of each kind
constexpr unsigned kTries = 1000;
constexpr unsigned kEach = 8; // writes of an initiator in a round
} // namespace

// Paths of DC that work, of peers that are connected.
std::vector<DcTurns::Target> DcTurns::targets(unsigned rail) const {
    std::vector<Target> found;
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        if (core_.directory.channels.is_free(slot) || channel.self || !channel.wiring.paths ||
            (channel.gates & (gate::not_ready | gate::failed | gate::retiring)))
            continue;
        for (PathIndex path = 0; path < channel.wiring.path_count; ++path) {
            const Path& sub = channel.wiring.paths[path];
            if (sub.kind != path::Kind::dc || sub.rail != rail || !sub.dc.ah || !channel.wiring.stands(path)) continue;
            found.push_back({&channel, path});
            break;
        }
    }
    return found;
}

std::uint64_t DcTurns::posted(const Channel& channel) const {
    const auto found = posted_.find(channel.local_id);
    return found == posted_.end() ? 0 : found->second;
}

void DcTurns::attend() {
    if (known_ || running_ || core_.dc.rails.empty()) return;
    for (const verbs::Rail& rail : core_.rails) {
        if (!rail.active || rail.index >= core_.dc.rails.size()) continue;
        if (rounds_ && rail.index != rail_) continue; // the same one for all rounds
        const auto& initiators = core_.dc.rails[rail.index].initiators;
        if (initiators.empty()) continue;
        if (!std::ranges::all_of(initiators, [](const auto& queue) {
                return !queue->failed() && queue->idle() && queue->room(kEach + SendQueue::kReserve);
            }))
            continue;
        const std::vector<Target> to = targets(rail.index);
        if (to.size() < 2) continue;
        if (++tries_ > kTries) known_ = true; // it never works out
        if (begin(rail.index, to)) return;
    }
}

bool DcTurns::begin(unsigned rail, const std::vector<Target>& to) {
    auto& initiators = core_.dc.rails[rail].initiators;
    rail_ = rail;
    messages_ = 0;
    ends_.clear();
    began_ = core_.services.now();
    // Not all processes begin with the same peers.
    std::size_t at = core_.control->address().uid % to.size();
    for (const auto& queue : initiators) {
        for (unsigned i = 0; i < kEach; ++i) {
            const Target& target = to[(at + (i & turning_)) % to.size()];
            Path& sub = target.channel->wiring.paths[target.path];
            const unsigned flags = i + 1 == kEach || queue->signal_due() ? IBV_SEND_SIGNALED : 0;
            ++sub.open;
            const Posted posted{.channel = target.channel, .path = target.path};
            if (!queue->room(1) || !queue->write_inline(sub.dc, nullptr, 0, {0, 0}, posted, flags)) {
                --sub.open;
                return false; // what has been posted comes back
            }
            ++messages_;
            ++posted_[target.channel->local_id];
        }
        ends_.push_back(queue->head);
        at += 2;
    }
    running_ = true;
    core_.due |= due::turns;
    return true;
}

void DcTurns::poll() {
    const auto& initiators = core_.dc.rails[rail_].initiators;
    for (std::size_t i = 0; i < initiators.size(); ++i)
        if (i >= ends_.size() || initiators[i]->failed() || initiators[i]->head != ends_[i]) return end(false);
    for (const auto& queue : initiators)
        if (!queue->idle()) return;
    end(true);
}

void DcTurns::end(bool counts) {
    running_ = false;
    core_.due &= static_cast<std::uint8_t>(~due::turns);
    if (!counts) return;
    const double took = static_cast<double>(core_.services.now() - began_) / messages_;
    double& best = best_[turning_];
    best = best > 0 ? std::min(best, took) : took;
    turning_ ^= 1;
    if (++rounds_ < 2 * kRounds) return;
    known_ = true;
    cost_ = std::max(0.0, best_[1] - best_[0]);
    core_.services.say(LogLevel::debug, "a DC initiator that turns to another target takes %.1f ns longer", cost_);
}

} // namespace ucx_mp::channel
