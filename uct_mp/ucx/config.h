// The user's options as UCX's parser leaves them, and what the core makes of them. variables.h describes each.
//
// Syntax errors ("abc" for a number) are reported by UCX itself. Impossible values are reported here, with one line
// that names the variable, the value and what is allowed.
#pragma once

#include <cstddef>
#include <string>

#include "uct_mp/channel/interface.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::face {

// Plain data in the types that UCX's parser writes. A layout of UCX (abi/) puts UCX's own options in front.
struct MdOptions {
    int use_rcache;                  // ucs_ternary_auto_value_t
    int fork_init;                   // likewise
    double reg_overhead, reg_growth; // s, s/byte
    struct {
        char** names;
        unsigned count;
    } rails;
    unsigned long num_paths; // UCS_ULUNITS_AUTO: 0 of PathConfig
    struct {
        unsigned* bits;
        unsigned count;
    } path_bits;
    int cross_rails;
    int split_reads;
    char* policy;
    unsigned atomics;   // channel::AtomicsMode
    unsigned read_back; // channel::ReadBack
    int recovery;
    int packet_numbers;       // ucs_ternary_auto_value_t
    int apm;                  // likewise
    double watch_interval;    // s; 0: off
    double hold_down;         // s
    double reopen_interval;   // s
    double partition_timeout; // s; 0: for ever
    double port_timeout;      // s
    unsigned protocol;        // newest version of the handshake
    unsigned long features;   // UCS_ULUNITS_INF: all
};

struct IfaceOptions {
    std::size_t segment, inline_bytes;
    unsigned send_depth, completion_depth, receive_depth, window;
    unsigned long max_send_buffers; // UCS_ULUNITS_INF: no limit
    unsigned signal_interval, poll_batch;
    double timeout; // s
    unsigned retry_count;
    double rnr_timeout; // s
    unsigned max_rd_atomic, service_level;
    double connect_timeout;        // s
    unsigned long max_connections; // UCS_ULUNITS_INF: no limit
    unsigned max_unused;
    // mp_dc only
    unsigned dci_count, dct_count, dci_policy;
    unsigned adapt; // off, on, eager
    double adapt_interval;
    unsigned adapt_max_rc, adapt_pool, adapt_max_rings;
    double adapt_gain; // s, as adapt_interval
    char* adapt_costs;
};

// Limits that help texts name.
inline constexpr unsigned kMinWindow = 16, kMaxWindow = 1 << 15;
inline constexpr unsigned kMaxDci = 64, kMaxDct = 64;
inline constexpr unsigned kMaxAdaptQueuePairs = 1 << 16;
inline constexpr unsigned kMaxAdaptRings = 1 << 16;
inline constexpr unsigned kMaxRetryCount = 7;
inline constexpr unsigned kMaxServiceLevel = 15;
inline constexpr unsigned kEarlierProtocol = connect::kMinVersion - 1; // of releases that speak none of ours
inline constexpr unsigned kLaterProtocol = connect::kMaxVersion + 1;

// What an adapter's codes stand for, in seconds (verbs::Reliability).
[[nodiscard]] double timeout_of(std::uint8_t code);
[[nodiscard]] double rnr_timeout_of(std::uint8_t code);

// The part of `out` that belongs to the memory domain (paths, policy, atomics) and the rails to open.
[[nodiscard]] bool read_options(const MdOptions& options, verbs::DeviceConfig& devices, channel::Config& out,
                                std::string& error);
// The part that belongs to the interface. `prefix`: "UCX_MP_RC_" or "UCX_MP_DC_".
[[nodiscard]] bool read_options(const IfaceOptions& options, const char* prefix, channel::Config& out,
                                std::string& error);

} // namespace ucx_mp::face
