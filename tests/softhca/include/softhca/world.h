// Many nodes in one process, in virtual time: the C++ API of the simulator and of tests.
//
// A World is a fabric with its adapters. The program makes verbs calls as usual (it links libsofthca.so instead of
// libibverbs); the node whose adapters ibv_get_device_list() shows is chosen by select(). Nothing moves until the
// program steps the clock: one step fires one event (a chunk on a link, a time-out, a timer of the program). Single
// threaded and deterministic: the same calls with the same seed give the same bytes at the same times; fingerprint()
// tells. Calls take no virtual time by themselves, unless Options::host says what they cost.
//
//     World world("fattree-144", {.seed = 1});
//     world.select(0); ... ibv_open_device, ibv_create_qp, ibv_post_send ...
//     world.run_until([&] { return ibv_poll_cq(cq, 1, &wc) == 1; });
//
// Times in ns. One World at a time per process; destroy all verbs objects before it.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "softhca/fabric.h"
#include "softhca/host_costs.h"
#include "softhca/time.h"

namespace softhca {
struct FaultCommand;
struct Segment;
} // namespace softhca

namespace softhca::sim {

struct Options {
    uint64_t seed = 1;
    // RDMA and send payloads longer than this many bytes are not copied (their times and completions are as always), so
    // that buffers may be shared or smaller than what is sent through them. 0 = everything is copied.
    uint64_t payload_limit = 0;
    Nanos start = 1'000'000'000; // the clock is never 0
    HostCosts host = {};         // none: those of the fabric
};

class World {
public:
    // Throws std::system_error (no memory, another world) or FabricError (fabric files).
    explicit World(const FabricImage& image, Options options = {});
    // A fabric file, or the name of one in config/fabrics; routes by opensm, cached.
    explicit World(const std::string& fabric, Options options = {});
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    [[nodiscard]] uint32_t nodes() const { return image().nodes; }
    void select(uint32_t node);
    // Who opens devices now is a program of its own, with a processor of its own; `processor` is its number. Else a
    // node's programs share one, which has the node's number.
    void select(uint32_t node, uint32_t processor);
    [[nodiscard]] Nanos now() const;
    // As programs on this processor see it: later than now() while it is busy.
    [[nodiscard]] Nanos now_at(uint32_t processor) const;
    // What processors spend from now on; none of it before (set-up may be free).
    void host_costs(const HostCosts& costs);
    [[nodiscard]] const HostCosts& host_costs() const { return host_; }
    // A program of `node` does something in its own memory: looks at rings, copies. Nothing, unless some host cost is
    // set.
    void spend(uint32_t node, uint32_t processor, Nanos cost);

    // Fires the next event; false: there is none.
    bool step();
    // All events up to and including `t`; the clock is `t` then.
    void run_until(Nanos t);
    // Steps until the condition holds; false if it does not at `limit`, or when nothing happens any more. The condition
    // is asked after every step.
    bool run_until(const std::function<bool()>& condition, Nanos limit = kNever);
    // Until nothing is left to happen.
    void run();

    // The nodes that may have something new to see since the last call: completions, data that RDMA has written, port
    // and device events. Each once, in order of time; valid until the next call. So a program need not poll all its
    // nodes after every step:  while (world.step()) for (uint32_t node : world.touched()) progress(node);
    std::span<const uint32_t> touched();

    // Timers of the program: called once by the step that reaches `t`. cancel() of one that has fired is allowed.
    using Timer = uint64_t;
    Timer at(Nanos t, std::function<void()> fn);
    void cancel(Timer timer);

    // A fault command (README.md, Faults; `softhca fault --help`), now or at a time: "port down 0:softhca_0:1", "drop
    // 2% leaf1->spine2", ... Throws FabricError for what is not understood. `reroute` does nothing. A node's program is
    // the caller's: `stop` and `node-death` only say that it shall not run, by runs() and by leaving the node out of
    // touched(), until `cont` (after which the node is reported once). The adapters of a stopped node work on; those of
    // a dead one don't, and its programs get no events.
    void fault(const std::string& command);
    Timer fault_at(Nanos t, const std::string& command);
    [[nodiscard]] bool runs(uint32_t node) const { return state_[node] == NodeState::running; }

    // Commands (create, modify, query a queue pair, ...) are free here unless HostCosts::commands or this is set: then
    // `fn` gets the cost of each that has one (fabric file, fault `command-cost`), inside of the verbs call and before
    // it does anything. The time is the program's to take: it may step the clock there on another stack, as long as
    // nobody re-enters what is under way. Returns what was set before.
    std::function<void(Nanos)> on_command(std::function<void(Nanos cost)> fn);

    struct LinkCounters {
        uint64_t bytes, packets, chunks, drops, corrupted, wait_ns, peak_queue_ns;
    };
    [[nodiscard]] LinkCounters link(uint32_t index) const;
    // Bytes/s that it carries now, by fault or as the fabric says; 0: any number.
    [[nodiscard]] uint64_t link_rate(uint32_t index) const;
    // Index of the (first) link from A to B, by the names of switches and nodes; kNone if there is none.
    [[nodiscard]] uint32_t find_link(const std::string& from, const std::string& to) const;
    struct PortCounters {
        uint64_t tx_packets, rx_packets;
    };
    [[nodiscard]] PortCounters port(uint32_t index) const;
    // Verbs objects that exist on an adapter. `device`: its index in image().
    struct Objects {
        uint32_t queue_pairs, completion_queues, shared_receive_queues;
    };
    [[nodiscard]] Objects objects(uint32_t device) const;
    // Messages that had to wait for a queue pair's context on this adapter, so far.
    [[nodiscard]] uint64_t cache_misses(uint32_t device) const;
    // ibv_qp_state of a queue pair, as its peers' packets meet it.
    [[nodiscard]] uint32_t queue_pair_state(uint32_t qp_number) const;
    // What queues take by the depth that the program asked for, in bytes.
    struct QueueBytes {
        uint64_t receives;   // the queue pair's receive queue
        uint64_t least_send; // the smallest send queue, which is made when it is used
        uint64_t completion; // an entry of a completion queue
    };
    [[nodiscard]] QueueBytes queue_bytes(uint32_t qp_number) const;
    [[nodiscard]] const FabricImage& image() const { return *image_; }
    // For the adapter's own tests: what is inside.
    [[nodiscard]] Segment& segment() { return *segment_; }

    // Hash over all events so far: equal for equal runs.
    [[nodiscard]] uint64_t fingerprint() const;
    [[nodiscard]] uint64_t events() const; // fired so far

private:
    struct Slot {
        std::function<void()> fn;
        uint32_t use = 0; // upper half of the Timer
    };
    enum class NodeState : uint8_t { running, stopped, dead };
    void open(const FabricImage& image, const Options& options);
    void apply(const FaultCommand& command);
    static void on_timer(void* self, uint64_t timer, uint64_t when);
    [[nodiscard]] std::string end_name(EndKind kind, uint32_t index) const;

    Segment* segment_ = nullptr;
    const FabricImage* image_ = nullptr; // in there
    HostCosts host_;
    std::function<void(Nanos)> on_command_;
    std::vector<uint32_t> touched_;
    std::vector<uint32_t> continued_; // to be reported by touched()
    std::vector<NodeState> state_;
    std::vector<Slot> timers_;
    std::vector<uint32_t> free_timers_;
};

} // namespace softhca::sim
