// Tells the peer of a path, and asks what has arrived over it. Exchange takes what the peer tells.
//
// Callers: any part. Times are ns. Threads: the interface's. Calls into the control plane take the lock.
#pragma once

#include <vector>

#include "uct_mp/recover/phases.h"

namespace ucx_mp::recover {

class Asking {
public:
    Asking(Core& core, Phases& phases) : core_(core), phases_(phases) {}

    // Sends over a usable path other than news.path if there is one; `attempt` selects which. Every fourth attempt goes
    // over any route.
    void tell_peer(Channel& channel, connect::NewsKind kind, const connect::PathNews& news, unsigned attempt);
    bool tell_over_path(Channel& channel, connect::NewsKind kind, const connect::PathNews& news); // false: no room
    // mp_dc: tells the peer that our port or adapter is gone, so that it gives the path up, too.
    void tell_gone(Channel& channel, PathIndex path);
    // Tells the peer our truth and asks for its truth. A timer repeats this until the peer answers.
    void ask(Channel& channel, PathIndex path);

    // -- What others read
    struct Question { // asks what has arrived over a path; see Exchange::answer_questions()
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
        std::uint32_t life;
        std::uint32_t round; // Rounds::looks when it came
    };
    std::vector<Question> questions;
    unsigned question_attempts = 0; // answers sent; each takes the next usable path

private:
    Core& core_;
    Phases& phases_;
};

} // namespace ucx_mp::recover
