#include "stress_flow.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace ucx_mp::sim {

void Stress::Flow::Op::fired(Completion* self) {
    auto* op = static_cast<Op*>(self);
    Flow* const flow = op->flow;
    flow->not_while_computing(flow->from, "a completion");
    if (failed(op->status))
        flow->mistake("completion with status " + std::to_string(int(op->status)));
    else if (op->then)
        op->then();
    --flow->open_;
    delete op;
    flow->pump();
}

Stress::Flow::Flow(Stress& s, unsigned a, unsigned b)
    : stress(s), from(a), to(b), channel(s.cluster_.channel(a, b)),
      random_(s.options_.seed * 1'000'003 + a * 1009 + b) {}

Stress::Flow::Op* Stress::Flow::op(std::function<void()> then) {
    auto* made = new Op;
    made->callback = Op::fired;
    made->count = 1;
    made->status = Status::ok;
    made->flow = this;
    made->then = std::move(then);
    return made;
}

void Stress::Flow::not_while_computing(unsigned node, const char* what) {
    if (stress.cluster_.node(node).computing()) mistake(std::string(what) + " while the program computes");
}

bool Stress::Flow::took(Status status, Op* made) {
    if (status == Status::in_progress) return ++open_, true;
    delete made;
    if (status == Status::ok) return true;
    if (status != Status::no_resource) mistake("operation refused with " + std::to_string(int(status)));
    return false;
}

void Stress::Flow::mistake(const std::string& what) {
    stress.mistakes_ += std::to_string(from) + "->" + std::to_string(to) + ": " + what + " (at " +
                        std::to_string(stress.cluster_.world.now() / 1000) + " us)\n";
}

void Stress::Flow::compare(const std::byte* data, const Following& f, const char* when) {
    if (const std::int64_t wrong = first_wrong(data, f.length, f.seed, f.added); wrong >= 0)
        mistake("put-" + std::string(name_of(f.kind)) + ": wrong byte " + std::to_string(wrong) + " of " +
                std::to_string(f.length) + when);
}

bool Stress::Flow::finished() const {
    return started_ == stress.options_.operations && open_ == 0 && following_.empty() && delivered == numbered_sent_ &&
           checks == puts_;
}

std::string Stress::Flow::progress() const {
    return std::to_string(from) + "->" + std::to_string(to) + ": started " + std::to_string(started_) + " of " +
           std::to_string(stress.options_.operations) + ", open " + std::to_string(open_) + ", delivered " +
           std::to_string(delivered) + " of " + std::to_string(numbered_sent_) + ", checks " + std::to_string(checks) +
           " of " + std::to_string(puts_);
}

void Stress::Flow::pump() {
    if (pumping_) return;
    if (stress.cluster_.node(from).computing()) return stress.repump_.push_back(this);
    pumping_ = true;
    for (bool promised = false;;) {
        if (rests) break;
        if (following_.empty() && started_ == stress.options_.operations) break;
        if (open_ > 64) break; // a completion pumps again
        if (step()) {
            promised = false;
            continue;
        }
        if (idle_ || iface().want_room(channel) != Status::busy) break;
        if (std::exchange(promised, true)) { // UCP would try for ever
            mistake("there is no room where it was promised");
            break;
        }
    }
    pumping_ = false;
}

bool Stress::Flow::step() {
    idle_ = false;
    if (!active_ && !trying_) {
        if (!chosen_ && started_ < stress.options_.operations) draw();
        active_ = next_following();
    }
    if (active_) {
        if (!advance(*active_)) return false;
        active_ = nullptr;
        return true;
    }
    if (!chosen_ || (kind_ == put && slots_free == 0) || (!stress.options_.mixed && !following_.empty()))
        return idle_ = true, false;
    trying_ = true;
    if (!start()) return false;
    chosen_ = trying_ = false;
    ++started_;
    return true;
}

std::uint64_t Stress::Flow::random_size(std::uint64_t max) {
    const unsigned bits = static_cast<unsigned>(random_() % 21);
    return std::min<std::uint64_t>(random_() % (std::uint64_t{1} << bits) + (random_() % 8 != 0), max);
}

void Stress::Flow::draw() {
    const StressOptions& options = stress.options_;
    kind_ = static_cast<unsigned>(random_() % kKinds);
    size_ = random_size(kind_ == put   ? options.slot
                        : kind_ == get ? options.constant
                                       : std::min<std::uint64_t>(8000, iface().limits().max_bcopy - sizeof(Numbered)));
    offset_ = kind_ == get ? random_() % (options.constant - size_ + 1) : 0;
    chosen_ = true;
}

