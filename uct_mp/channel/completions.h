// Polls the completion queues of adapters. Receives go to Receiver, failed sends to Failures. Other sends are reaped.
//
// Callers: Progress polls, Interface peeks before it sleeps, and Reopening empties the queues of a dead adapter.
// A completion stands for all requests before it on its queue pair. Completions of an earlier life are ignored.
// Threads: the interface's. Callbacks of the user run inside poll().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Completions {
public:
    explicit Completions(Core& core) : core_(core) {}

    // -- Operations
    // Returns how many completions were handled. `all`: polls for sends even if none has asked for a completion, since
    // a failed request completes unasked.
    unsigned poll(Adapter& adapter, bool all);
    // True: completions are there. They are kept for the next poll().
    bool peek(Adapter& adapter);

private:
    // `n` entries of the batch are filled. The batch, of kFetch entries, is reused to fetch more.
    [[gnu::noinline]] unsigned take_receives(Adapter& adapter, ibv_wc* batch, unsigned n);
    template <class Entry> [[gnu::noinline]] unsigned take_sends(Adapter& adapter, Entry* batch, unsigned n);
    [[gnu::noinline]] unsigned poll_timed_sends(Adapter& adapter);
    static void handle_receive(Core& core, Adapter& adapter, std::uint64_t id, ibv_wc_status status,
                               std::uint32_t length, std::uint32_t qp_number);
    static void handle_send(Core& core, Adapter& adapter, std::uint64_t id, ibv_wc_status status, std::uint64_t ticks,
                            std::uint32_t vendor_error);
    unsigned handle_peeked(Adapter& adapter);
    static void reap_sole(Core& core, SendQueue& queue, std::uint16_t position);
    void reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks);
    static void tally(const Posted& posted, Path& sub); // statistics of the path

    Core& core_;
};

} // namespace ucx_mp::channel
