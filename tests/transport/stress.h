// Random traffic of every kind between all nodes of a Cluster, every byte, order and sum checked. Used by the stress
// test and, with faults, by the fault campaigns.
//
// Per ordered pair of nodes: numbered messages of all kinds whose content follows from their number; puts of random
// size into a slot of the target, each with a sequence behind it (stress_sequences.h) that ends with a message that
// makes the target check the slot at once (and give it back); gets of a constant region; fetch-adds of one to the
// target's counter, whose results must all differ. Sequences of several slots mix with each other and with all other
// traffic.
#pragma once

#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "sim_cluster.h"
#include "stress_sequences.h"

namespace ucx_mp::sim {

struct StressOptions {
    std::uint64_t seed = 1;
    unsigned operations = 300;      // per ordered pair
    std::size_t slot = 1 << 20;     // largest put
    std::size_t constant = 1 << 20; // region that gets read
    bool with_self = true;
    unsigned sequences = kAllSequences; // bit: Sequence
    bool mixed = true;                  // other traffic of the pair may come between a put and what follows it
    // Data appear this long after their acknowledgment, at one adapter of each node: another one at each, by the seed.
    Nanos late = 0;
    // All adapters of each node place late by up to this, and in order for each queue pair only.
    Nanos late_queue_pairs = 0;
    // Now and then nobody starts anything for about this long. All the time channels are parked, at random moments and
    // by either side: most are busy, but not in a lull. It ends for one pair of nodes after the other.
    Nanos lull = 0;
};

class Stress {
public:
    Stress(Cluster& cluster, StressOptions options) : cluster_(cluster), options_(options) {
        const unsigned n = cluster.size();
        for (unsigned i = 0; i < n; ++i) {
            Node& node = cluster.node(i);
            Side& side = sides_.emplace_back();
            side.slots = node.memory(options.slot * kSlots * n);
            side.constant = node.memory(options.constant);
            side.scratch = node.memory(options.slot * kSlots * n);
            side.read = node.memory(options.constant * n);
            side.counter = node.memory(64);
            std::memset(side.counter.data, 0, 64);
            side.flags = node.memory(8 * kSlots * n);
            std::memset(side.flags.data, 0, side.flags.size);
            side.kept.resize(kSlots * n);
            for (std::size_t b = 0; b < options.constant; ++b) side.constant.data[b] = pattern(b, i + 1000);
        }
        for (unsigned from = 0; from < n; ++from)
            for (unsigned to = 0; to < n; ++to) {
                if (from == to && !options.with_self) continue;
                flows_.push_back(std::make_unique<Flow>(*this, from, to));
            }
        place_late(cluster, options.seed, options.late, options.late_queue_pairs);
        for (unsigned i = 0; i < n; ++i) {
            cluster.node(i).on_am(kNumbered, numbered, this);
            cluster.node(i).on_am(kCheck, check, this);
            cluster.node(i).on_room = [this](Channel& channel) {
                for (auto& flow : flows_)
                    if (&flow->channel == &channel) flow->pump();
            };
        }
    }

    // Everything started, completed and checked within `limit` of virtual time.
    bool run(Nanos limit = 100'000'000'000) {
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
    [[nodiscard]] bool finished() const {
        for (const auto& flow : flows_)
            if (!flow->finished()) return false;
        return true;
    }
    // Empty: no mistake.
    [[nodiscard]] std::string verdict() const {
        std::ostringstream out;
        for (const auto& flow : flows_) {
            if (!flow->finished())
                out << flow->from << "->" << flow->to << ": started " << flow->started << " of " << options_.operations
                    << ", open " << flow->open << ", delivered " << flow->delivered << " of " << flow->numbered_sent
                    << ", checks " << flow->checks << " of " << flow->puts << "\n";
        }
        if (!mistakes_.empty()) out << mistakes_;
        for (unsigned i = 0; i < cluster_.size(); ++i) {
            if (cluster_.node(i).closed()) continue;
            channel::Interface::Statistics statistics;
            cluster_.node(i).iface().statistics(statistics);
            if (statistics.forged)
                out << "node " << i << " has taken " << statistics.forged << " messages for forged ones\n";
        }
        for (unsigned i = 0; finished() && i < cluster_.size(); ++i)
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
            if (finished() && value != sums[i])
                out << "counter of " << i << ": " << value << " instead of " << sums[i] << "\n";
        }
        return out.str();
    }
    std::uint64_t bytes = 0;
    unsigned asked_to_park = 0;

private:
    static constexpr unsigned kSlots = 4;
    static constexpr unsigned kNumbered = 1, kCheck = 2;
    static constexpr std::uint64_t kAdded = 3;

