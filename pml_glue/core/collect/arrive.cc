// Incoming messages. Nothing of it is believed: groups, numbers, edges, sizes. Only that a member is who it says is not
// checked.
#include <algorithm>
#include <cstring>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

namespace {
std::uint64_t first_word(const std::byte* data) {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}
} // namespace

// The operation's next actions can be done if this is the last part that they take.
inline void Group::has_come(GroupOperation& operation, unsigned edge) {
    const std::uint64_t bit = std::uint64_t{1} << edge;
    operation.arrived |= bit;
    if (operation.awaited & bit && (operation.awaited &= ~bit) == 0) all_.list(operation);
}

// Nearly all: of an operation that has begun. False: nothing has happened, and the rest of this file says why.
inline bool Group::take(std::uint64_t bits, const std::byte* data, std::size_t length) {
    constexpr std::uint64_t kEdgeBits = std::uint64_t{wire::kEdgeMask} << wire::kEdgeShift;
    GroupOperation* const operation = slots_[rules_.slot(bits >> wire::kNumberShift)].operation;
    if (!operation || ((operation->name ^ bits) & ~kEdgeBits)) [[unlikely]]
        return false;
    const auto edge = static_cast<unsigned>(bits >> wire::kEdgeShift & wire::kEdgeMask);
    const Plan& plan = operation->plan->plan;
    const unsigned place = plan.place_of[edge];
    if (place == Plan::kNoTake || operation->arrived >> edge & 1) [[unlikely]]
        return false;
    const Action& action = plan.actions[place];
    const std::size_t block = operation->shown.bytes;
    if (length != action.count * block) [[unlikely]]
        return false;
    copy_bytes(operation->work + action.to * block, data, length);
    has_come(*operation, edge);
    return true;
}

void Groups::on_part(void* self, const std::byte* data, std::size_t length) {
    Groups& all = *static_cast<Groups*>(self);
    if (length >= sizeof(std::uint64_t)) [[likely]] {
        const std::uint64_t bits = first_word(data);
        Group* const group = all.find(static_cast<std::uint32_t>(bits >> wire::kContextShift));
        if (group && group->take(bits, data + sizeof bits, length - sizeof bits)) [[likely]]
            return;
    }
    all.handle(wire::kPart, data, length);
}

namespace {
template <class Header> bool read(Header& out, const std::byte* data, std::size_t length) {
    if (length < sizeof out) return false;
    std::memcpy(&out, data, sizeof out);
    return true;
}
std::size_t least(MessageKind kind) {
    switch (kind) {
    case wire::kBlock:
        return sizeof(wire::BlockHeader);
    case wire::kPair:
        return sizeof(wire::PairHeader);
    case wire::kReady:
        return sizeof(wire::ReadyHeader);
    case wire::kArrived:
        return sizeof(wire::ArrivedHeader);
    case wire::kCancel:
        return sizeof(wire::CancelHeader);
    case wire::kBroken:
        return sizeof(wire::BrokenHeader);
    case wire::kQueue:
        return sizeof(wire::QueueHeader);
    case wire::kLane:
        return sizeof(wire::LaneHeader);
    case wire::kStripe:
        return sizeof(wire::StripeHeader);
    default:
        return sizeof(std::uint64_t);
    }
}
} // namespace

void Groups::handle(MessageKind kind, const std::byte* data, std::size_t length) {
    if (length < least(kind)) return dropped("a collective's message is too short");
    const wire::PartName name = wire::unpack(first_word(data));
    if (kind == wire::kCancel) {
        wire::CancelHeader header;
        std::memcpy(&header, data, sizeof header);
        return cancel(header);
    }
    Group* const group = find(name.context);
    if (kind == wire::kQueue) return on_queue(group, name, data, length);
    if (kind == wire::kLane) return on_lane(group, name, data, length);
    if (kind == wire::kStripe) return on_stripe(group, name, data, length);
    if (!group && (was_freed(name.context) || was_declined(name.context))) { // nobody here needs it
        if (kind == wire::kReady) refuse(data);
        return;
    }
    if (!group) return keep_stranger(first_word(data), kind, data, length);
    if (name.check != group->check_) {
        if (kind == wire::kReady) refuse(data); // who asks waits for an answer
        if (group->had_earlier(name.check)) return void(++counts_.late);
        return dropped("a message of a collective comes from a member with other members, or other parameters "
                       "(coll_mp_*): they have to be the same everywhere");
    }
    if (kind == wire::kBroken) {
        wire::BrokenHeader broken;
        if (length != sizeof broken) return dropped("the message that somebody is gone has a wrong length");
        std::memcpy(&broken, data, sizeof broken);
        return group->lose(broken.process);
    }
    if (kind != wire::kPart && kind != wire::kBlock) return group->arrive_exchange(name, kind, data, length);
    const std::size_t header = least(kind);
    Group::Arrival arrival{
        .name = name, .total = length - header, .offset = 0, .data = data + header, .length = length - header};
    if (kind == wire::kBlock) {
        wire::BlockHeader block;
        std::memcpy(&block, data, sizeof block);
        arrival.total = block.total;
        arrival.offset = block.offset;
        if (arrival.length == 0 || arrival.offset + arrival.length > arrival.total)
            return dropped("a block of a collective's part is not in it");
    }
    group->arrive(arrival, kind, data, length);
}

