// The user's variables as UCX configuration tables (UCX_MP_*, UCX_MP_RC_*, UCX_MP_DC_*), and what the core makes of
// them.
//
// Syntax errors ("abc" for a number) are reported by UCX itself; impossible values by the functions below, with one
// line that names the variable, the value and what is allowed.
#pragma once

#include <string>

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/compat.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::face {

// Filled by UCX's parser: plain data in UCX's types.
struct MdOptions {
    uct_md_config_t super;
    uct_md_rcache_config_t rcache;
    int use_rcache;                  // ucs_ternary_auto_value_t
    int fork_init;                   // ucs_ternary_auto_value_t
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
};

struct IfaceOptions {
    uct_iface_config_t super;
    std::size_t segment, inline_bytes;
    unsigned send_depth, completion_depth, receive_depth, window;
    unsigned long max_send_buffers;
    unsigned signal_interval, poll_batch;
    double timeout; // s
    unsigned retry_count;
    double rnr_timeout; // s
    unsigned max_rd_atomic, service_level;
    double connect_timeout; // s
    unsigned max_unused;
    unsigned dci_count, dci_policy; // mp_dc only
};

extern ucs_config_field_t kMdTable[];
extern ucs_config_field_t kRcTable[];
extern ucs_config_field_t kDcTable[];

// Completes help texts whose contents only the running program knows. Before registering; once.
void prepare_tables();

// The part of `out` that belongs to the memory domain (paths, policy, atomics) and the rails to open.
[[nodiscard]] bool read_options(const MdOptions& options, verbs::DeviceConfig& devices, channel::Config& out,
                                std::string& error);
// The part that belongs to the interface. `prefix`: "UCX_MP_RC_" or "UCX_MP_DC_".
[[nodiscard]] bool read_options(const IfaceOptions& options, const char* prefix, channel::Config& out,
                                std::string& error);

} // namespace ucx_mp::face
