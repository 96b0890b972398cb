// A scheduling policy's knowledge of the paths to one peer: capacity, load, state, and lessons of deliveries.
//
// Units: bytes, nanoseconds; rates are bytes per nanosecond (= GB/s). Times are the caller's (host clock or virtual
// time), this room never reads a clock.
// Threads: one PathTable belongs to one peer of one worker; every call comes from that worker's progress. No locks.
// Memory: one allocation at set-up, proportional to the number of paths; none later.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "uct_mp/schedule/standing.h"

namespace ucx_mp::schedule {

using Nanos = std::uint64_t;
using PathIndex = std::uint8_t;
using PathMask = std::uint64_t; // bit i: path i

inline constexpr unsigned kMaxPaths = 64;
inline constexpr PathIndex kNoPath = 0xff;
inline constexpr unsigned kMaxRails = 16;

// The path repository owns the state; it is told here so that policies can avoid a path.
enum class PathState : std::uint8_t {
    up,         // carries traffic; the only usable state
    suspect,    // something is late, a ping is under way: no new traffic, what is in flight may still complete
    down,       // failed: its accounts are void, recovery settles all that was in flight
    probing,    // recovery looks whether the route works again
    recovering, // connection is being remade; `up` follows and starts with a small share (see Path::ramp)
};
[[nodiscard]] constexpr const char* name(PathState state) {
    constexpr const char* kNames[] = {"up", "suspect", "down", "probing", "recovering"};
    return kNames[static_cast<unsigned>(state)];
}
[[nodiscard]] constexpr bool usable(PathState state) { return state == PathState::up; }

// Reads and writes fill opposite directions of a link, so they have separate accounts (dissertation 5.2.2).
enum class Direction : std::uint8_t { write, read };

// The account of one direction of one path.
struct Account {
    std::uint64_t in_flight = 0; // placed by a policy, not yet observed, cancelled or voided
    Nanos last_done = 0;         // latest completion; 0: none yet
    Nanos busy_from = 0;         // in_flight counts from here: est. completion of all = busy_from + in_flight / rate
    Nanos sampled_at = 0;        // completion of the last delivery that taught a rate
    double rate = 0;             // smoothed service rate; 0: not known yet
    double rate_before = 0;      // `rate` before the last sample: completions found at the same time extend that sample
    double sample_bytes = 0;     // the last sample
    double sample_ns = 0;        // its delivery time
    double sample_service_ns = 0;  // its time of service, without the path's latency
    double spent = 0;              // ns per byte from post to completion, smoothed; 0: none yet
    double pace = 0;               // ln(rate of the last sample / link's rate)
    Standing standing;             // beside the other paths,
    double relative = 1;           // its believed part of its link's rate
    std::uint64_t quiet_bytes = 0; // settled unseen since the last delivery that was looked at
    double window_scale = 1;       // spray: > 1 after the path ran dry because completions were found late
};

struct Path {
    double weight = 1;       // configured, or learned by adaptive and bss; finite, >= 0; 0: not used by weight
    double nominal_rate = 0; // of the slowest link known on the way; 0: unknown
    double latency = 0;      // smoothed time from post to completion of small messages
    double base_latency = 0; // the same without queues (slowly rising minimum)
    Nanos latency_at = 0;    // completion of the last small message
    double ramp = 1;         // share of its capacity that a returned path may use, (0, 1]
    double carry = 0;        // bytes owed to (> 0) or taken ahead by (< 0) this path when messages are striped
    double turn = 0;         // turns owed (round robin and its kin)
    double round_rate = 0;   // adaptive, bss: measured in the current round
    PathState state = PathState::up;
    std::uint8_t rail = 0;       // see PathSetup
    std::uint32_t latencies = 0; // latencies measured so far; wraps
    Account account[2];
    static constexpr unsigned kRecent = 8;
    float recent[kRecent]; // the last of them, by number; ns