// A message is some lives old at most. If the difference is larger, its sender has other parameters more likely.
bool Group::had_earlier(std::uint32_t check) const {
    constexpr std::uint32_t kOldest = 64;
    const std::uint32_t before = (check_ - check) & wire::kCheckMask;
    return before != 0 && before <= std::min(config_.life, kOldest);
}

void Group::arrive(const Arrival& arrival, MessageKind kind, const std::byte* message, std::size_t length) {
    if (broken_) return;
    std::uint64_t number = 0;
    const bool twice = triggered_ && triggered_->has_arena(); // of a queue that has failed, and is here already
    if (!rules_.find(arrival.name.number, wire::kNumberMask, number))
        return twice ? void() : all_.dropped("a part is of an operation that is over, or far ahead");
    Slot& slot = slots_[rules_.slot(number)];
    if (slot.operation && slot.operation->number == number) [[likely]]
        return place(*slot.operation, arrival);
    if (slot.operation || (slot.early.first && slot.number != number))
        return all_.dropped("a part is of an operation whose slot is in use");
    slot.number = number;
    if (!all_.keep(slot.early, kind, message, length)) lose(wire::kNoRoom);
}

// The size is the plan's. Blocks that do not fit are left out, and the operation says so; it goes on, for the others.
void Group::place(GroupOperation& operation, const Arrival& arrival) {
    const unsigned edge = arrival.name.edge;
    const Plan& plan = operation.plan->plan;
    if (arrival.name.collective != static_cast<std::uint32_t>(operation.collective)) return lose(wire::kNobody);
    if (triggered_ && operation.arrived >> edge & 1) return; // as in arrive()
    if (plan.place_of[edge] == Plan::kNoTake || operation.arrived >> edge & 1)
        return all_.dropped("a part is for no take");
    const Action& action = plan.actions[plan.place_of[edge]];
    const std::size_t wanted = action.count * operation.shown.bytes;
    const std::uint64_t bit = std::uint64_t{1} << edge;
    if (arrival.length < arrival.total) {
        std::uint32_t& got = operation.got_of(edge);
        if (!(operation.in_blocks & bit)) got = 0;
        operation.in_blocks |= bit;
        if (arrival.offset != got) return all_.dropped("a block of a part is not the next one");
        got += static_cast<std::uint32_t>(arrival.length);
    }
    if (arrival.total != wanted) operation.error = MP_TRUNCATED;
    if (arrival.offset < wanted && arrival.length)
        std::memcpy(operation.work + action.to * operation.shown.bytes + arrival.offset, arrival.data,
                    std::min(arrival.length, wanted - arrival.offset));
    if (arrival.offset + arrival.length < arrival.total) return;
    has_come(operation, edge);
}

// Pairs of an exchange. A question that nobody will serve is answered at once: who has asked waits for that.
void Group::arrive_exchange(const wire::PartName& name, MessageKind kind, const std::byte* data, std::size_t length) {
    std::uint64_t number = 0;
    const char* why = "a message of an exchange is of one that is over, or far ahead";
    if (rules_.find(name.number, wire::kNumberMask, number)) {
        Slot& slot = slots_[rules_.slot(number)];
        GroupOperation* const operation = slot.operation;
        if (operation && operation->number == number) {
            const bool same = name.collective == static_cast<std::uint32_t>(operation->collective);
            if (same && operation->exchange && operation->exchange->take(kind, data, length)) return;
            why = "a message of an exchange is not what it waits for";
            if (!same) lose(wire::kNobody);
        } else if (!operation && !broken_ && (!slot.early.first || slot.number == number)) {
            slot.number = number;
            if (all_.keep(slot.early, kind, data, length)) return;
            lose(wire::kNoRoom);
        }
    }
    if (kind == wire::kReady) all_.refuse(data);
    if (!broken_) all_.dropped(why);
}

