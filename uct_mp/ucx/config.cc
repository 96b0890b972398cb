#include "uct_mp/ucx/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/ucx/checker.h"
#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {

namespace {

constexpr double kTimeoutUnit = 4.096e-6;
constexpr unsigned kMaxTimeout = 31;
std::uint8_t timeout_code(double value) {
    unsigned code = 1;
    while (code < kMaxTimeout && timeout_of(static_cast<std::uint8_t>(code)) < value) ++code;
    return static_cast<std::uint8_t>(code);
}

// IB specification 9.7.5.2.8, table 45. Code 0 is the longest.
constexpr double kRnrUnit = 1e-5;
constexpr std::array<unsigned, 32> kRnrSteps = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                                48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                                2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
std::uint8_t rnr_code(double value) {
    for (unsigned code = 1; code < kRnrSteps.size(); ++code)
        if (kRnrSteps[code] * kRnrUnit >= value * (1 - 1e-9)) return static_cast<std::uint8_t>(code);
    return 0;
}

constexpr const char* kPolicyVariable = "UCX_MP_POLICY";
// As UCX_IB_PKEY, which counts where ours is not set: "auto", or a number whose low 15 bits count.
constexpr unsigned long kMaxPkey = 0xffff, kPartition = 0x7fff;
std::uint16_t read_partition(const char* ours, Checker& check) {
    const char *const ucx = std::getenv("UCX_IB_PKEY"), *const text = is_auto(ours) && ucx ? ucx : ours;
    if (is_auto(text)) return 0;
    char* end = nullptr;
    const unsigned long key = text ? std::strtoul(text, &end, 0) : 0;
    if (text && std::isdigit(static_cast<unsigned char>(*text)) && !*end && key <= kMaxPkey && (key & kPartition))
        return static_cast<std::uint16_t>(key & kPartition);
    const std::string allowed = "auto, or a key from 0x1 to 0xffff that is not 0x8000";
    if (text == ours)
        check.fail("PKEY", text, allowed);
    else
        check.refuse("UCX_IB_PKEY", text, allowed);
    return 0;
}

constexpr unsigned kMaxPathBits = 127; // LMC is at most 7

// "r=150,rho=400000", or "d=100,p=10,c=300,delta=100000", or both, in any order; the names of AQPS (table 2).
struct GivenCosts {
    bool rc = false, rings = false;
};
std::optional<GivenCosts> read_costs(const std::string& text, adapt::Costs& out) {
    const struct {
        const char* name;
        double& value;
    } all[] = {{"r", out.rc},   {"rho", out.make_rc}, {"d", out.ring},
               {"p", out.miss}, {"c", out.credit},    {"delta", out.make_ring}};
    constexpr unsigned kRc = 0x3, kRings = 0x3c;
    unsigned known = 0;
    std::istringstream items(text);
    for (std::string item; std::getline(items, item, ',');) {
        const std::size_t at = item.find('=');
        if (at == std::string::npos) return {};
        char* end = nullptr;
        const double value = std::strtod(item.c_str() + at + 1, &end);
        if (at + 1 == item.size() || *end || !(value >= 0 && value <= 1e9)) return {};
        const auto found =
            std::ranges::find(all, item.substr(0, at), [](const auto& a) { return std::string(a.name); });
        if (found == std::end(all)) return {};
        const unsigned bit = 1u << (found - all);
        if (known & bit) return {};
        known |= bit;
        found->value = value;
    }
    const GivenCosts given{.rc = (known & kRc) == kRc, .rings = (known & kRings) == kRings};
    const unsigned whole = (given.rc ? kRc : 0) | (given.rings ? kRings : 0);
    return known && known == whole ? std::optional(given) : std::nullopt;
}

} // namespace

double timeout_of(std::uint8_t code) { return kTimeoutUnit * std::ldexp(1.0, code); }
double rnr_timeout_of(std::uint8_t code) { return kRnrSteps.at(code) * kRnrUnit; }

