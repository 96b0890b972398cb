// Ports and adapters go down and come up: reads device events, and tells every path over them.
//
// Callers: Observer, once when the interface opens and then now and then in progress; Migration; Reopening for its
// rails. A port's state follows from two counters of events since the device was opened: downs and ups.
// Threads: the interface's. It takes the lock to change what the control plane reads. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class RailEvents {
public:
    RailEvents(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    // The interface opens: reads the present state of all rails.
    void read_rails();
    // Handles the events since the last call: gives paths up, renews rails, tells peers.
    void read_events();
    // Queries the port. If its address, rate or state has changed, tells the peers, and joins paths.
    void renew_rail(unsigned rail);
    // The port is up: paths that wait for it are tried at once.
    void rail_active(unsigned rail);

private:
    void rail_failed(unsigned rail, const char* cause, bool device_gone);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
