// The approximate model (fabric/network.h) for several processes in real time.
//
// A chunk is pulled when the send engine's previous chunk leaves the adapter (in model time), and reserves time on
// every link of its route at once: on each link it starts when its head is there and the link is free (same cut-through
// rule as network_virtual.h). So a sender is never ahead of the clock by more than the one chunk that waits for its
// first link. Model time is the nominal time of events: a thread that fires them late reserves link time in the past,
// if nobody else took it, at most kMaxLag back; so lateness costs no throughput, but after a long pause there is no
// burst longer than kMaxLag. On a contended link, what is a late process's by right is kept for it (network_turns.h).
// Back-pressure: a chunk whose route has a link that is reserved further ahead than the buffer before that link holds
// is kept back, and its source with it, until the link's queue is short enough. (Exact credits would need the
// cooperation of processes that may be stopped. So a hot spot does not spread to other traffic of the same inputs;
// virtual time has that.) Not shared by processes: send engines and per-QP message distance; shared (DeviceState):
// message unit, QP contexts (8-way sets instead of exact LRU), host bus.
#pragma once
#include <memory>

#include "fabric/network_engines.h"
#include "fabric/network_route.h"
#include "fabric/network_turns.h"

namespace softhca {

class RealNetwork final : public NetworkBase {
public:
    static constexpr Nanos kMaxLag = 4'000'000; // about a time slice: a thread that lost its core to another one

    // `clock`: instead of the session's, for tests that play several processes.
    RealNetwork(Segment&, Scheduler&, const Nanos* clock = nullptr);
    ~RealNetwork() override;
    void activate(Source& source, Nanos now) override;

private:
    struct Transit : Chunk {
        Transit* next; // free list, queue of a Blocked
        SendEngine* engine;
        uint32_t wire;
        uint32_t generation; // of the fabric, when it was sent
        Nanos ready;         // model time from which it may be on the first link
        Nanos fetched;       // its last byte is in the adapter
        uint64_t lead;       // ns of engine work that the next pull may overlap
        uint32_t blocked_by; // link it waits for, kNone: none
        bool kept;           // could not go when it was pulled
    };
    struct Blocked { // a link that is reserved too far ahead, and our chunks that wait for it
        uint32_t link;
        Transit *first, *last; // `first` asks again from time to time
    };
    struct Port {
        std::vector<Blocked> blocked;
        std::unique_ptr<Turns> turns;
        uint32_t ready_sources = 0;
        Nanos last_arrival = 0;
    };

    static void on_pull(void* self, uint64_t engine, Nanos when);
    static void on_paced(void* self, uint64_t source, Nanos when);
    static void on_retry(void* self, uint64_t transit, Nanos when);
    static void on_injected(void* self, uint64_t transit, Nanos when);
    static void on_arrived(void* self, uint64_t transit, Nanos when);

    [[nodiscard]] Nanos not_too_late(Nanos when, Turns& turns) const;
    SendEngine& engine_of(Source& source);
    void schedule_pull(SendEngine& e, Nanos when);
    void pull(SendEngine& e, Nanos now);
    bool touch_context(uint32_t device, uint32_t qpn, uint32_t entries);
    void send(Transit& t, Nanos now);
    uint32_t obstruction(Transit& t, const Route& r, Nanos now, Nanos& again);
    void keep(Transit& t, uint32_t link, Nanos now, Nanos again);
    void unblock(Transit& t, Nanos now);
    void reserve_route(Transit& t, const Route& r, Nanos now);
    void send_direct(Transit& t, const Route& r, Nanos now);
    void launched(Transit& t, Nanos next_pull);
    void at(Nanos when, Scheduler::Fn fn, void* what) {
        scheduler_.at(when, fn, this, reinterpret_cast<uint64_t>(what));
    }

    const Nanos* const clock_;
    const uint32_t slot_; // of this process
    std::vector<Port> port_state_;
    TransitPool<Transit> transits_;
    SendEngines engines_;
};

} // namespace softhca
