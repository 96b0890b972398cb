// How packets get from a port to a port: one contract, two models.
//  - VirtualNetwork: exact. Round robin between sources (and send engines) at the adapter, output FIFOs at switches,
//    finite buffers with credits, so that a hot spot spreads; every hop of every chunk is an event.
//  - RealNetwork: approximate, for several processes in real time. A chunk reserves time on every link of its route at
//    injection (LinkState::busy_until in the segment), a source runs ahead of the clock by a bounded window only, and
//    waits while a link on its route is reserved further ahead than its buffer; nobody ever waits for another process.
// Both: chunks (a few packets of one message), loss by faults, counters, QP context cache, message costs.
// All calls under Engine::mutex. `now` is model time.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/segment.h"
#include "engine/scheduler.h"

namespace softhca {

class Source;

// A few consecutive packets of one message on their way. Filled by Source::next_chunk, completed by the network.
struct Chunk {
    Source* source = nullptr;
    uint32_t src_port = kNone; // image port index
    uint32_t dlid = 0;
    uint32_t dst_port = kNone;     // set by the network (kNone: unreachable, all packets lost)
    uint32_t payload = 0;          // bytes; wire bytes = payload + packets * AdapterLimits::wire_header
    uint16_t packets = 1;          // 1..64
    bool first_of_message = false; // pays message costs
    uint32_t dst_qpn = 0; // the context that the message needs at the other adapter (of a DC message: the target's); 0:
                          // none
    bool last_of_message = false;
    uint64_t lost = 0;  // bit i: packet i does not arrive (set by the network)
    Nanos injected = 0; // last byte has left the adapter
    Nanos arrived = 0;  // last byte is at the destination port
    // the source's own book-keeping
    uint32_t psn = 0, era = 0;
    uint64_t item = 0, offset = 0;
};

// Something that sends chunks from a port: the requester of a QP, or the read responses that a QP's requests caused at
// the other side (then src_port is the remote adapter's port).
class Source {
public:
    virtual ~Source() = default;
    // Fills the next chunk to go; false: nothing now (activate() again when there is).
    virtual bool next_chunk(Chunk& chunk, Nanos now) = 0;
    // The chunk has arrived (or was lost: see chunk.lost), at chunk.arrived. Called once for each chunk handed out.
    virtual void chunk_arrived(Chunk& chunk) = 0;
    // Its last byte has left the adapter, at chunk.injected (before chunk_arrived). Unreliable services complete here.
    virtual void chunk_injected(Chunk&) {}

    uint32_t source_port = kNone; // image port index; constant while active
    uint32_t source_qpn = 0;      // for send engine binding, context cache, fairness
    // Links of the network's own lists.
    Source* net_next = nullptr;
    void* net_state = nullptr; // while active: what the network keeps about it
    bool net_ready = false;    // in a ready list
    bool net_between = true;   // the last chunk ended a message
    Nanos net_not_before = 0;  // earliest start of the next message (qp_message_ns)
    uint32_t in_flight = 0;    // chunks handed out and not yet arrived: the object must live while > 0 or net_ready
};

class Network {
public:
    virtual ~Network() = default;
    // `source` has something to send from now on; idempotent. Chunks are pulled when the adapter can take them.
    virtual void activate(Source& source, Nanos now) = 0;
    // A small control packet (acknowledgment, NAK) from src_port to dlid: the time when it arrives, kNever if it is
    // lost. Pays latency and serialisation of the route but does not queue (documented simplification). `is_ack`:
    // subject to ack_drop.
    virtual Nanos control(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now, bool is_ack) = 0;
    // As control(), of one that adapters work on: takes up the links of its way and occupies the message units at both
    // ends (AdapterLimits::dc_request_ns), after what they have to do before. The time when the other end has looked at
    // it. Virtual time; else as control().
    virtual Nanos request(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now) {
        return control(src_port, dlid, bytes, now, false);
    }
    // Links of the route and the port it ends at; valid until the fabric's generation changes.
    struct Route {
        std::vector<uint32_t> links;
        uint32_t dst_port = kNone; // kNone: no route
        bool ok = false;           // dst reached, every link and both ports up at the time of look-up
    };
    [[nodiscard]] virtual const Route& route(uint32_t src_port, uint32_t dlid) = 0;
    // FabricState::generation has moved: what is queued on dead links is lost now, not at the next event.
    virtual void note_change(Nanos now) { (void)now; }
    // Hash over what has happened so far (virtual time): equal for equal runs.
    [[nodiscard]] virtual uint64_t digest() const { return 0; }
};

std::unique_ptr<Network> make_real_network(Segment&, Scheduler&);
std::unique_ptr<Network> make_virtual_network(Segment&, Scheduler&);

} // namespace softhca
