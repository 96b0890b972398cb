// One round of progress: which adapters it polls, and in which order everything else has its turn.
//
// The order: completions; now and then the control plane, mail and events; recovery (Observer); then the lists of the
// parts.
//
// Callers: Interface::progress() for each round, Beside for steps. Times are ns.
// Threads: the interface's. It only tries the lock: if the handshake's thread has it, that thread does the work.
#pragma once

#include <cstdint>

#include "uct_mp/channel/beside.h"
#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/parking.h"

namespace ucx_mp::channel {

class Progress {
public:
    explicit Progress(Core& core, const Config& config);

    // -- Operations
    // Returns how many things have happened: completions, messages, steps of recovery and so on.
    // round(): what turns have kept is handed out first. `marked`: the program's turn (Beside::turn) ends with it.
    template <bool marked = false> unsigned step();
    template <bool marked> unsigned round();
    // Maps the adapters' clocks to the host's, if it is time to.
    void calibrate();

    Beside beside;   // progress by another thread, for recovery
    Parking parking; // makes room under the limit of connections

private:
    // `found`: completions that this round has found at the adapters. Both return how many things have happened. They
    // are not inlined, so that the usual step saves no registers for them.
    template <bool marked> [[gnu::noinline]] unsigned hand_out_and_step();
    [[gnu::noinline]] unsigned poll_several(bool all);           // all: also adapters that have been silent
    [[gnu::noinline]] unsigned serve(unsigned found, bool look); // everything but the adapters
    unsigned attend(unsigned found);                             // the control plane, mail, events, watchdogs
    void serve_lists(unsigned found);                            // see due::lists
    void count_look(unsigned found);                             // Rounds::looks

    Core& core_;
    unsigned latest_adapter_ = 0;     // the last one that had something
    std::uint32_t rounds_ = 0;        // wraps
    const std::uint32_t silent_mask_; // `rounds_ & mask` is 0 in rounds that poll silent adapters
    unsigned until_control_ = 1;      // rounds until the next regular attend()
    unsigned crowded_ = 0;            // rounds of the present look that were full of completions
    unsigned tick_ = 0;               // regular calls of attend()
};

} // namespace ucx_mp::channel
