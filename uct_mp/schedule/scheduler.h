// One peer's scheduler: its paths, the policy's state, the accounts. The endpoint and the path layer call it.
//
//   place()    a whole message: one branch, one subtraction, one addition while the lane lasts (charge(): in steps)
//   plan()     any message: one stripe, several, or "pull"
//   next()     the next chunk of a Transfer, after Outcome::pull
//   observe()  a completion
//   cancel()   bytes that were placed and could not be posted
//   set_*()    slow path: the path repository tells states, weights, rates
//
// Accounts must balance: every byte placed is observed, cancelled, or voided by the state `down`. A byte that is
// forgotten makes its path look busy for ever.
// Threads: as PathTable. Memory: the paths (one allocation), and about 250 bytes. Not copyable.
#pragma once

#include <variant>

#include "uct_mp/schedule/adaptive.h"
#include "uct_mp/schedule/both_ways.h"
#include "uct_mp/schedule/default_policy.h"

namespace ucx_mp::schedule {

class Scheduler {
public:
    // `config` must outlive it. `seed`: anything that differs between peers. `commons`: what all peers share. It
    // outlives them.
    Scheduler(const PolicyConfig& config, std::span<const PathSetup> setup, unsigned seed = 0,
              Commons* commons = nullptr);
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // A message that goes whole. kNoPath: none usable, nothing placed.
    [[nodiscard]] PathIndex place(Direction d, std::uint64_t size);
    // The same in steps, for a caller that must know the path first: the lane in use, and while it lasts, what goes
    // on it. `small`: inline, 256 bytes at most. A small message counts one unit of a window, whatever its size.
    struct Current {
        Lane lane;
        Account* account = nullptr; // of lane.path
        Nanos latency = 0;          // of lane.path, when the lane began
        [[nodiscard]] bool lasts() const { return lane.left > 0; }
        // Everything, of any size, goes there until a path comes or goes.
        [[nodiscard]] bool is_fixed() const { return lane.left > kForever / 2; }
        // Whether the next operation is to be measured: looking costs time. Where there is no choice one in seven is
        // measured, among those that ask (a prime number, since programs repeat themselves by twos). Large ones show no
        // rate there, since nobody knows when those between them were posted. Nothing has to be known before there is a
        // choice.
        [[nodiscard]] bool teaches() {
            if (!is_fixed()) return true;
            if (quiet != 0) return --quiet, false;
            quiet = 6;
            return true;
        }
        std::uint8_t quiet = 0;
    };
    [[nodiscard]] Current& current(Direction d) { return current_[static_cast<unsigned>(d)]; }
    template <bool small = false> void charge(Current& current, std::uint64_t size);

    // The message's way. With Outcome::stripes the stripes are in the accounts already.
    Outcome plan(const Message& message, Plan& plan);

    // How much of a write of `size` is to be posted before the channel's
    // next read, see both_ways.h. With the papers' policies it is all.
    std::uint64_t write_ahead(std::uint64_t size, Nanos now);
    [[nodiscard]] bool lets_reads_go_first() const {
        return config_->kind == PolicyKind::default_policy && !paths_.apart();
    }

    // See SprayWindows; `now` as in Message. May be used for any transfer, whatever the policy.
    bool next(Transfer& transfer, Nanos now, Stripe& chunk) {
        paths_.advance(now);
        return windows_.next(paths_, transfer, chunk);
    }

    // With a single path there is nothing to learn, only the account is settled.
    void observe(const Delivery& delivery);
    // Bytes that go on this path whatever the policy says (it was full, or a fence ties them to it): only the account.
    void place_on(PathIndex path, Direction d, std::uint64_t bytes) { paths_.place(path, d, bytes); }
    // More bytes of a message that place() has put on this path: its size was not known then.
    void place_rest(PathIndex path, Direction d, std::uint64_t bytes) {
        Lane& lane = current(d).lane;
        if (lane.path == path) lane.left -= static_cast<std::int64_t>(bytes >> unit_shift_);
        paths_.place(path, d, bytes);
    }
    void cancel(PathIndex path, Direction d, std::uint64_t bytes) {
        if (path < paths_.size()) paths_.cancel(path, d, bytes);
    }