bool Stress::Flow::start() {
    switch (kind_) {
    case am_short:
    case am_bcopy:
    case am_zcopy:
        return send_numbered();
    case put:
        return start_put();
    case get:
        return start_get();
    case fetch_add:
        return start_add();
    case flush:
        return start_flush();
    default: // a fence for nothing
        (void)iface().fence(channel);
        return true;
    }
}

bool Stress::Flow::send_numbered() {
    const std::uint64_t length =
        kind_ == am_short ? std::min<std::uint64_t>(size_, iface().limits().max_am_short - 16) : size_;
    const Numbered head{from, static_cast<std::uint32_t>(length), numbered_sent_};
    std::vector<std::byte> message(sizeof head + length);
    std::memcpy(message.data(), &head, sizeof head);
    std::byte* const body = message.data() + sizeof head;
    for (std::size_t i = 0; i < length; ++i) body[i] = pattern(i, numbered_sent_ + from * 7);
    bool went = false;
    if (kind_ == am_short) {
        std::uint64_t first;
        std::memcpy(&first, message.data(), 8);
        went = took(
            iface().am_short(channel, kNumbered, first, message.data() + 8, static_cast<unsigned>(message.size() - 8)),
            nullptr);
    } else if (kind_ == am_bcopy) {
        const auto pack = [](void* dest, void* arg) {
            const auto& all = *static_cast<const std::vector<std::byte>*>(arg);
            std::ranges::copy(all, static_cast<std::byte*>(dest));
            return all.size();
        };
        const ssize_t packed = iface().am_bcopy(channel, kNumbered, pack, &message);
        went = packed >= 0 || took(static_cast<Status>(packed), nullptr);
    } else {
        // Zcopy: from memory that nobody touches until its completion.
        auto held = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(length + 1));
        std::copy_n(body, length, held->data);
        Op* done = op([held] {});
        const Iov iov = held->iov(0, length);
        went = took(iface().am_zcopy(channel, kNumbered, &head, sizeof head, &iov, 1, done), done);
    }
    if (!went) return false;
    ++numbered_sent_;
    stress.bytes += length;
    return true;
}

bool Stress::Flow::start_put() {
    const unsigned slot = static_cast<unsigned>(std::countr_zero(slots_free));
    const std::size_t source = (to * kSlots + slot) * stress.options_.slot;
    auto behind = std::make_unique<Following>(); // what follows it is drawn
    behind->slot = slot;
    behind->length = size_;
    behind->seed = started_ + from * 31 + to * 17;
    behind->kind = draw_sequence(random_, stress.options_.sequences, size_);
    SimMemory& scratch = mine().scratch;
    for (std::size_t i = 0; i < size_; ++i) scratch.data[source + i] = pattern(i, behind->seed);
    behind->waits = waits_for_put(behind->kind);
    Op* done = op([waiting = behind->waits ? behind.get() : nullptr] {
        if (waiting) waiting->waits = false;
    });
    const Iov iov[] = {scratch.iov(source, size_ / 3), scratch.iov(source + size_ / 3, size_ - size_ / 3)};
    const SimMemory& target = theirs().slots;
    const Status status = iface().put_zcopy(channel, iov, 2, target.address(slot_at(slot)), target.keys, done);
    if (!took(status, done)) return false;
    if (status == Status::ok) behind->waits = false;
    slots_free &= ~(1u << slot);
    following_.push_back(std::move(behind));
    ++puts_;
    stress.bytes += size_;
    return true;
}

bool Stress::Flow::start_get() {
    const std::size_t where = offset_;
    const std::uint64_t length = size_;
    auto into = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(length + 1));
    Op* done = op([this, into, where, length] {
        for (std::size_t i = 0; i < length; ++i)
            if (into->data[i] != pattern(where + i, to + 1000))
                return mistake("get: wrong byte " + std::to_string(i) + " of " + std::to_string(length));
    });
    const Iov iov = into->iov(0, length);
    const SimMemory& target = theirs().constant;
    if (!took(iface().get_zcopy(channel, &iov, 1, target.address(where), target.keys, done), done)) return false;
    stress.bytes += length;
    return true;
}

bool Stress::Flow::start_add() {
    auto result = std::make_shared<std::uint64_t>(~0ull);
    Op* done = op([this, result] {
        if (!theirs().results.insert(*result).second) mistake("fetch-add: " + std::to_string(*result) + " twice");
    });
    const SimMemory& target = theirs().counter;
    if (!took(iface().atomic_fetch(channel, channel::AtomicOp::add, 8, 1, 0, result.get(), target.address(),
                                   target.keys, done),
              done))
        return false;
    ++adds;
    return true;
}

bool Stress::Flow::start_flush() {
    Op* done = op();
    return took(iface().flush(channel, done), done);
}

} // namespace ucx_mp::sim
