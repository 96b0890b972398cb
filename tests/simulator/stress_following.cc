// The stress traffic: what follows a put, step by step (simulator/stress_sequences.h).
#include <cstring>
#include <utility>

#include "stress_flow.h"

namespace ucx_mp::sim {

Following* Stress::Flow::next_following() {
    std::vector<Following*> ready;
    for (const auto& one : following_)
        if (!one->waits) ready.push_back(one.get());
    if (ready.empty()) return nullptr;
    const bool others =
        stress.options_.mixed && started_ < stress.options_.operations && (kind_ != put || slots_free != 0);
    return others && random_() % 4 == 0 ? nullptr : ready[random_() % ready.size()];
}

Stress::Flow::Op* Stress::Flow::op_of(Following& f, std::function<void()> then) {
    return op([&f, then = std::move(then)] {
        f.waits = false;
        if (then) then();
    });
}

bool Stress::Flow::goes_on(Following& f, Status status, Op* done) {
    if (!took(status, done)) return false;
    f.waits = status == Status::in_progress;
    f.fenced = false;
    ++f.step;
    return true;
}

bool Stress::Flow::advance(Following& f) {
    const Step step = step_of(f.kind, f.step);
    if (step.fence && !std::exchange(f.fenced, true)) (void)iface().fence(channel);
    switch (step.what) {
    case Step::flush: {
        Op* done = op_of(f);
        return goes_on(f, iface().flush(channel, done), done);
    }
    case Step::flag:
        return put_flag(f);
    case Step::get:
        return read_back(f);
    case Step::add:
        return add_to(f);
    case Step::tell:
        return tell(f);
    }
    return false;
}

bool Stress::Flow::put_flag(Following& f) {
    const std::size_t place = 8 * (from * kSlots + f.slot);
    const std::uint64_t value = f.seed + 1;
    const SimMemory& flags = theirs().flags;
    if (!goes_on(f, iface().put_short(channel, &value, sizeof value, flags.address(place), flags.keys), nullptr))
        return false;
    stress.polled_.push_back({this, f, value});
    return true;
}

bool Stress::Flow::read_back(Following& f) {
    auto into = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(f.length + 1));
    Op* done = op_of(f, [this, into, &f] { compare(into->data, f, ""); });
    const Iov iov = into->iov(0, f.length);
    const SimMemory& slots = theirs().slots;
    return goes_on(f, iface().get_zcopy(channel, &iov, 1, slots.address(slot_at(f.slot)), slots.keys, done), done);
}

bool Stress::Flow::add_to(Following& f) {
    auto result = std::make_shared<std::uint64_t>(~0ull);
    Op* done = op_of(f, [this, result, &f] {
        Following before = f;
        before.length = 8;
        before.added = 0;
        compare(reinterpret_cast<const std::byte*>(result.get()), before, "");
    });
    const SimMemory& slots = theirs().slots;
    if (!goes_on(f,
                 iface().atomic_fetch(channel, channel::AtomicOp::add, 8, kAdded, 0, result.get(),
                                      slots.address(slot_at(f.slot)), slots.keys, done),
                 done))
        return false;
    f.added = kAdded;
    return true;
}

bool Stress::Flow::tell(Following& f) {
    kinds[f.slot] = f.kind;
    const CheckMessage message{from, f.slot, f.length, f.seed, f.added};
    std::uint64_t head;
    std::memcpy(&head, &message, 8);
    const Status status =
        iface().am_short(channel, kCheck, head, reinterpret_cast<const std::byte*>(&message) + 8, sizeof message - 8);
    if (status != Status::ok) return took(status, nullptr);
    std::erase_if(following_, [&](const auto& one) { return one.get() == &f; });
    return true;
}

} // namespace ucx_mp::sim
