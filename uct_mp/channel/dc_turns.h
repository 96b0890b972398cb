// Measures the time lost when a DC initiator turns to another target: it must disconnect from one and connect to the
// other, and both adapters take part. Latencies do not show that loss under a flood. So it is measured as a rate: one
// initiator gets empty writes for one peer, then for another one, then for both in turn.
//
// The two peers share that initiator for their messages, and have been heard of lately: a silent one could block the
// initiator. A round begins when nothing is under way on the initiator. It does not count if the program posts there
// meanwhile. Timestamps tell when a part is over. Without them, a round counts only if progress has polled often
// enough. The result is the median of kRounds rounds, which take some two seconds in all. It is measured again after a
// while, ever less often.
//
// These writes are requests of their path like any others: Path::open counts them, and recovery handles their loss.
//
// Callers: Adaptation (consider, attend), Progress (poll) while a round is under way. Slow path.
// Threads: the interface's. Times are ns.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "uct_mp/channel/types.h"
#include "uct_mp/host/services.h"
#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::link {
class SendQueue;
}

namespace ucx_mp::channel {

struct Core;
class Channel;

class DcTurns {
public:
    explicit DcTurns(Core& core) : core_(core) {}
    // `heard`: ids of channels that received or completed something in the last slice of time.
    void consider(std::vector<std::uint32_t> heard);
    // Begins a round if one is due and possible now.
    void attend(Nanos now);
    // Goes on with the round that attend() has begun.
    void poll();
    // ns lost by a message to another target than that of the message before on its initiator. 0: none, or not known.
    [[nodiscard]] double cost() const { return cost_.value_or(0); }
    [[nodiscard]] bool known() const { return cost_.has_value(); }
    // Returns how many writes these rounds have posted to this channel since the last call, for counts that leave them
    // out.
    [[nodiscard]] std::uint32_t take_posted(std::uint32_t id);
    void drop_posted() { posted_.clear(); } // forgets the writes to all other channels

private:
    static constexpr unsigned kParts = 3; // of a round: one target, the other one, both
    struct Target {
        Channel* channel;
        schedule::PathIndex path;
        link::SendQueue* queue; // the initiator
    };
    [[nodiscard]] std::optional<Target> target_of(std::uint32_t id, unsigned rail) const;
    [[nodiscard]] link::SendQueue* choose(unsigned rail);
    void begin();
    void post_part();
    void take_part(Nanos now);
    [[nodiscard]] Nanos rest() const;
    void stop();

    Core& core_;
    std::vector<std::uint32_t> heard_; // few
    // The round under way
    link::SendQueue* queue_ = nullptr; // the initiator; null: no round is under way
    unsigned rail_ = 0;
    std::uint32_t ids_[2] = {};                      // of the two channels
    std::uint32_t end_ = 0;                          // the queue's head, unless others have posted since
    unsigned part_ = kParts;                         // kParts: earlier requests have not completed yet
    Nanos round_began_ = 0, began_ = 0, polled_ = 0; // began_: of the part
    double took_[kParts] = {};
    std::vector<std::pair<std::uint32_t, std::uint32_t>> posted_; // ids, writes
    // The results
    std::vector<double> found_; // ns per turn, by each round
    unsigned tries_ = 0;
    unsigned rests_ = 0;
    Nanos next_ = 0; // no round begins before
    std::optional<double> cost_;
};

} // namespace ucx_mp::channel
