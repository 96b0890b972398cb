#include "uct_mp/schedule/policy_factory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <initializer_list>

namespace ucx_mp::schedule {

namespace {

using P = PolicyConfig;

struct Parameter {
    enum class Unit { count, bytes, nanos, fraction };
    std::string_view name;
    Unit unit;
    double min, max;
    void (*set)(P&, double);
    double (*get)(const P&);
};

#define UCX_MP_PARAMETER(field, unit, min, max)                                                                         \
    Parameter {                                                                                                         \
#field, Parameter::Unit::unit, min, max,                                                                        \
            [](P & p,                                                                                                   \
               double                                                                                                   \
                   v) { p.field = static_cast<decltype(p.field)>(v); },                                                 \
                                                                     [](const P&                                        \
                                                                            p) { return static_cast<double>(p.field); } \
    }

constexpr double kMiB = 1 << 20;
const std::array kParameters = {
    UCX_MP_PARAMETER(alignment, bytes, 1, kMiB),
    UCX_MP_PARAMETER(min_stripe, bytes, 1, 64 * kMiB),
    UCX_MP_PARAMETER(stripe_threshold, bytes, 1, 1024 * kMiB),
    UCX_MP_PARAMETER(one_sided_threshold, bytes, 1, 1024 * kMiB),
    UCX_MP_PARAMETER(window, count, 1, 65536),
    UCX_MP_PARAMETER(lane_slack, nanos, 0, 1e9),
    UCX_MP_PARAMETER(alpha, fraction, 0, 1),
    UCX_MP_PARAMETER(n_paths, count, 1, kMaxPaths),
    UCX_MP_PARAMETER(n_batch, count, 1, kMaxPaths),
    UCX_MP_PARAMETER(explore, count, 0, 1e6),
    UCX_MP_PARAMETER(accounts, count, 1, 2),
    UCX_MP_PARAMETER(chunk_time, nanos, 1, 1e9),
    UCX_MP_PARAMETER(min_chunk, bytes, 64, 64 * kMiB),
    UCX_MP_PARAMETER(max_chunk, bytes, 64, 1024 * kMiB),
    UCX_MP_PARAMETER(window_chunks, fraction, 1, 64),
    UCX_MP_PARAMETER(pull_threshold, bytes, 1, 1024 * kMiB),
    UCX_MP_PARAMETER(descriptor_cost, nanos, 0, 1e9),
    UCX_MP_PARAMETER(probe_interval, nanos, 0, 1e12),
};
#undef UCX_MP_PARAMETER

struct Known {
    PolicyKind kind;
    std::string_view name;
    std::string_view parameters; // blank-separated
};

constexpr std::array<Known, kPolicyKinds> kPolicies = {{
    {PolicyKind::default_policy, "default",
     "alignment min_stripe stripe_threshold one_sided_threshold window lane_slack chunk_time min_chunk max_chunk "
     "window_chunks pull_threshold descriptor_cost probe_interval"},
    {PolicyKind::binding, "binding", ""},
    {PolicyKind::round_robin, "round_robin", ""},
    {PolicyKind::weighted_rr, "weighted_rr", "weights"},
    {PolicyKind::window_rr, "window_rr", "window"},
    {PolicyKind::even, "even", "alignment min_stripe stripe_threshold one_sided_threshold window"},
    {PolicyKind::weighted, "weighted", "alignment min_stripe stripe_threshold one_sided_threshold window weights"},
    {PolicyKind::adaptive, "adaptive", "alignment min_stripe stripe_threshold one_sided_threshold window alpha"},
    {PolicyKind::bss, "bss",
     "alignment min_stripe stripe_threshold one_sided_threshold window alpha n_paths n_batch explore"},
    {PolicyKind::epc, "epc", "alignment min_stripe stripe_threshold one_sided_threshold probe_interval"},
    {PolicyKind::load_balanced, "load_balanced",
     "alignment min_stripe stripe_threshold one_sided_threshold probe_interval accounts"},
    {PolicyKind::spray, "spray",
     "alignment stripe_threshold one_sided_threshold window chunk_time min_chunk max_chunk window_chunks "
     "probe_interval"},
}};

const Known* find_policy(std::string_view name) {
    if (name == "hsam") name = "adaptive";
    const auto it = std::find_if(kPolicies.begin(), kPolicies.end(), [&](const Known& k) { return k.name == name; });
    return it == kPolicies.end() ? nullptr : &*it;
}

bool has(std::string_view list, std::string_view word) {
    for (std::size_t at = 0; at < list.size();) {
        const std::size_t end = std::min(list.find(' ', at), list.size());
        if (list.substr(at, end - at) == word) return true;
        at = end + 1;
    }
    return false;
}

std::string commas(std::string_view blanks) {
    std::string out;
    for (char c : blanks) out += c == ' ' ? std::string(", ") : std::string(1, c);
    return out;
}

std::string show(double value, Parameter::Unit unit) {
    char text[64];
    const char* suffix = "";
    if (unit == Parameter::Unit::bytes) {
        for (const char* s : {"K", "M", "G"}) {
            if (value < 1024 || std::fmod(value, 1024) != 0) break;
            value /= 1024, suffix = s;
        }
    } else if (unit == Parameter::Unit::nanos) {
        suffix = "ns";
        for (const char* s : {"us", "ms", "s"}) {
            if (value < 1000 || std::fmod(value, 1000) != 0) break;
            value /= 1000, suffix = s;
        }
    }
    std::snprintf(text, sizeof text, "%.10g%s", value, suffix);
    return text;
}

std::optional<double> parse(std::string_view text, Parameter::Unit unit) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
    const std::string_view suffix(end, text.data() + text.size());
    double factor = -1;
    if (suffix.empty()) factor = 1;
    if (unit == Parameter::Unit::bytes) {
        if (suffix == "B") factor = 1;
        if (suffix == "K") factor = 0x1p10;
        if (suffix == "M") factor = 0x1p20;
        if (suffix == "G") factor = 0x1p30;
    } else if (unit == Parameter::Unit::nanos) {
        if (suffix == "ns") factor = 1;
        if (suffix == "us") factor = 1e3;
        if (suffix == "ms") factor = 1e6;
        if (suffix == "s") factor = 1e9;
    }
    if (factor < 0) return std::nullopt;
    value *= factor;
    const bool whole = unit == Parameter::Unit::count || unit == Parameter::Unit::bytes;
    if (whole && value != std::floor(value)) return std::nullopt;
    return value;
}

PolicyChoice fail(std::string_view variable, std::string_view text, const std::string& what) {
    return {std::nullopt, std::string(variable) + "=" + std::string(text) + ": " + what};
}

constexpr std::string_view kWeights = "weights", kRates = "rates";
constexpr double kMaxWeight = 1e6;

// "3,1", or a word for none.
bool read_weights(std::string_view text, P& config) {
    config.n_weights = 0;
    if (text == kRates) return true;
    double sum = 0;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        const std::optional<double> weight = parse(text.substr(at, end - at), Parameter::Unit::fraction);
        if (!weight || *weight < 0 || *weight > kMaxWeight || config.n_weights == config.weights.size()) return false;
        sum += config.weights[config.n_weights++] = *weight;
        at = end + 1;
    }
    return sum > 0;
}

