#include "uct_mp/ucx/variables.h"

#include <algorithm>
#include <cmath>

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variable_texts.h"

namespace ucx_mp::face {

namespace {

const char* const kAtomicsModes[] = {"target", "adapter", nullptr};
static_assert(int(channel::AtomicsMode::target) == 0 && int(channel::AtomicsMode::adapter) == 1);
const char* const kReadBacks[] = {"auto", "always", nullptr};
static_assert(int(channel::ReadBack::several) == 0 && int(channel::ReadBack::always) == 1);

const char* const kVictims[] = {"lru", "lru_m", "own", nullptr};
static_assert(int(adapt::VictimPolicy::lru) == 0 && int(adapt::VictimPolicy::lru_m) == 1 &&
              int(adapt::VictimPolicy::leader) == 2);

// ---- Defaults, as a user would write them

std::string boolean(bool value) { return value ? "y" : "n"; }

std::string bytes(std::size_t value) {
    constexpr std::size_t kKilo = 1024;
    return value % kKilo == 0 ? std::to_string(value / kKilo) + "k" : std::to_string(value);
}

// The meaning of the adapter's code, rounded down to whole milliseconds or
// microseconds: read_options() rounds up to the next step, which is the same code.
std::string step(double seconds) {
    constexpr double kMilli = 1e-3, kMicro = 1e-6;
    return seconds >= kMilli ? std::to_string(static_cast<unsigned>(seconds / kMilli)) + "ms"
                             : std::to_string(static_cast<unsigned>(std::round(seconds / kMicro))) + "us";
}

std::string list(const std::vector<std::uint8_t>& values) {
    std::string out;
    for (const unsigned value : values) out += (out.empty() ? "" : ",") + std::to_string(value);
    return out;
}

// ---- Help texts
// The column where a line that begins at `at` goes on: lists hang, other lines do not.
std::size_t hanging(const std::string& text, std::size_t at) {
    const std::size_t word = text.find_first_not_of(' ', at), leading = word - at;
    if (leading == 0) return 0;
    return leading + (text[word] == '-' ? 2 : 4);
}

// Breaks lines that would be too wide in UCX's output. Lines that a text
// breaks itself stay; the rest of a broken line goes on below its beginning.
std::string wrapped(const std::string& text) {
    constexpr std::size_t kWidth = 100;
    std::string out;
    std::size_t column = 0, indent = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t next = std::min(text.find_first_of(" \n", at), text.size() - 1) + 1; // a word and its end
        if (column == 0) indent = hanging(text, at);
        if (column > indent && column + (next - at) > kWidth) {
            out.back() = '\n';
            out.append(indent, ' ');
            column = indent;
        }
        out += text.substr(at, next - at);
        column = text[next - 1] == '\n' ? 0 : column + (next - at);
        at = next;
    }
    return out.substr(0, out.find_last_not_of(" \n") + 1);
}

std::string indented(const std::string& lines) {
    std::string out = "  ";
    for (const char c : lines.substr(0, lines.find_last_not_of('\n') + 1)) {
        out += c;
        if (c == '\n') out += "  ";
    }
    return out;
}

class Builder {
public:
    void add(Variable variable) {
        variable.help = wrapped(heading(variable.group) + variable.help);
        list_.push_back(std::move(variable));
    }
    // Variables for users first, each group together.
    [[nodiscard]] std::vector<Variable> take() {
        std::ranges::stable_sort(list_, {}, &Variable::group);
        return std::move(list_);
    }

private:
    std::vector<Variable> list_;
};

void add_paths(Builder& out, const channel::Config& defaults) {
    const path::PathConfig& paths = defaults.paths;
    out.add({Group::paths, "RAILS", "all",
             "Ports that carry traffic: comma-separated list of <device> or <device>:<port>, or \"all\" for "
             "every active InfiniBand or RoCE port. A named port that is down is kept: it is used as soon as "
             "it is up. Change it to leave ports to others, or to compare one rail with several.",
             Syntax::texts, offsetof(MdOptions, rails)});
    out.add({Group::paths, "PKEY", "auto",
             "Partition of all traffic (InfiniBand), by its key; the low 15 bits count, and a key with full "
             "membership goes before a limited one. \"auto\": what UCX_IB_PKEY says, else each port's first key "
             "with full membership. A port without such a key is not used before it gets one.",
             Syntax::text, offsetof(MdOptions, pkey)});
    out.add({Group::paths, "NUM_PATHS", paths.num_paths ? std::to_string(paths.num_paths) : "auto",
             "How many there are (routes, each with queue pairs of its own) between a local and a remote port, " +
                 range(1, path::kMaxPathsPerPeer) +
                 ". \"auto\": one per route that the ports' LMC offers, at most 4. With more paths than routes "
                 "several queue pairs share a route, which helps adapters with several send engines. If both "
                 "sides set it, the smaller counts.",
             Syntax::amount, offsetof(MdOptions, num_paths)});
    out.add({Group::paths, "PATH_BITS", list(paths.path_bits),
             "Which of a port's LIDs the paths use: comma-separated list of offsets to its base LID, each "
             "below 2^LMC of every rail. Empty: 0, 1, 2, ... Change it to avoid routes that the subnet "
             "manager has put badly.",
             Syntax::texts, offsetof(MdOptions, path_bits)});
    out.add({Group::paths, "CROSS_RAILS", boolean(paths.cross_rails),
             "Make paths between every local and every remote port of a subnet, instead of one partner per "
             "port. Change it if the rails are planes of one fabric and the sides' rails are unequally loaded.",
             Syntax::boolean, offsetof(MdOptions, cross_rails)});
    out.add({Group::paths, "SPLIT_READS", boolean(paths.split_reads),
             "Give reads (get operations) queue pairs of their own on every path. A queue pair works in "
             "order: a read waits for the writes before it, and a write's completion waits for the reads "
             "before it. Without it the last few writes wait for reads that may go first, and more of them "
             "where reads are seen to follow. It may be worth twice the queue pairs for programs that issue "
             "more than 16 MiB of writes, and only then their reads. One side is enough.",
             Syntax::boolean, offsetof(MdOptions, split_reads)});
}

void add_scheduling(Builder& out, const channel::Config& defaults) {
    out.add({Group::scheduling, "POLICY", std::string(schedule::name(defaults.policy.kind)),
             "How traffic is spread over the paths of a peer: <policy>[:<parameter>=<value>,...]. The default "
             "needs no tuning. The others are for comparison, and for fabrics that you know better. Sizes take "
             "K, M, G; times take ns, us, ms. Policies with their parameters and defaults:\n" +
                 indented(schedule::policy_help()),
             Syntax::text, offsetof(MdOptions, policy)});
}

void add_memory(Builder& out, const channel::Config& defaults) {
    out.add({Group::memory, "ATOMICS", choice(kAtomicsModes, defaults.atomics),
             "Who executes remote atomic operations.\n"
             " - target: the target process, while it progresses. All operations, 32 and 64 bit, atomic "
             "against its own accesses and over all adapters.\n"
             " - adapter: the target's adapter with the lowest GUID. One-sided, and faster if the target "
             "computes. Only add, fetch-and-add and compare-and-swap of 64 bit, and not atomic against the "
             "processor's own accesses.",
             Syntax::choice, offsetof(MdOptions, atomics), kAtomicsModes});
    out.add({Group::memory, "READ_BACK", choice(kReadBacks, defaults.read_back),
             "When a flush (or an operation behind a fence) reads a few bytes from the peer, behind the writes "
             "before it. An adapter may acknowledge a write before it is in memory, and another adapter of the "
             "peer could tell of it too early.\n"
             " - auto: where the peer has several adapters.\n"
             " - always: also where it has one. For adapters that keep no order between their own queue pairs "
             "(see mp_info --check).",
             Syntax::choice, offsetof(MdOptions, read_back), kReadBacks});
    out.add({Group::memory, "RCACHE", "try",
             "Keep memory registered after use, for the next time. \"no\": every use registers and "
             "deregisters with every adapter.",
             Syntax::ternary, offsetof(MdOptions, use_rcache)});
    out.add({Group::memory, "FORK_INIT", "try",
             "Make registered memory safe against fork(): call ibv_fork_init() before the first registration. "
             "\"yes\": fail if that fails. \"no\": saves page splitting, for programs that never fork.",
             Syntax::ternary, offsetof(MdOptions, fork_init)});
    out.add({Group::tuning, "MEM_REG_OVERHEAD", "16us",
             "Estimated time of registering memory with one adapter, without RCACHE. UCX chooses protocols by "
             "it.",
             Syntax::time, offsetof(MdOptions, reg_overhead)});
    out.add({Group::tuning, "MEM_REG_GROWTH", "0.06ns",
             "Estimated additional time per byte of registering memory with one adapter, without RCACHE.", Syntax::time,
             offsetof(MdOptions, reg_growth)});
}

void add_faults(Builder& out, const channel::Config& defaults) {
    const channel::RecoveryConfig& recovery = defaults.recovery;
    out.add({Group::faults, "RECOVERY", boolean(recovery.enabled),
             "Survive the loss of paths: what was on them goes again on others, and they are taken back when "
             "they work. \"n\": a path that fails ends the endpoint, as with UCX's own transports. For "
             "comparisons.",
             Syntax::boolean, offsetof(MdOptions, recovery)});
    out.add({Group::faults, "RECOVERY_THREAD", "try",
             "UCX's async thread recovers while the program makes no call: what was lost goes again though its "
             "sender computes. \"no\": in the program's next call. \"try\": unless there is none (workers of mode "
             "signal or poll), or no membarrier(2), or no descriptor for it.",
             Syntax::ternary, offsetof(MdOptions, recovery_thread)});
    out.add({Group::faults, "WATCH_INTERVAL", time(recovery.watch_interval),
             "A path on which nothing completes for so long, although something is under way, is probed. It "
             "is given up after about five times this if the peer answers over other paths and not over this "
             "one. 0: wait until the adapter gives up (TIMEOUT, RETRY_COUNT). Meant for lossless fabrics: "
             "longer if congestion delays packets that much.",
             Syntax::time, offsetof(MdOptions, watch_interval)});
    out.add({Group::faults, "HOLD_DOWN", time(recovery.hold_down),
             "A path that fails this soon after its return is left alone for this long, then for twice as "
             "long, and so on up to a minute. Longer for cables that flap.",
             Syntax::time, offsetof(MdOptions, hold_down)});
    out.add({Group::faults, "PARTITION_TIMEOUT", time(recovery.partition_timeout),
             "Time without any path to a peer after which it counts as failed; until then operations wait. One "
             "that is known to be dead (another process on its node answers) fails sooner. 0: for ever.",
             Syntax::time, offsetof(MdOptions, partition_timeout)});
    out.add({Group::tuning, "PORT_TIMEOUT", "0s",
             "Time that a starting process waits for an active port. 0: there is no device without one. "
             "mpirun-mp sets it to a minute.",
             Syntax::time, offsetof(MdOptions, port_timeout)});
    out.add({Group::tuning, "REOPEN_INTERVAL", time(recovery.reopen_interval),
             "Time after which an adapter that has died is looked for, doubled with each attempt up to twenty "
             "times this. When it is there again it is opened anew, in a thread of its own.",
             Syntax::time, offsetof(MdOptions, reopen_interval)});
    out.add({Group::faults, "APM", wish(defaults.apm),
             "Automatic path migration of mp_rc's queue pairs. Another route is loaded into each: of another "
             "port of the same adapter, else with other path bits. The adapter goes there when its "
             "repetitions are used up, or at once when a port goes down. Worth it where a peer has few paths, "
             "since it costs no replay. With many paths it puts two of them on one route, until the port is "
             "back or, after a silent loss, probes find that the route works again. \"try\": on adapters that "
             "can.",
             Syntax::ternary, offsetof(MdOptions, apm)});
}

void add_transport_faults(Builder& out, const channel::Config& defaults) {
    const verbs::Reliability& reliability = defaults.reliability;
    out.add({Group::faults, "TIMEOUT", step(timeout_of(reliability.timeout)),
             "Time after which the adapter repeats an unacknowledged packet; rounded up to 4.096us * 2^n, "
             "n <= 31. A path counts as failed after RETRY_COUNT repetitions. Smaller finds dead paths "
             "earlier, too small takes congestion for death.",
             Syntax::time, offsetof(IfaceOptions, timeout)});
    out.add({Group::faults, "RETRY_COUNT", std::to_string(reliability.retry_count),
             "Repetitions of a packet before its path counts as failed, " + range(0, kMaxRetryCount) + ". See TIMEOUT.",
             Syntax::count, offsetof(IfaceOptions, retry_count)});
    out.add({Group::tuning, "RNR_TIMEOUT", step(rnr_timeout_of(reliability.min_rnr_timer)),
             "Time that a sender pauses when the receiver is out of buffers; rounded up to a step of the "
             "InfiniBand specification (10us to 655.36ms). See RX_QUEUE_LEN.",
             Syntax::time, offsetof(IfaceOptions, rnr_timeout)});
}

void add_connections(Builder& out, const channel::Config& defaults) {
    out.add({Group::connections, "SL", std::to_string(defaults.reliability.service_level),
             "InfiniBand service level of all traffic, " + range(0, kMaxServiceLevel) + ".", Syntax::count,
             offsetof(IfaceOptions, service_level)});
    out.add({Group::connections, "MAX_CONN", "inf",
             "Peers that a process is connected to at once, at least 1; \"inf\": no limit. Each costs a queue pair "
             "per path, and its buffers. Who wants another peer waits until an idle connection is given back; "
             "it comes again when it is needed. For jobs in which each process talks to many, but to few at a "
             "time. Peers that are never idle are connected beyond the limit.",
             Syntax::amount, offsetof(IfaceOptions, max_connections)});
    out.add({Group::tuning, "VICTIM", choice(kVictims, defaults.victims),
             "Whose connection is given back where MAX_CONN is reached.\n"
             " - lru: of those that are idle, the one that has not been used for longest.\n"
             " - lru_m: of those that were given back least often, the one that has not been used for longest.\n"
             " - own: by whichever of several rules would have done best lately.",
             Syntax::choice, offsetof(IfaceOptions, victim), kVictims});
    out.add({Group::tuning, "MAX_UNUSED", std::to_string(defaults.max_unused),
             "Connections that peers have made and no endpoint here uses, at most. Of many, those that have "
             "been idle for longest are ended, and more peers have to wait for room. The peers connect again "
             "when they need to. Larger for jobs in which thousands send to a process that has not sent to "
             "them.",
             Syntax::count, offsetof(IfaceOptions, max_unused)});
    out.add({Group::tuning, "CONNECT_TIMEOUT", time(defaults.connect_timeout),
             "Time from the first message until the connection must exist, also while no port is active. "
             "Then the peer counts as failed.",
             Syntax::time, offsetof(IfaceOptions, connect_timeout)});
}

void add_sizes(Builder& out, const channel::Config& defaults) {
    out.add({Group::tuning, "SEG_SIZE", bytes(defaults.segment),
             "Bytes of payload of the largest buffered message. Every receive buffer has this size: larger "
             "makes middle-sized messages cheaper, and takes RX_QUEUE_LEN times the memory per adapter. Best "
             "the same on all nodes: a peer with smaller buffers gets larger messages in parts.",
             Syntax::bytes, offsetof(IfaceOptions, segment)});
    out.add({Group::tuning, "MAX_INLINE", bytes(defaults.inline_bytes),
             "Bytes of a message, its header of " + std::to_string(sizeof(channel::MessageHeader)) +
                 " included, that the processor writes into the request itself. The adapter may grant less. "
                 "Larger: short messages up to that size, but bigger send queues.",
             Syntax::bytes, offsetof(IfaceOptions, inline_bytes)});
    out.add({Group::tuning, "TX_QUEUE_LEN", std::to_string(defaults.send_depth),
             "Requests of one queue pair that may be outstanding. Larger for high message rates over long "
             "links.",
             Syntax::count, offsetof(IfaceOptions, send_depth)});
    out.add({Group::tuning, "TX_CQ_LEN", std::to_string(defaults.completion_depth),
             "Sends of one adapter, over all peers, that may be outstanding (completion queue entries). Larger "
             "if many peers are sent to at once.",
             Syntax::count, offsetof(IfaceOptions, completion_depth)});
    out.add({Group::tuning, "RX_QUEUE_LEN", std::to_string(defaults.receive_depth),
             "Receive buffers of one adapter, shared by all peers, at most. TX_WINDOW and 16 for each peer are "
             "posted. Larger if many peers send at once, or if the program computes for long without "
             "progress.",
             Syntax::count, offsetof(IfaceOptions, receive_depth)});
    out.add({Group::tuning, "TX_WINDOW", std::to_string(defaults.window),
             "Messages to one peer, over all paths, that may be unacknowledged, " + range(kMinWindow, kMaxWindow) +
                 ". Two peers use the smaller of theirs. Bounds the receiver's store of messages that overtook "
                 "others, and what is posted of RX_QUEUE_LEN.",
             Syntax::count, offsetof(IfaceOptions, window)});
    out.add({Group::tuning, "TX_MAX_BUFS", std::to_string(defaults.max_send_buffers),
             "Send buffers of the interface, of each size class; allocated as needed. \"inf\": no limit.",
             Syntax::amount, offsetof(IfaceOptions, max_send_buffers)});
    out.add({Group::tuning, "TX_SIGNAL_INTERVAL", std::to_string(defaults.signal_interval),
             "Every so many small messages of a queue pair ask for a completion. Larger: less work per "
             "message. Smaller: room in the queue comes back earlier. At most half of TX_QUEUE_LEN.",
             Syntax::count, offsetof(IfaceOptions, signal_interval)});
    out.add({Group::tuning, "POLL_BATCH", std::to_string(defaults.poll_batch),
             "Receives, and ends of sends, that one progress call takes from one adapter, in steps of 16. "
             "Larger for throughput, smaller if other transports of the worker have to wait too long.",
             Syntax::count, offsetof(IfaceOptions, poll_batch)});
    out.add({Group::tuning, "MAX_RD_ATOMIC", std::to_string(defaults.reliability.max_rd_atomic),
             "Reads and atomics that one queue pair may have outstanding, at most what the adapter can. "
             "Larger for get bandwidth over long links.",
             Syntax::count, offsetof(IfaceOptions, max_rd_atomic)});
}

std::vector<Variable> make_domain() {
    const channel::Config defaults;
    Builder out;
    add_paths(out, defaults);
    add_scheduling(out, defaults);
    add_memory(out, defaults);
    add_faults(out, defaults);
    out.add(tasks_variable());
    for (Variable& variable : protocol_variables()) out.add(std::move(variable));
    return out.take();
}

std::vector<Variable> make_transport(connect::Transport transport) {
    const channel::Config defaults;
    Builder out;
    add_transport_faults(out, defaults);
    add_connections(out, defaults);
    if (transport == connect::Transport::dc)
        for (Variable& variable : dc_variables(defaults)) out.add(std::move(variable));
    add_sizes(out, defaults);
    return out.take();
}

} // namespace

const char* heading(Group group) {
    constexpr const char* kHeadings[] = {
        "Paths: ", "Scheduling: ", "Memory: ", "Faults: ", "Connections: ", "Internal tuning: "};
    return kHeadings[static_cast<unsigned>(group)];
}

const std::vector<Variable>& domain_variables() {
    static const auto* const all = new std::vector<Variable>(make_domain());
    return *all;
}

const std::vector<Variable>& transport_variables(connect::Transport transport) {
    static const auto* const rc = new std::vector<Variable>(make_transport(connect::Transport::rc));
    static const auto* const dc = new std::vector<Variable>(make_transport(connect::Transport::dc));
    return transport == connect::Transport::dc ? *dc : *rc;
}

} // namespace ucx_mp::face
