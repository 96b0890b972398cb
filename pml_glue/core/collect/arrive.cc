// What comes. Nothing of it is believed: groups, numbers, edges, sizes. Only that a member is who it says is not
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
    if (length) std::memcpy(operation->work + action.to * block, data, length);
    operation->arrived |= std::uint64_t{1} << edge;
    if (operation->waiting && operation->at == place) {
        operation->waiting = false;
        all_.list(*operation);
    }
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
void Groups::on_block(void* self, const std::byte* data, std::size_t length) {
    static_cast<Groups*>(self)->handle(wire::kBlock, data, length);
}
void Groups::on_broken(void* self, const std::byte* data, std::size_t length) {
    static_cast<Groups*>(self)->handle(wire::kBroken, data, length);
}

void Groups::handle(MessageKind kind, const std::byte* data, std::size_t length) {
    const std::size_t header = kind == wire::kPart ? sizeof(std::uint64_t) : sizeof(wire::BlockHeader);
    static_assert(sizeof(wire::BlockHeader) == sizeof(wire::BrokenHeader));
    if (length < header) return dropped("a collective's message is too short");
    Group::Arrival arrival{.name = wire::unpack(first_word(data)),
                           .total = length - header,
                           .offset = 0,
                           .data = data + header,
                           .length = length - header};
    if (kind == wire::kBlock) {
        wire::BlockHeader block;
        std::memcpy(&block, data, sizeof block);
        arrival.total = block.total;
        arrival.offset = block.offset;
        if (arrival.length == 0 || arrival.offset + arrival.length > arrival.total)
            return dropped("a block of a collective's part is not in it");
    }
    Group* const group = find(arrival.name.context);
    if (!group) return keep(strangers_, kind, data, length);
    if (arrival.name.check != group->check_)
        return dropped("a message of a collective comes from a member with other members, or other parameters "
                       "(coll_mp_*): they have to be the same everywhere");
    if (kind == wire::kBroken) {
        wire::BrokenHeader broken;
        if (length != sizeof broken) return dropped("the message that somebody is gone has a wrong length");
        std::memcpy(&broken, data, sizeof broken);
        return group->lose(broken.process);
    }
    group->arrive(arrival, kind, data, length);
}

void Group::arrive(const Arrival& arrival, MessageKind kind, const std::byte* message, std::size_t length) {
    if (broken_) return;
    std::uint64_t number = 0;
    if (!rules_.find(arrival.name.number, wire::kNumberMask, number))
        return all_.dropped("a part is of an operation that is over, or far ahead");
    Slot& slot = slots_[rules_.slot(number)];
    if (slot.operation && slot.operation->number == number) [[likely]]
        return place(*slot.operation, arrival);
    if (slot.operation || (slot.early.first && slot.number != number))
        return all_.dropped("a part is of an operation whose slot is in use");
    slot.number = number;
    all_.keep(slot.early, kind, message, length);
}

// The size is the plan's. What does not fit is left out, and the operation says so; it goes on, for the others.
void Group::place(GroupOperation& operation, const Arrival& arrival) {
    const unsigned edge = arrival.name.edge;
    const Plan& plan = operation.plan->plan;
    if (arrival.name.collective != static_cast<std::uint32_t>(operation.collective)) return lose(wire::kNobody);
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
    operation.arrived |= bit;
    if (operation.waiting && plan.actions[operation.at].edge == edge) {
        operation.waiting = false;
        all_.list(operation);
    }
}

void Groups::keep(EarlyList& list, MessageKind kind, const std::byte* data, std::size_t length) {
    if (early_bytes_ + length > kMostEarly)
        return dropped("messages of collectives that nobody has called yet are more than there is room for");
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
    ++counts_.early;
    list.add(*one);
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
        give_back(*one);
    }
}

EarlyList Groups::strangers_of(std::uint32_t context) {
    EarlyList its, others;
    while (Early* const one = strangers_.first) {
        strangers_.first = one->next;
        const bool is = wire::unpack(first_word(one->message.data())).context == context;
        (is ? its : others).add(*one);
    }
    strangers_ = others;
    return its;
}

} // namespace ucx_mp::glue