    [[nodiscard]] Account& of(Direction d) { return account[static_cast<unsigned>(d)]; }
    [[nodiscard]] const Account& of(Direction d) const { return account[static_cast<unsigned>(d)]; }
    // The median of the last small messages' times, whatever the others took; without any, `latency`. Slow path.
    [[nodiscard]] double typical_latency() const;
};

// A path's properties when the table is made.
struct PathSetup {
    double weight = 1;       // NaN, infinite or negative: counts as 0
    double nominal_rate = 0; // bytes/ns; not finite or < 1e-6: unknown
    double latency = 2000;   // ns, first guess for a small message, post to completion
    PathState state = PathState::up;
    // Paths of one rail share its rate (routes of one port). A path alone shows the rail's full rate, four of them
    // a quarter each, and a measurement mixes both. Planning scales the sum of a rail's paths down to rail_rate.
    std::uint8_t rail = 0; // < kMaxRails
    double rail_rate = 0;  // bytes/ns, the largest named for a rail counts; 0: unknown, nothing is scaled
    // Its purpose. While no path for a direction is usable, that direction takes any. See also PathTable::set_spare.
    bool writes = true, reads = true;
};

// One completion. t_done is the adapter's time stamp where there is one. It may be equal to or before another one
// of the same path (clock fit). Such a delivery settles the accounts and teaches nothing.
struct Delivery {
    PathIndex path;
    Direction direction;
    std::uint64_t bytes;   // of the message or stripe that completed
    std::uint64_t settled; // of everything that this completion covers (unsignaled ones before it); >= bytes
    Nanos t_post;          // when the message that completed was posted
    Nanos t_done;
    std::uint64_t whole = 0; // the whole message that it is a part of; 0: it is none
    [[nodiscard]] bool teaches_rate() const;
};

// The lesson of one delivery that teaches a rate. ns: delivery time t_done - max(t_post,
// previous t_done of this path and direction), so that it does not measure our own
// queueing; 0: not measurable. Both grow together if completions share a t_done.
struct Sample {
    double bytes = 0;
    double ns = 0;
    bool measurable() const { return ns > 0; }
};

// Shared by all peers of an interface. Zero: nothing is known.
struct Commons {
    unsigned turns = 0; // peers that have been sent something
    // The rates of our own ports beside one another, by rail and Direction. A port that is slow is slow to every peer.
    Standing port[kMaxRails][2];
    Scatter scatter[2]; // by Direction: of all peers, so it is large where peers differ
    Pace pace[2];       // by Direction
    Scatter alone[2];   // by Direction: of samples that were compared with `pace`
    // The last try of a path that is believed to be slow, to whichever peer. 0: none since a try has found one as fast
    // as the others. One bad link is slow to many peers, and to try it for each of them would fill it. A new peer tries
    // at once what it has from `port`: it may be another peer's port that is slow.
    Nanos tried_at = 0;
    unsigned tried_by = 0; // by turn: then it is a later peer's turn, for some intervals
    [[nodiscard]] bool may_try(Nanos now, double interval, unsigned peer) const {
        const auto waited = static_cast<double>(now - std::min(now, tried_at));
        return tried_at == 0 || waited > 4 * interval || (waited > interval && peer > tried_by);
    }
};

class PathTable {
public:
    // Deliveries below this teach latency, all others teach rate.
    static constexpr std::uint64_t kRateBytes = 4096;
    // All stripes of a message that was cut go at the same time, and only their rates are known of them.
    static constexpr std::uint64_t kRateBytesOfPart = 1024;
    // A returned path starts with this share of its capacity and grows by kRampGrowth with every delivery.
    static constexpr double kReentryRamp = 1.0 / 16;
    static constexpr double kRampGrowth = 1.25;

    // At most kMaxPaths entries are taken.
    // `commons` outlives it; null: the peer is alone.
    explicit PathTable(std::span<const PathSetup> setup, Commons* commons = nullptr);

