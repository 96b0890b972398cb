// The end of an interface: what is owed goes out, every peer is told, and their answers are waited for.
//
// Callers: close() of Core, once. It takes 100 ms at most, of which 20 ms are for what is owed.
// Nothing of the program's is called any more, neither handlers nor completions.
// Threads: the interface's; the lock is taken inside, and given back while it waits.
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
