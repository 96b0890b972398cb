// How a pair of ranks gets its queues for a persistent all-to-all, and what happens when one fails. Slow path.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

namespace {
constexpr std::uint64_t kPause = 8;  // starts until a pair is tried again, then twice that
constexpr unsigned kMostPauses = 20; // doublings
constexpr unsigned kMostLater = 64;  // starts that wait for an adapter's self-test, while others' is over
constexpr std::size_t kWord = 64;
constexpr std::size_t kMostBlock = std::size_t{1} << 30; // an adapter's longest message, for certain
constexpr unsigned kRequests = 1 + 4;                    // of a start on one queue: `ready`; two waits, data, a word
constexpr std::size_t kMostMore = wire::kMostLanes * TaskQueue::kHalf + 2 * wire::kMostKeys;
} // namespace

// The blocks of all starts are those of the first one.
void Stripes::know(std::uint32_t rank, Pair& pair) {
    mp_collective_t& shown = operation_->shown;
    pair.known = pair.fits = true;
    for (const bool sends : {false, true}) {
        mp_data_t& data = sends ? pair.out : pair.in;
        data = shown.open(&shown, rank, sends);
        if (data.convertor) shown.close(&shown, rank, data.convertor, sends);
        if (data.convertor || !data.buffer || data.bytes > kMostBlock) pair.fits = false;
    }
}

void Stripes::renew_memory() {
    for (Pair& pair : pairs_) {
        if (pair.lanes.empty()) { // nothing uses it
            pair.in_memory.reset();
            pair.out_memory.reset();
            continue;
        }
        const auto holds = [this](const std::unique_ptr<TaskMemory>& before, const mp_data_t& data) {
            if (!before) return true;
            const auto now = port_.expose(data.buffer, data.bytes);
            return now && now->keys() == before->keys();
        };
        if (!holds(pair.in_memory, pair.in) || !holds(pair.out_memory, pair.out)) pair.stale = true;
    }
}

void Stripes::pause(Pair& pair, bool soon) {
    pair.next = start_ + (soon ? 1 : kPause << std::min(pair.tries++, kMostPauses));
}

void Stripes::ask(Pair& pair) {
    std::vector<std::uint8_t> rails;
    bool later = false;
    for (unsigned rail = 0; rail < port_.rails() && rails.size() < wire::kMostLanes; ++rail) {
        const TaskPort::Can can = port_.can_wait(rail);
        if (can == TaskPort::Can::yes) rails.push_back(static_cast<std::uint8_t>(rail));
        later = later || can == TaskPort::Can::later;
    }
    if (later) port_.progress();
    if (rails.empty() || (later && start_ < kMostLater)) return pause(pair, later);
    if (make_lanes(pair, rails) != TaskPort::Can::yes) return pause(pair, false);
    pair.stage = Stage::asking;
    say(pair, wire::LaneSays::ask);
}

// All of them, or none.
TaskPort::Can Stripes::make_lanes(Pair& pair, std::span<const std::uint8_t> rails) {
    if (!words_) {
        const std::size_t bytes = pairs_.size() * kSlots * kWord;
        words_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
        std::memset(words_.get(), 0, bytes);
        words_memory_ = port_.expose(words_.get(), bytes);
        if (!words_memory_) {
            words_.reset();
            return TaskPort::Can::no;
        }
    }
    pair.lanes.clear();
    if (std::exchange(pair.stale, false)) {
        pair.in_memory.reset();
        pair.out_memory.reset();
    }
    if (!pair.in_memory) pair.in_memory = port_.expose(pair.in.buffer, pair.in.bytes);
    if (!pair.out_memory) pair.out_memory = port_.expose(pair.out.buffer, pair.out.bytes);
    if (!pair.in_memory || !pair.out_memory) return TaskPort::Can::no;
    for (const std::uint8_t rail : rails) {
        const TaskPort::Can can = rail < port_.rails() ? port_.can_wait(rail) : TaskPort::Can::no;
        std::unique_ptr<TaskQueue> queue;
        if (can == TaskPort::Can::yes) queue = port_.create(rail, kRequests, *words_memory_, *pair.out_memory);
        if (!queue) {
            if (can == TaskPort::Can::later) port_.progress();
            pair.lanes.clear();
            return can == TaskPort::Can::later ? can : TaskPort::Can::no;
        }
        pair.lanes.emplace_back();
        pair.lanes.back().queue = std::move(queue);
        pair.lanes.back().rail = rail;
    }
    return TaskPort::Can::yes;
}

// By serve(), since messages arrive meanwhile. A later word replaces one that has not left.
void Stripes::say(Pair& pair, wire::LaneSays says) {
    pair.says = says;
    if (pair.said) ++unsaid_;
    pair.said = false;
    group_.all_.wake();
}