    [[nodiscard]] unsigned size() const { return size_; }
    [[nodiscard]] PathMask usable() const { return usable_; } // for anything
    [[nodiscard]] bool is_usable(PathIndex i) const { return i < size_ && (usable_ >> i & 1); }
    [[nodiscard]] unsigned usable_count() const { return static_cast<unsigned>(std::popcount(usable_)); }
    // For this direction; see PathSetup::writes.
    [[nodiscard]] PathMask usable(Direction d) const { return usable_for_[static_cast<unsigned>(d)]; }
    [[nodiscard]] bool is_usable(PathIndex i, Direction d) const { return i < size_ && (usable(d) >> i & 1); }
    [[nodiscard]] unsigned usable_count(Direction d) const { return static_cast<unsigned>(std::popcount(usable(d))); }
    [[nodiscard]] bool apart() const { return meant_[0] != meant_[1]; } // reads and writes have paths of their own
    [[nodiscard]] PathMask meant(Direction d) const { return meant_[static_cast<unsigned>(d)]; } // usable or not
    // The seed-th of the paths meant for it, so that peers begin at different ones. While that is not usable,
    // another one: peers that have lost the same path spread over the usable ones. At least one must be usable.
    [[nodiscard]] PathIndex home(unsigned seed, Direction d) const;
    [[nodiscard]] Path& operator[](PathIndex i) { return paths_[i]; }
    [[nodiscard]] const Path& operator[](PathIndex i) const { return paths_[i]; }
    [[nodiscard]] double total_weight() const { return total_weight_; } // at set-up; learning policies keep it

    // Latest time seen: of deliveries, and of messages that carry one.
    [[nodiscard]] Nanos now() const { return now_; }
    void advance(Nanos now) { now_ = now > now_ ? now : now_; }
    // How much the rates of paths that were measured together differ: standard deviation of their logarithms.
    [[nodiscard]] double scatter(Direction d) const { return std::sqrt(scatter_[static_cast<unsigned>(d)].variance); }

    [[nodiscard]] double rail_rate(std::uint8_t rail) const { return rail_rate_[rail]; } // 0: unknown
    // Service rate to plan with: measured, else nominal, else the mean of the nominal ones, else 1; times ramp.
    [[nodiscard]] double rate(PathIndex i, Direction d) const;
    // The same for all of `mask` (ascending, one entry per path), no rail above its rate.
    void rates(PathMask mask, Direction d, double* out) const;
    // Time from now() until a byte placed now would complete if it took no time itself: what is in flight, or latency.
    [[nodiscard]] double ready(PathIndex i, Direction d, double rate) const;

    // Bytes that the link must have carried by now delay nothing that is placed from here on, though no completion says
    // so. Short messages ask for one only now and then, and those that a lane has left behind perhaps never.
    void let_pass(PathIndex i, Direction d, double rate);

    // Data path: accounts. Every byte placed must come back by settle() or cancel(), or be voided by `down`.
    void place(PathIndex i, Direction d, std::uint64_t bytes);
    void cancel(PathIndex i, Direction d, std::uint64_t bytes);
    Sample settle(const Delivery& delivery);
    void settle_quietly(PathIndex i, Direction d, std::uint64_t bytes); // a delivery that nobody has looked at
    // The path of the last delivery of this direction, for the first caller; kNoPath:
    // one has asked already. now() must be the time of finding it: that teaches late().
    PathIndex take_settled(Direction d);
    void forget_settled(Direction d) { settled_[static_cast<unsigned>(d)] = kNoPath; }
    // How long completions lie before they are found, ns: few lie longer.
    [[nodiscard]] double late() const { return late_; }

    // Slow path. Values are sanitised as in PathSetup. All return false for an index that doesn't exist.
    void set_rail(PathIndex i, std::uint8_t rail);      // < kMaxRails
    void set_rail_rate(std::uint8_t rail, double rate); // at least this, as PathSetup::rail_rate
    [[nodiscard]] bool is_spare(PathIndex i) const { return spare_ >> i & 1; }
    void set_spare(PathMask paths); // these, and no others: usable(Direction) has none of them while it has others
    // Two paths over the same route, of which one is used at a time: takes over what
    // the other one has shown of the route, if that is newer. Latencies are their own.
    void inherit(PathIndex i, PathIndex from);
    void forget_latencies(); // those measured so far are wrong
    // Before the first message to the peer: takes over what other
    // peers have shown of our ports. Measured paths keep theirs.
    void begin();
    bool set_state(PathIndex i, PathState state); // down voids the accounts; return from anything but suspect: ramp
    bool set_weight(PathIndex i, double weight);
    bool set_nominal_rate(PathIndex i, double rate);

private:
    double default_rate() const;
    void find_shared_rails();
    void compare(PathIndex at, Direction d);
    void sort_usable();

