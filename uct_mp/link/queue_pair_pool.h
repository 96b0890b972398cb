// Queue pairs of RC that connections have given back, in RESET, for connections to come: making one and destroying it
// are the dearest commands (ACTS; AQPS, 3.4).
//
// All queue pairs of an interface are made alike, and the port is said
// when one leaves RESET. So only the adapter and its life distinguish
// them. At most Config::queue_pair_pool queue pairs are kept for each.
//
// The number of a queue pair stays (PROTOCOL.md R233, R234). Packets of its earlier life may still be on their way: it
// rests for as long as they can be, and then begins with other packet numbers. Completions of that life are over before
// it comes here: the move to RESET takes them out of the completion queue, which only the thread that polls may do.
//
// Threads: put() and trim() by the interface's; all with Services::lock() held, but for the move to RESET before put().
// Slow path.
#pragma once

#include <cstdint>
#include <vector>

#include "uct_mp/host/services.h"
#include "uct_mp/verbs/handle.h"

namespace ucx_mp::link {

class QueuePairPool {
public:
    struct Kind {
        std::uint8_t adapter;
        std::uint8_t life; // of the device
        bool operator==(const Kind&) const = default;
    };

    // in RESET; it may be taken from `rested` on, ns
    void put(verbs::QueuePair qp, Kind kind, Nanos rested);
    // The one that has rested for longest, still in RESET. Null: none has rested yet.
    [[nodiscard]] verbs::QueuePair take(Kind kind, Nanos now);
    [[nodiscard]] unsigned count(Kind kind) const;
    [[nodiscard]] unsigned count() const { return static_cast<unsigned>(entries_.size()); }
    // One beyond `most` of its kind, or null. Whoever takes it destroys it, without the lock.
    [[nodiscard]] verbs::QueuePair trim(unsigned most);
    // One of this kind, rested or not, or null. Its taker destroys it in the same way.
    [[nodiscard]] verbs::QueuePair give_back(Kind kind);
    // The adapter has died, or is not used any more: destroys its queue pairs.
    void drop(std::uint8_t adapter);
    void clear() { entries_.clear(); }

    std::uint64_t reused = 0; // statistics

private:
    struct Entry {
        verbs::QueuePair qp;
        Kind kind;
        Nanos rested;
    };
    std::vector<Entry> entries_; // the earliest in front
};

} // namespace ucx_mp::link
