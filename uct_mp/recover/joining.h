// Paths over ports that were down when the connection was made: phase `absent` until both ends are known to be up.
//
// The client then opens such a path as it opens one that has been lost. An only path gets company: what was posted
// there must be back before.
//
// Callers: RailEvents and Recoverer when rails change; Replay while has_places() waits; Exchange for the peer's wish.
// Threads: the interface's. It takes the lock where the control plane reads.
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
    // Do both ports fit together? `routed`: also between IP networks.
    [[nodiscard]] bool may_join(const Channel& channel, PathIndex path, bool routed) const;
    // The path is down from now on, like any that has been lost: absent -> reopening.
    void join(Channel& channel, PathIndex path);
    // The channel to ourselves hears of our own rails here.
    void tell_self(Channel& channel);

    // -- An only path gets company
    // False: not yet. widen() is called in each progress until it is so.
    [[nodiscard]] bool has_places(Channel& channel);
    void widen(Channel& channel);

    // -- What others ask
    [[nodiscard]] bool is_absent(const Channel& channel, PathIndex path) const {
        return channel.wiring.paths[path].phase == Phase::absent;
    }
    // After a path has come up or was lost: which ones are spare now.
    void find_spares(Channel& channel);
    // mp_dc: the peer's target with its present LIDs. False: no address handle.
    bool address_target(Channel& channel, PathIndex path);

private:
    [[nodiscard]] bool wanted(const Channel& channel, PathIndex path) const;

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
