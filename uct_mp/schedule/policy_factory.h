// Policies by name, for the user's variables and the tools.
//
//   "bss:n_paths=8,n_batch=2"     name, then parameters of PolicyConfig that this policy knows
//   "weighted:weights=3,1"        of our first rail, of our second
//   "default", "hsam"             hsam is another name of adaptive
//
// Sizes take K, M, G (powers of 1024); times take ns, us, ms (default ns).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "uct_mp/schedule/policy_config.h"

namespace ucx_mp::schedule {

struct PolicyChoice {
    std::optional<PolicyConfig> config;
    std::string error; // one line: variable, value, what is allowed; empty if there is a config
};

// Slow path. `variable` is the name that the user knows, e.g. UCX_MP_POLICY; `n_paths` the number of paths, if it is
// known already (bounds n_paths and n_batch), else 0.
[[nodiscard]] PolicyChoice make_policy(std::string_view text, std::string_view variable = "UCX_MP_POLICY",
                                       unsigned n_paths = 0);

// Says what is wrong with so many weights for so many rails; else empty.
[[nodiscard]] std::string check_weights(const PolicyConfig& config, unsigned rails);

[[nodiscard]] std::string_view name(PolicyKind kind);
// "default, binding, ..."; with parameters: one line per policy with its parameters and their defaults.
[[nodiscard]] std::string policy_names();
[[nodiscard]] std::string policy_help();

} // namespace ucx_mp::schedule
