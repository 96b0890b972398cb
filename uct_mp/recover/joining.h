// Paths over ports that were down when the connection was made: phase `absent` until both ports are known to be up.
//
// The client then opens such a path like one that has been lost. If the channel had only one path until then,
// everything posted there must have completed first.
//
// Callers: RailEvents and Recoverer when rails change, Reopening, Demand, Exchange; Replay while has_places() waits.
// Threads: the interface's. It takes the lock to change what the control plane reads.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Joining {
public:
    Joining(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Ports have come up
    // Joins every absent path that may join and is of use.
    void join_paths(Channel& channel);
    // True: both ports are known, and one reaches the other. `routed`: also between IP networks.
    [[nodiscard]] bool may_join(const Channel& channel, PathIndex path, bool routed) const;
    // Moves the path from `absent` to `reopening`, where it is made like one that has been lost.
    void join(Channel& channel, PathIndex path);
    // Updates the channel to ourselves after our rails have changed. Does nothing for other channels.
    void tell_self(Channel& channel);

    // -- From one path to several
    // False: not yet. Replay then calls widen() in each round of progress until it is so.
    [[nodiscard]] bool has_places(Channel& channel);
    void widen(Channel& channel);

    // -- What others ask
    // mp_dc: takes the number, key and LID that the peer's target has now. False: no address handle could be made.
    bool address_target(Channel& channel, PathIndex path);

private:
    [[nodiscard]] bool wanted(const Channel& channel, PathIndex path) const;

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
