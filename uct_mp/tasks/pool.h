// Shared by the queues of tasks of an interface: a completion queue for each adapter, limits, and the self-test.
//
// Whether an adapter can wait is found out by trying (Probe): no capability tells it without DEVX. The test takes
// kQuiet of time that passes elsewhere, so the answer comes by poll(). It is a WAIT with a fenced write behind it, to
// itself:
//  - while the word has another value, or the same low half, nothing may happen,
//  - when it is written by the processor, the write carries the data that were stored last,
//  - and both complete within kPatience.
//
// Memory is bounded: `queues` for each rail, `requests` for all queues of an adapter together.
//
// Threads: one at a time.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "uct_mp/host/services.h"
#include "uct_mp/tasks/queue.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::tasks {

struct Limits {
    unsigned queues = 64;     // of a rail
    unsigned requests = 4096; // of an adapter
    verbs::Reliability reliability = {.max_rd_atomic = 1};
};

enum class Waits : std::uint8_t { unknown, trying, yes, no };

class Pool {
public:
    // `devices` outlives it.
    Pool(const verbs::DeviceSet& devices, Services& services, const Limits& limits);
    ~Pool(); // after its queues
    Pool(const Pool&) = delete;

    // Begins the self-test of the rail's adapter if need be. unknown: it cannot be tried
    // now, since the rail's port is down, its adapter has died, or it lacks something.
    Waits can_wait(const verbs::Rail& rail);
    [[nodiscard]] const std::string& why_not(const verbs::Rail& rail) const; // one line

    // `depth`: requests under way at once. unsupported: can_wait() has not said yes. invalid_param: depth is 0 or more
    // than kMostRequests; unreachable: the port is down, or the adapter has died; no_resource: too many queues or
    // requests already; io_error: the adapter refuses (errno).
    Status create(const verbs::Rail& rail, unsigned depth, std::unique_ptr<Queue>& out);
    // Takes completions, and returns how many. Queue::done() and failed() tell afterwards. Ports that are down fail
    // their queues as soon as somebody has read the adapter's events.
    unsigned poll();

private:
    friend class Queue;
    struct Probe;
    struct PerDevice {
        verbs::CompletionQueue cq;
        std::unique_ptr<Probe> probe; // while it is tried
        Waits waits = Waits::unknown;
        std::string why_not;
        unsigned requests = 0;                            // left for queues
        std::unordered_map<std::uint32_t, Queue*> queues; // by number
        std::uint32_t downs = 0;                          // of its ports together, at the last poll
    };
    [[nodiscard]] unsigned room(const verbs::Device& device) const; // requests that its queues may still have together
    bool open(const verbs::Device& device, PerDevice& on);
    void look_at_ports(const verbs::Device& device, PerDevice& on);
    void begin_probe(const verbs::Rail& rail, PerDevice& on);
    void step(PerDevice& on);
    void settle(PerDevice& on, Waits result, std::string why_not);
    void forget(const Queue& queue);

    const verbs::DeviceSet& devices_;
    Services& services_;
    Limits limits_;
    std::array<PerDevice, verbs::kMaxDevices> per_device_;
    std::array<unsigned, verbs::kMaxRails> queues_{}; // of each rail
};

} // namespace ucx_mp::tasks
