// What the schedulers of all peers of a process share: how it sends to several of them at once.
//
// A process that exchanges with its neighbours sends to the next one while a message to another is under way. Whole
// messages, each neighbour's on its own rail, keep all rails as busy then as stripes do, with fewer descriptors and
// fewer streams that meet at a receiver. That holds where the neighbours share the rails evenly.
//
// Threads: the interface's. No allocation.
#pragma once

#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::schedule {

class Neighbours {
public:
    // Peers that have been sent something, in order.
    unsigned turn() { return turns_++; }

    // A message that could be cut comes, and has not been placed. `home`: the path that it takes if it goes whole.
    void message(const PathTable& peer, Direction d, PathIndex home, std::uint64_t bytes);
    void forget(const PathTable& peer); // it ends

    // Messages come while others, to other peers, are under way.
    [[nodiscard]] bool several(Direction d) const { return of_[static_cast<unsigned>(d)].several; }
    // Their homes share the rails, by what links can do: the fullest has hardly more than its part of the bytes.
    [[nodiscard]] bool even(Direction d) const;

private:
    struct Of {
        const PathTable* latest = nullptr; // the peer that has had the last message
        double others = 0;                 // part of the messages that come while the last one's peer has some open
        bool several = false;
        double bytes[kMaxRails] = {}, rate[kMaxRails] = {}; // by home, fading; of the rail
    };
    Of of_[2];
    unsigned turns_ = 0;
};

} // namespace ucx_mp::schedule
