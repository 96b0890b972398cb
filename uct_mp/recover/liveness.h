// Peers that may be dead, and channels without any path.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Liveness {
public:
    Liveness(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void judge_peer(Channel& channel);
    void no_path_left(Channel& channel);
    void hear_answer(Channel& channel, connect::Answer answer);
    bool write_nothing(Channel& channel, PathIndex path, SendQueue& queue);
    void check(Channel& channel);
    void watch_peers(Nanos now);

private:
    void still_no_path(Channel& channel);
    [[nodiscard]] bool has_witness(const Channel& channel) const;
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