    static constexpr std::byte kKept{0xe7};
    struct Side {
        Node::Memory slots, constant, scratch, read, counter, flags;
        std::set<std::uint64_t> results; // of fetch-adds here
        std::vector<std::size_t> kept;   // per slot: bytes that the target has stored itself
    };
    struct Numbered {
        std::uint32_t from, length;
        std::uint64_t number;
    };
    struct CheckMessage {
        std::uint32_t from, slot;
        std::uint64_t length, seed, added;
    };

    struct Flow {
        Flow(Stress& s, unsigned a, unsigned b)
            : stress(s), from(a), to(b), channel(s.cluster_.channel(a, b)),
              random(s.options_.seed * 1'000'003 + a * 1009 + b) {}

        Stress& stress;
        const unsigned from, to;
        Channel& channel;
        std::mt19937_64 random;
        unsigned started = 0, open = 0, puts = 0, checks = 0;
        std::uint64_t numbered_sent = 0, delivered = 0, adds = 0;
        unsigned slots_free = (1u << kSlots) - 1;
        bool pumping = false;
        std::vector<std::unique_ptr<Following>>
            following;               // puts that have been started, until the target has been told
        Following* active = nullptr; // whose next step was refused: it goes first
        unsigned kind = 0;
        bool chosen = false, trying = false; // what comes next; it was refused, and goes first when there is room
        std::uint64_t size = 0, offset = 0;

        struct Op : Completion {
            Flow* flow;
            std::function<void()> then;
            static void fired(Completion* self) {
                auto* op = static_cast<Op*>(self);
                if (failed(op->status))
                    op->flow->mistake("completion with status " + std::to_string(int(op->status)));
                else if (op->then)
                    op->then();
                --op->flow->open;
                Flow* flow = op->flow;
                delete op;
                flow->pump();
            }
        };
        Op* op(std::function<void()> then = {}) {
            auto* made = new Op;
            made->callback = Op::fired;
            made->count = 1;
            made->status = Status::ok;
            made->flow = this;
            made->then = std::move(then);
            return made;
        }
        // What an operation with a completion has returned. True: it went.
        bool took(Status status, Op* made) {
            if (status == Status::in_progress) return ++open, true;
            delete made;
            if (status == Status::ok) return true;
            if (status != Status::no_resource) mistake("operation refused with " + std::to_string(int(status)));
            return false;
        }
        void mistake(const std::string& what) {
            stress.mistakes_ += std::to_string(from) + "->" + std::to_string(to) + ": " + what + "\n";
        }
        [[nodiscard]] bool finished() const {
            return started == stress.options_.operations && open == 0 && following.empty() &&
                   delivered == numbered_sent && checks == puts;
        }
        [[nodiscard]] std::uint64_t random_size(std::uint64_t max) {
            const unsigned bits = static_cast<unsigned>(random() % 21);
            return std::min<std::uint64_t>(random() % (std::uint64_t{1} << bits) + (random() % 8 != 0), max);
        }

        void pump() {
            if (pumping) return;
            pumping = true;
            bool promised = false;
            auto& iface = stress.cluster_.node(from).iface();
            for (;;) {
                if (rests) break;
                if (following.empty() && started == stress.options_.operations) break;
                if (open > 64) break; // a completion pumps again
                if (!step(iface)) {
                    if (idle || iface.want_room(channel) != Status::busy) break;
                    if (std::exchange(promised, true)) { // UCP would try for ever
                        mistake("there is no room where it was promised");
                        break;
                    }
                    continue;
                }
                promised = false;
            }
            pumping = false;
        }
        bool rests = false;
        bool idle = false; // nothing was tried: there is nothing to be done before something completes

