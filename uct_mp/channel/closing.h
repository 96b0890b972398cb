// The interface closes: everybody is told, and what is owed is given.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Closing {
public:
    explicit Closing(Core& core) : core_(core) {}
    void say_goodbye();
    bool closing = false; // the interface. Under the lock

private:
    unsigned poll_closing();
    Core& core_;
};

} // namespace ucx_mp::channel
