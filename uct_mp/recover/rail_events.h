// Ports and adapters go down and come up.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class RailEvents {
public:
    RailEvents(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void rail_active(unsigned rail);
    void read_events();
    void read_rails();
    void renew_rail(unsigned rail);
    verbs::DeviceEvents::Seen seen_events[verbs::kMaxRails];
    std::uint32_t more_downs[verbs::kMaxRails] = {};       // events of it, than ups, while the port is up; wraps
    [[nodiscard]] bool port_is_down(unsigned rail) const { // as far as events have told
        return seen_events[rail].downs - seen_events[rail].ups != more_downs[rail];
    }

private:
    void rail_failed(unsigned rail, const char* cause, bool device_gone);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