// The length of the first item of `rest`. Numbers behind "weights=3," belong to it.
std::size_t item_length(std::string_view rest) {
    std::size_t end = std::min(rest.find(','), rest.size());
    if (!rest.starts_with(kWeights)) return end;
    while (end < rest.size()) {
        const std::size_t next = std::min(rest.find(',', end + 1), rest.size());
        const std::string_view item = rest.substr(end + 1, next - end - 1);
        if (item.empty() || item.find('=') != std::string_view::npos) break;
        end = next;
    }
    return end;
}

// One "key=value"; empty if it was taken, else what is wrong.
std::string apply(P& config, const Known& policy, std::string_view item) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return "'" + std::string(item) + "' is not of the form name=value";
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    if (!has(policy.parameters, key)) {
        const std::string whose = std::string(policy.name);
        if (policy.parameters.empty()) return whose + " takes no parameters, got '" + std::string(key) + "'";
        return whose + " has no parameter '" + std::string(key) + "'; allowed: " + commas(policy.parameters);
    }
    if (key == kWeights)
        return read_weights(value, config)
                   ? std::string()
                   : "weights = '" + std::string(value) + "' is not allowed; allowed: " + std::string(kRates) +
                         ", or for each rail a number from 0 to 1000000, not all 0";
    const Parameter& p =
        *std::find_if(kParameters.begin(), kParameters.end(), [&](const Parameter& k) { return k.name == key; });
    const std::optional<double> number = parse(value, p.unit);
    if (!number || *number < p.min || *number > p.max) {
        return std::string(key) + " = '" + std::string(value) + "' is not allowed; allowed: " + show(p.min, p.unit) +
               " to " + show(p.max, p.unit);
    }
    p.set(config, *number);
    return {};
}

