// The heartbeat of an interface: which adapters each call of progress() asks, and in which order everything else has
// its turn.
//
// The order of a step: completions; now and then the control plane, mail and events; recovery (Observer); then the
// lists of the parts.
//
// Callers: Interface::progress() for each step. Times are ns.
// Threads: the interface's. The lock is only tried: else the handshake's thread is at work.
#pragma once

#include <cstdint>

#include "uct_mp/channel/beside.h"
#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Progress {
public:
    explicit Progress(Core& core, const Config& config);

    // -- Operations
    // Returns how many things have happened.
    unsigned step();
    // Maps the adapters' clocks to the host's, if it is time to.
    void calibrate();

    Beside beside; // progress of another thread, for recovery

private:
    // Functions of their own, so that the usual step saves nothing for them. Both return how much has happened.
    [[gnu::noinline]] unsigned poll_several(bool all);           // adapters
    [[gnu::noinline]] unsigned serve(unsigned found, bool look); // everything else; `found` at the adapters
    unsigned attend(unsigned found);                             // what is rare; so much has been found at the adapters
    void serve_lists(unsigned found);                            // see due::lists
    void count_look(unsigned found);                             // by a round of progress over all adapters

    Core& core_;
    unsigned latest_adapter_ = 0;     // the last one that had something
    std::uint32_t rounds_ = 0;        // wraps
    const std::uint32_t silent_mask_; // rounds in which an adapter is asked that has been silent
    unsigned until_control_ = 1;
    unsigned crowded_ = 0; // rounds of the look under way
    unsigned tick_ = 0;
};

} // namespace ucx_mp::channel
