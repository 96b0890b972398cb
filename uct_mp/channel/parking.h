// Makes room under the limit of connections (admission.h): looks for idle ones, and asks them to end (Endings::park).
// Endpoints do not notice. Which of them gives way is chosen by adapt::Victims.
//
// - Against thrashing, a connection is kept until its first use, for Admission::kFresh at most. A peer that refuses is
//   left alone for a while, which doubles. So does the pause before a busy connection is nudged again.
// - While our own program computes, only a turn beside it (beside.h) parks.
// - If a channel has had to wait lately, a victim is sought as soon as the last place is taken, so that the next one
//   need not wait.
//
// The data path pays nothing. The use of a connection shows in sequence numbers and byte counts, which are read when a
// victim is sought. Keepalive changes none of them.
//
// Callers: Progress, when Admission::due is set. Threads: the interface's. Slow path: a search looks at the holders of
// places only.
#pragma once

#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Parking {
public:
    explicit Parking(Core& core) : core_(core) {}
    ~Parking();
    Parking(const Parking&) = delete;

    // Connects waiting channels, and makes room for the others. Without the lock.
    void step();

private:
    void look();
    void look_in(Nanos pause);
    void note_used(const std::vector<Channel*>& holders);
    static void nudged(Channel& channel, Nanos now);
    [[nodiscard]] static bool may_ask(const Channel& channel, Nanos now);
    void seek(unsigned count, Nanos now);

    Core& core_;
    Services::Timer timer_ = 0;   // runs while a channel waits, or too many are connected
    Nanos pause_ = 0;             // until it fires
    Nanos took_ = 0, looked_ = 0; // how long the last look took, and when it was over
};

} // namespace ucx_mp::channel
