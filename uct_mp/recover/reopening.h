// Adapters of ours that have died and are there again: opened anew, with queues anew.
//
// To the paths over them their ports then are like ports that come up late. Nothing of the life before may be in use
// when the new one is taken over. Everything is made before anything is replaced.
//
// Callers: RailEvents, when a device has died. A timer looks after it until it is there.
// Errors: a device that cannot be used is tried again, after a pause that doubles.
// Threads: the interface's; opening runs aside (Services::aside). It takes the lock. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Reopening {
public:
    Reopening(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    // Its ports are offered to nobody from now on.
    void device_died(unsigned device);
    // Peers hear of our rails as they are now. With the lock held.
    void tell_rails();
    // May something begin over this path? Not over a dead device, nor before the peer knows its new life, nor while
    // keys are asked for.
    [[nodiscard]] bool is_ready(Channel& channel, PathIndex path);

    // -- What others read
    Services::Timer reopen_timer[verbs::kMaxDevices] = {}; // runs while the device is dead

private:
    void try_reopen(unsigned device);
    [[nodiscard]] bool may_adopt(unsigned device);
    [[nodiscard]] bool take_keys(const verbs::Device& now);
    [[nodiscard]] bool adopt(const verbs::Device& now);
    void let_go(unsigned device);
    void watch_descriptors(unsigned device);

    unsigned reopen_attempts[verbs::kMaxDevices] = {};
    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
