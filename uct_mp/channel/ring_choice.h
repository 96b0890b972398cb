// Chooses the peers that get a ring: counts their messages, and weighs the gain of a ring against polling and credits
// (adapt/, AQPS).
//
// Apart from who gets RC (Adaptation): a ring is written to over whatever path there is, so each saves what it saves,
// with the other or without. FIND_MAP then has two sums that do not depend on each other, and each has its own windows.
// Only what a peer has sent to us counts here. The user gives the costs of rings, or they are measured once, aside.
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
    struct Seen { // of the channel in this slot, at the end of the last slice
        std::uint32_t id = 0, expected = 0;
    };
    [[nodiscard]] std::vector<adapt::Counts::Entry> read_counts();
    void end_slice(Nanos now);
    void look();
    void serve_all(const adapt::Mapping& map, Reason why); // why others have none
    void serve_waiting();
    [[nodiscard]] bool serve(Channel& channel); // false: it is to be tried again

    Core& core_;
    void measure(Nanos now);

    const bool at_once_;
    bool weighs_;
    bool awake_ = true; // at the last look
    adapt::Tuning tuning_;
    bool measures_; // what rings cost, before anything is weighed
    std::unique_ptr<link::RingCostTest> test_;
    Nanos next_test_ = 0; // if nobody has taken it, or it has failed
    Nanos test_again_ = 1'000'000'000;
    std::optional<adapt::Windows> windows_;
    std::vector<Seen> seen_; // by slot
    unsigned without_ = 0;   // peers that have sent in the last slice, and have no ring yet
};

} // namespace ucx_mp::channel
