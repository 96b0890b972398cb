// Epochs, fences and flushes.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Epochs {
public:
    explicit Epochs(Core& core) : core_(core) {}
    void fence(Channel& channel);
    bool clear_drain(Channel& channel);
    Status flush(Channel& channel, Completion* completion);
    void push(Channel& channel);
    void push_due();
    bool push_out(Channel& channel); // a completion for every unsignaled request; false: no room for one
    void epoch_done(Channel& channel, std::uint8_t epoch, std::uint32_t count = 1);
    void close_epochs(Channel& channel);
    std::vector<Channel*> pushes_due;

private:
    Core& core_;
};

} // namespace ucx_mp::channel
