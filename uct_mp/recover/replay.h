// What was lost goes again: writes, reads, messages, markers.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Replay {
public:
    Replay(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes);
    void finish_replayed(Channel& channel, Work& work);
    bool place_puts_again(Channel& channel, const schedule::Transfer& transfer, schedule::Stripe& chunk);
    bool recover(Channel& channel);

private:
    void settled(Channel& channel, PathIndex path);
    bool send_again(Channel& channel, Buffer& buffer);
    PathIndex place_again(Channel& channel, Buffer& buffer, std::uint64_t bytes);
    PathIndex place_put_again(Channel& channel, PathIndex path, std::uint64_t bytes);
    void resend(Channel& channel);
    void heal(Channel& channel);
    bool send_markers(Channel& channel);
    void release_holds(Channel& channel);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
