// Completion queues: what has been sent is settled, what has come is handed on.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Completions {
public:
    explicit Completions(Core& core) : core_(core) {}
    // `all`: also for sends that have not asked for a completion, and may have failed.
    unsigned poll(Adapter& adapter, bool all);
    bool peek(Adapter& adapter);                          // something is there; it is kept for the next poll
    static void settle(Core& core, const Posted& posted); // may call the user
    std::uint32_t at_work = 0;                            // completions found since progress has last found nothing

private:
    unsigned poll_receives(Adapter& adapter);
    template <bool extended> unsigned poll_sends(Adapter& adapter);
    static void handle_receive(Core& core, Adapter& adapter, std::uint64_t id, ibv_wc_status status,
                               std::uint32_t length, std::uint32_t qp_number);
    static void handle_send(Core& core, Adapter& adapter, std::uint64_t id, ibv_wc_status status, std::uint64_t ticks,
                            std::uint32_t vendor_error);
    unsigned handle_peeked(Adapter& adapter);
    static void reap_sole(Core& core, SendQueue& queue, std::uint16_t position);
    void reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks);
    static void tally(const Posted& posted); // statistics
    Core& core_;
};

} // namespace ucx_mp::channel
