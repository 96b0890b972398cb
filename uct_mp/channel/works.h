// The pool of works (work.h): how one begins and ends. So do epochs, which count the operations that flushes wait for.
//
// Callers: a part that starts an operation takes a Work here. The part that brings Work::open to 0 ends it.
// Ownership: the pool owns all works. Work::bounce is given back with its work.
// Threads: the interface's. The user's completion is called inside finish(), finish_work() and settle(), and those of
// flushes inside epoch_done() and close_epochs().
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
    // A part of a read back was lost with its path. It goes again when its other parts are back.
    void read_back_lost(Channel& channel, Work& work);

    // -- Epochs
    // `count` operations of this epoch have ended.
    void epoch_done(Channel& channel, std::uint8_t epoch, std::uint32_t count = 1);
    // Ends the oldest epochs that are empty, and their flushes.
    void close_epochs(Channel& channel);
    static void begin_epoch(Channel& channel, std::uint8_t epoch);
    // A flush waits for this epoch and all before.
    void attach_flush(Channel& channel, std::uint8_t epoch, Completion* completion);

    // -- What others read
    WorkPool pool;

private:
    [[nodiscard]] bool finish_unusual(Channel& channel, Work& work); // false: it goes on, since a part goes again
    [[nodiscard]] bool finish_read_back(Channel& channel, Work& work);
    void read_back_again(Channel& channel, Work& work);
    void close_oldest(Channel& channel); // it is empty and closed

    Core& core_;
};

} // namespace ucx_mp::channel
