// The pool of works (work.h): how one begins and ends.
//
// Callers: a part that starts an operation takes a Work here. The part that brings Work::open to 0 ends it.
// Ownership: the pool owns all works. Work::bounce is given back with its work.
// Threads: the interface's. The user's completion is called inside finish(), finish_work() and settle().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Works {
public:
    explicit Works(Core& core) : core_(core) {}

    // -- Operations
    // The work counts in the present epoch. `completion` may be null.
    Work* new_work(Channel& channel, WorkKind kind, Completion* completion);
    void finish_work(Work& work);               // `open` has come to 0
    static void finish(Core& core, Work& work); // the same, inline (settling.h)
    // A record has come back, or counts as done. Its work, or its epoch, has one request less open.
    static void settle(Core& core, const Posted& posted);

    // -- What others read
    WorkPool pool;

private:
    [[nodiscard]] bool finish_unusual(Channel& channel, Work& work); // false: it goes on, since a part goes again

    Core& core_;
};

} // namespace ucx_mp::channel
