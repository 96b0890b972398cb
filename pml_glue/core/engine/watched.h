// The memory of Engine::look() between two looks.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pml_glue/core/match/envelope.h"

namespace ucx_mp::glue {

struct Watched {
    std::uint64_t looked = 0, asked = 0; // times: of the last look, and of the last question
    std::array<Envelope, 64> sought{};   // looked for since then, in vain
    std::size_t sought_count = 0;
    // At the last look: the number of the last receive, and the contexts in which any source was sought.
    std::uint64_t posted_before = 0;
    std::vector<std::uint32_t> any_sought;
    std::unordered_map<std::uint32_t, std::int32_t> met; // context -> the rank whose turn it is
    std::size_t meetings = 0;                            // over contexts: each time another one is the first
};

} // namespace ucx_mp::glue
