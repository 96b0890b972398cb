// Names, defaults and help texts of the user's variables. Every default here is the core's (checked by nobody but the
// reader: channel::Config, path::PathConfig, verbs::Reliability).
#include "uct_mp/ucx/config.h"

#include <algorithm>
#include <cstring>

#include "uct_mp/schedule/policy_factory.h"

namespace ucx_mp::face {

namespace {

const char* const kAtomicsModes[] = {"target", "adapter", nullptr};
const char* const kReadBacks[] = {"auto", "always", nullptr};
static_assert(int(channel::ReadBack::several) == 0 && int(channel::ReadBack::always) == 1);
const char* const kDciPolicies[] = {"hash", "least", "quota", nullptr};
static_assert(int(channel::AtomicsMode::target) == 0 && int(channel::AtomicsMode::adapter) == 1);
static_assert(int(channel::DciPolicy::hash) == 0 && int(channel::DciPolicy::least) == 1 &&
              int(channel::DciPolicy::quota) == 2);

ucs_config_array_t ucs_config_array_path_bits = {sizeof(unsigned), UCS_CONFIG_TYPE_UINT}; // the macro's name for it

} // namespace

ucs_config_field_t kMdTable[] = {
    {"", "", nullptr, offsetof(MdOptions, super), UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"RAILS", "all",
     "Ports that carry traffic: comma-separated list of <device> or <device>:<port>, or \"all\" for every\n"
     "active InfiniBand or RoCE port. A named port that is down is kept: it is used as soon as it is up.\n"
     "Change it to leave ports to others, or to compare one rail with several.",
     offsetof(MdOptions, rails), UCS_CONFIG_TYPE_STRING_ARRAY},

    {"NUM_PATHS", "auto",
     "Paths (routes, each with queue pairs of its own) between a local and a remote port.\n"
     "\"auto\": one per route that the ports' LMC offers, at most 4. More than the routes: several queue pairs\n"
     "share a route, which helps adapters with several send engines. If both sides set it, the smaller counts.",
     offsetof(MdOptions, num_paths), UCS_CONFIG_TYPE_ULUNITS},

    {"PATH_BITS", "",
     "Which of a port's LIDs the paths use: comma-separated list of offsets to its base LID, each below\n"
     "2^LMC of every rail; empty: 0, 1, 2, ... Change it to avoid routes that the subnet manager has put badly.",
     offsetof(MdOptions, path_bits), UCS_CONFIG_TYPE_ARRAY(path_bits)},

    {"CROSS_RAILS", "n",
     "Make paths between every local and every remote port of a subnet, instead of one partner per port.\n"
     "Change it if the rails are planes of one fabric and the sides' rails are unequally loaded.",
     offsetof(MdOptions, cross_rails), UCS_CONFIG_TYPE_BOOL},

    {"SPLIT_READS", "n",
     "Queue pairs of their own for reads (get operations) on every path: a queue pair works in order, so a read waits\n"
     "until the writes before it have been sent, and a write's completion waits for the data of the reads before it.\n"
     "Without it the last few writes wait for reads that may come and go first. That is enough for programs that "
     "write\n"
     "and read in turns; those that issue many large writes and only then their reads may find this worth twice the\n"
     "queue pairs.\n"
     "One side is enough.",
     offsetof(MdOptions, split_reads), UCS_CONFIG_TYPE_BOOL},

    {"ATOMICS", "target",
     "Who executes remote atomic operations.\n"
     " - target:  the target process, while it progresses. All operations, 32 and 64 bit, atomic against its own\n"
     "            accesses and over all adapters.\n"
     " - adapter: the target's adapter with the lowest GUID. One-sided and faster if the target computes; 64-bit\n"
     "            add, fetch-and-add and compare-and-swap only, and not against the processor's own accesses.",
     offsetof(MdOptions, atomics), UCS_CONFIG_TYPE_ENUM(kAtomicsModes)},

    {"READ_BACK", "auto",
     "When a flush (or an operation behind a fence) reads a few bytes from the peer, behind the writes before it. An "
     "adapter\n"
     "may acknowledge a write before it is in memory, and another adapter of the peer could tell of it too early.\n"
     " - auto:   where the peer has several adapters.\n"
     " - always: also where it has one: for adapters that keep no order between their own queue pairs (mp_info "
     "--check).",
     offsetof(MdOptions, read_back), UCS_CONFIG_TYPE_ENUM(kReadBacks)},

    {"RECOVERY", "y",
     "Survive the loss of paths: what was on them goes again on others, and they are taken back when they work.\n"
     "\"n\": a path that fails ends the endpoint, as with UCX's own transports; for comparisons.",
     offsetof(MdOptions, recovery), UCS_CONFIG_TYPE_BOOL},

    {"PACKET_NUMBERS", "try",
     "Ask the adapter which packets of a failed mp_rc path were executed. Exact also for programs that poll memory\n"
     "for writes without fence or flush. \"try\": if a test when opening shows that the adapter tells the truth\n"
     "(when its first port comes up, if that is later);\n"
     "\"no\": markers decide, which is exact for everything that a program can be told of.",
     offsetof(MdOptions, packet_numbers), UCS_CONFIG_TYPE_TERNARY},

    {"APM", "n",
     "Automatic path migration of mp_rc's queue pairs: another route is loaded into each (of another port of the same\n"
     "adapter, else with other path bits), to which the adapter goes when its repetitions are used up, or at once when "
     "a\n"
     "port goes down. Worth it where a peer has few paths, since it costs no replay; with many paths it puts two of "
     "them\n"
     "on one route, until the port is back or, after a silent loss, probes find that the route works again. \"try\": "
     "on adapters that can.",
     offsetof(MdOptions, apm), UCS_CONFIG_TYPE_TERNARY},

    {"WATCH_INTERVAL", "10ms",
     "A path on which nothing completes for so long, although something is under way, is probed, and given up after\n"
     "about five times this if the peer answers over other paths and not over this one. 0: wait until the adapter\n"
     "gives up (TIMEOUT, RETRY_COUNT). Meant for lossless fabrics: longer if congestion delays packets that much.",
     offsetof(MdOptions, watch_interval), UCS_CONFIG_TYPE_TIME},

    {"HOLD_DOWN", "100ms",
     "A path that fails this soon after its return is left alone for this long, then for twice as long, and so on\n"
     "up to a minute. Longer for cables that flap.",
     offsetof(MdOptions, hold_down), UCS_CONFIG_TYPE_TIME},

    {"REOPEN_INTERVAL", "100ms",
     "Time after which an adapter that has died is looked for; doubled with each attempt up to twenty times this. "
     "When\n"
     "it is there again it is opened anew, in a thread of its own.",
     offsetof(MdOptions, reopen_interval), UCS_CONFIG_TYPE_TIME},

    {"PARTITION_TIMEOUT", "30s",
     "Time without any path to a peer after which it counts as failed; until then operations wait. A peer that is\n"
     "known to be dead (another process on its node answers) fails sooner. 0: wait for ever.",
     offsetof(MdOptions, partition_timeout), UCS_CONFIG_TYPE_TIME},

    {"FORK_INIT", "try",
     "Make registered memory safe against fork(): call ibv_fork_init() before the first registration.\n"
     "\"yes\": fail if that fails. \"no\": saves page splitting, for programs that never fork.",
     offsetof(MdOptions, fork_init), UCS_CONFIG_TYPE_TERNARY},

    {"POLICY", "default", "", // completed by prepare_tables()
     offsetof(MdOptions, policy), UCS_CONFIG_TYPE_STRING},

    {"RCACHE", "try",
     "Keep memory registered after use, for the next time.\n"
     "\"no\": every use registers and deregisters with every adapter.",
     offsetof(MdOptions, use_rcache), UCS_CONFIG_TYPE_TERNARY},

    {"", "RCACHE_ADDR_ALIGN=16", nullptr, offsetof(MdOptions, rcache),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_rcache_table)},

