// A job's messages by the transport alone: eager ones, and a rendezvous as UCP or the papers have it.
#pragma once

#include <deque>

#include "run.h"

namespace ucx_mp::sim {

// A write or a read, rendezvous included: from when the transport took it until it was complete.
struct Transfer {
    unsigned rank, peer;
    std::uint64_t bytes;
    Nanos begin, end;
};

// What a message of more than the eager limit is made of. `get` is UCP's by default: a request, the receiver reads, a
// finish message. Receives count as posted before: a rank answers whenever its processor is free, whatever it waits
// for.
enum class Rendezvous : std::uint8_t { put, get };

class TransportRun final : public Run {
public:
    // Messages of up to `eager` bytes are eager; the interfaces' limits lower that.
    TransportRun(Cluster& cluster, const Job& job, std::uint64_t eager, Rendezvous rendezvous = Rendezvous::put);
    Nanos connect() override;
    [[nodiscard]] std::uint64_t eager() const override { return eager_; }

    // From now on each transfer is noted there, in the order in which they began. Null: no more.
    void record(std::vector<Transfer>* transfers) { transfers_ = transfers; }

private:
    // A message on its way by a write, a fence and a message that tells: what of it has been accepted.
    struct Written {
        unsigned peer;
        std::uint64_t bytes;
        bool put = false, fenced = false;
    };
    // What a rank owes others for their rendezvous: to read, or to tell that it has read (`bytes` 0).
    struct Answer {
        unsigned peer;
        std::uint64_t bytes;
    };
    struct Side {
        TransportRun* run;
        Rank* rank;
        std::deque<Answer> answers;      // what there was no room for is tried again
        std::deque<Written> writes;      // likewise; those to a peer in their order
        std::uint64_t pass = 0;          // over the writes
        std::vector<std::uint64_t> held; // by rank: pass in which a message to this peer found no room
        std::uint64_t fetched = 0;       // result of an atomic operation
    };
    struct Done : Completion {
        Side* side;
        unsigned sender = kAnyone;    // whose message this reads: no operation of the rank's own
        std::size_t noted = SIZE_MAX; // in transfers_
    };
    struct Packing {
        Node* node;
        std::uint64_t bytes, header;
    };
    [[nodiscard]] bool send(Rank& rank, const Step& step) override;
    [[nodiscard]] bool move(Rank& rank, const Step& step) override { return operation(sides_[rank.index], step); }
    [[nodiscard]] bool is_through(const Rank& rank) override { return sides_[rank.index].writes.empty(); }
    [[nodiscard]] bool write(Side& side);
    [[nodiscard]] bool write(Side& side, Written& message);
    [[nodiscard]] bool request(Rank& rank, const Step& step);
    [[nodiscard]] bool answer(Side& side);
    [[nodiscard]] bool message(Rank& rank, unsigned to, std::uint8_t id, std::uint64_t bytes);
    [[nodiscard]] bool operation(Side& side, const Step& step, unsigned sender = kAnyone);
    [[nodiscard]] bool accepted(Rank& rank, unsigned to, Status status);
    [[nodiscard]] Done* begin(Side& side, const Step& step, unsigned sender);
    void completed(const Done& done);
    void charge_copy(unsigned rank, std::uint64_t bytes);
    static Status came(void* self, void* data, std::size_t length, bool sync);
    static Status requested(void* self, void* data, std::size_t length, unsigned flags);
    static Status finished(void* self, void* data, std::size_t length, unsigned flags);
    [[nodiscard]] channel::Interface& iface(unsigned rank) { return cluster_.node(rank).iface(); }
    [[nodiscard]] Channel& channel(unsigned from, unsigned to);

    const Rendezvous rendezvous_;
    std::uint64_t eager_;
    std::vector<Side> sides_; // by rank
    std::vector<Node::Memory> memory_;
    std::vector<std::vector<Channel*>> channels_; // [from][to]
    std::vector<Transfer>* transfers_ = nullptr;
};

} // namespace ucx_mp::sim
