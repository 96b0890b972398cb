// Sends again what was lost: messages at once, writes when the peer has told which ones it has, then markers.
//
// These are steps 3 and 10 to 12 in PROTOCOL.md. A replay is an operation like any other, so it may be lost again.
//
// Callers: Recoverer::step() calls recover() once per round of progress, for each channel in Failure::recovering.
// Observer calls the others. Sizes and offsets are bytes.
// Threads: the interface's. The user's callbacks may run inside.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Replay {
public:
    Replay(Core& core, Members& all) : core_(core), all_(all) {}

    // -- In progress
    // Moves every path of the channel on as far as it can go now. True: call again in the next round. False: news, a
    // timer or a completion will list the channel again.
    bool recover(Channel& channel);

    // -- Works that go again
    // `work`, a put, get or message that has gone again, is complete.
    void finish_replayed(Channel& channel, Work& work);
    // Places a write that goes again: all of them take one path. False: that path has no room.
    bool place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk);

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
    Members& all_;
};

} // namespace ucx_mp::recover
