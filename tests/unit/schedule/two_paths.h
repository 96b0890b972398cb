// A table of two paths over links of 1 byte/ns, and what completes on them.
#pragma once

#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::schedule::test {

struct Two {
    PathSetup setup[2] = {{.weight = 1, .nominal_rate = 1, .latency = 2000}, {.weight = 1, .nominal_rate = 1}};
    PathTable paths{setup};
    Sample settle(std::uint64_t bytes, Nanos post, Nanos done, PathIndex path = 0, Direction d = Direction::write) {
        return paths.settle({path, d, bytes, bytes, post, done});
    }
};

} // namespace ucx_mp::schedule::test