// Conditions between parameters.
std::string check(const P& config, unsigned n_paths) {
    if (!std::has_single_bit(config.alignment)) {
        return "alignment = " + std::to_string(config.alignment) + " is not allowed; allowed: powers of two";
    }
    if (config.min_stripe < config.alignment) {
        return "min_stripe = " + std::to_string(config.min_stripe) + " is not allowed; allowed: alignment (" +
               std::to_string(config.alignment) + ") or more";
    }
    if (config.min_chunk < config.alignment) {
        return "min_chunk = " + std::to_string(config.min_chunk) + " is not allowed; allowed: alignment (" +
               std::to_string(config.alignment) + ") or more";
    }
    if (config.max_chunk < config.min_chunk) {
        return "max_chunk = " + std::to_string(config.max_chunk) + " is not allowed; allowed: min_chunk (" +
               std::to_string(config.min_chunk) + ") or more";
    }
    if (config.kind != PolicyKind::bss) return {};
    if (n_paths != 0 && config.n_paths > n_paths) {
        return "n_paths = " + std::to_string(config.n_paths) + " is not allowed; allowed: 1 to " +
               std::to_string(n_paths) + ", the number of paths";
    }
    const unsigned most = config.n_paths ? config.n_paths : n_paths ? n_paths : kMaxPaths;
    if (config.n_batch > most && (config.n_paths != 0 || config.n_batch != P{}.n_batch)) {
        return "n_batch = " + std::to_string(config.n_batch) + " is not allowed; allowed: 1 to n_paths (" +
               std::to_string(most) + ")";
    }
    return {};
}

} // namespace

PolicyChoice make_policy(std::string_view text, std::string_view variable, unsigned n_paths) {
    const std::size_t colon = text.find(':');
    const std::string_view policy_name = text.substr(0, colon);
    const Known* policy = find_policy(policy_name);
    if (policy == nullptr) {
        return fail(variable, text, "unknown policy '" + std::string(policy_name) + "'; allowed: " + policy_names());
    }
    P config;
    config.kind = policy->kind;
    if (policy->kind == PolicyKind::bss) config.alpha = 0.75;
    std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
    while (!rest.empty()) {
        const std::size_t length = item_length(rest);
        const std::string wrong = apply(config, *policy, rest.substr(0, length));
        if (!wrong.empty()) return fail(variable, text, wrong);
        rest.remove_prefix(std::min(length + 1, rest.size()));
    }
    const std::string wrong = check(config, n_paths);
    if (!wrong.empty()) return fail(variable, text, wrong);
    return {config, {}};
}

std::string check_weights(const PolicyConfig& config, unsigned rails) {
    if (config.n_weights == 0 || config.n_weights == rails) return {};
    return std::to_string(config.n_weights) + " weights are not allowed; allowed: " + std::to_string(rails) +
           ", one for each rail in use";
}

std::string_view name(PolicyKind kind) {
    for (const Known& k : kPolicies) {
        if (k.kind == kind) return k.name;
    }
    return "?";
}

std::string policy_names() {
    std::string out;
    for (const Known& k : kPolicies) out += (out.empty() ? "" : ", ") + std::string(k.name);
    return out;
}

std::string policy_help() {
    std::string out;
    for (const Known& k : kPolicies) {
        P config;
        config.kind = k.kind;
        if (k.kind == PolicyKind::bss) config.alpha = 0.75;
        out += std::string(k.name);
        const char* separator = ": ";
        for (const Parameter& p : kParameters) {
            if (!has(k.parameters, p.name)) continue;
            const bool all = p.name == "n_paths" && p.get(config) == 0;
            out += separator + std::string(p.name) + "=" + (all ? "all" : show(p.get(config), p.unit));
            separator = ", ";
        }
        if (has(k.parameters, kWeights)) out += separator + std::string(kWeights) + "=" + std::string(kRates);
        out += "\n";
    }
    return out;
}

} // namespace ucx_mp::schedule
