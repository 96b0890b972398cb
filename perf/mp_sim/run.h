// Runs jobs (kernel.h) over the real transport in virtual time: one process per rank, wherever it is.
#pragma once

#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"
#include "simulator/cluster.h"

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

class Run {
public:
    // `hosts[i]`: the fabric's node of rank i, that is, of the cluster's node i. Messages of up to `eager` bytes are
    // eager; the interfaces' limits lower that. The job must outlive it.
    Run(Cluster& cluster, const Job& job, std::uint64_t eager, Rendezvous rendezvous = Rendezvous::put);
    // Opens every connection that the job uses; ns.
    Nanos connect();
    // From now on ranks begin up to `ns` late, each as late as is drawn, anew for every run. 0: all at once.
    void begin_late(Nanos ns, std::uint64_t seed) { late_ = ns, random_.seed(seed); }
    // Bytes of the largest message that is eager here.
    [[nodiscard]] std::uint64_t eager() const { return eager_; }
    // Runs the job once; ns. `progress` is told now and then how many steps of all are done.
    Nanos once(const std::function<void(double)>& progress = {});

    // The longest time for which a rank that had something left to do did no step, since the last call; ns.
    [[nodiscard]] Nanos longest_pause() { return std::exchange(pause_, 0); }

    // From now on each transfer is noted there, in the order in which they began. Null: no more.
    void record(std::vector<Transfer>* transfers) { transfers_ = transfers; }

private:
    struct Received {
        std::uint32_t data = 0, sync = 0;        // messages, ever
        std::uint32_t taken = 0, sync_taken = 0; // of them: waited for
        std::uint64_t held = 0;                  // Rank::pass in which a message to this peer found no room
    };
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
    struct Rank {
        Run* run;
        unsigned index = 0;
        std::size_t step = 0;
        std::uint64_t done_steps = 0; // ever
        unsigned open = 0;            // operations that are not complete
        bool started = false;         // of the step at hand: computation
        bool running = false;
        Nanos stepped_at = 0;                  // last
        bool again = false;                    // the step was refused, but can be tried at once
        std::deque<Answer> answers;            // what there was no room for is tried again
        std::deque<Written> writes;            // likewise; those to a peer in their order
        std::uint64_t pass = 0;                // over the writes
        std::vector<Received> from;            // by rank
        std::uint64_t received = 0, taken = 0; // data, of all
        std::uint64_t fetched = 0;             // result of an atomic operation
    };
    struct Done : Completion {
        Rank* rank;
        unsigned sender = kAnyone;    // whose message this reads: no operation of the rank's own
        std::size_t noted = SIZE_MAX; // in transfers_
    };
    struct Packing {
        Node* node;
        std::uint64_t bytes, header;
    };
    [[nodiscard]] std::string where_it_stands() const;
    [[nodiscard]] bool turn(Rank& rank);
    [[nodiscard]] bool take(Rank& rank, const Step& step);
    [[nodiscard]] bool send(Rank& rank, const Step& step);
    [[nodiscard]] bool write(Rank& rank);
    [[nodiscard]] bool write(Rank& rank, Written& message);
    [[nodiscard]] bool request(Rank& rank, const Step& step);
    [[nodiscard]] bool answer(Rank& rank);
    [[nodiscard]] bool message(Rank& rank, unsigned to, std::uint8_t id, std::uint64_t bytes);
    [[nodiscard]] bool operation(Rank& rank, const Step& step, unsigned sender = kAnyone);
    [[nodiscard]] bool accepted(Rank& rank, unsigned to, Status status);
    [[nodiscard]] bool await(Rank& rank, const Step& step);
    [[nodiscard]] Done* begin(Rank& rank, const Step& step, unsigned sender);
    void completed(const Done& done);
    void charge_copy(unsigned rank, std::uint64_t bytes);
    static Status arrived(void* self, void* data, std::size_t length, bool sync);
    static Status requested(void* self, void* data, std::size_t length, unsigned flags);
    static Status finished(void* self, void* data, std::size_t length, unsigned flags);
    [[nodiscard]] channel::Interface& iface(unsigned rank) { return cluster_.node(rank).iface(); }
    [[nodiscard]] Channel& channel(unsigned from, unsigned to);

    Cluster& cluster_;
    const Job& job_;
    const Rendezvous rendezvous_;
    std::uint64_t eager_, total_steps_ = 0;
    std::vector<Rank> ranks_;
    std::vector<Node::Memory> memory_;
    std::vector<std::vector<Channel*>> channels_; // [from][to]
    std::vector<Transfer>* transfers_ = nullptr;
    unsigned finished_ = 0;
    Nanos pause_ = 0, late_ = 0;
    std::mt19937_64 random_;
};

} // namespace ucx_mp::sim
