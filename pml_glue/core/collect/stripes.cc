// A start of a persistent all-to-all: what queues get, what the processor looks at, and what goes by messages.
#include "pml_glue/core/collect/stripes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kWord = 64; // a cache line each
} // namespace

Stripes::Stripes(Group& group, TaskPort& port, Counts& counts)
    : group_(group), port_(port), counts_(counts), pairs_(group.config_.ranks) {
    group.all_.stripes_.push_back(this);
}

Stripes::~Stripes() { std::erase(group_.all_.stripes_, this); }

std::uint64_t* Stripes::word(std::uint32_t rank, unsigned slot) const {
    return reinterpret_cast<std::uint64_t*>(words_.get() + (std::size_t{rank} * kSlots + slot) * kWord);
}
// Their `ready` may be of the next start.
bool Stripes::is(std::uint32_t rank, unsigned slot) const {
    return std::atomic_ref(*word(rank, slot)).load(std::memory_order_acquire) >= value();
}
// Our queues wait for it, too.
void Stripes::set(std::uint32_t rank, unsigned slot) {
    std::atomic_ref(*word(rank, slot)).store(value(), std::memory_order_release);
}

// Where a lane's stripe begins: whole cache lines.
std::uint64_t Stripes::first(const Pair& pair, std::size_t lane, std::uint64_t bytes) {
    return lane == pair.lanes.size() ? bytes : bytes / pair.lanes.size() / kWord * kWord * lane;
}

void Stripes::begin(GroupOperation& operation) {
    operation_ = &operation;
    ++start_;
    at_ = 0;
}

bool Stripes::put_block(std::uint32_t rank) {
    if (group_.broken_) return false;
    Pair& pair = pairs_[rank];
    if (!pair.known) know(rank, pair);
    if (is_ours(pair)) {
        if (pair.stale) fail(rank, pair); // nothing comes before our `ready`
        post(rank, pair);
        return true;
    }
    if (pair.stage == Stage::dead && start_ >= pair.until) {
        pair.stage = Stage::none;
        pair.from = pair.until = kNever;
        pair.lanes.clear();
        pause(pair, false);
        if (std::exchange(pair.stale, false)) { // unmapped pages
            pair.in_memory.reset();
            pair.out_memory.reset();
        }
    }
    const bool asks = group_.config_.rank < rank && start_ > 0;
    if (asks && pair.stage == Stage::none && pair.fits && start_ >= pair.next) ask(pair);
    return false;
}

// The rank whose block comes to us when ours goes to the one before `rank`: ours for `rank` leaves behind it. So nobody
// is flooded, and all send to different ones, as far as they are on time. `rank`: there is no such pair.
std::uint32_t Stripes::paced_by(std::uint32_t rank) const {
    const std::uint32_t ranks = group_.config_.ranks, ours = group_.config_.rank, step = (rank + ranks - ours) % ranks;
    if (step == 1) return rank;
    const std::uint32_t before = (ours + ranks - (step - 1)) % ranks;
    return is_ours(pairs_[before]) ? before : rank;
}

void Stripes::post(std::uint32_t rank, Pair& pair) {
    pair.open = true;
    for (Lane& lane : pair.lanes) {
        lane.done = lane.sent = false;
        lane.moved = lane.came = 0;
        lane.task = kNever; // until it is posted
    }
    pair.ready_owed = pair.stage != Stage::ready;
    if (pair.ready_owed) return;
    const std::uint64_t* words[2] = {word(rank, 0)};
    const std::uint32_t before = paced_by(rank);
    bool posted = pair.lanes[0].queue->post(
        {.words = {}, .value = value(), .from = nullptr, .bytes = 0, .to = 0, .word = pair.words});
    for (unsigned i = 0; i < pair.lanes.size() && posted; ++i) {
        Lane& lane = pair.lanes[i];
        const std::uint64_t at = first(pair, i, pair.out.bytes), end = first(pair, i + 1, pair.out.bytes);
        const bool paced = before != rank && i < pairs_[before].lanes.size();
        if (paced) words[1] = word(before, 1 + i);
        posted = lane.queue->post({.words = {words, paced ? 2u : 1u},
                                   .value = value(),
                                   .from = static_cast<const std::byte*>(pair.out.buffer) + at,
                                   .bytes = end - at,
                                   .to = pair.place + at,
                                   .word = pair.words + (1 + i) * kWord});
        if (posted) lane.task = lane.queue->state().posted;
        counts_.tasks += posted;
    }
    if (!posted) fail(rank, pair);
}

