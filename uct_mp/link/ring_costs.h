// Measures what a ring saves and costs on this machine: once, with two queue pairs that are connected with
// each other, by adapter and processor. AQPS calls the results d, p, c and delta (adapt/parameters.h).
//
// Messages come first by the shared receive queue, then by writes into a ring. All are there before the time is taken,
// so only what the processor does is measured. It polls a completion and posts a receive again, or looks into the ring.
// A credit is a message: it is posted, completes, and is received.
//
// Threads: the interface's, but for the measurement: it runs aside (Services::aside), by the system's clock.
#pragma once

#include <atomic>
#include <memory>

#include "uct_mp/host/services.h"
#include "uct_mp/link/ring.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::link {

struct RingCosts {     // ns
    double saved = 0;  // by a message that comes by a ring [d]
    double miss = 0;   // a look in vain [p]
    double credit = 0; // [c]
    double make = 0;   // its memory is registered aside: an offer and the answer [delta]
};

// False: the port is not active, or it did not work. Waits for its own completions, a second at most.
[[nodiscard]] bool measure_ring_costs(const verbs::DeviceSet& devices, const verbs::Rail& rail, const RingShape& shape,
                                      RingCosts& out, const std::atomic<bool>* stop = nullptr);

class RingCostTest {
public:
    enum class State : std::uint8_t { running, failed, done };

    // Null: something else is under way there; to be tried again later.
    [[nodiscard]] static std::unique_ptr<RingCostTest> begin(Services& services, const verbs::DeviceSet& devices,
                                                             const verbs::Rail& rail, const RingShape& shape);
    ~RingCostTest() { shared_->stop.store(true, std::memory_order_relaxed); } // it ends soon, by itself
    RingCostTest(const RingCostTest&) = delete;

    [[nodiscard]] State state() const { return shared_->state.load(std::memory_order_acquire); }
    [[nodiscard]] const RingCosts& costs() const { return shared_->costs; } // when it is done

private:
    struct Shared {
        std::atomic<bool> stop{false};
        std::atomic<State> state{State::running};
        RingCosts costs;
    };
    explicit RingCostTest(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    std::shared_ptr<Shared> shared_;
};

} // namespace ucx_mp::link
