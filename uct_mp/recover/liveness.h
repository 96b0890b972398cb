// Peers that may be dead, and channels without any path.
//
// An adapter is asked by a write of no bytes: a dead process has no queue pairs. A process is asked by a ping, which it
// answers while it computes. Only this part decides what follows from the answers.
//
// Callers: Observer (a user's check, the control plane's answers); Failure when a path is lost; Renewal; Progress
// about once per Config::check_interval. Times are ns.
// Threads: the interface's. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Liveness {
public:
    Liveness(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Asking
    // The peer's process, by the control plane. hear_answer() gets the answer.
    void judge_peer(Channel& channel);
    // The peer's adapter, over every path that has nothing under way.
    void check(Channel& channel);
    // One such write. False: no room.
    bool write_nothing(Channel& channel, PathIndex path, SendQueue& queue);
    // Peers that have acknowledged nothing since the last look, and unused connections.
    void watch_peers(Nanos now);

    // -- Judging
    void hear_answer(Channel& channel, connect::Answer answer);
    // The partition begins: the channel fails after RecoveryConfig::partition_timeout.
    void no_path_left(Channel& channel);

private:
    void report(Channel& channel); // that no path is left, if so
    void still_no_path(Channel& channel);
    void look_again(Channel& channel, Nanos since); // a check_interval after `since`, or when the partition times out
    [[nodiscard]] bool has_witness(const Channel& channel) const;

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