// Whether it is over.
bool Stripes::look(std::uint32_t rank, Pair& pair) {
    bool queued = true;
    for (unsigned i = 0; i < pair.lanes.size(); ++i) {
        Lane& lane = pair.lanes[i];
        if (!lane.done && lane.queue && lane.queue->state().done >= lane.task) lane.done = true;
        if ((!lane.done && !lane.sent) || !is(rank, 1 + i)) return false;
        queued = queued && lane.done;
    }
    pair.open = false;
    counts_.blocks += queued;
    return true;
}

// Pairs without queues are looked at each time: others wait for what we send.
bool Stripes::advance() {
    if (!operation_) return true;
    for (std::uint32_t rank = 0; rank < pairs_.size() && any_dead_; ++rank)
        if (Pair& pair = pairs_[rank]; pair.open && pair.stage == Stage::dead) (void)send(rank, pair);
    for (; at_ < pairs_.size(); ++at_)
        if (pairs_[at_].open && !look(at_, pairs_[at_])) return false;
    operation_ = nullptr;
    return true;
}

// All that queues have not brought. False: there is no room, or they are not ready. Nothing leaves before both know
// from which start on Exchange has the pair again.
bool Stripes::send(std::uint32_t rank, Pair& pair) {
    if (!pair.said) return false;
    if (pair.ready_owed && !send(rank, pair, wire::kMostLanes)) return false;
    pair.ready_owed = false;
    if (!is(rank, 0)) return false;
    for (std::size_t i = 0; i < pair.lanes.size(); ++i)
        if (Lane& lane = pair.lanes[i]; !lane.done && !lane.sent) {
            if (!send(rank, pair, i)) return false;
            lane.sent = true;
            ++counts_.resent;
        }
    return true;
}

bool Stripes::send(std::uint32_t rank, Pair& pair, std::size_t lane) {
    Peer* const peer = group_.member(rank);
    if (!peer) return false;
    Groups& all = group_.all_;
    Packed<wire::StripeHeader> stripe{.header = {.name = operation_->name,
                                                 .process = all.engine_.process(),
                                                 .start = start_,
                                                 .from = group_.config_.rank,
                                                 .lane = static_cast<std::uint32_t>(lane),
                                                 .offset = 0},
                                      .data = nullptr,
                                      .bytes = 0};
    const bool is_data = lane < pair.lanes.size();
    const std::uint64_t at = is_data ? first(pair, lane, pair.out.bytes) : 0,
                        bytes = is_data ? first(pair, lane + 1, pair.out.bytes) - at : 0,
                        most = peer->endpoint->limits().max_packed - sizeof stripe.header;
    std::uint64_t nothing = 0, &moved = is_data ? pair.lanes[lane].moved : nothing;
    do {
        stripe.header.offset = moved;
        stripe.bytes = std::min(most, bytes - moved);
        stripe.data = static_cast<const std::byte*>(pair.out.buffer) + at + moved;
        const Posted outcome = peer->endpoint->send_packed(wire::kStripe, stripe.pack, &stripe);
        if (outcome == Posted::no_room) return false;
        if (outcome != Posted::done) {
            all.engine_.give_up(*peer);
            return false;
        }
        moved += stripe.bytes;
    } while (moved < bytes);
    return true;
}

// A stripe whose word is here, or of a start that is over, came by its queue after all.
bool Stripes::take(const wire::StripeHeader& header, const std::byte* data, std::size_t length) {
    if (header.from >= pairs_.size() || header.process != group_.processes_[header.from] || start_ == kNever)
        return false;
    Pair& pair = pairs_[header.from];
    if (pair.lanes.empty() || header.start > start_ + 1) return false;
    if (header.lane == wire::kMostLanes) {
        std::atomic_ref at(*word(header.from, 0));
        if (at.load(std::memory_order_acquire) < header.start + 1)
            at.store(header.start + 1, std::memory_order_release);
        return true;
    }
    if (header.lane >= pair.lanes.size() || header.start > start_) return false;
    if (header.start < start_ || !pair.open || is(header.from, 1 + header.lane)) return true;
    Lane& lane = pair.lanes[header.lane];
    const std::uint64_t at = first(pair, header.lane, pair.in.bytes),
                        bytes = first(pair, header.lane + 1, pair.in.bytes) - at;
    if (pair.stage != Stage::dead || header.offset != lane.came || length > bytes - lane.came) return false;
    std::memcpy(static_cast<std::byte*>(pair.in.buffer) + at + lane.came, data, length);
    lane.came += length;
    if (lane.came == bytes) set(header.from, 1 + header.lane);
    return true;
}

void Stripes::waits_for(std::vector<Peer*>& peers) const {
    for (std::uint32_t rank = 0; rank < pairs_.size(); ++rank)
        if (pairs_[rank].open)
            if (Peer* const peer = group_.member(rank)) peers.push_back(peer);
}

} // namespace ucx_mp::glue
