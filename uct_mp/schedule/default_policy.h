// The default: needs no tuning, meant to win or tie in every case that we measure. Why:
//
// *Small messages* (and all that can't be cut) gain nothing from many paths but suffer from disorder. They stay on one
//   lane as long as it is about as good as the best path: no reordering, no exploration that would show in p99.
//   The lane is left when its latency (measured) plus backlog (accounts) exceeds the best path's by 25 % + lane_slack.
//   A hot route shows as latency, a saturated rail as backlog. Then windows alternate between the rails, like the
//   window-based round robin of 4.1.2. Latency measured long ago fades: a route once hot is tried again, but only when
//   the present one is bad. With one message under way at a time this is one branch and one subtraction.
// *Short messages* are those of half the threshold and more. They are cut like medium ones where the processor has the
//   time: all further requests together cost no more than the message takes on one link. Over several adapters it is a
//   third of that, or a fifth for a write that has a fence for itself. They go whole to a peer that everybody waits
//   for, unless they are written over several adapters of ours.
// *Medium messages* are cut at once, by water-filling with present backlog and the rates of links. On idle paths all
//   stripes end together (8 + 2 Gb/s: 4/5 and 1/5), which is what adaptive striping converges to, without its delay. A
//   path gets less if it has been slower than others at the same time, again and again. In a fabric full of collisions
//   every path is slow now and then, and who believes that loses to even striping. A path is used only if it saves more
//   than a descriptor costs the processor, as far as that is measured. Of routes that share a rail, one alone has all
//   of it: a further one only makes collisions cheaper, and saves less. Messages that do not use all routes take turns.
//   Sometimes such a message goes whole, to the path where it is done first:
//   - Every path has several times as much to do as the message would take: the burst ends far from here.
//   - Every path has more to do than the message would take. Stripes make it no faster and cost descriptors. Only if
//     these are cheap (1/64 of its time) it is cut, so that a burst ends on all paths at the same time.
//   - Paths are idle because the processor does not come to feed them. Cutting would keep it from that. The same holds
//     for reads behind others, whose descriptors would take the processor about as long as their bytes take the links.
//   - It has a small part of a link, over routes of one adapter: many send to the peer, or we read from many. And its
//     stripes would cost the processor a good part of what it takes on a free link. They come no sooner then, and cost
//     the one who is waited for as much.
//   - It is shorter than two thresholds, and two stripes over several adapters cost the processors more than they save,
//     as of short messages. It follows the lane then, if that is about as good: neighbours share the adapters by that.
//     Among writes to several peers it takes its peer's own path instead.
//   - It is written while others go to other peers, over several adapters, and the peers share these evenly
//     (neighbours.h). It takes its peer's own path. So fewer streams meet at a receiver: exchanges with six neighbours
//     of a box take 9 to 17 % less. Of shorter messages among peers, those go whole that the processors would need
//     most of the time for.
//   That is what EPC's marker achieves for windows of non-blocking messages, without a marker. With a hint it is
//   decided at once.
// *Large messages* are sprayed: what a route loses in the middle of a message is made up for by the others at once.
//   Estimates only size windows and guard the tail. With one usable path they go whole: one descriptor.
//   While all paths do what their links can, there is nothing to make up for. Then such a message is cut at once, too,
//   which needs no attention of the processor until it is done.
//   It is also cut at once while reads and writes share the paths. A queue pair completes in order, so neither's
//   completions are prompt enough to be pulled by. The writes let reads go first (both_ways.h).
#pragma once

#include "uct_mp/schedule/neighbours.h"
#include "uct_mp/schedule/spray.h"

namespace ucx_mp::schedule {

class DefaultPolicy {
public:
    // Peers with different seeds start on different paths when all look the same. With `neighbours`, which all peers
    // share, the order in which they are sent something for the first time decides, see take_turn().
    DefaultPolicy(const PolicyConfig& config, unsigned seed, Neighbours* neighbours)
        : config_(&config), seed_(seed), neighbours_(neighbours) {}
    Lane next_lane(PathTable& paths, Direction d);
    // Whether a short message (see above) is cut.
    [[nodiscard]] bool worth_cutting(const PathTable& paths, const Message& message);
    Outcome split(PathTable& paths, const Message& message, Plan& plan);
    void observe(PathTable& paths, const Delivery& delivery, const Sample& sample, Lane& lane);
    void path_changed(PathTable&, PathIndex) {}

private:
    void take_turn(); // with the first message to the peer
    bool learn_neighbours(const PathTable& paths, const Message& message);
    bool better_whole(const PathTable& paths, Direction d, double descriptors, double bytes); // a medium message
    [[nodiscard]] PathIndex lane_of(const PathTable& paths, Direction d) const; // of small messages, at present

    const PolicyConfig* config_;
    unsigned seed_;
    bool in_turn_ = false; // the seed is that of the order
    Neighbours* neighbours_;
    // Of paths that are alike, the one that the direction's next message begins with. The first one is the same for all
    // peers: in programs that go in step their messages are less in each other's way by it (all-to-all: up to 5 %).
    PathIndex first_[2] = {};
    PathIndex lane_path_[2] = {kNoPath, kNoPath};
    unsigned kept_whole_ = 0; // short and medium messages, since the peer looks crowded
};

} // namespace ucx_mp::schedule
