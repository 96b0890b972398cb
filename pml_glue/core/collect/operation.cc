// The steps of an operation, action by action.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <utility>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

void Group::begin(GroupOperation& operation) {
    bool triggered = false;
    if (triggered_) [[unlikely]] {
        triggered_->prepare(operation.number);
        triggered = triggered_->has(operation.collective, operation.number);
    }
    if (operation.number == hosts_from_) [[unlikely]] {
        knows_hosts_ = true;
        std::fill(std::begin(recent_), std::end(recent_), nullptr);
    }
    KeptPlan& plan = triggered ? triggered_plan_of(operation.collective, operation.shown.root)
                               : plan_of(operation.collective, operation.shown.root);
    operation.name = wire::pack({.context = config_.context,
                                 .number = static_cast<std::uint32_t>(operation.number) & wire::kNumberMask,
                                 .edge = 0,
                                 .collective = static_cast<std::uint32_t>(operation.collective),
                                 .check = check_});
    ++plan.users;
    plan.used = operation.number;
    operation.plan = &plan;
    operation.arrived = operation.in_blocks = 0;
    operation.at = operation.left = 0;
    const std::size_t block = operation.shown.bytes, bytes = plan.plan.blocks * block;
    Slot& slot = slots_[rules_.slot(operation.number)];
    assert(!slot.operation);
    slot.operation = &operation;
    operation.work = operation.own;
    if (triggered) [[unlikely]] {
        operation.work = triggered_->work(operation.number);
    } else if (bytes > GroupOperation::kOwn) {
        operation.work = slot.work = all_.work(bytes);
        slot.work_bytes = bytes;
    }
    const mp_data_t& in = operation.shown.in;
    for (const Run& run : plan.plan.inputs) {
        std::byte* const to = operation.work + run.work * block;
        if (in.convertor)
            (void)all_.hooks_.pack(in.convertor, run.user * block, to, run.count * block);
        else
            copy_bytes(to, static_cast<const std::byte*>(in.buffer) + run.user * block, run.count * block);
    }
    operation.stage = Stage::begun;
    if (is_exchange(operation.collective)) [[unlikely]] {
        operation.exchange = &new_exchange(operation.number);
        operation.exchange->begin(operation);
    }
    if (slot.early.first) [[unlikely]]
        all_.again(std::exchange(slot.early, {}));
    if (triggered && !broken_) [[unlikely]]
        triggered_->begin(operation);
    if (operation.listed) [[unlikely]] // a member is gone, or what has come breaks the group, or is of an exchange
        return;
    advance(operation);
}

void Group::advance(GroupOperation& operation) {
    if (broken_) [[unlikely]] {
        if (operation.exchange && !operation.exchange->wind_up()) return;
        operation.error = error();
        return finish(operation);
    }
    KeptPlan& kept = *operation.plan;
    const Action *const first = kept.plan.actions.data(), *const last = first + kept.plan.actions.size();
    const std::size_t block = operation.shown.bytes;
    const auto stop_at = [&](const Action* action) { operation.at = static_cast<std::uint32_t>(action - first); };
    for (const Action* action = first + operation.at; action != last;) {
        switch (action->what) {
        case Action::What::adapter:
            return triggered_->advance(operation);
        case Action::What::put:
            if (Peer* const peer = kept.partners[static_cast<std::size_t>(action - first)];
                peer && !peer->failed && action->count * block <= peer->endpoint->limits().max_short) [[likely]] {
                if (const Posted outcome = put_short(operation, *action, *peer); outcome != Posted::done) [[unlikely]] {
                    stop_at(action);
                    return not_put(operation, *peer, outcome);
                }
            } else {
                stop_at(action);
                if (!put(operation, *action)) return;
            }
            ++action;
            break;
        case Action::What::take:
            operation.awaited = action->edges & ~operation.arrived;
            if (operation.awaited) return stop_at(action);
            action += action->takes;
            break;
        case Action::What::fold:
            if (block && !operation.shown.fold(&operation.shown, operation.work + action->from * block,
                                               operation.work + action->to * block)) [[unlikely]] {
                stop_at(action);
                return lose(wire::kNoMemory); // which lists it
            }
            ++action;
            break;
        case Action::What::copy:
            copy_bytes(operation.work + action->to * block, operation.work + action->from * block,
                       action->count * block);
            ++action;
            break;
        }
    }
    stop_at(last);
    if (operation.exchange && !operation.exchange->advance()) [[unlikely]]
        return;
    finish(operation);
}

// Nearly all: a part that fits into one message, for a peer that is there.
[[gnu::always_inline]] inline Posted Group::put_short(GroupOperation& operation, const Action& action, Peer& peer) {
    const std::size_t bytes = action.count * operation.shown.bytes;
    all_.engine_.tell(peer, Hint::collective, bytes);
    const std::uint64_t name = operation.name | std::uint64_t{action.edge} << wire::kEdgeShift;
    const std::byte* const data = operation.work + action.from * operation.shown.bytes;
    const Posted outcome = peer.endpoint->send_short(wire::kPart, name, data, bytes);
    if (outcome != Posted::done) [[unlikely]]
        return outcome;
    ++all_.counts_.parts;
    all_.counts_.bytes += bytes;
    return outcome;
}

// Without room progress() tries again; without the peer the group breaks, and the operation with it.
void Group::not_put(GroupOperation& operation, Peer& peer, Posted outcome) {
    if (outcome == Posted::no_room)
        all_.list(operation);
    else
        all_.engine_.give_up(peer);
}

