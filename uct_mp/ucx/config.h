// The user's options as UCX's parser leaves them, and the core's configuration. variables.h describes each.
//
// Syntax errors ("abc" for a number) are reported by UCX itself. Impossible values are reported here, with one line
// that names the variable, the value and what is allowed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/channel/interface.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::face {

// Plain data in the types that UCX's parser writes. A layout of UCX (abi/) puts UCX's own options in front.
struct NamedValues {
    char** texts;
    unsigned count;
};
struct MdOptions {
    int use_rcache; // ucs_ternary_auto_value_t
    int fork_init;  // ucs_ternary_auto_value_t
    char *reg_overhead, *reg_growth;
    NamedValues rails;
    char* pkey; // "auto", or a key as UCX_IB_PKEY has it
    char* num_paths;
    NamedValues path_bits;
    int cross_rails;
    int split_reads;
    char* policy;
    unsigned atomics;   // channel::AtomicsMode
    unsigned read_back; // channel::ReadBack
    int recovery;
    int recovery_thread; // ucs_ternary_auto_value_t
    int packet_numbers;  // ucs_ternary_auto_value_t
    int apm;             // ucs_ternary_auto_value_t
    char *watch_interval, *hold_down, *reopen_interval, *partition_timeout, *port_timeout;
    unsigned tasks; // TasksMode
    char *protocol, *features;
};

// Queues that wait (uct_mp.h): on adapters that they have been tried with, or on none, or on all. In each case only
// where the self-test passes.
enum class TasksMode : unsigned { automatic, no, yes };

struct IfaceOptions {
    char *segment, *inline_bytes;
    char *send_depth, *completion_depth, *receive_depth, *window;
    char *max_send_buffers, *signal_interval, *poll_batch;
    char *timeout, *retry_count, *rnr_timeout, *max_rd_atomic, *service_level;
    char *connect_timeout, *max_connections, *max_unused;
    unsigned victim; // adapt::VictimPolicy
    // mp_dc only
    char *dci_count, *dct_count;
    unsigned dci_policy;
    unsigned adapt; // off, on, eager
    char *adapt_interval, *adapt_max_rc, *adapt_pool, *adapt_max_rings, *adapt_gain, *adapt_costs;
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

// The meaning of an adapter's codes, in seconds (verbs::Reliability).
[[nodiscard]] double timeout_of(std::uint8_t code);
[[nodiscard]] double rnr_timeout_of(std::uint8_t code);

// Options of the memory domain that the core does not have.
struct DomainOptions {
    verbs::DeviceConfig devices;
    double port_timeout = 0, reg_overhead = 0, reg_growth = 0; // s, s, s/byte
};
// Lines for the user. `error`: the first impossible value. `notes`:
// settings without effect, since another variable switches them off.
struct Said {
    std::string error;
    std::vector<std::string> notes;
};

// The part of `out` that belongs to the memory domain (paths, policy, atomics), and the rest.
[[nodiscard]] bool read_options(const MdOptions& options, DomainOptions& domain, channel::Config& out, Said& said);
// The part that belongs to the interface; that of the memory domain is there already.
[[nodiscard]] bool read_options(const IfaceOptions& options, channel::Config& out, Said& said);
// The policy again, when the ports are known: weights or parameters that do not fit
// their number. If the user has `named` the ports, that is an error. Else a host may
// have fewer than others: a note, rates go for weights, and numbers of paths are cut.
void check_policy(const MdOptions& options, bool named, std::span<const verbs::Rail> rails, channel::Config& config,
                  Said& said);

} // namespace ucx_mp::face
