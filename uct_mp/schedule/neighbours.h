// What the schedulers of all peers of a process share: how it writes to several of them at once.
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

    // A write that could be cut comes, and has not been placed. `home`: the peer's own path, which is usable.
    void write(const PathTable& peer, PathIndex home, std::uint64_t bytes);
    void forget(const PathTable& peer); // it ends

    // Writes come while others, to other peers, are under way.
    [[nodiscard]] bool several() const { return several_; }
    // Their homes share the rails, by what links can do: the fullest has hardly more than its part of the bytes.
    [[nodiscard]] bool even() const { return even_; }

private:
    void share_rails(const PathTable& peer, PathIndex home, std::uint64_t bytes);

    const PathTable* latest_ = nullptr; // the peer that has had the last write,
    std::uint64_t open_ = 0;            // and how much it has under way while that is
    double others_ = 0;                 // part of the writes that come while the last one is under way to another peer
    bool several_ = false, even_ = false;
    double bytes_[kMaxRails] = {}; // by the home's rail, fading
    unsigned turns_ = 0;
};

} // namespace ucx_mp::schedule
