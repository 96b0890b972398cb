// The contract between the transport and a scheduling policy (dissertation 4.1.2: communication scheduler, policies).
//
// A policy decides where a message goes. There are three ways:
// - whole, on the current *lane*: a path, and how much more may follow on it before the policy wants to be asked again;
// - cut into stripes at once;
// - *pulled*: the caller keeps a Transfer, and asks for the next chunk when a completion has made room (spray.h).
// Policies are pure: no verbs, no clock, no allocation, no lock; state is a few words per peer beside the PathTable.
// They are called through Scheduler (scheduler.h), which keeps the accounts; nothing here is virtual.
#pragma once

#include <concepts>
#include <cstdint>

#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::schedule {

inline constexpr unsigned kMaxStripes = kMaxPaths; // at most one stripe per path

enum class MessageKind : std::uint8_t {
    am,      // one unit for the receiver: never cut
    put,     // may be cut
    get,     // may be cut; the account of reads
    control, // atomics, credits, markers: never cut
};

// The caller's knowledge of the traffic (dissertation 6.2.3, communication marker; the user's hint).
enum class TrafficHint : std::uint8_t { none, blocking, non_blocking, collective, one_sided_epoch };

struct Message {
    std::uint64_t size = 0; // 0 is a message too: it gets a path
    MessageKind kind = MessageKind::am;
    TrafficHint hint = TrafficHint::none;
    Nanos now = 0;               // time of this call; 0: unknown, then the latest completion's
    double open = 0;             // operations under way to all peers, this one too, or the usual number
    double descriptor_time = 0;  // ns of the processor for a descriptor, posted and collected; 0: not measured yet
    bool shares_markers = false; // a write behind others, with no fence between: all share few markers
};

[[nodiscard]] constexpr Direction direction(MessageKind kind) {
    return kind == MessageKind::get ? Direction::read : Direction::write;
}
[[nodiscard]] constexpr bool divisible(MessageKind kind) {
    return kind == MessageKind::put || kind == MessageKind::get;
}

struct Stripe {
    std::uint64_t offset;
    std::uint64_t length;
    PathIndex path;
};

enum class [[nodiscard]] Outcome : std::uint8_t{
    stripes, // the plan says where the bytes go
    pull,    // make a Transfer and call next(); nothing has been placed yet
    no_path, // no usable path now: keep the message and ask again when a path is up
};

// Stripes are contiguous, in order, and cover exactly the message. A plan is scratch space of the caller, one per
// worker; only the first `count` stripes are ever written.
struct Plan {
    Plan() {} // leaves the stripes uninitialised: 1.5 KiB per message would be seen in a benchmark
    unsigned count = 0;
    Stripe stripes[kMaxStripes];
};

// The current lane: `left` units more on this path, a message costs 1 + size / 2^unit_shift of them.
struct Lane {
    PathIndex path = kNoPath;
    std::int64_t left = 0; // <= 0: ask the policy
};
inline constexpr std::int64_t kForever = INT64_MAX / 2;

// A large message under way, kept by the caller until offset == size and all its chunks have completed.
struct Transfer {
    std::uint64_t size = 0;
    Direction direction = Direction::write;
    bool waits = false;       // for reads that may go first (both_ways.h); then the rest is planned at once, not pulled
    std::uint64_t offset = 0; // first byte not yet placed; starts at 0
    PathMask fed = 0;         // paths that have had a piece and have not been passed over since
    std::uint64_t behind = 0; // bytes of other transfers that wait for this one, or some of them
    [[nodiscard]] std::uint64_t remaining() const { return size - offset; }
};

// Requirements of Scheduler. next_lane and split are called only while at least one path is usable.
template <class P>
concept Policy = requires(P policy, PathTable& paths, const Message& message, Plan& plan, const Delivery& delivery,
                          const Sample& sample, Lane& lane, PathIndex path, Direction d) {
    // A path for whole messages; never kNoPath, never an unusable one.
    { policy.next_lane(paths, d) } -> std::same_as<Lane>;
    // For divisible messages from the striping threshold on, with two or more usable paths. `stripes` or `pull`.
    { policy.split(paths, message, plan) } -> std::same_as<Outcome>;
    // After the accounts have been settled. May end the lane early (lane.left = 0).
    {policy.observe(paths, delivery, sample, lane)};
    // Slow path: the state of this path has changed, the table knows already.
    {policy.path_changed(paths, path)};
};

} // namespace ucx_mp::schedule
