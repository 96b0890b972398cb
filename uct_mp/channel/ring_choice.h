// Who gets a ring: counts who sends, and weighs what a ring saves against polling and credits (adapt/, paper AQPS).
//
// Apart from who gets RC (Adaptation): a ring is written to over whatever path there is, so each saves what it saves,
// with the other or without. FIND_MAP then has two sums that do not depend on each other, and each has its own windows.
// Only what a peer has sent to us counts here.
//
// Who calls: Progress, now and then. Slow path. Threads: the interface's.
#pragma once

#include <optional>
#include <vector>

#include "uct_mp/adapt/windows.h"
#include "uct_mp/channel/interface.h"

namespace ucx_mp::channel {

struct Core;

class RingChoice {
public:
    explicit RingChoice(Core& core);
    void attend(Nanos now);

    std::uint64_t changes = 0;

private:
    struct Seen { // of the channel in this slot, at the end of the last slice
        std::uint32_t id = 0, expected = 0;
    };
    [[nodiscard]] std::vector<adapt::Counts::Entry> read_counts();
    void end_slice(Nanos now);
    void look();
    void serve_all(const adapt::Mapping& map);

    Core& core_;
    const bool at_once_, weighs_;
    adapt::Tuning tuning_;
    std::optional<adapt::Windows> windows_;
    std::vector<Seen> seen_; // by slot
    unsigned without_ = 0;   // peers that have sent in the last slice, and have no ring yet
};

} // namespace ucx_mp::channel