    // Settles an operation that teaches nothing: see Current::teaches().
    void settle_quietly(PathIndex path, Direction d, std::uint64_t bytes) {
        if (path < paths_.size()) paths_.settle_quietly(path, d, bytes);
    }

    void set_spare(PathMask paths); // see PathTable
    void inherit(PathIndex path, PathIndex from) { paths_.inherit(path, from); }
    void forget_latencies() { paths_.forget_latencies(); }
    // All false: no such path.
    bool set_state(PathIndex path, PathState state);
    void set_rail(PathIndex path, std::uint8_t rail) { paths_.set_rail(path, rail); }        // it has migrated (APM)
    void set_rail_rate(std::uint8_t rail, double rate) { paths_.set_rail_rate(rail, rate); } // it has come up
    bool set_weight(PathIndex path, double weight) { return paths_.set_weight(path, weight); }
    bool set_nominal_rate(PathIndex path, double rate) { return paths_.set_nominal_rate(path, rate); }

    [[nodiscard]] const PathTable& paths() const { return paths_; }
    [[nodiscard]] const PolicyConfig& config() const { return *config_; }

private:
    // In the order of the cases of with_policy().
    using AnyPolicy = std::variant<DefaultPolicy, Binding, RoundRobin, WeightedRoundRobin, Even, Weighted, Adaptive,
                                   Bss, Epc, LoadBalanced, Spray>;
    static AnyPolicy make(const PolicyConfig& config, unsigned seed, Commons* commons);
    template <class F> decltype(auto) with_policy(F&& f);

    [[nodiscard]] std::uint64_t threshold(const Message& message) const {
        return message.hint == TrafficHint::one_sided_epoch ? one_sided_threshold_ : threshold_;
    }
    bool refill(Current& current, Direction d);
    void learn(const Delivery& delivery);
    Outcome split(const Message& message, Plan& plan);

    Current current_[2]; // first: beside the other fields that sending a message needs
    PathTable paths_;
    const bool single_;   // the peer has one path, not just one that is usable
    unsigned unit_shift_; // 63: messages count, whatever their size
    std::uint64_t threshold_, one_sided_threshold_;
    const PolicyConfig* config_;
    SprayWindows windows_;
    AnyPolicy policy_;
};

inline PathIndex Scheduler::place(Direction d, std::uint64_t size) {
    Current& now = current(d);
    if (!now.lasts()) [[unlikely]] {
        if (!refill(now, d)) return kNoPath;
    }
    charge(now, size);
    return now.lane.path;
}

template <bool small> inline void Scheduler::charge(Current& current, std::uint64_t size) {
    current.lane.left -= small ? 1 : 1 + static_cast<std::int64_t>(size >> unit_shift_);
    Account& account = *current.account;
    if (account.in_flight == 0) account.busy_from = paths_.now() + current.latency;
    account.in_flight += size; // whole messages: 2^64 bytes of them do not fit into any memory
}

inline Outcome Scheduler::plan(const Message& message, Plan& plan) {
    if (!divisible(message.kind) || paths_.usable_count(direction(message.kind)) < 2 ||
        message.size < threshold(message)) {
        const PathIndex path = place(direction(message.kind), message.size);
        if (path == kNoPath) return plan.count = 0, Outcome::no_path;
        plan.count = 1;
        plan.stripes[0] = {.offset = 0, .length = message.size, .path = path};
        return Outcome::stripes;
    }
    return split(message, plan);
}

inline std::uint64_t Scheduler::write_ahead(std::uint64_t size, Nanos now) {
    if (size < PathTable::kRateBytes || !lets_reads_go_first()) return size;
    paths_.advance(now);
    return schedule::write_ahead(paths_, windows_, *config_, size);
}

inline void Scheduler::observe(const Delivery& delivery) {
    if (!single_) return learn(delivery);
    if (delivery.path == 0) paths_.cancel(0, delivery.direction, delivery.settled);
}

} // namespace ucx_mp::schedule
