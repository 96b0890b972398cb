// How a group gets its queues, and what happens when one fails. Slow path.
#include <algorithm>
#include <cstring>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMostArenas = std::size_t{64} << 20; // bytes of all groups
constexpr std::uint64_t kPause = 64;                       // operations until a queue is tried again, then twice that
constexpr unsigned kMostPauses = 20;                       // doublings
constexpr unsigned kMostLater = 32;                        // times that an adapter is asked again
constexpr std::uint64_t kSoon = 4;                         // operations until an adapter is asked again
constexpr std::uint64_t kNever = UINT64_MAX;

std::uint64_t bit(unsigned edge) { return std::uint64_t{1} << edge; }
} // namespace

void Triggered::prepare(std::uint64_t number) {
    begun_ = number; // as good as
    if (number < next_) return;
    next_ = kNever;
    for (unsigned edge = 0; edge < edges_; ++edge) {
        Out& out = outs_[edge];
        if (out.stage == Stage::none && number >= out.next) ask(edge, number);
        if (out.stage == Stage::none) next_ = std::min(next_, out.next);
    }
}

void Triggered::pause(Out& out) {
    out.queue.reset();
    out.stage = Stage::none;
    out.next = begun_ + (kPause << std::min(out.tries++, kMostPauses));
    next_ = std::min(next_, out.next);
}

void Triggered::again_soon(Out& out) {
    out.queue.reset();
    out.stage = Stage::none;
    if (++out.later % kMostLater == 0) ++out.tries; // another rail
    out.next = begun_ + kSoon;
    next_ = std::min(next_, out.next);
}

bool Triggered::make_arena(std::uint64_t from) {
    if (arena_) return true;
    Groups& all = group_.all_;
    const std::size_t bytes = arena_bytes();
    if (all.arena_bytes_ + bytes > kMostArenas) return false;
    arena_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
    std::memset(arena_.get(), 0, bytes);
    memory_ = port_.expose(arena_.get(), bytes);
    if (!memory_) {
        arena_.reset();
        return false;
    }
    all.arena_bytes_ += bytes;
    all.triggers_.push_back(this);
    slots_.resize(group_.rules_.slots());
    from_ = from;
    return true;
}

// `from`: the next operation to begin.
std::unique_ptr<TaskQueue> Triggered::make_queue(unsigned rail, unsigned depth, std::uint64_t from,
                                                 TaskPort::Can& can) {
    can = port_.can_wait(rail);
    if (can == TaskPort::Can::later) port_.progress();
    if (can != TaskPort::Can::yes || !make_arena(from)) return nullptr;
    return port_.create(rail, depth, *memory_, *memory_);
}

void Triggered::ask(unsigned edge, std::uint64_t number) {
    Out& out = outs_[edge];
    const unsigned rails = port_.rails();
    if (rails == 0) {
        out.next = kNever;
        return;
    }
    const unsigned rail = (edge + out.tries) % rails;
    TaskPort::Can can;
    out.queue = make_queue(rail, group_.config_.in_flight * (edges_ + 1), number, can);
    if (!out.queue) {
        if (can == TaskPort::Can::later)
            again_soon(out);
        else
            pause(out);
        return;
    }
    wire::QueueHeader asks = header(edge, wire::QueueSays::ask);
    asks.rail = static_cast<std::uint8_t>(rail);
    out.queue->tell(asks.half);
    out.stage = Stage::asking;
    group_.all_.tell(neighbour(edge, true), wire::kQueue, &asks, sizeof asks);
}

std::uint64_t Triggered::neighbour(unsigned edge, bool out) const {
    const std::uint64_t ranks = group_.config_.ranks, distance = std::uint64_t{1} << edge;
    return group_.processes_[(group_.config_.rank + (out ? distance : ranks - distance)) % ranks];
}

wire::QueueHeader Triggered::header(unsigned edge, wire::QueueSays says) const {
    return {
        .name = wire::pack(
            {.context = group_.config_.context, .number = 0, .edge = edge, .collective = 0, .check = group_.check_}),
        .process = group_.all_.engine_.process(),
        .says = says,
        .rail = 0,
        .key_bytes = 0,
        .flag = 0,
        .address = 0,
        .from = 0,
        .half = {}};
}

