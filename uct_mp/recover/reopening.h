// Adapters that have died and are there again.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Reopening {
public:
    Reopening(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void device_died(unsigned device);
    void tell_rails();
    [[nodiscard]] bool is_ready(Channel& channel, PathIndex path);
    Services::Timer reopen_timer[verbs::kMaxDevices] = {}; // runs while the device is dead

private:
    void try_reopen(unsigned device);
    [[nodiscard]] bool may_adopt(unsigned device);
    [[nodiscard]] bool adopt(const verbs::Device& now);
    void let_go(unsigned device);
    void watch_descriptors(unsigned device);
    unsigned reopen_attempts[verbs::kMaxDevices] = {};
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
