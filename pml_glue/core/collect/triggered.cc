// Operations whose parts adapters put: what is given to queues, and what the processor looks at.
#include "pml_glue/core/collect/triggered.h"

#include <atomic>
#include <bit>
#include <cassert>
#include <cstring>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

namespace {

// A word's value: the operation's number from 1 on, its bytes and what it is. Members who call different operations, or
// with other sizes, are told apart by it, as messages do.
constexpr unsigned kBytesShift = 43, kCollectiveShift = 60;
constexpr std::uint64_t kNumber = (std::uint64_t{1} << kBytesShift) - 1;
constexpr std::size_t kWord = 64; // a cache line each
static_assert(Triggered::kMostSmall >> (kCollectiveShift - kBytesShift) == 0);
static_assert(kCollectives <= 1 << (64 - kCollectiveShift));

std::uint64_t bit(unsigned edge) { return std::uint64_t{1} << edge; }

std::size_t aligned(std::size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

} // namespace

Triggered::Triggered(Group& group, TaskPort& port, Counts& counts)
    : group_(group), port_(port), counts_(counts),
      edges_(static_cast<unsigned>(std::bit_width(group.config_.ranks - 1))), slot_bytes_(aligned(group.config_.small)),
      next_(group.config_.after), outs_(edges_), ins_(edges_) {
    assert(edges_ <= kMostEdges);
}

Triggered::~Triggered() {
    std::erase(group_.all_.triggers_, this);
    if (arena_) group_.all_.arena_bytes_ -= arena_bytes();
}

std::size_t Triggered::arena_bytes() const { return group_.rules_.slots() * (edges_ * kWord + slot_bytes_); }

Triggered::Slot& Triggered::slot_of(const GroupOperation& operation) {
    return slots_[group_.rules_.slot(operation.number)];
}

// Where in an arena, ours or that of a member with as many ranks and the same parameters.
std::size_t Triggered::word_at(std::uint64_t number, unsigned edge) const {
    return (group_.rules_.slot(number) * edges_ + edge) * kWord;
}
std::size_t Triggered::work_at(std::uint64_t number) const {
    return std::size_t{group_.rules_.slots()} * edges_ * kWord + group_.rules_.slot(number) * slot_bytes_;
}

std::uint64_t* Triggered::word(std::uint64_t number, unsigned edge) const {
    return reinterpret_cast<std::uint64_t*>(arena_.get() + word_at(number, edge));
}
std::byte* Triggered::work(std::uint64_t number) const { return arena_.get() + work_at(number); }

std::uint64_t Triggered::value_of(const GroupOperation& operation) {
    return (operation.number + 1) | std::uint64_t{operation.shown.bytes} << kBytesShift |
           static_cast<std::uint64_t>(operation.collective) << kCollectiveShift;
}

// A part that has come by a message has its word written here. One that has come by a queue is not taken again.
bool Triggered::is_here(GroupOperation& operation, unsigned edge) {
    std::atomic_ref<std::uint64_t> at(*word(operation.number, edge));
    const std::uint64_t expected = value_of(operation), is = at.load(std::memory_order_acquire);
    if (is == expected) {
        operation.arrived |= bit(edge);
        return true;
    }
    if (operation.arrived & bit(edge)) {
        at.store(expected, std::memory_order_release);
        return true;
    }
    if ((is & kNumber) != (expected & kNumber)) return false;
    if (is >> kCollectiveShift != expected >> kCollectiveShift) {
        group_.lose(wire::kNobody);
        return false;
    }
    operation.error = MP_TRUNCATED;
    operation.arrived |= bit(edge);
    at.store(expected, std::memory_order_release); // for our own queues: the others go on
    return true;
}

void Triggered::begin(GroupOperation& operation) {
    Slot& slot = slot_of(operation);
    ++open_;
    slot.posted = slot.owed = 0;
    slot.sending = nullptr;
    slot.at = 0;
    for (const Action& action : operation.plan->plan.actions)
        if (action.what == Action::What::put) slot.owed |= bit(action.edge);
    const std::uint64_t puts = slot.owed;
    const bool wanted = group_.config_.engine == MP_ENGINE_ADAPTER || operation.shown.done || operation.inserted;
    if (wanted)
        for (const TriggeredPut& put : operation.plan->puts) post(operation, slot, put);
    if (puts && !slot.owed) ++counts_.operations;
}

// Without a queue, or room in it, the put stays owed.
void Triggered::post(GroupOperation& operation, Slot& slot, const TriggeredPut& put) {
    Out& out = outs_[put.edge];
    if (out.stage != Stage::ready || operation.number < out.from) return;
    const std::uint64_t* words[kMostEdges];
    unsigned waits = 0;
    for (std::uint64_t left = put.after; left; left &= left - 1)
        words[waits++] = word(operation.number, static_cast<unsigned>(std::countr_zero(left)));
    const std::size_t block = operation.shown.bytes;
    const Task task{.words = {words, waits},
                    .value = value_of(operation),
                    .from = operation.work + put.from * block,
                    .bytes = put.count * block,
                    .to = out.address + work_at(operation.number) + put.to * block,
                    .word = out.address + word_at(operation.number, put.edge)};
    if (!out.queue->post(task)) return;
    slot.owed &= ~bit(put.edge);
    slot.posted |= bit(put.edge);
    slot.task[put.edge] = out.queue->state().posted;
    ++counts_.tasks;
    counts_.waits += waits;
}

void Triggered::settle(Slot& slot) {
    for (std::uint64_t left = slot.posted; left; left &= left - 1) {
        const auto edge = static_cast<unsigned>(std::countr_zero(left));
        const Out& out = outs_[edge];
        if (out.queue && out.queue->state().done >= slot.task[edge]) slot.posted &= ~bit(edge);
    }
}

// Looked at by every progress(), since nobody tells when a word has come. Messages may have brought the words
// that our queues wait for. Folds change what puts send: they come when all puts are complete.
void Triggered::advance(GroupOperation& operation) {
    Slot& slot = slot_of(operation);
    const auto& actions = operation.plan->plan.actions;
    const std::size_t block = operation.shown.bytes;
    settle(slot);
    if (slot.sending && !put(operation, slot, *slot.sending)) return;
    for (std::uint32_t i = 0; i < actions.size(); ++i) {
        const Action& action = actions[i];
        switch (action.what) {
        case Action::What::adapter:
            break;
        case Action::What::put:
            if (slot.owed & bit(action.edge) && !put(operation, slot, action)) return;
            break;
        case Action::What::take:
            if (i >= slot.at && !is_here(operation, action.edge)) {
                if (!operation.listed) group_.all_.list(operation);
                return;
            }
            break;
        case Action::What::fold:
        case Action::What::copy:
            if (i < slot.at) break;
            if (slot.posted) return group_.all_.list(operation);
            if (action.what == Action::What::fold &&
                !operation.shown.fold(&operation.shown, operation.work + action.from * block,
                                      operation.work + action.to * block))
                return group_.lose(wire::kNoMemory); // which lists it
            if (action.what == Action::What::copy)
                std::memcpy(operation.work + action.to * block, operation.work + action.from * block,
                            action.count * block);
            break;
        }
        slot.at = std::max(slot.at, i + 1);
    }
    if (slot.posted) return group_.all_.list(operation);
    --open_;
    group_.finish(operation);
}

// By a message. False: not yet, and somebody looks again.
bool Triggered::put(GroupOperation& operation, Slot& slot, const Action& action) {
    operation.at = static_cast<std::uint32_t>(&action - operation.plan->plan.actions.data());
    const bool left = group_.put(operation, action);
    operation.at = 0;
    slot.sending = left ? nullptr : &action;
    if (left) slot.owed &= ~bit(action.edge);
    return left;
}

const Action* Triggered::waits_for(const GroupOperation& operation) const {
    const std::uint32_t at = slots_[group_.rules_.slot(operation.number)].at;
    const auto& actions = operation.plan->plan.actions;
    return at < actions.size() && actions[at].what == Action::What::take ? &actions[at] : nullptr;
}

} // namespace ucx_mp::glue
