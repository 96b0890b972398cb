// The exact model (fabric/network.h): every chunk is followed from the adapter through every link, in virtual time.
//
// A send engine (AdapterLimits::engines_per_port, or one per source) pulls one chunk at a time, round robin over its
// ready sources, and stages it at the port until the port's link takes it:
//   pull -> [message unit: message_ns, context miss; one per adapter, first chunks only]
//        -> [engine_message, first chunks only] -> [fetch: engine_rate; bus_rate, one per adapter] -> port FIFO -> link
// The next pull is timed so that the engine's costs overlap the chunk on the link, but no earlier: a small message
// waits for the chunk on the link and one staged chunk at most.
//
// A chunk cuts through switches: its head is at the far end `latency` after it started, and may start on the next link
// then; its tail follows one serialisation later. Between links of different rate the start is delayed such that the
// tail never runs dry (packet-wise store and forward on a real switch; the end is the same), so a link is occupied for
// exactly bytes / rate per chunk. Uncontended: latencies once per hop, serialisation once, by the slowest link. A
// switch output is a FIFO; a chunk occupies the receive buffer of the link it came by from its start on that link until
// its tail has left on the next one. A link starts a chunk only if the buffer at its far end has room (credits): that
// is how a full output stops the inputs that feed it, and all other traffic of those inputs. Bytes on the wire do not
// count against the buffer (a long cable has its buffers sized for that), and two chunks always fit, or nothing could
// flow at full rate.
// At the other end the first chunk of a message needs the context of the queue pair (or DC target) that it is for. If
// it is not held, the message unit fetches it, and what comes by that port waits: packets arrive in order. A down link
// drops what is queued on it and what is on it. Routes are looked up hop by hop in the forwarding tables. Costs two
// events per chunk and link, and two or three at the adapters.
#pragma once
#include <memory>

#include "fabric/network_engines.h"
#include "fabric/network_lru.h"
#include "fabric/network_route.h"

namespace softhca {

class VirtualNetwork final : public NetworkBase {
public:
    VirtualNetwork(Segment&, Scheduler&);
    ~VirtualNetwork() override;
    void activate(Source& source, Nanos now) override;
    void note_change(Nanos now) override { check_fabric(now); }
    Nanos request(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now) override;
    uint64_t digest() const override { return digest_; }

private:
    struct Transit : Chunk { // a chunk in the fabric
        Transit* next;       // FIFO of a link, or free list
        SendEngine* engine;  // that staged it, until its first link starts it
        uint32_t wire;       // bytes
        uint32_t link;       // link it is queued on
        uint32_t from;       // link whose receive buffer holds it, kNone: in the adapter
        uint32_t hops;
        uint64_t lead; // ns of engine work that the next pull may overlap
        Nanos head_at; // earliest start on `link`
        Nanos tail_at; // last byte is where the chunk is now
    };
    struct Link {
        Transit *first, *last; // queue
        Transit* on_wire;      // nullptr: idle
        uint32_t wire_bytes;   // of on_wire
        uint32_t credit_link;  // its credits go back to this link when its tail leaves
        bool from_adapter;     // on_wire comes from the adapter: chunk_injected
        bool cut;              // on_wire has taken the link down itself (trip): its losses are settled
        SendEngine* engine;    // whose next pull coincides with the tail
        uint64_t held;         // bytes in the far end's buffer or on the way there
        uint64_t buffer;       // room for them, 0 = infinite
        uint64_t remainder;    // of bytes * 1e9 / rate, so that rates are exact in the long run
        Nanos last_head;       // order is kept when a delay fault ends
        Nanos taken_until;     // by a request, which waits for nobody: the next chunk starts behind it
        uint64_t owed;         // bytes of requests that have come while a chunk was on the wire
    };
    struct Device {
        QpCache cache;
        Nanos unit_until = 0, tx_until = 0, rx_until = 0;
    };
    struct Port {
        Nanos last_arrival = 0;
    };

    // events
    static void on_pull(void* self, uint64_t engine, Nanos when);
    static void on_paced(void* self, uint64_t source, Nanos when);
    static void on_fetch(void* self, uint64_t transit, Nanos when);
    static void on_head(void* self, uint64_t transit, Nanos when);   // may start on its link
    static void on_tail(void* self, uint64_t link, Nanos when);      // the link's chunk has left completely
    static void on_direct(void* self, uint64_t transit, Nanos when); // left an adapter that has no wire
    static void on_port(void* self, uint64_t transit, Nanos when);   // tail at the last port
    static void on_deliver(void* self, uint64_t transit, Nanos when);
    static void on_request_head(void* self, uint64_t link_and_bytes, Nanos when); // a request starts on the link
    static void on_request(void* self, uint64_t port, Nanos when);                // arrives

    void fabric_changed() override { changed_ = true; }
    void check_fabric(Nanos now); // first in every event
    void size_buffers();
    void schedule_pull(SendEngine& e, Nanos when);
    void pull(SendEngine& e, Nanos now);
    void fetch(Transit& t, Nanos now);
    void queue(Transit& t, Nanos now);
    void try_start(uint32_t link, Nanos now);
    void start(uint32_t link, Nanos now);
    void forward(Transit& t, Nanos head, Nanos tail);
    void give_credit(uint32_t link, uint32_t bytes, Nanos now);
    void discard(Transit& t, Nanos now);
    Nanos occupy_unit(uint32_t device, Nanos cost, Nanos now); // until when
    Nanos fetch_context(const Transit& t, uint32_t device, Nanos now);
    void deliver(Transit& t, Nanos now);
    void at(Nanos when, Scheduler::Fn fn, void* what) {
        scheduler_.at(when, fn, this, reinterpret_cast<uint64_t>(what));
    }

    // Kind: 0 start on a link, 1 arrival.
    void note(uint64_t kind, Nanos now, uint64_t where, const Transit& t) {
        digest_ = (digest_ ^ now ^ (where << 40) ^ (kind << 63) ^ t.lost) * 0x9e3779b97f4a7c15u + t.wire;
    }

    bool changed_ = false;
    uint64_t digest_ = 0;
    uint64_t largest_chunk_ = 0; // bytes on the wire
    std::vector<Link> state_;
    std::vector<Device> devices_;
    std::vector<Port> port_state_;
    TransitPool<Transit> transits_;
    SendEngines engines_;
};

} // namespace softhca
