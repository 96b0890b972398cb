// Chooses the peers that get a message ring: counts their messages, and weighs the gain of a ring against the costs of
// polling and credits (adapt/, AQPS).
//
// Adaptation chooses separately which peers get RC. A ring is written to over any path, so its gain does not depend on
// RC. FIND_MAP then has two independent sums, and each has time windows of its own. Only messages from a peer to us
// count here. The user gives the costs of rings, or they are measured once, on another thread.
//
// Callers: Progress, now and then. Slow path. Threads: the interface's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "uct_mp/adapt/windows.h"
#include "uct_mp/channel/interface.h"
#include "uct_mp/link/ring_costs.h"

namespace ucx_mp::channel {

struct Core;
enum class Reason : std::uint8_t;

class RingChoice {
public:
    explicit RingChoice(Core& core);
    void attend(Nanos now);

    std::uint64_t changes = 0;
    [[nodiscard]] const adapt::Costs& costs() const { return tuning_.costs; } // of rings; 0: not known yet

private:
    struct Seen { // the channel in this slot at the end of the last slice: local_id, expected
        std::uint32_t id = 0, expected = 0;
    };
    [[nodiscard]] std::vector<adapt::Counts::Entry> read_counts();
    void end_slice(Nanos now);
    void look();
    void serve_all(const adapt::Mapping& map, Reason why); // why: of peers that lose their ring
    void serve_waiting();
    [[nodiscard]] bool serve(Channel& channel); // false: try again later

    Core& core_;
    void measure(Nanos now);

    const bool at_once_;
    bool weighs_;
    bool awake_ = true; // at the last attend(): the program polled
    adapt::Tuning tuning_;
    bool measures_; // the costs of rings are still to be measured
    std::unique_ptr<link::RingCostTest> test_;
    Nanos next_test_ = 0; // not before this, if no test could begin or the last one has failed
    Nanos test_again_ = 1'000'000'000;
    std::optional<adapt::Windows> windows_;
    std::vector<Seen> seen_; // by slot
    unsigned without_ = 0;   // peers without a ring that have sent in the last slice
};

} // namespace ucx_mp::channel
