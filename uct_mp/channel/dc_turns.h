// Measures the time lost when a DC initiator turns to another target: it must leave the one and connect to the other,
// and both adapters look at the requests. A latency does not show that, since a flood hides it. So it is measured
// apart, as a rate: one initiator is given empty writes for one peer, for another one, and for both in turn.
//
// Only peers that share that initiator for their messages, and that have been heard of lately: one that is silent would
// hold it. Such a round begins when nothing is under way there; what asked for no completion is pushed out before. It
// does not count if the program posts something meanwhile. The adapter tells when a part is over; if it has no
// timestamps, a round counts only if progress has looked often enough. The median of a few rounds counts. A round
// comes now and then, some two seconds for all of them, and they are repeated after a while, ever less often.
//
// A write is one of its path like any other: it is in Path::open, and recovery knows what to do if it is lost.
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
    // Ids of channels that something has come from, or completed, in the last slice of time.
    void consider(std::vector<std::uint32_t> heard);
    // Begins the next round, or waits for the moment, if that can be done now.
    void attend(Nanos now);
    // Goes on with what attend() has begun.
    void poll();
    // Lost by a message to another target than the one before on its initiator; 0: nothing, or not known.
    [[nodiscard]] double cost() const { return cost_.value_or(0); }
    [[nodiscard]] bool known() const { return cost_.has_value(); }
    // Writes that have been posted to this channel since it was asked last: none of the program's.
    [[nodiscard]] std::uint32_t take_posted(std::uint32_t id);
    void drop_posted() { posted_.clear(); } // those to others

private:
    static constexpr unsigned kParts = 3; // of a round: one target, the other one, both
    struct Target {
        Channel* channel;
        schedule::PathIndex path;
        link::SendQueue* queue; // that its messages take
    };
    [[nodiscard]] std::optional<Target> target_of(std::uint32_t id, unsigned rail) const;
    [[nodiscard]] link::SendQueue* choose(unsigned rail);
    void begin();
    void post_part();
    void take_part(Nanos now);
    [[nodiscard]] Nanos rest() const; // at least, between two rounds
    void stop();

    Core& core_;
    std::vector<std::uint32_t> heard_; // few
    // The round under way
    link::SendQueue* queue_ = nullptr; // null: nothing
    unsigned rail_ = 0;
    std::uint32_t ids_[2] = {};                      // of the two channels
    std::uint32_t end_ = 0;                          // the queue's head, if nobody else has posted since
    unsigned part_ = kParts;                         // kParts: what was there before is waited for
    Nanos round_began_ = 0, began_ = 0, polled_ = 0; // began_: the part
    double took_[kParts] = {};
    std::vector<std::pair<std::uint32_t, std::uint32_t>> posted_; // ids, writes
    // The results
    std::vector<double> found_; // a message, by each round
    unsigned tries_ = 0;
    unsigned rests_ = 0;
    Nanos next_ = 0; // not before
    std::optional<double> cost_;
};

} // namespace ucx_mp::channel