    Commons* commons_;
    std::unique_ptr<Path[]> paths_;
    PathMask usable_ = 0, spare_ = 0;
    PathMask usable_for_[2] = {}, meant_[2] = {}; // by Direction
    PathIndex settled_[2] = {kNoPath, kNoPath};   // by Direction, see take_settled()
    unsigned size_ = 0;
    Nanos now_ = 0;
    double total_weight_ = 0;
    double rail_rate_[kMaxRails] = {};
    Scatter scatter_[2]; // by Direction
    double late_ = 0;
    bool shared_rails_ = false; // some rail of known rate has several paths
    double default_rate_ = 1;   // for paths of unknown nominal rate
};

inline bool Delivery::teaches_rate() const {
    return bytes >= (whole ? PathTable::kRateBytesOfPart : PathTable::kRateBytes);
}

inline double PathTable::rate(PathIndex i, Direction d) const {
    const Path& path = paths_[i];
    const double measured = path.of(d).rate;
    if (measured > 0) return measured * path.ramp;
    return (path.nominal_rate > 0 ? path.nominal_rate : default_rate_) * path.ramp;
}

inline double PathTable::ready(PathIndex i, Direction d, double rate) const {
    const Path& path = paths_[i];
    const Account& account = path.of(d);
    if (account.in_flight == 0) return path.base_latency;
    // The difference may be negative; as a signed number it is exact for any two times less than 292 years apart.
    const auto since = static_cast<double>(static_cast<std::int64_t>(account.busy_from - now_));
    return std::max(path.base_latency, since + static_cast<double>(account.in_flight) / rate);
}

inline void PathTable::let_pass(PathIndex i, Direction d, double rate) {
    Account& account = paths_[i].of(d);
    const auto carried = static_cast<Nanos>(static_cast<double>(account.in_flight) / rate);
    const Nanos begin = now_ + static_cast<Nanos>(paths_[i].base_latency);
    if (begin > account.busy_from + carried) account.busy_from = begin - carried;
}

inline void PathTable::place(PathIndex i, Direction d, std::uint64_t bytes) {
    Account& account = paths_[i].of(d);
    if (account.in_flight == 0) account.busy_from = now_ + static_cast<Nanos>(paths_[i].base_latency);
    if (__builtin_add_overflow(account.in_flight, bytes, &account.in_flight)) account.in_flight = UINT64_MAX;
}

inline void PathTable::cancel(PathIndex i, Direction d, std::uint64_t bytes) {
    Account& account = paths_[i].of(d);
    account.in_flight -= std::min(account.in_flight, bytes);
}

inline void PathTable::settle_quietly(PathIndex i, Direction d, std::uint64_t bytes) {
    cancel(i, d, bytes);
    paths_[i].of(d).quiet_bytes += bytes;
    if (paths_[i].ramp < 1) [[unlikely]]
        paths_[i].ramp = std::min(1.0, paths_[i].ramp * kRampGrowth);
}

// for (PathIndex i : each(mask)) ...
class each {
public:
    explicit constexpr each(PathMask mask) : mask_(mask) {}
    struct iterator {
        PathMask mask;
        constexpr PathIndex operator*() const { return static_cast<PathIndex>(std::countr_zero(mask)); }
        constexpr iterator& operator++() { return mask &= mask - 1, *this; }
        constexpr bool operator!=(const iterator& o) const { return mask != o.mask; }
    };
    constexpr iterator begin() const { return {mask_}; }
    constexpr iterator end() const { return {0}; }

private:
    PathMask mask_;
};

} // namespace ucx_mp::schedule
