// Sleeping: one descriptor that becomes readable when the core has something to do, or a timer is due.
//
// Threads: the worker's. The descriptor may be polled elsewhere.
#pragma once

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/services.h"

namespace ucx_mp::face {

class Wakeup {
public:
    Wakeup() = default;
    Wakeup(const Wakeup&) = delete;
    ~Wakeup();
    // The descriptor, made by the first call.
    ucs_status_t fd(channel::Interface& core, UcxServices& services, int* out);
    // UCS_ERR_BUSY: there is something to do already.
    ucs_status_t arm(channel::Interface& core, UcxServices& services);

private:
    ucs_status_t open(channel::Interface& core, UcxServices& services);

    int event_fd_ = -1, timer_fd_ = -1;
};

} // namespace ucx_mp::face
