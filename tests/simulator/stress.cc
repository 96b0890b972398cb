#include "simulator/stress.h"

#include <cstring>
#include <sstream>
#include <utility>

#include "stress_flow.h"

namespace ucx_mp::sim {

Stress::Side::Side(Node& node, unsigned nodes, unsigned index, const StressOptions& options)
    : slots(node.memory(options.slot * kSlots * nodes)), constant(node.memory(options.constant)),
      scratch(node.memory(options.slot * kSlots * nodes)), read(node.memory(options.constant * nodes)),
      counter(node.memory(64)), flags(node.memory(8 * kSlots * nodes)), kept(kSlots * nodes) {
    std::memset(counter.data, 0, 64);
    std::memset(flags.data, 0, flags.size);
    for (std::size_t b = 0; b < options.constant; ++b) constant.data[b] = pattern(b, index + 1000);
}

Stress::Stress(Cluster& cluster, StressOptions options) : cluster_(cluster), options_(options) {
    const unsigned n = cluster.size();
    for (unsigned i = 0; i < n; ++i) sides_.emplace_back(cluster.node(i), n, i, options);
    for (unsigned from = 0; from < n; ++from)
        for (unsigned to = 0; to < n; ++to) {
            if (from == to && !options.with_self) continue;
            flows_.push_back(std::make_unique<Flow>(*this, from, to));
        }
    place_late(cluster, options.seed, options.late, options.late_queue_pairs);
    for (unsigned i = 0; i < n; ++i) {
        cluster.node(i).on_am(kNumbered, take_numbered, this);
        cluster.node(i).on_am(kCheck, take_check, this);
        cluster.node(i).on_room = [this](Channel& channel) {
            for (auto& flow : flows_)
                if (&flow->channel == &channel) {
                    flow->not_while_computing(flow->from, "room");
                    flow->pump();
                }
        };
    }
}

Stress::~Stress() = default;

bool Stress::run(Nanos limit) {
    cluster_.after_progress = [this] { repump(); };
    for (auto& flow : flows_) flow->pump();
    return cluster_.until(
        [&] {
            poll_flags();
            park_and_rest();
            return finished();
        },
        limit);
}

void Stress::park_and_rest() {
    const Nanos now = cluster_.world.now();
    if (!options_.lull || now < next_park_) return;
    const auto about = [&](Nanos mean) { return 1 + static_cast<Nanos>(random_() % std::uint64_t(2 * mean)); };
    next_park_ = now + about(options_.lull / 8);
    (void)cluster_.world.at(next_park_, [] {});
    Flow& flow = *flows_[random_() % flows_.size()];
    if (!cluster_.node(flow.from).computing() &&
        cluster_.node(flow.from).iface().park(flow.channel) == Status::in_progress)
        ++asked_to_park;
    if (resting_ == 0 && random_() % 24 == 0) {
        for (auto& one : flows_) one->rests = true;
        resting_ = flows_.size();
        lull_ends_ = now + about(options_.lull);
    } else if (resting_ != 0 && now >= lull_ends_ && random_() % 2 == 0) {
        Flow& next = *flows_[woken_++ % flows_.size()];
        next.rests = false;
        --resting_;
        next.pump();
    }
}

bool Stress::finished() const {
    for (const auto& flow : flows_)
        if (!flow->finished()) return false;
    return true;
}

std::string Stress::verdict() const {
    std::ostringstream out;
    for (const auto& flow : flows_)
        if (!flow->finished()) out << flow->progress() << "\n";
    out << mistakes_;
    for (unsigned i = 0; i < cluster_.size(); ++i) {
        if (cluster_.node(i).closed()) continue;
        channel::Interface::Statistics statistics;
        cluster_.node(i).iface().statistics(statistics);
        if (statistics.forged)
            out << "node " << i << " has taken " << statistics.forged << " messages for forged ones\n";
    }
    if (!finished()) return out.str();
    for (unsigned i = 0; i < cluster_.size(); ++i)
        for (std::size_t slot = 0; slot < sides_[i].kept.size(); ++slot)
            for (std::size_t b = 0; b < sides_[i].kept[slot]; ++b)
                if (sides_[i].slots.data[slot * options_.slot + b] != kKept) {
                    out << "put: executed again at " << i << ", slot " << slot << ", byte " << b << "\n";
                    break;
                }
    std::vector<std::uint64_t> sums(cluster_.size());
    for (const auto& flow : flows_) sums[flow->to] += flow->adds;
    for (unsigned i = 0; i < cluster_.size(); ++i) {
        const auto value = *reinterpret_cast<const std::uint64_t*>(sides_[i].counter.data);
        if (value != sums[i]) out << "counter of " << i << ": " << value << " instead of " << sums[i] << "\n";
    }
    return out.str();
}

Stress::Flow* Stress::flow_to_receiver(unsigned from) {
    for (auto& flow : flows_)
        if (flow->from == from && flow->to == cluster_.progressing()) return flow.get();
    return nullptr;
}

Status Stress::take_numbered(void* self, void* data, std::size_t length, unsigned) {
    auto& stress = *static_cast<Stress*>(self);
    Numbered head;
    std::memcpy(&head, data, sizeof head);
    // The receiver is not in the message: content and count must fit one flow.
    Flow* const flow = stress.flow_to_receiver(head.from);
    if (!flow) return stress.mistakes_ += "message from nowhere\n", Status::ok;
    flow->not_while_computing(flow->to, "a message");
    if (head.number != flow->delivered)
        flow->mistake("message " + std::to_string(head.number) + " instead of " + std::to_string(flow->delivered));
    ++flow->delivered;
    if (length != sizeof head + head.length) flow->mistake("length " + std::to_string(length));
    const auto* body = static_cast<const std::byte*>(data) + sizeof head;
    for (std::size_t i = 0; i < head.length; ++i)
        if (body[i] != pattern(i, head.number + head.from * 7)) return flow->mistake("message content"), Status::ok;
    return Status::ok;
}

Status Stress::take_check(void* self, void* data, std::size_t, unsigned) {
    auto& stress = *static_cast<Stress*>(self);
    CheckMessage message;
    std::memcpy(&message, data, sizeof message);
    Flow* const flow = stress.flow_to_receiver(message.from);
    if (!flow) throw std::runtime_error("no such flow");
    flow->not_while_computing(flow->to, "a message");
    Side& side = stress.sides_[flow->to];
    const std::size_t slot = message.from * kSlots + message.slot;
    std::byte* const at = side.slots.data + slot * stress.options_.slot;
    const Following told{.slot = message.slot,
                         .length = message.length,
                         .seed = message.seed,
                         .added = message.added,
                         .kind = flow->kinds[message.slot]};
    stress.poll_flags();
    if (std::erase_if(stress.polled_,
                      [&](const Polled& polled) { return polled.flow == flow && polled.put.slot == message.slot; }))
        flow->mistake("a message came before the flag that it is behind");
    flow->compare(at, told, " when the message came");
    // What the target stores there now must stay: a write that is executed a second time would show here, or at the
    // end.
    std::size_t& kept = side.kept[slot];
    for (std::size_t i = message.length; i < kept; ++i)
        if (at[i] != kKept) {
            flow->mistake("put: executed again, byte " + std::to_string(i) + " of " + std::to_string(kept));
            break;
        }
    kept = std::max<std::size_t>(kept, message.length);
    std::memset(at, int(kKept), kept);
    ++flow->checks;
    // The slot is free again. (By memory: a message back would be one more flow to wait for.)
    flow->slots_free |= 1u << message.slot;
    stress.repump_.push_back(flow);
    return Status::ok;
}

void Stress::poll_flags() {
    std::erase_if(polled_, [this](const Polled& polled) {
        const Flow& flow = *polled.flow;
        const std::size_t slot = flow.from * kSlots + polled.put.slot;
        if (std::memcmp(sides_[flow.to].flags.data + 8 * slot, &polled.value, 8) != 0) return false;
        polled.flow->compare(sides_[flow.to].slots.data + slot * options_.slot, polled.put, " when the flag came");
        return true;
    });
}

void Stress::repump() {
    for (Flow* flow : std::exchange(repump_, {})) flow->pump();
}

} // namespace ucx_mp::sim