// It will not come.
void Groups::refuse(const std::byte* question) {
    wire::ReadyHeader asked;
    std::memcpy(&asked, question, sizeof asked);
    const wire::ArrivedHeader answer{.name = asked.name, .bytes = 0, .from = asked.to, .ok = 0};
    tell(asked.process, wire::kArrived, &answer, sizeof answer);
}

// A question that is not kept is under way, or answered already.
void Groups::cancel(const wire::CancelHeader& header) {
    Group* const group = find(wire::unpack(header.name).context);
    if (!group)
        (void)cancel(strangers_, header);
    else if (wire::unpack(header.name).check == group->check_)
        group->cancel(header);
}

void Group::cancel(const wire::CancelHeader& header) {
    std::uint64_t number = 0;
    if (!rules_.find(wire::unpack(header.name).number, wire::kNumberMask, number)) return;
    Slot& slot = slots_[rules_.slot(number)];
    if (slot.operation && slot.operation->number == number && slot.operation->exchange)
        slot.operation->exchange->cancel(header);
    else
        (void)all_.cancel(slot.early, header);
}

bool Groups::cancel(EarlyList& list, const wire::CancelHeader& header) {
    EarlyList others;
    bool found = false;
    while (Early* const one = list.first) {
        list.first = one->next;
        wire::ReadyHeader asked;
        if (one->kind != wire::kReady || !read(asked, one->message.data(), one->message.size()) ||
            asked.name != header.name || asked.from != header.from || asked.process != header.process) {
            others.add(*one);
            continue;
        }
        refuse(one->message.data());
        give_back(*one);
        found = true;
    }
    list = others;
    return found;
}

// The rules of slots bound what comes early by communicator, but there may be many. Without room the group breaks,
// since an operation whose part is dropped would wait for ever.
bool Groups::keep(EarlyList& list, MessageKind kind, const std::byte* data, std::size_t length) {
    if (early_bytes_ + length > most_early_) return false;
    ++counts_.early;
    list.add(store(kind, data, length));
    return true;
}

// A communicator without a group here cannot be told yet: its group breaks when it is made.
void Groups::keep_stranger(std::uint64_t name, MessageKind kind, const std::byte* data, std::size_t length) {
    name &= wire::kNameBits;
    const bool refused = std::ranges::find(refused_, name) != refused_.end();
    if (!refused && keep(strangers_, kind, data, length)) return;
    if (!refused) {
        refused_.push_back(name);
        EarlyList its = strangers_of(name, wire::kNameBits);
        forget(its);
    }
    if (kind == wire::kReady) refuse(data);
}

Early& Groups::store(MessageKind kind, const std::byte* data, std::size_t length) {
    Early* one = free_early_;
    if (one) {
        free_early_ = one->next;
    } else {
        made_early_.push_back(std::make_unique<Early>());
        one = made_early_.back().get();
    }
    one->kind = kind;
    one->message.assign(data, data + length);
    early_bytes_ += length;
    return *one;
}

void Groups::give_back(Early& one) {
    early_bytes_ -= one.message.size();
    one.next = free_early_;
    free_early_ = &one;
}

void Groups::again(EarlyList list) {
    while (Early* const one = list.first) {
        list.first = one->next;
        handle(one->kind, one->message.data(), one->message.size());
        give_back(*one);
    }
}

void Groups::forget(EarlyList& list) {
    while (Early* const one = list.first) {
        list.first = one->next;
        if (one->kind == wire::kReady) refuse(one->message.data());
        give_back(*one);
    }
}

EarlyList Groups::strangers_of(std::uint64_t name, std::uint64_t mask) {
    EarlyList its, others;
    while (Early* const one = strangers_.first) {
        strangers_.first = one->next;
        const bool is = ((first_word(one->message.data()) ^ name) & mask) == 0;
        (is ? its : others).add(*one);
    }
    strangers_ = others;
    return its;
}

} // namespace ucx_mp::glue
