// The asynchronous side: UCX's async thread waits for control messages and timers, and calls the core with the worker's
// async context blocked.
#pragma once

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/services.h"

namespace ucx_mp::face {

class Background {
public:
    Background() = default;
    Background(const Background&) = delete;
    ~Background() { close(); }
    // `services` has an asynchronous side; both outlive this, or close()
    // is called before. False: it is impossible, and a line says why.
    [[nodiscard]] bool open(channel::Interface& core, UcxServices& services);
    bool watch(int fd); // watches this one, too
    void close();       // waits for a call that is under way

private:
    static void serve(int id, ucs_event_set_types_t events, void* self);

    channel::Interface* core_ = nullptr;
    UcxServices* services_ = nullptr;
    int fd_ = -1; // the async thread waits for it
};

} // namespace ucx_mp::face
