// Parameters of the policies, shared by all peers, constant once the memory domain is open.
// Numbers in brackets are sections of the dissertation.
#pragma once

#include <array>
#include <cstdint>

#include "uct_mp/schedule/path_state.h"
#include "uct_mp/schedule/policy.h"

namespace ucx_mp::schedule {

enum class PolicyKind : std::uint8_t {
    default_policy,
    binding,
    round_robin,
    weighted_rr,
    window_rr,
    even,
    weighted,
    adaptive,
    bss,
    epc,
    load_balanced,
    spray,
};
inline constexpr unsigned kPolicyKinds = 12;

struct PolicyConfig {
    PolicyKind kind = PolicyKind::default_policy;

    // Cutting (all policies that stripe)
    std::uint64_t alignment = 64;             // bytes; power of two; cuts lie on multiples of it
    std::uint64_t min_stripe = 4096;          // bytes; cuts are rounded: a stripe may lack one alignment
    std::uint64_t stripe_threshold = 16384;   // bytes; smaller messages go whole (6.2.3: 16 KiB). default: from half
                                              // of it on they are cut where that costs little; min_stripe is half then
    std::uint64_t one_sided_threshold = 8192; // bytes; the same within an epoch: no rendezvous to pay for (5.2.3)

    // Whole messages
    std::uint32_t window = 32; // W: messages on one path before the next (4.1.2); default and spray: small ones
    double lane_slack = 1000;  // default: ns by which the lane may be worse than the best before it is left

    // adaptive, bss
    double alpha = 0.5;         // 7.4, 8.3; bss wants it larger ("a higher value", 8.2.1): factory sets 0.75
    std::uint32_t n_paths = 0;  // bss: the first n_paths are used; 0: all
    std::uint32_t n_batch = 2;  // bss: best paths per message
    std::uint32_t explore = 32; // bss: every that many messages the last of the batch is the one unused for longest;
                                // 0: never, as in the dissertation

    std::uint32_t accounts = 2; // load_balanced: 2: reads and writes apart (5.2.2), 1: one load, for comparison

    // weighted, weighted_rr: the user's weight of each of our rails (4.1.2). None: their rates.
    std::array<double, kMaxRails> weights{}; // finite, >= 0, one at least > 0
    std::uint32_t n_weights = 0;
    [[nodiscard]] bool has_weights() const { return kind == PolicyKind::weighted || kind == PolicyKind::weighted_rr; }
    // Weight of a new path, one of `routes` over our `rail`: weights that learn begin as equals (8.2.1).
    [[nodiscard]] double weight(unsigned rail, unsigned routes, double rate) const {
        if (!has_weights()) return 1;
        return n_weights == 0 ? rate : rail < n_weights ? weights[rail] / routes : 0;
    }

    // spray, default
    double chunk_time = 64000;             // ns that a path should be busy with one chunk
    std::uint64_t min_chunk = 8192;        // bytes
    std::uint64_t max_chunk = 1 << 20;     // bytes
    double window_chunks = 2;              // chunks in flight per path beside rate x latency
    std::uint64_t pull_threshold = 524288; // default: bytes; below, one plan at once is cheaper
    double descriptor_cost = 100;          // default: ns that one more stripe costs, at least
    // ns after which a path not measured gets a piece to learn its rate again. default: a process tries one in that
    // time.
    double probe_interval = 25e6;
};

} // namespace ucx_mp::schedule
