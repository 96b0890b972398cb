// What it takes longer when a DC initiator turns to another target: it must leave the one and connect to the other, and
// both adapters look at the requests. A latency does not show that, since a flood hides it. So it is measured once, as
// a rate: all initiators of a rail are given empty writes, each for one peer, and then each for two peers in turn.
//
// That needs two connected peers, and a moment in which nothing is under way on these initiators. If the program posts
// something meanwhile that round does not count. The quickest round of each kind does: others may have had to share the
// adapter.
//
// Who calls: Adaptation (attend), Progress (poll) while a round is under way. Slow path.
// Threads: the interface's. Times are ns.
#pragma once

#include <cstdint>
#include <unordered_map>
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
    // Begins the next round, if that can be done now.
    void attend();
    // Is the round over?
    void poll();
    // Of a message to another target than the one before on its initiator; 0: nothing, or not known yet.
    [[nodiscard]] double cost() const { return cost_; }
    [[nodiscard]] bool known() const { return known_; }
    // Of the channel's requests, those that were for this.
    [[nodiscard]] std::uint64_t posted(const Channel& channel) const;

private:
    struct Target {
        Channel* channel;
        schedule::PathIndex path;
    };
    [[nodiscard]] std::vector<Target> targets(unsigned rail) const;
    [[nodiscard]] bool begin(unsigned rail, const std::vector<Target>& to);
    void end(bool counts);

    Core& core_;
    unsigned rail_ = 0;
    unsigned turning_ = 0; // this round: with one target each, or with two
    unsigned rounds_ = 0, tries_ = 0;
    unsigned messages_ = 0;           // of a round
    std::vector<std::uint32_t> ends_; // of each initiator's records
    Nanos began_ = 0;
    bool running_ = false, known_ = false;
    std::unordered_map<std::uint32_t, std::uint64_t> posted_; // by the channel's id
    double best_[2] = {};                                     // a message; 0: none yet
    double cost_ = 0;
};

} // namespace ucx_mp::channel
