// What a group of the core's is made with, in tests and experiments without MPI.
#pragma once

#include "pml_glue/core/mp_collect.h"

namespace ucx_mp::glue::test {

// The processes 0 to `ranks` - 1, and coll/mp's own sizes. Rounds are of one message, so adapters may put.
[[nodiscard]] inline mp_group_config_t group_config(std::uint32_t rank, std::uint32_t ranks) {
    return {.context = 5,
            .rank = rank,
            .ranks = ranks,
            .process = [](const void*, std::uint32_t one) { return std::uint64_t{one}; },
            .members = nullptr,
            .in_flight = 16,
            .small = 8192,
            .halving = 65536,
            .eager = 4096,
            .latency = 0,
            .overhead = 0,
            .within_latency = 0,
            .within_overhead = 0,
            .hosts_after = 8,
            .digest = 0,
            .life = 0,
            .memory = std::size_t{64} << 20,
            .peers = 8,
            .engine = MP_ENGINE_HOST,
            .after = 8};
}

} // namespace ucx_mp::glue::test
