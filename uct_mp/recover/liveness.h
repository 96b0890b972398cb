// Peers that may be dead, and channels without any path.
//
// A write of no bytes asks the peer's adapter: a dead process has no queue pairs, so nothing acknowledges the write. A
// ping asks the peer's process, whose control plane answers while the process computes. Only this part decides what
// follows from the answers.
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
    // Asks the peer's process over the control plane. hear_answer() takes the answer.
    void judge_peer(Channel& channel);
    // Asks the peer's adapter, over every path on which no request is under way that would tell.
    void check(Channel& channel);
    // Asks peers that have acknowledged nothing since the last call, and looks at unused connections.
    void watch_peers(Nanos now);

    // -- Judging
    void hear_answer(Channel& channel, connect::Answer answer);
    // The last usable path is lost: a partition begins. The channel fails after RecoveryConfig::partition_timeout (0:
    // never).
    void no_path_left(Channel& channel);

private:
    void report(Channel& channel); // warns if still no path is usable
    void still_no_path(Channel& channel);
    // Sets the timer: Config::check_interval after `since`, but not later than the partition times out.
    void look_again(Channel& channel, Nanos since);
    [[nodiscard]] bool has_witness(const Channel& channel) const;

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
