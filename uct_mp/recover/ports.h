// The state of our ports, as device events have told it so far.
//
// RailEvents and Reopening write it. Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Ports { // by rail
    verbs::DeviceEvents::Seen seen[verbs::kMaxRails];
    // The difference of downs and ups that means that the port is up; wraps.
    std::uint32_t more_downs[verbs::kMaxRails] = {};

    [[nodiscard]] bool is_down(unsigned rail) const { return seen[rail].downs - seen[rail].ups != more_downs[rail]; }
};

} // namespace ucx_mp::recover