bool Triggered::take(const wire::QueueHeader& header, std::span<const std::byte> keys) {
    using Says = wire::QueueSays;
    const unsigned edge = wire::unpack(header.name).edge;
    const bool of_asker = header.says == Says::ask || header.says == Says::ended;
    if (edge >= edges_ || header.process != neighbour(edge, !of_asker)) return false;
    if (group_.broken_ && !of_asker) return true; // an answer, but stop() has forgotten the question
    Out& out = outs_[edge];
    switch (header.says) {
    case Says::ask:
        answer(header);
        return true;
    case Says::ended: {
        ins_[edge].reset();
        const wire::QueueHeader answers = this->header(edge, Says::dead);
        group_.all_.tell(header.process, wire::kQueue, &answers, sizeof answers);
        return true;
    }
    case Says::grant:
        if (out.stage != Stage::asking) return false;
        if (connect(out, header, keys)) {
            ++counts_.queues;
        } else {
            pause(out);
        }
        return true;
    case Says::refuse:
        if (out.stage != Stage::asking) return false;
        if (header.flag)
            again_soon(out);
        else
            pause(out);
        return true;
    case Says::dead:
        if (out.stage != Stage::ended) return false;
        dead(edge, header.flag != 0);
        return true;
    }
    return false;
}

bool Triggered::connect(Out& out, const wire::QueueHeader& grant, std::span<const std::byte> keys) {
    if (!out.queue->connect(grant.half, keys, keys)) return false;
    out.address = grant.address;
    out.from = grant.from;
    out.stage = Stage::ready;
    return true;
}

// In a broken group nobody needs a queue.
void Triggered::answer(const wire::QueueHeader& ask) {
    const unsigned edge = wire::unpack(ask.name).edge, rails = port_.rails();
    wire::QueueHeader answers = header(edge, wire::QueueSays::refuse);
    std::vector<std::byte> keys;
    ins_[edge].reset(); // one from before is dead at the other side
    TaskPort::Can can = TaskPort::Can::no;
    if (rails && !group_.broken_) ins_[edge] = make_queue(ask.rail % rails, 1, begun_ + 1, can);
    if (ins_[edge]) keys = memory_->keys();
    if (!keys.empty() && keys.size() <= wire::kMostKeys && ins_[edge]->connect(ask.half, {}, {})) {
        answers.says = wire::QueueSays::grant;
        answers.address = reinterpret_cast<std::uint64_t>(arena_.get());
        answers.from = from_;
        ins_[edge]->tell(answers.half);
        answers.key_bytes = static_cast<std::uint16_t>(keys.size());
    } else {
        ins_[edge].reset();
        keys.clear();
        answers.flag = can == TaskPort::Can::later;
    }
    std::byte message[sizeof answers + wire::kMostKeys];
    std::memcpy(message, &answers, sizeof answers);
    if (!keys.empty()) std::memcpy(message + sizeof answers, keys.data(), keys.size());
    group_.all_.tell(ask.process, wire::kQueue, message, sizeof answers + keys.size());
}

void Triggered::serve() {
    if (open_ == 0) return;
    for (unsigned edge = 0; edge < edges_; ++edge)
        if (outs_[edge].stage == Stage::ready && outs_[edge].queue->state().failed) fail(edge);
}

// Puts that are complete by now are not sent again. Our half is dead when it is gone.
void Triggered::fail(unsigned edge) {
    for (Slot& slot : slots_) settle(slot);
    ++counts_.ended;
    outs_[edge].queue.reset();
    outs_[edge].stage = Stage::ended;
    const wire::QueueHeader says = header(edge, wire::QueueSays::ended);
    group_.all_.tell(neighbour(edge, true), wire::kQueue, &says, sizeof says);
}

// Both halves are.
void Triggered::dead(unsigned edge, bool gone) {
    for (Slot& slot : slots_) {
        if (!(slot.posted & bit(edge))) continue;
        slot.posted &= ~bit(edge);
        if (gone) continue;
        slot.owed |= bit(edge);
        ++counts_.resent;
    }
    pause(outs_[edge]);
}

void Triggered::stop() {
    for (Out& out : outs_) {
        out.queue.reset();
        out.stage = Stage::none;
        out.next = kNever;
    }
    for (auto& in : ins_) in.reset();
    for (Slot& slot : slots_) slot.posted = 0;
    open_ = 0;
    next_ = kNever;
}

void Groups::on_queue(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length) {
    wire::QueueHeader header;
    std::memcpy(&header, data, sizeof header);
    if (header.key_bytes > wire::kMostKeys || length != sizeof header + header.key_bytes)
        return dropped("a message about a queue has a wrong length");
    const bool ours = group && name.check == group->check_ && group->triggered_;
    if (ours) {
        if (!group->triggered_->take(header, {data + sizeof header, header.key_bytes}))
            dropped("a message about a queue makes no sense");
        return;
    }
    // Not made yet, or freed; or the host does all. One that has been freed has had all that was for it.
    using Says = wire::QueueSays;
    if (header.says != Says::ask && header.says != Says::ended) return;
    wire::QueueHeader answer{};
    answer.name = header.name;
    answer.process = engine_.process();
    answer.says = header.says == Says::ask ? Says::refuse : Says::dead;
    answer.flag = header.says == Says::ended;
    tell(header.process, wire::kQueue, &answer, sizeof answer);
}

} // namespace ucx_mp::glue