        // One of those whose turn it may be; sooner or later than what is new.
        Following* next_following() {
            std::vector<Following*> ready;
            for (const auto& one : following)
                if (!one->waits) ready.push_back(one.get());
            if (ready.empty()) return nullptr;
            const bool others =
                stress.options_.mixed && started < stress.options_.operations && (kind != 3 || slots_free != 0);
            return others && random() % 4 == 0 ? nullptr : ready[random() % ready.size()];
        }
        void draw(const channel::Limits& limits) {
            kind = static_cast<unsigned>(random() % 8);
            size = random_size(kind == 3   ? stress.options_.slot
                               : kind == 4 ? stress.options_.constant
                                           : std::min<std::uint64_t>(8000, limits.max_bcopy - sizeof(Numbered)));
            offset = kind == 4 ? random() % (stress.options_.constant - size + 1) : 0;
            chosen = true;
        }
        // The next step of what follows a put. False: refused.
        bool advance(channel::Interface& iface, Following& f) {
            Side& theirs = stress.sides_[to];
            const std::size_t at = (from * kSlots + f.slot) * stress.options_.slot;
            const auto completes = [&](std::function<void()> then) {
                return op([&f, then = std::move(then)] {
                    f.waits = false;
                    if (then) then();
                });
            };
            // What an operation of it has returned; `f` waits for its completion.
            const auto goes_on = [&](Status status, Op* done) {
                if (!took(status, done)) return false;
                f.waits = status == Status::in_progress;
                f.fenced = false;
                ++f.step;
                return true;
            };
            const Step step = step_of(f.kind, f.step);
            if (step.fence && !std::exchange(f.fenced, true)) (void)iface.fence(channel);
            switch (step.what) {
            case Step::flush: {
                Op* done = completes({});
                return goes_on(iface.flush(channel, done), done);
            }
            case Step::flag: {
                const std::size_t place = 8 * (from * kSlots + f.slot);
                const std::uint64_t value = f.seed + 1;
                const Status status =
                    iface.put_short(channel, &value, sizeof value, theirs.flags.address(place), theirs.flags.keys);
                if (!goes_on(status, nullptr)) return false;
                stress.polled_.push_back({this, f, value});
                return true;
            }
            case Step::get: {
                auto into = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(f.length + 1));
                Op* done = completes([this, into, &f] { compare(into->data, f, ""); });
                const Iov iov = into->iov(0, f.length);
                return goes_on(iface.get_zcopy(channel, &iov, 1, theirs.slots.address(at), theirs.slots.keys, done),
                               done);
            }
            case Step::add: {
                auto result = std::make_shared<std::uint64_t>(~0ull);
                Op* done = completes([this, result, &f] {
                    Following before = f;
                    before.length = 8;
                    before.added = 0;
                    compare(reinterpret_cast<const std::byte*>(result.get()), before, "");
                });
                if (!goes_on(iface.atomic_fetch(channel, channel::AtomicOp::add, 8, kAdded, 0, result.get(),
                                                theirs.slots.address(at), theirs.slots.keys, done),
                             done))
                    return false;
                f.added = kAdded;
                return true;
            }
            case Step::tell: {
                kinds[f.slot] = f.kind;
                const CheckMessage message{from, f.slot, f.length, f.seed, f.added};
                std::uint64_t head;
                std::memcpy(&head, &message, 8);
                const Status status = iface.am_short(
                    channel, kCheck, head, reinterpret_cast<const std::byte*>(&message) + 8, sizeof message - 8);
                if (status != Status::ok) return took(status, nullptr);
                std::erase_if(following, [&](const auto& one) { return one.get() == &f; });
                return true;
            }
            }
            return false;
        }
        void compare(const std::byte* data, const Following& f, const char* when) {
            if (const std::int64_t wrong = first_wrong(data, f.length, f.seed, f.added); wrong >= 0)
                mistake("put-" + std::string(name_of(f.kind)) + ": wrong byte " + std::to_string(wrong) + " of " +
                        std::to_string(f.length) + when);
        }
        Sequence kinds[kSlots] = {}; // of the last put to each

