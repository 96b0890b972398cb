// Sends again what was lost: messages at once, writes when the peer has told which ones it has, then markers.
//
// These are steps 3 and 10 to 12 in PROTOCOL.md. A replay is an operation like any other, so it may be lost again.
//
// Callers: Recoverer::step() calls recover() once per round of progress, for each channel in Phases::recovering.
// Observer calls the others. Sizes and offsets are bytes.
// Threads: the interface's. The user's callbacks may run inside.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Replay final : public channel::Repeats {
public:
    Replay(Core& core, Members& all) : core_(core), all_(all) {}

    // -- In progress
    // Moves every path of the channel on as far as it can go now. True: call again in the next round. False: news, a
    // timer or a completion will list the channel again.
    bool recover(Channel& channel);

    // -- channel::Repeats
    void finish_replayed(Channel& channel, Work& work) override;
    void not_posted(Channel& channel) override;
    void send_again(Channel& channel) override;
    void drop_lost(Channel& channel, std::span<Work* const> works) override;
    bool place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk) override;

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