    {"MEM_REG_OVERHEAD", "16us",
     "Estimated time of registering memory with one adapter, without RCACHE. UCX chooses protocols by it.",
     offsetof(MdOptions, reg_overhead), UCS_CONFIG_TYPE_TIME},

    {"MEM_REG_GROWTH", "0.06ns",
     "Estimated additional time per byte of registering memory with one adapter, without RCACHE.",
     offsetof(MdOptions, reg_growth), UCS_CONFIG_TYPE_TIME},

    {},
};

#define UCX_MP_COMMON_ROWS                                                                                             \
    {"", "", nullptr, offsetof(IfaceOptions, super), UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},                   \
                                                                                                                       \
        {"SEG_SIZE", "8k",                                                                                             \
         "Bytes of payload of the largest buffered message. Every receive buffer has this size: larger makes\n"        \
         "middle-sized messages cheaper, and takes RX_QUEUE_LEN times the memory per adapter. Best the same on all\n"  \
         "nodes: a peer with smaller buffers gets larger messages in parts.",                                          \
         offsetof(IfaceOptions, segment), UCS_CONFIG_TYPE_MEMUNITS},                                                   \
                                                                                                                       \
        {"MAX_INLINE", "256",                                                                                          \
         "Bytes of a message, its header of 16 included, that the processor writes into the request itself.\n"         \
         "The adapter may grant less. Larger: short messages up to that size, but bigger send queues.",                \
         offsetof(IfaceOptions, inline_bytes), UCS_CONFIG_TYPE_MEMUNITS},                                              \
                                                                                                                       \
        {"TX_QUEUE_LEN", "128",                                                                                        \
         "Requests of one queue pair that may be outstanding. Larger for high message rates over long links.",         \
         offsetof(IfaceOptions, send_depth), UCS_CONFIG_TYPE_UINT},                                                    \
                                                                                                                       \
        {"TX_CQ_LEN", "1024",                                                                                          \
         "Sends of one adapter, over all peers, that may be outstanding (completion queue entries). Larger if\n"       \
         "many peers are sent to at once.",                                                                            \
         offsetof(IfaceOptions, completion_depth), UCS_CONFIG_TYPE_UINT},                                              \
                                                                                                                       \
        {"RX_QUEUE_LEN", "1024",                                                                                       \
         "Receive buffers of one adapter, shared by all peers, at most: TX_WINDOW and 16 for each peer are posted.\n"  \
         "Larger if many peers send at once, or if the program computes for long without progress.",                   \
         offsetof(IfaceOptions, receive_depth), UCS_CONFIG_TYPE_UINT},                                                 \
                                                                                                                       \
        {"TX_WINDOW", "192",                                                                                           \
         "Messages to one peer, over all paths, that may be unacknowledged, 16 to 32768; two peers use the\n"          \
         "smaller of theirs. "                                                                                         \
         "Bounds the receiver's store of messages that overtook others, and what is posted of RX_QUEUE_LEN.",          \
         offsetof(IfaceOptions, window), UCS_CONFIG_TYPE_UINT},                                                        \
                                                                                                                       \
        {"TX_MAX_BUFS", "16384",                                                                                       \
         "Send buffers of the interface, of each size class; allocated as needed. \"inf\": no limit.",                 \
         offsetof(IfaceOptions, max_send_buffers), UCS_CONFIG_TYPE_ULUNITS},                                           \
                                                                                                                       \
        {"TX_SIGNAL_INTERVAL", "32",                                                                                   \
         "Every so many small messages of a queue pair ask for a completion. Larger: less work per message;\n"         \
         "smaller: room in the queue comes back earlier. At most half of TX_QUEUE_LEN.",                               \
         offsetof(IfaceOptions, signal_interval), UCS_CONFIG_TYPE_UINT},                                               \
                                                                                                                       \
        {"POLL_BATCH", "32",                                                                                           \
         "Receives, and ends of sends, that one progress call takes from one adapter, in steps of 16. Larger for\n"    \
         "throughput, smaller if other transports of the worker have to wait too long.",                               \
         offsetof(IfaceOptions, poll_batch), UCS_CONFIG_TYPE_UINT},                                                    \
                                                                                                                       \
        {"TIMEOUT", "67ms",                                                                                            \
         "Time after which the adapter repeats an unacknowledged packet; rounded up to 4.096us * 2^n, n <= 31.\n"      \
         "A path counts as failed after RETRY_COUNT repetitions: smaller finds dead paths earlier, too small\n"        \
         "takes congestion for death.",                                                                                \
         offsetof(IfaceOptions, timeout), UCS_CONFIG_TYPE_TIME},                                                       \
                                                                                                                       \
        {"RETRY_COUNT", "7", "Repetitions of a packet before its path counts as failed, 0 to 7. See TIMEOUT.",         \
         offsetof(IfaceOptions, retry_count), UCS_CONFIG_TYPE_UINT},                                                   \
                                                                                                                       \
        {"RNR_TIMEOUT", "640us",                                                                                       \
         "Time that a sender pauses when the receiver is out of buffers; rounded up to a step of the\n"                \
         "InfiniBand specification (10us to 655.36ms). See RX_QUEUE_LEN.",                                             \
         offsetof(IfaceOptions, rnr_timeout), UCS_CONFIG_TYPE_TIME},                                                   \
                                                                                                                       \
        {"MAX_RD_ATOMIC", "16",                                                                                        \
         "Reads and atomics that one queue pair may have outstanding, at most what the adapter can.\n"                 \
         "Larger for get bandwidth over long links.",                                                                  \
         offsetof(IfaceOptions, max_rd_atomic), UCS_CONFIG_TYPE_UINT},                                                 \
                                                                                                                       \
        {"SL", "0", "InfiniBand service level of all traffic, 0 to 15.", offsetof(IfaceOptions, service_level),        \
         UCS_CONFIG_TYPE_UINT},                                                                                        \
                                                                                                                       \
        {"MAX_UNUSED", "1024",                                                                                         \
         "Connections that peers have made and no endpoint here uses, at most. Of many, those that have been idle "    \
         "for\n"                                                                                                       \
         "longest are ended (the peers connect again when they need to), and more peers have to wait for room. "       \
         "Larger\n"                                                                                                    \
         "for jobs in which thousands send to a process that has not sent to them.",                                   \
         offsetof(IfaceOptions, max_unused), UCS_CONFIG_TYPE_UINT},                                                    \
                                                                                                                       \
    {                                                                                                                  \
        "CONNECT_TIMEOUT", "60s",                                                                                      \
            "Time from the first message to a peer until the connection must exist; then the peer counts as failed.",  \
            offsetof(IfaceOptions, connect_timeout), UCS_CONFIG_TYPE_TIME                                              \
    }

