// A member that is gone: the group is of no use any more, and who waits in it has to hear of it. The neighbour that it
// leaves notices; a third one waits for somebody who has left the operation with an error. So who hears of it tells all
// that may wait for parts of his, once: his neighbours on the circle, those in rounds of several messages, and by hosts
// all of his host, and who speaks for others. Slow path.
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "pml_glue/core/collect/group.h"
#include "pml_glue/core/plan/maker.h"

namespace ucx_mp::glue {

namespace {
// `why`: a process, or a reason.
std::array<char, 160> line_of(std::uint32_t context, std::uint64_t why) {
    const std::uint32_t communicator = context >> wire::kRequestBits;
    std::array<char, 160> line;
    if (why == wire::kNobody)
        std::snprintf(line.data(), line.size(),
                      "members of communicator %u are in different collective operations, or give one different "
                      "sizes: those of it fail",
                      communicator);
    else if (why == wire::kNoRoom)
        std::snprintf(line.data(), line.size(),
                      "a member has no room for what others have sent ahead of its calls: collective operations of "
                      "communicator %u fail (coll_mp_memory)",
                      communicator);
    else if (why == wire::kNoMemory || why == wire::kDeclined)
        std::snprintf(line.data(), line.size(),
                      "a member has no memory for collective operations of communicator %u: those of it fail",
                      communicator);
    else
        std::snprintf(line.data(), line.size(), "process %llx is gone: collective operations of communicator %u fail",
                      static_cast<unsigned long long>(why), communicator);
    return line;
}
} // namespace

// An operation that is listed ends when progress() looks at it; all others are listed here.
void Group::lose(std::uint64_t why) {
    if (broken_) {
        if (why == wire::kDeclined) lose_requests();
        return;
    }
    broken_ = true;
    gone_ = why;
    ++all_.counts_.broken;
    for (Slot& slot : slots_) all_.forget(slot.early);
    if (triggered_) triggered_->stop();
    if (stripes_) stripes_->stop();
    if (why == wire::kDeclined) lose_requests();
    if (open_ == 0) return; // the next operation says so: there may be none, if all of us end
    all_.engine_.report(line_of(config_.context, why).data());
    tell_broken();
    for (Slot& slot : slots_) {
        if (!slot.operation) continue;
        slot.operation->awaited = 0; // what comes now does not list it again
        if (!slot.operation->listed) all_.list(*slot.operation);
    }
    while (GroupOperation* const operation = first_) {
        first_ = operation->next;
        all_.list(*operation);
    }
}

void Group::give_up() {
    lose(wire::kNoMemory);
    if (told_broken_) return; // and the program
    all_.engine_.report(line_of(config_.context, gone_).data());
    tell_broken();
}

// Whoever has no group has none for its requests. Other reasons are of one call, and requests go on.
void Group::lose_requests() {
    for (const auto& request : requests_)
        if (request) request->lose(wire::kDeclined);
}

// Members that hear that a communicator was declined lose its requests, too: these say nothing of their own.
void Group::tell_broken() {
    if (std::exchange(told_broken_, true)) return;
    if (communicator_ && gone_ == wire::kDeclined && communicator_->gone_ == gone_) return communicator_->tell_broken();
    mp_group_config_t config = config_;
    config.members = this;
    config.process = process_of;
    all_.tell_broken(config, check_, gone_);
    tell_others();
}

// Those that are no neighbours on the circle. While hosts are asked for, others may know them already, and anybody may
// be on ours.
void Group::tell_others() {
    const std::uint32_t own = config_.rank, all = config_.ranks;
    std::vector<std::uint32_t> others;
    for (const Rounds* const rounds : {&rounds_, static_cast<const Rounds*>(&flat_)})
        if (rounds->count)
            each_round(all, rounds, [&](const auto& each) {
                each([&](unsigned, std::uint32_t distance, std::uint32_t) {
                    others.push_back(static_cast<std::uint32_t>((std::uint64_t{own} + distance) % all));
                });
            });
    if (hosts_) std::ranges::copy(hosts_->takers_of(own), std::back_inserter(others));
    if (!host_keys_.empty())
        for (std::uint32_t rank = 0; rank < all; ++rank) others.push_back(rank);
    std::ranges::sort(others);
    others.erase(std::unique(others.begin(), others.end()), others.end());
    const wire::BrokenHeader message{.name = wire::name_of(config_.context, check_), .process = gone_};
    for (const std::uint32_t rank : others) {
        const std::uint32_t distance = rank >= own ? rank - own : rank + all - own;
        const bool told = distance == 0 || std::has_single_bit(distance) || std::has_single_bit(all - distance);
        if (!told && processes_[rank] != gone_) all_.tell(processes_[rank], wire::kBroken, &message, sizeof message);
    }
}

void Groups::tell_broken(const mp_group_config_t& config, std::uint32_t check, std::uint64_t why) {
    const wire::BrokenHeader message{.name = wire::name_of(config.context, check), .process = why};
    for (std::uint32_t distance = 1; distance < config.ranks; distance *= 2)
        for (const std::uint32_t to : {config.rank + distance, config.rank + config.ranks - distance}) {
            const std::uint64_t process = config.process(config.members, to % config.ranks);
            if (process != why) tell(process, wire::kBroken, &message, sizeof message);
        }
}

// Others may be in its first operation already, so it cannot be left to another component. All that is kept here is
// that it was declined.
void Groups::decline(const mp_group_config_t& config) {
    declined_.push_back(config.context >> wire::kRequestBits);
    EarlyList its = strangers_of(wire::name_of(config.context, 0), wire::kCommunicatorBits);
    forget(its);
    ++counts_.broken;
    engine_.report(line_of(config.context, wire::kDeclined).data());
    tell_broken(config, check_of(config), wire::kDeclined);
}

// Nor is what has come for it of the next one with its number.
void Groups::drop(std::uint32_t context) {
    if (context > wire::kContextMask) return; // too large to have a group, and another one's name when shifted
    const std::uint64_t name = wire::name_of(context << wire::kRequestBits, 0);
    EarlyList its = strangers_of(name, wire::kCommunicatorBits);
    forget(its);
    std::erase(declined_, context);
    std::erase_if(refused_, [=](std::uint64_t one) { return (one & wire::kCommunicatorBits) == name; });
}

void Groups::tell(std::uint64_t process, MessageKind kind, const void* message, std::size_t length) {
    assert(length <= Tell::kMost);
    Tell& one = tells_.emplace_back(Tell{.process = process, .kind = kind, .length = length, .message = {}});
    std::memcpy(one.message, message, length);
}

void Groups::wake() {
    if (tells_.empty()) tells_.push_back(Tell{.process = 0, .kind = 0, .length = 0, .message = {}});
}

// Not to whom the program has to connect first, in a turn of the progress thread. Messages that arrive meanwhile, from
// this process itself, may add more.
void Groups::tell() {
    std::vector<Tell> now;
    now.swap(tells_);
    for (const Tell& one : now) {
        if (one.kind == 0) continue;
        Peer* const peer = engine_.peer(one.process);
        const bool waits =
            peer ? !peer->failed && post(*peer, one.kind, one.message, one.length) == Posted::no_room : in_thread();
        if (waits) tells_.push_back(one);
    }
}

// Whoever gets no such message waits in vain, so one that cannot be sent is the end of the peer.
Posted Groups::post(Peer& peer, MessageKind kind, const void* message, std::size_t length) {
    struct Message {
        const void* data;
        std::size_t length;
    } packed{message, length};
    const auto pack = [](void* out, void* argument) {
        const Message& from = *static_cast<const Message*>(argument);
        std::memcpy(out, from.data, from.length);
        return from.length;
    };
    const Posted outcome = peer.endpoint->send_packed(kind, pack, &packed);
    if (outcome != Posted::done && outcome != Posted::no_room) engine_.give_up(peer);
    return outcome;
}

void Groups::lose(Group& group, const Peer& peer) {
    group.lose(peer.process);
    // Nor does an operation that ends already wait for its answers.
    for (const Group::Slot& slot : group.slots_)
        if (slot.operation && slot.operation->exchange && !slot.operation->listed) list(*slot.operation);
}

void Groups::peer_failed(Peer& peer) {
    each([&](Group& group) {
        const auto& all = group.processes_;
        if (std::find(all.begin(), all.end(), peer.process) != all.end()) lose(group, peer);
    });
}

// The peers whose parts operations wait for, and those that have no room for ours. A peer that had failed before the
// group was made is noticed here.
void Groups::waits_for(std::vector<Peer*>& peers) {
    each([&](Group& group) {
        const std::size_t before = peers.size();
        group.waits_for(peers);
        const auto failed = std::find_if(peers.begin() + static_cast<std::ptrdiff_t>(before), peers.end(),
                                         [](const Peer* peer) { return peer->failed; });
        if (failed != peers.end()) lose(group, **failed);
    });
}

namespace {
// The put or take that an operation has come to; of takes the first one whose part is not here. Null: it waits for
// nobody.
const Action* missing_of(const GroupOperation& operation) {
    const auto& actions = operation.plan->plan.actions;
    std::size_t at = operation.at;
    while (at < actions.size() && actions[at].what == Action::What::take && operation.arrived >> actions[at].edge & 1)
        ++at;
    if (at == actions.size()) return nullptr;
    const bool waits = actions[at].what == Action::What::put || actions[at].what == Action::What::take;
    return waits ? &actions[at] : nullptr;
}
} // namespace

void Group::waits_for(std::vector<Peer*>& peers) {
    for (const Slot& slot : slots_) {
        GroupOperation* const operation = slot.operation;
        if (!operation) continue;
        if (operation->exchange) {
            operation->exchange->waits_for(peers);
            continue;
        }
        if (broken_) continue;
        Peer* peer = nullptr;
        if (operation->plan->shape.triggered) {
            if (const Action* const missing = triggered_->waits_for(*operation)) peer = connect(missing->partner);
        } else if (const Action* const missing = missing_of(*operation)) {
            peer = connect(missing->partner);
        }
        if (peer) peers.push_back(peer);
    }
}

} // namespace ucx_mp::glue