bool read_options(const MdOptions& options, DomainOptions& domain, channel::Config& out, Said& said) {
    Checker check("UCX_MP_", said);

    domain.devices.rails.assign(options.rails.texts, options.rails.texts + options.rails.count);
    if (domain.devices.rails.size() == 1 && domain.devices.rails[0] == "all") domain.devices.rails.clear();
    if (options.rails.count == 0) check.fail("RAILS", "", "\"all\" or a list of <device> or <device>:<port>");
    domain.devices.partition = read_partition(options.pkey, check);
    check.time("PORT_TIMEOUT", options.port_timeout, 0, 1e7, domain.port_timeout);
    check.time("MEM_REG_OVERHEAD", options.reg_overhead, 0, 1, domain.reg_overhead);
    check.time("MEM_REG_GROWTH", options.reg_growth, 0, 1, domain.reg_growth);

    out.paths.num_paths = 0;
    if (!is_auto(options.num_paths))
        check.count("NUM_PATHS", options.num_paths, 1, path::kMaxPathsPerPeer, out.paths.num_paths);
    out.paths.path_bits.clear();
    for (unsigned i = 0; i < options.path_bits.count; ++i) {
        unsigned bits = 0;
        check.count("PATH_BITS", options.path_bits.texts[i], 0, kMaxPathBits, bits);
        out.paths.path_bits.push_back(static_cast<std::uint8_t>(bits));
    }
    out.paths.cross_rails = options.cross_rails;
    out.paths.split_reads = options.split_reads;
    out.recovery.enabled = options.recovery;
    out.recovery.thread = options.recovery_thread != UCS_NO;        // Iface::open_core() sees whether it is possible
    out.recovery.packet_numbers = options.packet_numbers != UCS_NO; // Md::open() asks the adapters
    out.apm = options.apm != UCS_NO && options.recovery;
    check.time("WATCH_INTERVAL", options.watch_interval, 0, 60, out.recovery.watch_interval);
    check.time("HOLD_DOWN", options.hold_down, 0, 60, out.recovery.hold_down);
    check.time("REOPEN_INTERVAL", options.reopen_interval, 0.001, 60, out.recovery.reopen_interval);
    out.recovery.max_reopen_interval = 20 * out.recovery.reopen_interval;
    check.time("PARTITION_TIMEOUT", options.partition_timeout, 0, 1e7, out.recovery.partition_timeout);
    if (!options.recovery) {
        for (const auto& [name, wish] : {std::pair{"APM", options.apm}, {"PACKET_NUMBERS", options.packet_numbers}})
            if (wish == UCS_YES) check.fail(name, "yes", "\"try\" or \"no\" with UCX_MP_RECOVERY=n");
        if (options.apm == UCS_TRY) check.note("APM", "try", "UCX_MP_RECOVERY=n");
        if (options.recovery_thread == UCS_YES) check.note("RECOVERY_THREAD", "yes", "UCX_MP_RECOVERY=n");
        check.note_changed(domain_variables(), &options, "UCX_MP_RECOVERY=n",
                           {"WATCH_INTERVAL", "HOLD_DOWN", "REOPEN_INTERVAL", "PARTITION_TIMEOUT"});
    }
    unsigned protocol = connect::kMaxVersion;
    check.count("PROTOCOL", options.protocol, kEarlierProtocol, kLaterProtocol, protocol);
    out.max_version = static_cast<std::uint8_t>(protocol);
    const bool other = protocol == kEarlierProtocol || protocol == kLaterProtocol;
    out.min_version = other ? out.max_version : connect::kMinVersion;
    out.features = ~std::uint64_t{0};
    if (!is_inf(options.features)) check.count("FEATURES", options.features, 0, ~std::uint64_t{0}, out.features);
    out.atomics = static_cast<channel::AtomicsMode>(options.atomics);
    out.read_back = static_cast<channel::ReadBack>(options.read_back);

    if (check.good()) {
        schedule::PolicyChoice choice = schedule::make_policy(options.policy, kPolicyVariable);
        if (choice.config)
            out.policy = *choice.config;
        else
            said.error = choice.error;
    }
    return check.good();
}

void check_policy(const MdOptions& options, bool named, std::span<const verbs::Rail> rails, channel::Config& config,
                  Said& said) {
    const unsigned paths = path::paths_between_alike(config.paths, rails);
    std::string wrong = schedule::make_policy(options.policy, kPolicyVariable, paths).error;
    if (wrong.empty()) {
        const std::string weights = schedule::check_weights(config.policy, unsigned(rails.size()));
        if (weights.empty()) return;
        wrong = kPolicyVariable + ("=" + std::string(options.policy)) + ": " + weights + " (";
        for (const verbs::Rail& rail : rails) wrong += (rail.index ? ", " : "") + rail.name;
        wrong += ")";
    }
    if (named) {
        said.error = wrong;
        return;
    }
    schedule::PolicyConfig& policy = config.policy;
    if (policy.n_weights != 0) {
        policy.n_weights = 0;
        said.notes.push_back(wrong + "; UCX_MP_RAILS does not name them: they go by their rates");
        return;
    }
    policy.n_paths = std::min(policy.n_paths, paths);
    policy.n_batch = std::min(policy.n_batch, std::max(paths, 1u));
    said.notes.push_back(wrong + "; UCX_MP_RAILS does not name the rails: so many are used");
}

