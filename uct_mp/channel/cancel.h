// How the operations of one of several endpoints of a channel are told apart, and what ends them: cancel.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "uct_mp/channel/interface.h"

namespace ucx_mp::channel {

// One endpoint's operations are being cancelled. Keeps the endpoint's reference to the channel.
struct Cancel {
    Channel* channel;
    std::uint32_t origin;
    unsigned left = 0; // works
    bool over = false;
    bool announced = false; // on `completions`
    Nanos since = 0;
    Nanos pause = 0; // until the next look
    Services::Timer timer = 0;
    std::vector<Completion*> completions; // of the flushes that have asked for it
};

// In place of the caller's completion. Interface::Impl::tags owns it.
struct Tag : Completion {
    static void fired(Completion* self);
    Interface::Impl* impl;
    Completion* user; // may be null
    std::uint32_t origin;
    Cancel* cancel; // null: nobody cancels it
    Tag* next;      // unused ones
};

} // namespace ucx_mp::channel
