// What both network models share: the fabric as it is now (states, rates), routes, losses by faults, counters, and the
// control packets, which never queue.
// The healthy path pays one flag test per link for faults: LinkView::faulty and PortView::faulty are refreshed when
// FabricState::generation moves, so whoever changes a knob must bump the generation.
#pragma once
#include <unordered_map>

#include "fabric/network.h"
#include "fabric/network_engines.h"

namespace softhca {

// A link as the models see it: the image, overridden by its LinkState.
struct LinkView {
    uint64_t rate = 0;    // bytes/s, 0 = infinite
    uint64_t latency = 0; // ns, including an injected delay
    bool up = true;
    bool faulty = false; // some knob of LinkState::faults is set
};

struct PortView {
    uint64_t rate = 0;  // bytes/s, by fault; applies where there is no link (crossbar, loop-back)
    uint32_t delay = 0; // ns, by fault
    bool up = true;     // port up, device alive
    bool alive = true;  // device alive
    bool faulty = false;
};

// Nanoseconds that `bytes` need at `rate` bytes/s (0 = infinite), rounded up.
[[nodiscard]] inline uint64_t transfer_ns(uint64_t bytes, uint64_t rate) {
    return rate == 0 ? 0 : (bytes * 1000000000u + rate - 1) / rate;
}

// Bits 0..packets-1: every packet of a chunk.
[[nodiscard]] inline uint64_t all_packets(uint32_t packets) { return packets >= 64 ? ~0ull : (1ull << packets) - 1; }

// Takes a cable down as a fault does: both directions, the adapter ports at its ends (PORT_ERR), generation.
// Idempotent. Any process.
void take_cable_down(Segment&, uint32_t link);

// Chunks on their way: made in blocks, linked by their `next` while they are free.
template <class Transit> class TransitPool {
public:
    [[nodiscard]] Transit* take() {
        if (!free_) {
            blocks_.push_back(std::make_unique<Transit[]>(kBlockSize));
            for (uint32_t i = 0; i < kBlockSize; ++i) give(&blocks_.back()[i]);
        }
        Transit* t = free_;
        free_ = t->next;
        static_cast<Chunk&>(*t) = Chunk{};
        return t;
    }
    void give(Transit* t) {
        t->next = free_;
        free_ = t;
    }

private:
    static constexpr uint32_t kBlockSize = 64;
    Transit* free_ = nullptr;
    std::vector<std::unique_ptr<Transit[]>> blocks_;
};

class NetworkBase : public Network {
public:
    const Route& route(uint32_t src_port, uint32_t dlid) override;
    Nanos control(uint32_t src_port, uint32_t dlid, uint32_t bytes, Nanos now, bool is_ack) override;

protected:
    // `salt` makes the random sequences of several processes of one session differ. `shared`: counters are updated by
    // several processes (or threads) at once.
    NetworkBase(Segment&, Scheduler&, uint64_t salt, bool shared);

    // To be called first at every entry from outside and at every event. True: the fabric has changed, views and routes
    // have been refreshed (Route references are gone).
    bool refresh() {
        if (seg_.fabric.generation.load(std::memory_order_acquire) == generation_) [[likely]]
            return false;
        refresh_slow();
        fabric_changed();
        return true;
    }

    [[nodiscard]] uint32_t wire_bytes(const Chunk& c) const {
        return c.payload + c.packets * image_.device(image_.port(c.src_port).device).limits.wire_header;
    }
    virtual void fabric_changed() {}

    // The next chunk of `s`, whose turn it is at `e`; false: it has none.
    template <class Transit> bool next_from(Source& s, SendEngine& e, Transit& t, Nanos now) {
        if (!s.next_chunk(t, now)) return false;
        e.busy = true;
        ++s.in_flight;
        t.source = &s;
        if (t.src_port == kNone) t.src_port = s.source_port;
        t.engine = &e;
        t.wire = wire_bytes(t);
        s.net_between = t.last_of_message;
        return true;
    }
    // A message of `s` begins: the time that it needs of the adapter's message unit. `hit`: its context is in the
    // cache.
    uint64_t begin_message(Source& s, uint32_t device, bool hit, Nanos now) {
        const AdapterLimits& limits = image_.device(device).limits;
        DeviceState& counters = seg_.device(device);
        s.net_not_before = now + limits.qp_message_ns;
        add(counters.messages, 1);
        if (!hit) add(counters.cache_misses, 1);
        return limits.message_ns + (hit ? 0 : limits.qp_cache_miss_ns);
    }
    // Does the port answer on this LID?
    [[nodiscard]] bool owns_lid(uint32_t port, uint32_t lid) const;

    // The chunk goes onto the link after having waited `wait` ns for it: counters; lost packets are marked in
    // chunk.lost.
    void cross_link(uint32_t link, Chunk& chunk, uint32_t wire, uint64_t wait) {
        LinkState& s = seg_.link(link);
        const uint64_t before = add(s.packets, chunk.packets);
        add(s.bytes, wire);
        add(s.chunks, 1);
        if (wait != 0) {
            add(s.wait_ns, wait);
            if (wait > s.peak_queue_ns.load(std::memory_order_relaxed))
                s.peak_queue_ns.store(wait, std::memory_order_relaxed);
        }
        if (links_[link].faulty) [[unlikely]]
            lose_on_link(link, chunk, before);
    }
    void lose_all_on_link(uint32_t link, Chunk& chunk);   // the link is down
    void lose_on_route(const Route& route, Chunk& chunk); // it does not lead there: counted where it is cut, if it is
    void leave_port(Chunk& chunk, uint32_t wire);         // sent by chunk.src_port
    void enter_port(Chunk& chunk, uint32_t wire);         // received by chunk.dst_port

    uint64_t add(std::atomic<uint64_t>& counter, uint64_t n) const {
        if (shared_) return counter.fetch_add(n, std::memory_order_relaxed);
        const uint64_t old = counter.load(std::memory_order_relaxed);
        counter.store(old + n, std::memory_order_relaxed);
        return old;
    }

    Segment& seg_;
    Scheduler& scheduler_;
    const FabricImage& image_;
    std::vector<LinkView> links_;
    std::vector<PortView> ports_;

private:
    struct Losses {
        uint64_t dropped = 0, corrupted = 0; // bit i: packet i
        bool cut = false;                    // the link goes down now
    };
    void refresh_slow();
    void walk(uint32_t src_port, uint32_t dlid, Route& route) const;
    void lose_on_link(uint32_t link, Chunk& chunk, uint64_t before);
    void lose_at_port(uint32_t port, Chunk& chunk, uint64_t before);
    // Fate of `packets` packets, the first of which is number before + 1 of its link or port.
    Losses roll(FaultKnobs& knobs, uint64_t before, uint32_t packets, bool is_ack);
    bool control_lost(FaultKnobs& knobs, std::atomic<uint64_t>& drops, std::atomic<uint64_t>& corrupted,
                      uint64_t before, bool is_ack, bool& cut);
    bool chance(uint32_t ppm);

    const uint64_t salt_;
    const bool shared_;
    uint32_t generation_;
    uint64_t seed_ = 0, random_ = 0;
    std::unordered_map<uint64_t, Route> routes_; // key: source port << 32 | DLID
};

} // namespace softhca