namespace {

void read_adapt(const IfaceOptions& options, channel::Config& out, Checker& check) {
    using Mode = channel::AdaptConfig::Mode;
    constexpr Mode kModes[] = {Mode::off, Mode::on, Mode::eager};
    channel::AdaptConfig& adapt = out.adapt;
    adapt.mode = kModes[options.adapt];
    check.time("ADAPT_INTERVAL", options.adapt_interval, 1e-3, 3600, adapt.tuning.interval);
    check.count("ADAPT_MAX_RC", options.adapt_max_rc, 1, kMaxAdaptQueuePairs, adapt.max_rc);
    check.count("ADAPT_POOL", options.adapt_pool, 0, kMaxAdaptQueuePairs, adapt.pool);
    Nanos gain = 0;
    check.time("ADAPT_GAIN", options.adapt_gain, 0, 1, gain);
    adapt.tuning.least_gain = static_cast<double>(gain);
    check.count("ADAPT_MAX_RINGS", options.adapt_max_rings, 0, kMaxAdaptRings, adapt.max_rings);
    const bool measure = std::string(options.adapt_costs) == "measure";
    const auto given = measure ? GivenCosts{} : read_costs(options.adapt_costs, adapt.tuning.costs);
    if (!given)
        check.fail("ADAPT_COSTS", options.adapt_costs,
                   "\"measure\", or r=NS,rho=NS or d=NS,p=NS,c=NS,delta=NS or all of these (0 to 1e9 each)");
    adapt.measured = !given || !given->rc;
    adapt.rings_measured = !given || !given->rings;

    // Settings that are asked for by name and have no effect.
    const auto& all = transport_variables(connect::Transport::dc);
    if (adapt.mode == Mode::off) {
        check.note_changed(
            all, &options, "UCX_MP_DC_ADAPT=off",
            {"ADAPT_INTERVAL", "ADAPT_MAX_RC", "ADAPT_POOL", "ADAPT_GAIN", "ADAPT_MAX_RINGS", "ADAPT_COSTS"});
    } else if (!out.recovery.enabled) {
        if (adapt.mode == Mode::on) check.note("ADAPT", "on", "UCX_MP_RECOVERY=n");
        check.note_changed(
            all, &options, "UCX_MP_RECOVERY=n",
            {"ADAPT_INTERVAL", "ADAPT_MAX_RC", "ADAPT_POOL", "ADAPT_GAIN", "ADAPT_MAX_RINGS", "ADAPT_COSTS"});
    } else if (given && given->rings && adapt.max_rings == 0) {
        check.note("ADAPT_COSTS", options.adapt_costs, "of rings: UCX_MP_DC_ADAPT_MAX_RINGS=0");
    }
}

} // namespace

bool read_options(const IfaceOptions& options, channel::Config& out, Said& said) {
    const std::string prefix = connect::variable_prefix(out.transport);
    Checker check(prefix, said);

    check.bytes("SEG_SIZE", options.segment, 512, 1 << 20, out.segment);
    check.bytes("MAX_INLINE", options.inline_bytes, 0, 4096, out.inline_bytes);
    check.count("TX_QUEUE_LEN", options.send_depth, 16, 32768, out.send_depth);
    check.count("TX_CQ_LEN", options.completion_depth, 64, 1 << 22, out.completion_depth);
    check.count("RX_QUEUE_LEN", options.receive_depth, 16, 1 << 16, out.receive_depth);
    check.count("TX_WINDOW", options.window, kMinWindow, kMaxWindow, out.window);
    out.max_send_buffers = UINT_MAX;
    if (!is_inf(options.max_send_buffers))
        check.count("TX_MAX_BUFS", options.max_send_buffers, 64, UINT_MAX, out.max_send_buffers);
    check.count("TX_SIGNAL_INTERVAL", options.signal_interval, 1, std::max(1u, out.send_depth / 2),
                out.signal_interval);
    check.count("POLL_BATCH", options.poll_batch, 1, 256, out.poll_batch);

    verbs::Reliability& reliability = out.reliability;
    double seconds = 0;
    check.time("TIMEOUT", options.timeout, kTimeoutUnit, timeout_of(kMaxTimeout), seconds);
    reliability.timeout = timeout_code(seconds);
    check.count("RETRY_COUNT", options.retry_count, 0, kMaxRetryCount, reliability.retry_count);
    check.time("RNR_TIMEOUT", options.rnr_timeout, kRnrUnit, kRnrSteps[0] * kRnrUnit, seconds);
    reliability.min_rnr_timer = rnr_code(seconds);
    check.count("MAX_RD_ATOMIC", options.max_rd_atomic, 1, 255, reliability.max_rd_atomic);
    check.count("SL", options.service_level, 0, kMaxServiceLevel, reliability.service_level);

    check.time("CONNECT_TIMEOUT", options.connect_timeout, 1e-3, 86400, out.connect_timeout);

    out.max_connections = 0;
    if (!is_inf(options.max_connections))
        check.count("MAX_CONN", options.max_connections, 1, 1 << 20, out.max_connections);
    out.victims = static_cast<adapt::VictimPolicy>(options.victim);
    check.count("MAX_UNUSED", options.max_unused, 1, 1 << 20, out.max_unused);
    if (is_inf(options.max_connections))
        check.note_changed(transport_variables(out.transport), &options, (prefix + "MAX_CONN=inf").c_str(), {"VICTIM"});

    if (out.transport == connect::Transport::dc) {
        check.count("NUM_DCI", options.dci_count, 1, kMaxDci, out.dci_count);
        check.count("NUM_DCT", options.dct_count, 1, kMaxDct, out.dct_count);
        out.dci_policy = static_cast<channel::DciPolicy>(options.dci_policy);
        read_adapt(options, out, check);
    }
    return check.good();
}

} // namespace ucx_mp::face
