#include "uct_mp/channel/dc_turns.h"

#include <algorithm>
#include <utility>

#include "uct_mp/channel/core.h"
#include "uct_mp/link/posting.h"

namespace ucx_mp::channel {

namespace {
constexpr unsigned kRounds = 9;
constexpr unsigned kTries = 100; // rounds that may be begun for one result; then there is a pause of kAnew
constexpr unsigned kEach = 8;    // writes of a part
constexpr std::size_t kMostHeard = 64;
constexpr Nanos kPatience = 1'000'000;  // a round waits so long until earlier requests have completed
constexpr Nanos kAnew = 10'000'000'000; // pause until the cost is measured again, doubled each time
constexpr unsigned kMostDoublings = 9;
// The pause after a round is kRest times the round's own time, within two limits: the shortest is about 1 /
// kRestsPerLook of Tuning::interval. So the first cost is known after some two seconds. Ranks that wait for each other
// also wait for each other's rounds: without pauses a job of 16 ranks became up to seven times as slow for
// milliseconds.
constexpr Nanos kRest = 2;
constexpr Nanos kRestsPerLook = 4;
constexpr Nanos kLongestRest = 4;   // times the shortest
constexpr double kSeldom = 1.0 / 8; // of a part's time: the longest gap between two polls, if there are no timestamps
constexpr Nanos kNever = ~Nanos{0}; // t_post after any completion, so that the scheduler learns nothing from it
} // namespace

void DcTurns::consider(std::vector<std::uint32_t> heard) {
    heard_ = std::move(heard);
    if (heard_.size() <= kMostHeard) return;
    // Each process begins with other peers.
    const std::size_t first = core_.control->address().uid % heard_.size();
    std::rotate(heard_.begin(), heard_.begin() + static_cast<std::ptrdiff_t>(first), heard_.end());
    heard_.resize(kMostHeard);
}

std::uint32_t DcTurns::take_posted(std::uint32_t id) {
    std::uint32_t sum = 0;
    std::erase_if(posted_, [&](const auto& entry) { return entry.first == id && (sum += entry.second, true); });
    return sum;
}

// The channel's first path of DC on this rail that works, and the initiator that its messages take.
std::optional<DcTurns::Target> DcTurns::target_of(std::uint32_t id, unsigned rail) const {
    Channel* const channel = core_.directory.channel_with(id);
    if (!channel || channel->self || !channel->wiring.scheduler || channel->wiring.unsettled.damaged ||
        (channel->gates & (gate::not_ready | gate::failed | gate::retiring)) || !recoverable(core_, *channel))
        return {};
    for (PathIndex path = 0; path < channel->wiring.path_count; ++path) {
        const Path& sub = channel->wiring.paths[path];
        if (sub.kind != path::Kind::dc || sub.rail != rail || !sub.dc.ah || !channel->wiring.stands(path) ||
            channel->wiring.scheduler->paths()[path].state != schedule::PathState::up)
            continue;
        SendQueue* const queue = core_.placement.queue_for(*channel, path, Direction::write);
        if (queue && !queue->failed()) return Target{channel, path, queue};
    }
    return {};
}

// Finds an initiator that two of the channels share, and keeps their ids. Null: none.
SendQueue* DcTurns::choose(unsigned rail) {
    std::vector<std::pair<SendQueue*, std::uint32_t>> seen; // each initiator, with the first channel that uses it
    for (const std::uint32_t id : heard_) {
        const std::optional<Target> target = target_of(id, rail);
        if (!target) continue;
        const auto other = std::ranges::find(seen, target->queue, &std::pair<SendQueue*, std::uint32_t>::first);
        if (other == seen.end()) {
            seen.emplace_back(target->queue, id);
            continue;
        }
        ids_[0] = other->second;
        ids_[1] = id;
        return target->queue;
    }
    return nullptr;
}

void DcTurns::attend(Nanos now) {
    if (!next_) next_ = now + rest(); // not while a job is starting
    if (queue_ || now < next_ || heard_.size() < 2 || core_.dc.rails.empty()) return;
    for (const verbs::Rail& rail : core_.rails) {
        if (!rail.active || rail.index >= core_.dc.rails.size()) continue;
        SendQueue* const queue = choose(rail.index);
        if (!queue) continue;
        if (tries_ == kTries) { // found_ is kept for the next attempt
            tries_ = 0;
            next_ = now + kAnew;
            return;
        }
        next_ = now + rest(); // in case the round cannot begin
        if (!queue->idle() && !queue->all_signaled()) {
            const Posted last = queue->at(queue->head - 1);
            if (!recoverable(core_, *last.channel) || !core_.epochs.write_nothing(*last.channel, last.path, *queue))
                return;
        }
        ++tries_;
        queue_ = queue;
        rail_ = rail.index;
        end_ = queue->head;
        part_ = kParts;
        began_ = round_began_ = now;
        core_.due |= due::turns;
        if (queue->idle()) begin();
        return;
    }
    heard_.clear(); // no two share one: nothing to do before consider() brings others
}

void DcTurns::begin() {
    part_ = 0;
    post_part();
}

void DcTurns::post_part() {
    std::optional<Target> to[2];
    for (unsigned i = 0; i < 2; ++i) {
        to[i] = target_of(ids_[i], rail_);
        if (!to[i] || to[i]->queue != queue_ || to[i]->channel->wiring.paths[to[i]->path].open) return stop();
    }
    if (!queue_->room(kEach + SendQueue::kReserve)) return stop();
    began_ = polled_ = core_.services.now();
    for (unsigned i = 0; i < kEach; ++i) {
        const Target& target = *to[part_ < 2 ? part_ : i & 1];
        Path& sub = target.channel->wiring.paths[target.path];
        const bool last = i + 1 == kEach;
        const unsigned flags = last || queue_->signal_due() ? IBV_SEND_SIGNALED : 0;
        const Posted posted{.channel = target.channel, .path = target.path, .timed = last, .t_post = kNever};
        ++sub.open;
        if (!queue_->write_inline(sub.dc, nullptr, 0, {0, 0}, posted, flags)) {
            SendQueue& queue = *queue_;
            stop();
            return post_refused(core_, *target.channel, queue, posted);
        }
    }
    end_ = queue_->head;
    for (unsigned i = 0; i < 2; ++i)
        if (part_ == i || part_ == 2) posted_.emplace_back(ids_[i], part_ == 2 ? kEach / 2 : kEach);
}

void DcTurns::poll() {
    const Nanos now = core_.services.now();
    if (queue_->failed() || queue_->head != end_) return stop();
    if (!queue_->idle()) {
        polled_ = now;
        if (part_ == kParts && now - began_ > kPatience) stop();
        return;
    }
    part_ == kParts ? begin() : take_part(now);
}

void DcTurns::take_part(Nanos now) {
    const Nanos done = queue_->at(end_ - 1).t_post; // Completions::reap() has written the time of completion there
    if (done <= began_ || done > now) return stop();
    took_[part_] = static_cast<double>(done - began_);
    if (!queue_->adapter->timestamps && static_cast<double>(now - polled_) > kSeldom * took_[part_]) return stop();
    if (++part_ < kParts) return post_part();
    stop();
    // The first write of any part may make the initiator turn. So the mixed part has kEach - 1 turns more.
    found_.push_back((took_[2] - (took_[0] + took_[1]) / 2) / (kEach - 1));
    if (found_.size() < kRounds) return;
    std::ranges::nth_element(found_, found_.begin() + kRounds / 2);
    cost_ = std::max(0.0, found_[kRounds / 2]);
    found_.clear();
    tries_ = 0;
    next_ = now + (kAnew << std::min(rests_++, kMostDoublings));
    core_.services.say(LogLevel::debug, "a DC initiator that turns to another target takes %.1f ns longer", *cost_);
}

// The shortest pause. It differs between processes, so that their rounds do not coincide.
Nanos DcTurns::rest() const {
    const Nanos between = core_.config.adapt.tuning.interval / kRestsPerLook;
    return between / 2 + between * (core_.control->address().uid % 64) / 64;
}

void DcTurns::stop() {
    queue_ = nullptr;
    const Nanos now = core_.services.now();
    // The upper limit is for a program that computed during the round.
    next_ = now + std::clamp(kRest * (now - round_began_), rest(), kLongestRest * rest());
    core_.due &= static_cast<std::uint8_t>(~due::turns);
}

} // namespace ucx_mp::channel