        bool step(channel::Interface& iface) {
            Side& mine = stress.sides_[from];
            Side& theirs = stress.sides_[to];
            idle = false;
            if (!active && !trying) {
                if (!chosen && started < stress.options_.operations) draw(iface.limits());
                active = next_following();
            }
            if (active) {
                if (!advance(iface, *active)) return false;
                active = nullptr;
                return true;
            }
            if (!chosen || (kind == 3 && slots_free == 0) || (!stress.options_.mixed && !following.empty()))
                return idle = true, false;
            trying = true;
            bool went = false;
            switch (kind) {
            case 0:
            case 1:
            case 2: { // numbered messages: short, bcopy, zcopy
                const std::uint64_t length =
                    kind == 0 ? std::min<std::uint64_t>(size, iface.limits().max_am_short - 16) : size;
                const Numbered head{from, static_cast<std::uint32_t>(length), numbered_sent};
                std::vector<std::byte> body(length);
                for (std::size_t i = 0; i < length; ++i) body[i] = pattern(i, numbered_sent + from * 7);
                if (kind == 0) {
                    std::vector<std::byte> rest(8 + length);
                    std::memcpy(rest.data(), &head.number, 8);
                    if (length) std::memcpy(rest.data() + 8, body.data(), length);
                    std::uint64_t first;
                    std::memcpy(&first, &head, 8);
                    const Status status =
                        iface.am_short(channel, kNumbered, first, rest.data(), static_cast<unsigned>(rest.size()));
                    went = status == Status::ok;
                    if (!went) return took(status, nullptr);
                } else if (kind == 1) {
                    struct Pack {
                        const Numbered& head;
                        const std::vector<std::byte>& body;
                        static std::size_t pack(void* dest, void* arg) {
                            auto* self = static_cast<Pack*>(arg);
                            std::memcpy(dest, &self->head, sizeof(Numbered));
                            std::ranges::copy(self->body, static_cast<std::byte*>(dest) + sizeof(Numbered));
                            return sizeof(Numbered) + self->body.size();
                        }
                    } pack{head, body};
                    const ssize_t packed = iface.am_bcopy(channel, kNumbered, Pack::pack, &pack);
                    went = packed >= 0;
                    if (!went) return took(static_cast<Status>(packed), nullptr);
                } else {
                    // Zcopy: from memory that nobody touches until its completion.
                    auto held = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(length + 1));
                    std::ranges::copy(body, held->data);
                    Op* done = op([held] {});
                    const Iov iov = held->iov(0, length);
                    went = took(iface.am_zcopy(channel, kNumbered, &head, sizeof head, &iov, 1, done), done);
                    if (!went) return false;
                }
                ++numbered_sent;
                stress.bytes += length;
                break;
            }
            case 3: { // put; what follows it is drawn
                const unsigned slot = static_cast<unsigned>(std::countr_zero(slots_free));
                const std::size_t at = (from * kSlots + slot) * stress.options_.slot;
                const std::size_t source = (to * kSlots + slot) * stress.options_.slot;
                auto behind = std::make_unique<Following>();
                behind->slot = slot;
                behind->length = size;
                behind->seed = started + from * 31 + to * 17;
                behind->kind = draw_sequence(random, stress.options_.sequences, size);
                for (std::size_t i = 0; i < size; ++i) mine.scratch.data[source + i] = pattern(i, behind->seed);
                behind->waits = waits_for_put(behind->kind);
                Op* done = op([waiting = behind->waits ? behind.get() : nullptr] {
                    if (waiting) waiting->waits = false;
                });
                const Iov iov[] = {mine.scratch.iov(source, size / 3),
                                   mine.scratch.iov(source + size / 3, size - size / 3)};
                const Status status =
                    iface.put_zcopy(channel, iov, 2, theirs.slots.address(at), theirs.slots.keys, done);
                went = took(status, done);
                if (!went) return false;
                if (status == Status::ok) behind->waits = false;
                slots_free &= ~(1u << slot);
                following.push_back(std::move(behind));
                ++puts;
                stress.bytes += size;
                break;
            }
            case 4: { // get
                const std::size_t where = offset;
                const std::uint64_t length = size;
                auto into = std::make_shared<Node::Memory>(stress.cluster_.node(from).memory(length + 1));
                Op* done = op([this, into, where, length] {
                    for (std::size_t i = 0; i < length; ++i)
                        if (into->data[i] != pattern(where + i, to + 1000))
                            return mistake("get: wrong byte " + std::to_string(i) + " of " + std::to_string(length));
                });
                const Iov iov = into->iov(0, length);
                went =
                    took(iface.get_zcopy(channel, &iov, 1, theirs.constant.address(where), theirs.constant.keys, done),
                         done);
                stress.bytes += went ? length : 0;
                if (!went) return false;
                break;
            }
            case 5: { // fetch-add
                auto result = std::make_shared<std::uint64_t>(~0ull);
                Op* done = op([this, result] {
                    if (!stress.sides_[to].results.insert(*result).second)
                        mistake("fetch-add: " + std::to_string(*result) + " twice");
                });
                went = took(iface.atomic_fetch(channel, channel::AtomicOp::add, 8, 1, 0, result.get(),
                                               theirs.counter.address(), theirs.counter.keys, done),
                            done);
                if (!went) return false;
                ++adds;
                break;
            }
            case 6: { // flush
                Op* done = op();
                went = took(iface.flush(channel, done), done);
                if (!went) return false;
                break;
            }
            case 7: // a fence for nothing
                (void)iface.fence(channel);
                break;
            }
            chosen = trying = false;
            ++started;
            return true;
        }
    };

    Flow& flow(unsigned from, unsigned to) {
        for (auto& flow : flows_)
            if (flow->from == from && flow->to == to) return *flow;
        throw std::runtime_error("no such flow");
    }
    // Which node is receiving: the one whose progress runs. Handlers get `this` only, so the messages' flow must tell.
    static Status numbered(void* self, void* data, std::size_t length, unsigned) {
        auto& stress = *static_cast<Stress*>(self);
        Numbered head;
        std::memcpy(&head, data, sizeof head);
        Flow* found = nullptr;
        for (auto& flow : stress.flows_) // the receiver is not in the message: content and count must fit one flow
            if (flow->from == head.from && flow->to == stress.receiver()) found = flow.get();
        if (!found) return stress.mistakes_ += "message from nowhere\n", Status::ok;
        if (head.number != found->delivered)
            found->mistake("message " + std::to_string(head.number) + " instead of " +
                           std::to_string(found->delivered));
        ++found->delivered;
        if (length != sizeof head + head.length) found->mistake("length " + std::to_string(length));
        const auto* body = static_cast<const std::byte*>(data) + sizeof head;
        for (std::size_t i = 0; i < head.length; ++i)
            if (body[i] != pattern(i, head.number + head.from * 7))
                return found->mistake("message content"), Status::ok;
        return Status::ok;
    }
    static Status check(void* self, void* data, std::size_t, unsigned) {
        auto& stress = *static_cast<Stress*>(self);
        CheckMessage message;
        std::memcpy(&message, data, sizeof message);
        Flow& flow = stress.flow(message.from, stress.receiver());
        Side& side = stress.sides_[flow.to];
        const std::byte* at = side.slots.data + (message.from * kSlots + message.slot) * stress.options_.slot;
        Following told{.slot = message.slot,
                       .length = message.length,
                       .seed = message.seed,
                       .added = message.added,
                       .kind = flow.kinds[message.slot]};
        stress.poll_flags();
        if (std::erase_if(stress.polled_, [&](const Polled& polled) {
                return polled.flow == &flow && polled.put.slot == message.slot;
            }))
            flow.mistake("a message came before the flag that it is behind");
        flow.compare(at, told, " when the message came");
        // What the target stores there now must stay: a write that is executed a second time would show here, or at the
        // end.
        auto& kept = side.kept[message.from * kSlots + message.slot];
        for (std::size_t i = message.length; i < kept; ++i)
            if (at[i] != kKept) {
                flow.mistake("put: executed again, byte " + std::to_string(i) + " of " + std::to_string(kept));
                break;
            }
        kept = std::max<std::size_t>(kept, message.length);
        std::memset(side.slots.data + (message.from * kSlots + message.slot) * stress.options_.slot, int(kKept), kept);
        ++flow.checks;
        // The slot is free again. (By memory: a message back would be one more flow to wait for.)
        flow.slots_free |= 1u << message.slot;
        stress.repump_.push_back(&flow);
        return Status::ok;
    }
    // Flags that targets poll for: the put before is there when its flag is.
    void poll_flags() {
        std::erase_if(polled_, [this](const Polled& polled) {
            const Flow& flow = *polled.flow;
            const std::size_t slot = flow.from * kSlots + polled.put.slot;
            if (std::memcmp(sides_[flow.to].flags.data + 8 * slot, &polled.value, 8) != 0) return false;
            polled.flow->compare(sides_[flow.to].slots.data + slot * options_.slot, polled.put, " when the flag came");
            return true;
        });
    }
    unsigned receiver() const { return cluster_.progressing(); }

    void park_and_rest() {
        const Nanos now = cluster_.world.now();
        if (!options_.lull || now < next_park_) return;
        const auto about = [&](Nanos mean) { return 1 + static_cast<Nanos>(random_() % std::uint64_t(2 * mean)); };
        next_park_ = now + about(options_.lull / 8);
        (void)cluster_.world.at(next_park_, [] {});
        Flow& flow = *flows_[random_() % flows_.size()];
        if (cluster_.node(flow.from).iface().park(flow.channel) == Status::in_progress) ++asked_to_park;
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

public:
    // Flows that wait for a slot go on (from outside of handlers).
    void repump() {
        for (Flow* flow : std::exchange(repump_, {})) flow->pump();
    }

private:
    Cluster& cluster_;
    const StressOptions options_;
    std::vector<Side> sides_;
    std::vector<std::unique_ptr<Flow>> flows_;
    std::vector<Flow*> repump_;
    struct Polled {
        Flow* flow;
        Following put;
        std::uint64_t value;
    };
    std::vector<Polled> polled_;
    std::string mistakes_;
    std::mt19937_64 random_{options_.seed};
    Nanos next_park_ = 0, lull_ends_ = 0;
    std::size_t resting_ = 0; // flows
    std::size_t woken_ = 0;   // whose turn it is
};

} // namespace ucx_mp::sim