ucs_config_field_t kRcTable[] = {UCX_MP_COMMON_ROWS, {}};

ucs_config_field_t kDcTable[] = {
    UCX_MP_COMMON_ROWS,

    {"NUM_DCI", "8",
     "DC initiators (send queues) per rail, 1 to 64. Each serves one peer at a time: larger if many peers are\n"
     "sent to at once, smaller if the adapter's cache of connections is small.",
     offsetof(IfaceOptions, dci_count), UCS_CONFIG_TYPE_UINT},

    {"DCI_POLICY", "hash",
     "Which initiator serves a peer.\n"
     " - hash:  (own number + peer's number) modulo NUM_DCI; a peer always has the same.\n"
     " - least: the one with the fewest outstanding requests, chosen anew when the peer's present one is idle.\n"
     " - quota: kept while it is busy, given back to the pool when idle.",
     offsetof(IfaceOptions, dci_policy), UCS_CONFIG_TYPE_ENUM(kDciPolicies)},

    {},
};

namespace {

// policy_help() has one line per policy; here they are indented, and broken where UCX's output would become too wide.
std::string wrapped_policy_help() {
    constexpr std::size_t kWidth = 100;
    std::string out;
    std::size_t column = 0;
    const std::string help = schedule::policy_help();
    for (std::size_t at = 0; at < help.size();) {
        const std::size_t next =
            std::min(help.find_first_of(" \n", at), help.size() - 1) + 1; // one word and what ends it
        if (column == 0) {
            out += "  ";
            column = 2;
        } else if (column + (next - at) > kWidth) {
            out += "\n      ";
            column = 6;
        }
        out += help.substr(at, next - at);
        column = help[next - 1] == '\n' ? 0 : column + (next - at);
        at = next;
    }
    return out.substr(0, out.find_last_not_of(" \n") + 1);
}

} // namespace

void prepare_tables() {
    // UCX keeps the pointer for the life of the process.
    static const std::string help =
        "How traffic is spread over the paths of a peer: <policy>[:<parameter>=<value>,...]. The default needs no\n"
        "tuning; the others are for comparison and for fabrics that you know better. Sizes take K, M, G, times\n"
        "take ns, us, ms. Policies with their parameters and defaults:\n" +
        wrapped_policy_help();
    for (ucs_config_field_t& row : kMdTable)
        if (row.name && std::strcmp(row.name, "POLICY") == 0) row.doc = help.c_str();
}

} // namespace ucx_mp::face
