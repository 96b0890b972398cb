// The end of an interface: what is owed goes out, every peer is told, and their answers are waited for.
//
// Callers: close() of Core, once. It takes 100 ms at most. The peers are told after 20 ms, even if something is still
// owed. No handler and no completion of the program's is called.
// Threads: the interface's. Takes the lock, and releases it while it waits.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Closing {
public:
    explicit Closing(Core& core) : core_(core) {}

    void say_goodbye();

private:
    unsigned poll_closing();

    Core& core_;
};

} // namespace ucx_mp::channel
