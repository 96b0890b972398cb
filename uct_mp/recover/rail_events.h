// Ports and adapters go down and come up: what device events say, and what follows for every path over them.
//
// Callers: Observer: once when the interface opens, then now and then in progress. Reopening calls for its rails.
// Ports are counted by events: so many downs and ups since the device was opened.
// Threads: the interface's. It takes the lock where the control plane reads. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class RailEvents {
public:
    RailEvents(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    // Rails as they are now, when the interface opens.
    void read_rails();
    // Handles the events since: paths are given up, rails renewed, peers told.
    void read_events();
    // Asks the port what it is now; peers and paths hear of it if that is something else.
    void renew_rail(unsigned rail);
    // It is up: paths that wait for it are tried at once.
    void rail_active(unsigned rail);

    // -- What others read
    verbs::DeviceEvents::Seen seen_events[verbs::kMaxRails];
    std::uint32_t more_downs[verbs::kMaxRails] = {};       // events of it, than ups, while the port is up; wraps
    [[nodiscard]] bool port_is_down(unsigned rail) const { // as far as events have told
        return seen_events[rail].downs - seen_events[rail].ups != more_downs[rail];
    }

private:
    void rail_failed(unsigned rail, const char* cause, bool device_gone);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
