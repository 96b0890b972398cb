// Operations under way that are more than one message: their pool, and their ends.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Works {
public:
    explicit Works(Core& core) : core_(core) {}
    Work* new_work(Channel& channel, WorkKind kind, Completion* completion);
    void finish_work(Work& work);               // open has come to 0
    static void finish(Core& core, Work& work); // the same, inline
    WorkPool pool;

private:
    [[nodiscard]] bool finish_unusual(Channel& channel, Work& work); // false: it is not over, after all
    Core& core_;
};

} // namespace ucx_mp::channel