Posted Stripes::tell(std::uint32_t rank, Pair& pair) {
    using Says = wire::LaneSays;
    Groups& all = group_.all_;
    Peer* const peer = group_.member(rank);
    if (!peer) return Posted::no_room;
    struct {
        wire::LaneHeader header;
        std::byte more[kMostMore];
    } message;
    message.header = {.name = wire::name_of(group_.config_.context, group_.check_),
                      .process = all.engine_.process(),
                      .from = group_.config_.rank,
                      .to = rank,
                      .says = pair.says,
                      .lanes = 0,
                      .soon = 0,
                      .rails = {},
                      .zero = 0,
                      .word_keys = 0,
                      .place_keys = 0,
                      .words = 0,
                      .place = 0,
                      .bytes_in = pair.in.bytes,
                      .bytes_out = pair.out.bytes,
                      .start = start_};
    wire::LaneHeader& header = message.header;
    std::size_t length = sizeof header;
    if (header.says == Says::grant) header.start = start_ + 2;
    if (header.says == Says::dead) header.start = std::max(start_, pair.theirs) + 2;
    if (header.says == Says::refuse) header.soon = pair.soon;
    if (header.says == Says::ask || header.says == Says::grant) {
        header.words = reinterpret_cast<std::uint64_t>(word(rank, 0));
        header.place = reinterpret_cast<std::uint64_t>(pair.in.buffer);
        header.lanes = static_cast<std::uint8_t>(pair.lanes.size());
        std::byte* at = message.more;
        for (std::size_t i = 0; i < pair.lanes.size(); ++i, at += TaskQueue::kHalf) {
            header.rails[i] = pair.lanes[i].rail;
            pair.lanes[i].queue->tell(at);
        }
        const auto add = [&](const TaskMemory& memory) {
            const std::vector<std::byte> keys = memory.keys();
            if (keys.size() > wire::kMostKeys) return std::uint16_t{0}; // they refuse
            std::copy(keys.begin(), keys.end(), at);
            at += keys.size();
            return static_cast<std::uint16_t>(keys.size());
        };
        header.word_keys = add(*words_memory_);
        header.place_keys = add(*pair.in_memory);
        length += static_cast<std::size_t>(at - message.more);
    }
    const Posted outcome = all.post(*peer, wire::kLane, &message, length);
    if (outcome == Posted::done) told(pair, header);
    return outcome;
}

// It has left: what it says holds.
void Stripes::told(Pair& pair, const wire::LaneHeader& header) {
    pair.said = true;
    --unsaid_;
    if (header.says == wire::LaneSays::grant) {
        pair.stage = Stage::ready;
        pair.from = header.start;
        ++counts_.pairs;
        counts_.queues += pair.lanes.size();
    } else if (header.says == wire::LaneSays::dead) {
        pair.until = header.start;
    }
}

// Queues that have failed are looked for each time, and told of at once: nobody wakes us again for them. One that
// nothing waits for fails at the next start.
void Stripes::serve() {
    for (std::uint32_t rank = at_; rank < pairs_.size() && operation_; ++rank) {
        Pair& pair = pairs_[rank];
        if (pair.open && pair.stage == Stage::ready &&
            std::ranges::any_of(pair.lanes, [](const Lane& lane) { return lane.queue->state().failed; }))
            fail(rank, pair);
    }
    for (std::uint32_t rank = 0; rank < pairs_.size() && unsaid_; ++rank)
        if (!pairs_[rank].said) (void)tell(rank, pairs_[rank]);
    if (unsaid_) group_.all_.wake();
}

// Our halves are dead; stripes that are complete are not sent again.
void Stripes::end(Pair& pair) {
    for (Lane& lane : pair.lanes) {
        if (lane.queue && pair.open && !lane.done) lane.done = lane.queue->state().done >= lane.task;
        lane.queue.reset();
    }
    pair.ready_owed = pair.open && !std::ranges::all_of(pair.lanes, [](const Lane& lane) { return lane.done; });
}

void Stripes::fail(std::uint32_t rank, Pair& pair) {
    if (pair.stage != Stage::ready) return;
    ++counts_.ended;
    end(pair);
    const bool lower = group_.config_.rank < rank;
    pair.stage = lower ? Stage::ended : Stage::failing;
    say(pair, lower ? wire::LaneSays::ended : wire::LaneSays::failed);
}

bool Stripes::connect(Pair& pair, const wire::LaneHeader& header, std::span<const std::byte> more) {
    const std::size_t halves = pair.lanes.size() * TaskQueue::kHalf;
    pair.words = header.words;
    pair.place = header.place;
    return std::ranges::all_of(pair.lanes, [&](Lane& lane) {
        const auto i = static_cast<std::size_t>(&lane - pair.lanes.data());
        return lane.queue->connect(more.data() + i * TaskQueue::kHalf, more.subspan(halves, header.word_keys),
                                   more.subspan(halves + header.word_keys, header.place_keys));
    });
}

