// Opens adapters of ours again after they have died, and makes their queues anew.
//
// The ports of such an adapter are then treated like ports that come up late. Nothing of the old life may be in use
// when the new one is taken over. Everything new is made before anything old is replaced.
//
// Callers: RailEvents, when a device has died. A timer tries until the device is open again.
// Errors: a device that cannot be used is tried again, after a pause that doubles.
// Threads: the interface's; opening runs on another thread (Services::aside). It takes the lock. Slow path.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Reopening {
public:
    Reopening(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Operations
    // Takes the device's ports out of what peers are told, and starts the timer.
    void device_died(unsigned device);
    // Tells all peers the present list of our rails. With the lock held.
    void tell_rails();
    // True: the path may be opened. False: its device is dead, the peer does not know the device's new life yet, or
    // the peer has been asked for keys.
    [[nodiscard]] bool is_ready(Channel& channel, PathIndex path);

    // -- What others read
    Services::Timer reopen_timer[verbs::kMaxDevices] = {}; // by device; runs while it is dead

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