// False: not yet.
bool Group::put(GroupOperation& operation, const Action& action) {
    Peer* const peer = partner(operation);
    if (!peer || peer->failed) [[unlikely]] {
        if (!peer && all_.in_thread())
            all_.list(operation);
        else
            lose(processes_[action.partner]);
        return false;
    }
    const Posted outcome = post(operation, action, *peer);
    if (outcome == Posted::done) [[likely]]
        return true;
    not_put(operation, *peer, outcome);
    return false;
}

Posted Group::post(GroupOperation& operation, const Action& action, Peer& peer) {
    const std::size_t block = operation.shown.bytes, bytes = action.count * block;
    const std::byte* const data = operation.work + action.from * block;
    const std::uint64_t name = operation.name | std::uint64_t{action.edge} << wire::kEdgeShift;
    Endpoint& endpoint = *peer.endpoint;
    const Limits& limits = endpoint.limits();
    if (bytes <= limits.max_short) return put_short(operation, action, peer);
    all_.engine_.tell(peer, Hint::collective, bytes);
    Posted outcome = Posted::done;
    if (sizeof name + bytes <= limits.max_packed) {
        Packed<std::uint64_t> part{name, data, bytes};
        outcome = endpoint.send_packed(wire::kPart, part.pack, &part);
    } else {
        const std::size_t most = limits.max_packed - sizeof(wire::BlockHeader);
        while (operation.left < bytes && outcome == Posted::done) {
            Packed<wire::BlockHeader> piece{
                .header = {.name = name, .total = static_cast<std::uint32_t>(bytes), .offset = operation.left},
                .data = data + operation.left,
                .bytes = std::min(most, bytes - operation.left)};
            outcome = endpoint.send_packed(wire::kBlock, piece.pack, &piece);
            if (outcome != Posted::done) return outcome;
            operation.left += static_cast<std::uint32_t>(piece.bytes);
            ++all_.counts_.blocks;
        }
        operation.left = 0;
    }
    if (outcome != Posted::done) return outcome;
    ++all_.counts_.parts;
    all_.counts_.bytes += bytes;
    return outcome;
}

// The next action's. Null: cannot be reached, or has to wait for the program.
Peer* Group::partner(GroupOperation& operation) {
    Peer*& known = operation.plan->partners[operation.at];
    if (known) [[likely]]
        return known;
    return known = connect(operation.plan->plan.actions[operation.at].partner);
}

Peer* Group::connect(std::uint32_t rank) {
    Peer* const peer = all_.engine_.peer(processes_[rank]);
    if (peer && std::find(partners_.begin(), partners_.end(), peer) == partners_.end()) partners_.push_back(peer);
    return peer;
}

// For an exchange. Null: it has to wait for the program, or is gone, and the group is broken.
Peer* Group::member(std::uint32_t rank) {
    if (members_.empty()) members_.resize(config_.ranks);
    Peer*& known = members_[rank];
    if (!known) known = connect(rank);
    if (known && !known->failed) [[likely]]
        return known;
    if (known || !all_.in_thread()) lose(processes_[rank]);
    return nullptr;
}

void Group::finish(GroupOperation& operation) {
    if (operation.stage == Stage::begun) {
        const std::size_t block = operation.shown.bytes;
        const Plan& plan = operation.plan->plan;
        const mp_data_t& out = operation.shown.out;
        const bool failed = operation.error == MP_FAILED || operation.error == MP_BROKEN;
        const bool wanted = !failed && block && (out.convertor || out.buffer);
        for (const Run& run : plan.outputs) {
            if (!wanted) break;
            const std::byte* const from = operation.work + run.work * block;
            if (out.convertor)
                all_.hooks_.unpack(out.convertor, run.user * block, from, run.count * block);
            else
                copy_bytes(static_cast<std::byte*>(out.buffer) + run.user * block, from, run.count * block);
        }
        Slot& slot = slots_[rules_.slot(operation.number)];
        slot.operation = nullptr;
        if (slot.work) all_.give_back(std::exchange(slot.work, nullptr), slot.work_bytes);
        if (operation.exchange) give_back_exchange(operation.number);
        if (operation.inserted && operation.collective == Collective::allgather && !failed) [[unlikely]] {
            if (operation.error == MP_OK)
                learn_hosts(operation.number);
            else
                lose(wire::kNobody); // what has come is not what others have
        }
        --operation.plan->users;
        rules_.finish(operation.number, synchronises(operation.collective));
        if (first_) begin_queued();
    }
    operation.stage = Stage::over;
    if (operation.shown.done || all_.in_thread()) {
        ++all_.over_;
        all_.list(operation);
    } else {
        end(operation);
    }
}

// Last touch, of the operation and, if its caller is told, of the group.
void Group::end(GroupOperation& operation) {
    --open_;
    if (communicator_) [[unlikely]] {
        --communicator_->open_;
        if (freed_ && open_ == 0) all_.dead_.push_back(this);
    }
    if (operation.inserted) {
        operation.next = free_inserted_;
        free_inserted_ = &operation;
        return;
    }
    auto* const done = operation.shown.done; // who waits in another thread goes on when it is complete
    operation.shown.error = operation.error;
    std::atomic_ref(operation.shown.complete).store(true, std::memory_order_release);
    if (done) done(&operation.shown);
}

} // namespace ucx_mp::glue