// False: it makes no sense.
bool Stripes::answer(std::uint32_t rank, Pair& pair, const wire::LaneHeader& ask, std::span<const std::byte> more) {
    if (group_.config_.rank < rank || pair.stage != Stage::none || !pair.said) return false;
    const bool same = pair.known && pair.fits && ask.lanes > 0 && ask.bytes_in == pair.out.bytes &&
                      ask.bytes_out == pair.in.bytes && ask.word_keys && ask.place_keys && !group_.broken_;
    TaskPort::Can can = TaskPort::Can::no;
    if (same) can = make_lanes(pair, {ask.rails, ask.lanes});
    if (can == TaskPort::Can::yes && connect(pair, ask, more)) {
        pair.stage = Stage::asking;
        say(pair, wire::LaneSays::grant);
        return true;
    }
    pair.lanes.clear();
    pair.soon = can == TaskPort::Can::later;
    say(pair, wire::LaneSays::refuse);
    return true;
}

bool Stripes::take(const wire::LaneHeader& header, const std::byte* more, std::size_t length) {
    using Says = wire::LaneSays;
    if (header.from >= pairs_.size() || header.from == group_.config_.rank ||
        header.process != group_.processes_[header.from] || header.lanes > wire::kMostLanes ||
        length != header.lanes * TaskQueue::kHalf + header.word_keys + header.place_keys)
        return false;
    if (group_.broken_ && header.says != Says::ask) return true; // about queues that stop() has ended
    Pair& pair = pairs_[header.from];
    const bool lower = group_.config_.rank < header.from;
    switch (header.says) {
    case Says::ask:
        return answer(header.from, pair, header, {more, length});
    case Says::grant:
        if (!lower || pair.stage != Stage::asking || header.start <= start_ || header.lanes != pair.lanes.size())
            return false;
        pair.stage = Stage::ready;
        pair.from = header.start;
        ++counts_.pairs;
        counts_.queues += pair.lanes.size();
        if (!header.word_keys || !header.place_keys || !connect(pair, header, {more, length})) fail(header.from, pair);
        return true;
    case Says::refuse:
        if (!lower || pair.stage != Stage::asking) return false;
        pair.lanes.clear();
        pair.stage = Stage::none;
        pause(pair, header.soon != 0);
        return true;
    case Says::failed:
        if (!lower || (pair.stage != Stage::ready && pair.stage != Stage::ended)) return false;
        fail(header.from, pair);
        return true;
    case Says::ended:
        if (lower || (pair.stage != Stage::ready && pair.stage != Stage::failing)) return false;
        end(pair);
        pair.stage = Stage::dead;
        any_dead_ = true;
        pair.theirs = header.start;
        say(pair, Says::dead);
        return true;
    case Says::dead: {
        const bool gone = header.soon != 0; // there is no such group any more: all has come
        if (gone ? pair.stage != Stage::ended && pair.stage != Stage::failing
                 : !lower || pair.stage != Stage::ended || header.start <= start_)
            return false;
        pair.stage = Stage::dead;
        any_dead_ = true;
        pair.until = gone ? kNever : header.start;
        if (gone)
            for (Lane& lane : pair.lanes) lane.done = true;
        return true;
    }
    }
    return false;
}

void Stripes::stop() {
    for (Pair& pair : pairs_) {
        pair.lanes.clear();
        pair.stage = Stage::none;
        pair.open = false;
        pair.said = true;
        pair.from = pair.until = kNever;
    }
    unsaid_ = 0;
    operation_ = nullptr;
}

void Groups::on_lane(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length) {
    using Says = wire::LaneSays;
    wire::LaneHeader header;
    std::memcpy(&header, data, sizeof header);
    const bool stops = header.says == Says::failed || header.says == Says::ended;
    if (group && name.check == group->check_ && group->stripes_ && !(group->broken_ && stops)) {
        if (!group->stripes_->take(header, data + sizeof header, length - sizeof header))
            dropped("a message about queues of a pair makes no sense");
        return;
    }
    // The host does all here; or it has been freed, and has had all that was for it; or is broken, and wants no more.
    if (header.says != Says::ask && !stops) return;
    wire::LaneHeader answer{};
    answer.name = header.name;
    answer.process = engine_.process();
    answer.from = header.to;
    answer.to = header.from;
    answer.says = header.says == Says::ask ? Says::refuse : Says::dead;
    answer.soon = stops;
    tell(header.process, wire::kLane, &answer, sizeof answer);
}

void Groups::on_stripe(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length) {
    wire::StripeHeader header;
    std::memcpy(&header, data, sizeof header);
    if (!group || name.check != group->check_ || !group->stripes_ || group->broken_) return;
    if (!group->stripes_->take(header, data + sizeof header, length - sizeof header))
        dropped("a stripe is of no pair that waits for one");
}

} // namespace ucx_mp::glue
