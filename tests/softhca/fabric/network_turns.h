// Whose turn it is on a contended link, in real time.
//
// A reservation (LinkState::busy_until) belongs to whoever makes it first, so processes whose threads run late would
// lose their share to those that are on time. Therefore a port whose chunks have to wait for a link registers there:
// with the link time it has been served so far (tag, as in start-time fair queueing) and the model time of its next
// reservation (due). Whoever reserves the link first reserves for registered competitors that are due before and have
// been served no more: they find that time in their bank when their threads run, and use it although it is in the past
// by then. So nobody waits for anybody, and the shares are exact as long as no thread is late by more than kMaxBank; a
// port that is (a stopped process) gets no more, and the others go on without it.
//
// Link time that nobody has reserved is remembered too (as so many ns of a span of time), so that a late chunk can
// still have it although later chunks have moved busy_until on.
//
// At most kLinkTurns competitors of a link are ordered; more just compete. One per process and port; under
// Engine::mutex.
#pragma once
#include <vector>

#include "core/segment.h"

namespace softhca {

class Turns {
public:
    static constexpr Nanos kMaxBank = 10'000'000; // ns of link history that are remembered

    Turns(Segment& seg, uint32_t slot, uint32_t port) : seg_(seg), self_(uint64_t{slot + 1} << 32 | port) {}

    // A process's part of what a link gives: all its queue pairs against all others at the first link; behind that, the
    // port counts as one, like a switch input.
    struct Share {
        uint64_t part = 1, of = 1;
    };
    // The part of this process at its port, whose link is `first_link`.
    [[nodiscard]] Share port_share(uint32_t first_link);

    // Reserves `length` ns of the link at or after `ready` and returns the start.
    Nanos take(uint32_t link, Nanos ready, Nanos length, Share share);
    // The earliest time that a reservation could have now, apart from other competitors.
    [[nodiscard]] Nanos available(uint32_t link, Nanos ready, Nanos length);

    // The port can't reserve this link before `due`; it keeps or takes its place there.
    void wait(uint32_t link, Nanos due, Nanos length);
    // The port will want the link again at `due`, and every `period` ns at most.
    void next(uint32_t link, Nanos due, Nanos period);
    // The port does nothing at all before `due` (it waits for another link).
    void postpone(Nanos due);
    void leave_all();
    // Leaves links that have not been used since `before` (model time).
    void sweep(Nanos before);
    [[nodiscard]] bool any() const { return !entries_.empty(); }
    // The oldest link time that others keep for this port; kNever if there is none.
    [[nodiscard]] Nanos oldest_bank();

private:
    struct Entry {
        uint32_t link, index;
        Nanos used; // model time
    };
    using Turn = LinkTurns::Turn;
    Turn* find(uint32_t link);
    Turn* join(uint32_t link, Nanos due, Nanos length);
    void leave(uint32_t link);
    bool lock(LinkTurns& t);
    static void trim(Turn& t, Nanos ready, Nanos length);
    static Nanos append(LinkState& link, Nanos ready, Nanos length);
    static bool idle_at(const LinkTurns& t, Nanos ready, Nanos length);
    void serve_others(LinkState& link, Nanos ready, Nanos length, uint64_t tag);

    Segment& seg_;
    const uint64_t self_;
    int skip_ = 0;
    std::vector<Entry> entries_; // links where this port is registered, as far as it knows
};

// Reserves `length` ns at or after `from` behind everything else, and returns the start.
Nanos reserve(std::atomic<uint64_t>& busy_until, Nanos from, Nanos length);

} // namespace softhca
